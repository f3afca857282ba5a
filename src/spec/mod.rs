//! Commands as data: names, arity, flags, keys, group, documentation. This module has no code of commands, so
//! everything may look up rows: access rules, COMMAND, statistics, gates. [`crate::commands`] binds each row
//! to the code that runs it.

mod categories;
mod effects;
pub(crate) mod elsewhere;
mod flags;
mod keys;
mod table;
mod variable;
pub mod words;

pub use categories::{CATEGORIES, categories};
pub use effects::{Channels, Count, Effect, Fields, InGroup, Makes, Ranked, Scores, Secrets, Waits};
pub use flags::Flags;
pub use keys::{FindKeys, KeySpec, all, keys_at, keys_of, one, waited_keys, written_keys};
pub use keys::{KEY_CHANGED, KEY_META, KEY_OW, KEY_RO, KEY_RW, KEY_TAKEN, KEYS_RM, KEYS_RO, PAIRS_OW};
pub(crate) use keys::{ReadOption, block, read_option, read_options, streams};
pub use table::{Entry, Table};
pub use variable::Variable;

/// The version of Redis whose behaviour clients can expect, as reported by HELLO and INFO.
pub const REDIS_VERSION: &str = "7.4.0";

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
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sorted sets.
    SortedSet,
    /// Sorted sets of places.
    Geo,
    /// Streams.
    Stream,
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

/// The arguments that may follow the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Arguments, or one of its subcommands if it has some.
    Plain,
    /// One of its subcommands.
    Container,
    /// One of its subcommands; or an id and, from [`PREFIX`] on, a command line (IDEMPOTENT).
    Prefix,
}

/// The number of arguments before the command line that a [`Form::Prefix`] row runs.
pub(crate) const PREFIX: usize = 2;

/// One command, or one subcommand of a container.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// In lower case; a subcommand's without its container.
    pub name: &'static str,
    /// Number of arguments including the name (a subcommand's: both names); negative: at least.
    pub arity: i32,
    /// Flags.
    pub flags: Flags,
    /// Its keys.
    pub keys: &'static [KeySpec],
    /// Group.
    pub group: Group,
    /// The first Redis version that has it.
    pub since: &'static str,
    /// Arguments after the name(s), in Redis' notation; COMMAND DOCS derives `arguments` from it.
    pub syntax: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// ACL categories in addition to those that follow from flags and group. A row that names another data
    /// type, or connections, is not in @keyspace.
    pub(crate) categories: &'static [&'static str],
    /// Hints for cluster clients: where to send the command and how to combine the replies.
    pub(crate) tips: &'static [&'static str],
    /// The version since which it is deprecated, and its replacement.
    pub(crate) deprecated: Option<(&'static str, &'static str)>,
    /// Not meant for applications.
    pub(crate) for_systems: bool,
    /// Types of arguments that their names do not imply, for COMMAND DOCS: name and type.
    pub(crate) types: &'static [(&'static str, &'static str)],
    /// Whether the use of its keys depends on its arguments, and how.
    pub(crate) variable: Variable,
    /// The arguments to hide from others.
    pub(crate) secrets: Secrets,
    /// The channels that an ACL rule must allow.
    pub(crate) channels: Channels,
    /// Its outcome that may exceed a transaction.
    pub(crate) makes: Makes,
    /// All arguments from the second on are members of the first one's set.
    pub(crate) names_members: bool,
    /// The fields of the first argument's hash that it names.
    pub(crate) fields: Fields,
    /// The members of the first argument's sorted set that it names.
    pub(crate) scores: Scores,
    /// What it names of groups.
    pub(crate) in_group: InGroup,
    /// The position of the number that it asks for.
    pub(crate) count: Count,
    /// Its effect on its connection.
    pub(crate) effect: Effect,
    /// Whether it waits until the keys of its first specification have something.
    pub(crate) waits: Waits,
    /// The arguments that may follow the name.
    pub form: Form,
}

