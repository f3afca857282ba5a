//! The table of commands: one row says everything about a command that is not its work. Arity, gates, ACL categories,
//! COMMAND INFO/DOCS/GETKEYS, metric labels and routing are derived from the row.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::subscribers::Kind;
use crate::error::Result;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// A handler's future: one box a command, none a read.
pub type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>;
/// A handler.
pub type Handler = for<'a> fn(&'a mut Cx<'_>, Args<'a>) -> CommandFuture<'a>;

/// Makes an `async fn(&mut Cx<'_>, Args<'_>) -> Result<Reply>` a [`Run::Handler`].
#[macro_export]
macro_rules! handler {
    ($f:path) => {{
        fn boxed<'a>(
            cx: &'a mut $crate::commands::cx::Cx<'_>,
            args: $crate::commands::args::Args<'a>,
        ) -> $crate::commands::table::CommandFuture<'a> {
            Box::pin($f(cx, args))
        }
        $crate::commands::table::Run::Handler(boxed)
    }};
}

/// Command flags, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// May write: goes through a lane.
    pub const WRITE: Flags = Flags(1);
    /// Reads only.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused when out of memory (Redis); here: adds data.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Not from scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 4);
    /// Also while loading.
    pub const LOADING: Flags = Flags(1 << 5);
    /// Also on a stale replica.
    pub const STALE: Flags = Flags(1 << 6);
    /// O(1) or O(log n).
    pub const FAST: Flags = Flags(1 << 7);
    /// Before AUTH too.
    pub const NO_AUTH: Flags = Flags(1 << 8);
    /// Also while a script runs.
    pub const ALLOW_BUSY: Flags = Flags(1 << 9);
    /// Not inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 10);
    /// Keys are not at fixed places.
    pub const MOVABLEKEYS: Flags = Flags(1 << 11);
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 12);
    /// May block.
    pub const BLOCKING: Flags = Flags(1 << 13);
    /// Not while loading asynchronously.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 14);
    /// Pub/Sub.
    pub const PUBSUB: Flags = Flags(1 << 15);
    /// A cluster's node takes it also for a slot that it is still getting.
    pub const ASKING: Flags = Flags(1 << 16);
    /// Ours, not in COMMAND's list: it sends messages, which go through a store that servers share.
    pub const TELLS: Flags = Flags(1 << 27);
    /// Ours, not in COMMAND's list: for clients it only reads, but it may keep in the key what it found out.
    pub const KEEPS: Flags = Flags(1 << 28);
    /// Not in COMMAND's list: only where `enable-debug-command` allows it.
    pub const PROTECTED: Flags = Flags(1 << 29);
    /// Ours, not in COMMAND's list: never rides in a lane, runs in a transaction of its own.
    pub const HEAVY: Flags = Flags(1 << 30);

    /// Both.
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Where a command's keys are, in Redis' own model (COMMAND's key specifications). Indexes count from the name at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// What is done with them, as COMMAND prints it: `RO`, `RW`, `OW`, `RM`, `access`, `update`, `insert`, `delete`.
    pub flags: &'static [&'static str],
    /// Index of the first key (or of the number of keys).
    pub begin: usize,
    /// How to go on.
    pub find: FindKeys,
}

impl KeySpec {
    /// Whether these are keys: shard channels are found as keys are, and are none.
    pub fn is_keys(&self) -> bool {
        !self.flags.contains(&"not_key")
    }
}

/// How keys follow the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindKeys {
    /// Up to `begin + last` (negative: from the end), every `step`-th.
    Range {
        /// Relative to the first; -1 is the last argument.
        last: i32,
        /// 1 for every argument, 2 for key-value pairs.
        step: usize,
    },
    /// The argument at `begin` is their number, they follow it.
    Keynum {
        /// As in a range.
        step: usize,
    },
    /// Nobody can tell without doing the work (SORT BY).
    Unknown,
    /// Behind the last STORE among SORT's options.
    Stored,
}

/// Groups of COMMAND DOCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// HyperLogLogs.
    HyperLogLog,
    /// Sets.
    Set,
    /// Any key.
    Generic,
    /// Connection.
    Connection,
    /// MULTI and friends.
    Transactions,
    /// Server.
    Server,
    /// Pub/Sub.
    Pubsub,
    /// Scripts and functions.
    Scripting,
    /// Cluster.
    Cluster,
}

