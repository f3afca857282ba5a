//! A selector: which commands may run on which keys and channels. A user has a root selector and may have
//! more; anything that one of them allows is allowed.
//!
//! Commands are bits, by their row's index in the table. The rules themselves are kept too, in the order in
//! which they were given and without those that a later rule replaces, because they say more than the bits:
//! `+@stream` also allows commands that do not exist yet, and so does `+xnack` (see [`elsewhere`]).

use crate::keyspace::keys::MAX_REDIS_KEY;
use crate::server::glob::{Case, Glob};
use crate::spec::elsewhere;
use crate::spec::{CATEGORIES, Entry, Flags, KeySpec, Row, Table, categories, keys_at};
use bytes::Bytes;

/// The most steps of matching a pattern against a key or channel: some 100 µs. A match that takes more allows
/// nothing, so that nobody can block the server with a long name against a pattern that has to be tried at
/// every byte.
const STEPS: usize = 1 << 16;

/// The most key patterns, channel patterns and command rules of a selector, each: every key is matched
/// against every pattern.
pub(super) const MOST: usize = 4096;
/// The most bytes of a pattern, of a user's name, of an allowed first argument.
const LONGEST: usize = 64 << 10;

/// Why a rule was refused. The texts are Redis'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleError {
    /// No such command or category.
    Unknown,
    /// Not understood, or a pattern that contains a space.
    Syntax,
    /// A key pattern after all keys were allowed.
    AllKeys,
    /// A channel pattern after all channels were allowed.
    AllChannels,
    /// The password to remove does not exist.
    NoSuchPassword,
    /// Not a SHA-256.
    NoHash,
    /// A password of more than `MAX_PASSWORD` bytes.
    LongPassword,
    /// A first argument after a subcommand.
    FirstArgument,
    /// More of a kind than `MOST`.
    TooMany,
    /// Longer than `LONGEST`.
    TooLong,
}

impl RuleError {
    /// The text for the client or the log.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::LongPassword => "A password can have at most 16384 bytes",
            RuleError::FirstArgument => "Allowing first-arg of a subcommand is not supported",
            RuleError::TooMany => "A user can have at most 4096 patterns, rules, passwords or selectors",
            RuleError::TooLong => "A pattern or name can have at most 65536 bytes",
        }
    }
}

/// The part of a call that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// Run the command.
    Command,
    /// Use this key.
    Key(Bytes),
    /// Use this channel.
    Channel(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Access {
    read: bool,
    write: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyPattern {
    name: Name,
    access: Access,
}

/// A pattern of names, as written and as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    pattern: Bytes,
    glob: Glob,
}

impl Name {
    fn new(pattern: Bytes, longest: usize) -> Self {
        Name { glob: Glob::new(&pattern, Case::Exact, longest), pattern }
    }
    fn matches(&self, text: &[u8]) -> bool {
        self.glob.matches_within(text, STEPS)
    }
}

impl KeyPattern {
    fn allows(&self, wanted: Access) -> bool {
        (self.access.read || !wanted.read) && (self.access.write || !wanted.write)
    }
    /// As a rule, nothing may come after `~*`; beside other patterns it is therefore shown as `%RW~*`. Redis
    /// shows rules that it does not accept again.
    fn show(&self, alone: bool) -> Vec<u8> {
        let prefix: &[u8] = match self.access {
            Access { read: true, write: true } if !alone && self.name.pattern == "*" => b"%RW~",
            Access { read: true, write: true } => b"~",
            Access { read: true, .. } => b"%R~",
            _ => b"%W~",
        };
        [prefix, &self.name.pattern].concat()
    }
}

/// Commands, keys and channels that are allowed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    table: &'static Table,
    all_commands: bool,
    allowed: Vec<u64>,
    first_arguments: Vec<(usize, Bytes)>,
    rules: Vec<Vec<u8>>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Name>,
}

impl Selector {
    /// Allows no command of `table` and, unless `all_channels`, no channel.
    pub(crate) fn new(table: &'static Table, all_channels: bool) -> Self {
        Selector {
            table,
            all_commands: false,
            allowed: vec![0; table.len().div_ceil(64)],
            first_arguments: Vec::new(),
            rules: vec![b"-@all".to_vec()],
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Whether it allows everything.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Applies one rule. A failed one changes nothing.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => self.set_keys(true),
            b"resetkeys" => self.set_keys(false),
            b"allchannels" | b"&*" => self.set_channels(true),
            b"resetchannels" => self.set_channels(false),
            b"allcommands" | b"+@all" => self.set_commands(true),
            b"nocommands" | b"-@all" => self.set_commands(false),
            _ => return self.apply_pattern(rule),
        }
        Ok(())
    }