impl Row {
    /// A row without flags, keys or arguments.
    pub(crate) const fn new(group: Group, name: &'static str, arity: i32, since: &'static str) -> Row {
        Row {
            name,
            arity,
            flags: Flags::NONE,
            keys: &[],
            group,
            since,
            syntax: "",
            summary: "",
            categories: &[],
            tips: &[],
            deprecated: None,
            for_systems: false,
            types: &[],
            variable: Variable::Nothing,
            secrets: Secrets::None,
            channels: Channels::None,
            makes: Makes::Little,
            names_members: false,
            fields: Fields::None,
            scores: Scores::None,
            in_group: InGroup::None,
            count: Count::None,
            effect: Effect::None,
            waits: Waits::No,
            form: Form::Plain,
        }
    }
    /// Sets the flags.
    pub(crate) const fn flags(self, flags: Flags) -> Row {
        Row { flags, ..self }
    }
    /// Sets the keys.
    pub(crate) const fn keys(self, keys: &'static [KeySpec]) -> Row {
        Row { keys, ..self }
    }
    /// Sets the arguments, in Redis' notation.
    pub(crate) const fn syntax(self, syntax: &'static str) -> Row {
        Row { syntax, ..self }
    }
    /// Sets the summary.
    pub(crate) const fn summary(self, summary: &'static str) -> Row {
        Row { summary, ..self }
    }
    /// Adds categories.
    pub const fn categories(self, categories: &'static [&'static str]) -> Row {
        Row { categories, ..self }
    }
    /// Sets the tips.
    pub(crate) const fn tips(self, tips: &'static [&'static str]) -> Row {
        Row { tips, ..self }
    }
    /// Marks it as deprecated since this version in favour of `by`.
    pub(crate) const fn deprecated(self, since: &'static str, by: &'static str) -> Row {
        Row { deprecated: Some((since, by)), ..self }
    }
    /// Marks it as not meant for applications.
    pub(crate) const fn for_systems(self) -> Row {
        Row { for_systems: true, ..self }
    }
    /// Sets the types of arguments.
    pub(crate) const fn types(self, types: &'static [(&'static str, &'static str)]) -> Row {
        Row { types, ..self }
    }
    /// Sets the arguments that decide how its keys are used.
    pub(crate) const fn variable(self, variable: Variable) -> Row {
        Row { variable, ..self }
    }
    /// Sets the secret arguments.
    pub(crate) const fn secrets(self, secrets: Secrets) -> Row {
        Row { secrets, ..self }
    }
    /// Sets the channels.
    pub(crate) const fn channels(self, channels: Channels) -> Row {
        Row { channels, ..self }
    }
    /// Sets the outcome.
    pub(crate) const fn makes(self, makes: Makes) -> Row {
        Row { makes, ..self }
    }
    /// Marks it as naming members of the first argument's set.
    pub(crate) const fn names_members(self) -> Row {
        Row { names_members: true, ..self }
    }
    /// Sets the members of a sorted set that it names.
    pub(crate) const fn scores(self, scores: Scores) -> Row {
        Row { scores, ..self }
    }
    /// Sets what it names of groups.
    pub(crate) const fn in_group(self, in_group: InGroup) -> Row {
        Row { in_group, ..self }
    }

    /// Sets the fields that it names.
    pub(crate) const fn fields(self, fields: Fields) -> Row {
        Row { fields, ..self }
    }
    /// Sets the position of the number that it asks for.
    pub(crate) const fn count(self, count: Count) -> Row {
        Row { count, ..self }
    }
    /// Sets its effect on its connection.
    pub(crate) const fn effect(self, effect: Effect) -> Row {
        Row { effect, ..self }
    }
    /// Marks it as waiting for its first keys.
    pub(crate) const fn waits(self, waits: Waits) -> Row {
        Row { waits, ..self }
    }
    /// Sets its form.
    pub(crate) const fn form(self, form: Form) -> Row {
        Row { form, ..self }
    }
    /// Whether `argc` arguments (including the name) satisfy the arity.
    pub fn accepts(&self, argc: usize) -> bool {
        let want = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { argc >= want } else { argc == want }
    }
    /// Whether it must go through a lane.
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE) || self.flags.has(Flags::KEEPS)
    }
}