/// Commands that the session runs itself, because they decide about what follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOp {
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// WATCH.
    Watch,
    /// UNWATCH.
    Unwatch,
    /// AUTH.
    Auth,
    /// HELLO.
    Hello,
    /// RESET.
    Reset,
    /// QUIT.
    Quit,
    /// CLIENT TRACKING.
    Tracking,
    /// CLIENT CACHING.
    Caching,
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    Subscribe(Kind),
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
    Unsubscribe(Kind),
}

/// What runs a row.
#[derive(Clone, Copy)]
pub enum Run {
    /// A function on a transaction.
    Handler(Handler),
    /// The session.
    Session(SessionOp),
    /// Refused by design, with this error line.
    Refuse(&'static str),
    /// Only its subcommands run.
    Container,
    /// IDEMPOTENT: the command line behind the next argument runs, under that as its id.
    Prefix,
}

/// One command, or one subcommand of a container.
pub struct Row {
    /// Lower case; of a subcommand without its container.
    pub name: &'static str,
    /// Number of arguments with the name (of a subcommand: with both names); negative: at least.
    pub arity: i32,
    /// Flags.
    pub flags: Flags,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// Group.
    pub group: Group,
    /// Redis version that has it first.
    pub since: &'static str,
    /// Arguments after the name(s), in Redis' notation; COMMAND DOCS derives `arguments` from it.
    pub syntax: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What runs it.
    pub run: Run,
    /// Subcommands of a container.
    pub subs: &'static [Row],
}

impl Row {
    /// What rows of a family have in common, for [`Row::row`].
    pub const fn of(group: Group, run: Run) -> Row {
        let (arity, flags) = (0, Flags::NONE);
        Row { name: "", arity, flags, keys: &[], group, since: "", syntax: "", summary: "", run, subs: &[] }
    }
    /// Another one of the same group that the same runs, without keys and subcommands.
    pub const fn row(
        &self,
        name: &'static str,
        arity: i32,
        flags: Flags,
        since: &'static str,
        syntax: &'static str,
        summary: &'static str,
    ) -> Row {
        let (group, run) = (self.group, self.run);
        Row { name, arity, flags, keys: &[], group, since, syntax, summary, run, subs: &[] }
    }
    /// The same, run by something else.
    pub const fn run_by(self, run: Run) -> Row {
        Row { run, ..self }
    }
    /// A container of the same group.
    pub const fn container(
        &self,
        name: &'static str,
        arity: i32,
        since: &'static str,
        summary: &'static str,
        subs: &'static [Row],
    ) -> Row {
        Row { subs, ..self.row(name, arity, Flags::NONE, since, "", summary).run_by(Run::Container) }
    }
    /// Whether `argc` arguments (with the name) satisfy the arity.
    pub fn accepts(&self, argc: usize) -> bool {
        let want = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { argc >= want } else { argc == want }
    }
    /// Must go through a lane.
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE) || self.flags.has(Flags::KEEPS)
    }
}

/// One key read: GET, TTL, SCARD.
pub const KEY_RO: &[KeySpec] = &[one(&["RO", "access"])];
/// One key whose existence or meta data is read: EXISTS is several, TYPE one.
pub const KEY_META: &[KeySpec] = &[one(&["RO"])];
/// One key read and changed.
pub const KEY_RW: &[KeySpec] = &[one(&["RW", "update"])];
/// One key overwritten.
pub const KEY_OW: &[KeySpec] = &[one(&["OW", "update"])];
/// All arguments are keys that are read.
pub const KEYS_RO: &[KeySpec] = &[all(&["RO", "access"])];
/// All arguments are keys that are removed.
pub const KEYS_RM: &[KeySpec] = &[all(&["RM", "delete"])];
/// Key-value pairs.
pub const PAIRS_OW: &[KeySpec] =
    &[KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Range { last: -1, step: 2 } }];

/// The first argument.
pub const fn one(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 1, find: FindKeys::Range { last: 0, step: 1 } }
}
/// All arguments.
pub const fn all(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 1, find: FindKeys::Range { last: -1, step: 1 } }
}

/// All rows, in the order of the families.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    super::FAMILIES.iter().copied().flatten()
}

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Row, Xxh3DefaultBuilder>> =
    LazyLock::new(|| rows().map(|r| (r.name.as_bytes(), r)).collect());