    fn apply_pattern(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, Access { read: true, write: true }),
            [b'%', ..] if self.all_keys => Err(RuleError::AllKeys),
            [b'%', rest @ ..] => {
                let (access, pattern) = access(rest).ok_or(RuleError::Syntax)?;
                self.add_keys(pattern, access)
            }
            [b'&', pattern @ ..] => self.add_channels(pattern),
            [sign @ (b'+' | b'-'), b'@', category @ ..] => self.change_category(*sign == b'+', category),
            [b'+', name @ ..] => self.allow(name),
            [b'-', name @ ..] => self.change_named(name, false),
            _ => Err(RuleError::Syntax),
        }
    }

    fn set_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.keys.clear();
    }

    fn set_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }

    fn set_commands(&mut self, all: bool) {
        self.all_commands = all;
        self.allowed.fill(if all { u64::MAX } else { 0 });
        self.first_arguments.clear();
        self.rules = vec![if all { b"+@all".to_vec() } else { b"-@all".to_vec() }];
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        let pattern = word(pattern)?;
        let full = self.keys.len() >= MOST;
        match self.keys.iter_mut().find(|k| k.name.pattern == pattern) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None if full => return Err(RuleError::TooMany),
            None => self.keys.push(KeyPattern { name: Name::new(pattern, MAX_REDIS_KEY), access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        let pattern = word(pattern)?;
        if self.channels.iter().any(|known| known.pattern == pattern) {
            return Ok(());
        }
        if self.channels.len() >= MOST {
            return Err(RuleError::TooMany);
        }
        self.channels.push(Name::new(pattern, usize::MAX));
        Ok(())
    }

    fn change_category(&mut self, allow: bool, category: &[u8]) -> Result<(), RuleError> {
        let known = CATEGORIES.iter().find(|c| category.eq_ignore_ascii_case(c.as_bytes()));
        let known = *known.ok_or(RuleError::Unknown)?;
        for row in self.table.all().filter(|row| categories(row).contains(&known)) {
            self.change(row, allow);
        }
        self.note(format!("@{known}").as_bytes(), allow);
        Ok(())
    }

    /// Allows or forbids a command or `container|subcommand`, which may be one that only Redis has.
    fn change_named(&mut self, name: &[u8], allow: bool) -> Result<(), RuleError> {
        match self.table.find(name) {
            Some(row) => self.change(row, allow),
            None if elsewhere::has(name) => self.all_commands &= allow,
            None => return Err(RuleError::Unknown),
        }
        self.note(name, allow);
        Ok(())
    }

    /// `+command`, `+container|subcommand`, or `+command|first-argument`.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|b| *b == b'|') else { return self.change_named(name, true) };
        let (outer, first) = name.split_at_checked(bar).ok_or(RuleError::Syntax)?;
        let first = first.get(1..).unwrap_or_default();
        let row = self.table.find(outer);
        if row.is_none() && !elsewhere::has(outer) {
            return Err(RuleError::Unknown);
        }
        if outer.contains(&b'|') {
            return Err(RuleError::FirstArgument);
        }
        if first.is_empty() || word(first).is_err() {
            return Err(RuleError::Syntax);
        }
        if self.rules.len() >= MOST {
            return Err(RuleError::TooMany);
        }
        match row {
            Some(row) if row.subs.is_empty() => {
                let (n, same) = (row.index, |known: &Bytes| known.eq_ignore_ascii_case(first));
                if !self.first_arguments.iter().any(|(at, known)| *at == n && same(known)) {
                    self.first_arguments.push((n, Bytes::copy_from_slice(first)));
                }
            }
            None => {}
            Some(_) => return self.change_named(name, true),
        }
        self.note(name, true);
        Ok(())
    }

    /// Allows or forbids a row and its subcommands.
    fn change(&mut self, row: &'static Entry, allow: bool) {
        self.all_commands &= allow;
        for n in std::iter::once(row).chain(row.subs.iter().copied()).map(|row| row.index) {
            self.first_arguments.retain(|(at, _)| *at != n);
            if let Some(word) = self.allowed.get_mut(n / 64) {
                *word = if allow { *word | 1 << (n % 64) } else { *word & !(1 << (n % 64)) };
            }
        }
    }

    /// Keeps a rule, replacing those that it overrides.
    fn note(&mut self, rule: &[u8], allow: bool) {
        let rule = rule.to_ascii_lowercase();
        let replaced = |old: &[u8]| {
            let rest = old.get(1..).and_then(|old| old.strip_prefix(rule.as_slice()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"|"))
        };
        self.rules.retain(|old| !replaced(old));
        self.rules.push([if allow { b"+" } else { b"-" }, rule.as_slice()].concat());
    }

    /// Whether the row may be run with these arguments.
    fn allows_command(&self, row: &Entry, argv: &[Bytes], names: usize) -> bool {
        if self.all_commands || row.flags.has(Flags::NO_AUTH) {
            return true;
        }
        let n = row.index;
        if self.allowed.get(n / 64).is_some_and(|word| word & 1 << (n % 64) != 0) {
            return true;
        }
        let is = |first: &Bytes| argv.get(names).is_some_and(|arg| arg.eq_ignore_ascii_case(first));
        self.first_arguments.iter().any(|(at, first)| *at == n && is(first))
    }

    /// Which part of a call is forbidden, and in which argument.
    pub(super) fn check(&self, row: &Entry, argv: &[Bytes], names: usize) -> Result<(), (usize, Denied)> {
        if !self.allows_command(row, argv, names) {
            return Err((0, Denied::Command));
        }
        let place = |arg: &Bytes| argv.iter().position(|a| std::ptr::eq(a, arg)).unwrap_or(0);
        if !self.all_keys {
            for spec in row.keys.iter().filter(|spec| spec.is_keys()) {
                let wanted = wanted(row, spec, argv);
                let mut keys = keys_at(spec, argv).into_iter().flatten();
                if let Some(key) = keys.find(|key| !self.allows_key(key, wanted)) {
                    return Err((place(key), Denied::Key(key.clone())));
                }
            }
        }
        let forbidden = |(channel, is_pattern): &(&Bytes, bool)| !self.allows_channel(channel, *is_pattern);
        match row.channels.of(argv).find(forbidden) {
            Some((channel, _)) => Err((place(channel), Denied::Channel(channel.clone()))),
            None => Ok(()),
        }
    }

    fn allows_key(&self, key: &[u8], wanted: Access) -> bool {
        self.keys.iter().any(|k| k.allows(wanted) && k.name.matches(key))
    }

    /// Whether a channel may be used. A subscribed pattern must equal one of the selector's own patterns.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let same = |own: &Name| if is_pattern { own.pattern == channel } else { own.matches(channel) };
        self.all_channels || self.channels.iter().any(same)
    }

    /// Whether the row may run and every key may be read.
    pub(crate) fn reads_all_keys(&self, row: &Entry, names: usize) -> bool {
        let read = Access { read: true, write: false };
        let all = self.all_keys || self.keys.iter().any(|k| k.allows(read) && k.name.pattern == "*");
        all && self.allows_command(row, &[], names)
    }

    /// The command rules.
    pub(crate) fn show_commands(&self) -> Vec<u8> {
        self.rules.join(&b' ')
    }

    /// The key patterns.
    pub(crate) fn show_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let alone = self.keys.len() == 1;
        self.keys.iter().map(|keys| keys.show(alone)).collect::<Vec<_>>().join(&b' ')
    }

    /// The channel patterns.
    pub(crate) fn show_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let show = |c: &Name| [b"&", c.pattern.as_ref()].concat();
        self.channels.iter().map(show).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules that produce this selector.
    pub(crate) fn show(&self) -> Vec<u8> {
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let parts = [&self.show_keys(), reset, &self.show_channels(), &self.show_commands()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b' ')
    }
}

/// Parses `R~pattern`, `W~pattern`, `RW~pattern`.
fn access(rest: &[u8]) -> Option<(Access, &[u8])> {
    let mut access = Access::default();
    let mut rest = rest.iter();
    loop {
        match rest.next()? {
            b'r' | b'R' if !access.read => access.read = true,
            b'w' | b'W' if !access.write => access.write = true,
            b'~' if access != Access::default() => return Some((access, rest.as_slice())),
            _ => return None,
        }
    }
}

/// A pattern, or a user's name, without spaces.
pub(crate) fn word(raw: &[u8]) -> Result<Bytes, RuleError> {
    let bad = |b: &u8| matches!(b, b'\t'..=b'\r' | b' ' | 0);
    if raw.len() > LONGEST {
        return Err(RuleError::TooLong);
    }
    if raw.iter().any(bad) { Err(RuleError::Syntax) } else { Ok(Bytes::copy_from_slice(raw)) }
}

/// How a call accesses the keys of one key specification.
fn wanted(row: &Row, spec: &KeySpec, argv: &[Bytes]) -> Access {
    let flags = row.key_flags(spec, argv);
    let has = |flag: &str| flags.contains(&flag);
    Access { read: has("access"), write: has("insert") || has("delete") || has("update") }
}