/// All rows with their labels as statistics show them (`get`, `client|id`), each subcommand behind its container.
pub fn labelled() -> impl Iterator<Item = (String, &'static Row)> {
    let subs = |row: &'static Row| row.subs.iter().map(|sub| (format!("{}|{}", row.name, sub.name), sub));
    rows().flat_map(move |row| std::iter::once((row.name.to_owned(), row)).chain(subs(row)))
}

static INDEX: LazyLock<HashMap<usize, usize, Xxh3DefaultBuilder>> =
    LazyLock::new(|| labelled().enumerate().map(|(n, (_, row))| (address(row), n)).collect());

fn address(row: &Row) -> usize {
    std::ptr::from_ref(row) as usize
}

/// The place of a row in [`labelled`].
pub fn index_of(row: &'static Row) -> usize {
    INDEX.get(&address(row)).copied().unwrap_or(usize::MAX)
}

/// The row of a command's name in any case.
pub fn lookup(name: &[u8]) -> Option<&'static Row> {
    let mut lower = [0u8; 32];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Arguments in front of the command line that a [`Run::Prefix`] row runs.
pub const PREFIX: usize = 2;

/// The row that runs `argv`, and how many leading arguments are names: a container's subcommand is found by its second.
/// `Err(container)`: the subcommand is unknown (or missing). A prefix is found as such; what it runs begins at
/// [`PREFIX`].
pub fn resolve(argv: &[bytes::Bytes]) -> Option<std::result::Result<(&'static Row, usize), &'static Row>> {
    let row = lookup(argv.first()?)?;
    if row.subs.is_empty() {
        return Some(Ok((row, 1)));
    }
    let Some(sub) = argv.get(1) else {
        return Some(if matches!(row.run, Run::Container) { Err(row) } else { Ok((row, 1)) });
    };
    match row.subs.iter().find(|r| sub.eq_ignore_ascii_case(r.name.as_bytes())) {
        Some(r) => Some(Ok((r, 2))),
        None if matches!(row.run, Run::Prefix) => Some(Ok((row, 1))),
        None => Some(Err(row)),
    }
}

/// The keys in `argv` by the row's specifications. None where the number of keys is wrong.
pub fn keys_of<'a>(row: &Row, argv: &'a [bytes::Bytes]) -> Option<Vec<&'a bytes::Bytes>> {
    let mut keys = Vec::new();
    for spec in row.keys.iter().filter(|spec| spec.is_keys()) {
        keys.extend(keys_at(spec, argv)?);
    }
    Some(keys)
}

/// The keys that a call may write. None of them where the number of keys is wrong.
pub fn written_keys<'a>(row: &Row, argv: &'a [bytes::Bytes]) -> Vec<&'a bytes::Bytes> {
    let writes = row.keys.iter().filter(|spec| spec.is_keys() && !spec.flags.contains(&"RO"));
    writes.filter_map(|spec| keys_at(spec, argv)).flatten().collect()
}

/// As Redis finds it: what follows STORE is not skipped, the arguments of other options are.
fn stored(begin: usize, argv: &[bytes::Bytes]) -> &[bytes::Bytes] {
    let (mut at, mut found) = (begin + 1, &[][..]);
    while let Some(word) = argv.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("STORE") {
            found = argv.get(at + 1..at + 2).unwrap_or(found);
        }
        at += if is("LIMIT") { 3 } else { 1 + usize::from(is("BY") || is("GET")) };
    }
    found
}

/// The keys in `argv` by one specification. None where the number of keys is wrong.
pub fn keys_at<'a>(
    spec: &KeySpec,
    argv: &'a [bytes::Bytes],
) -> Option<impl Iterator<Item = &'a bytes::Bytes> + use<'a>> {
    let (keys, step) = match spec.find {
        FindKeys::Range { last, step } => {
            let end = if last < 0 {
                argv.len().checked_sub(last.unsigned_abs() as usize - 1)?
            } else {
                spec.begin + last as usize + 1
            };
            (argv.get(spec.begin..end)?, step)
        }
        FindKeys::Unknown => (&[][..], 1),
        FindKeys::Stored => (stored(spec.begin, argv), 1),
        FindKeys::Keynum { step } => {
            // As Redis reads it here: the command itself then refuses what is not a number.
            let n = usize::try_from(super::args::atoi(argv.get(spec.begin)?)).ok()?;
            (argv.get(spec.begin + 1..)?.get(..n.checked_mul(step)?)?, step)
        }
    };
    Some(keys.iter().step_by(step))
}
