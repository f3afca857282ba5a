//! What is known of each command, as data: its names, arity, flags, keys, group, documentation. No function, so everything may look it
//! up: the access rules, COMMAND, the statistics, the gates. What runs a row is bound to it in [`crate::commands`].

mod categories;
mod effects;
pub mod elsewhere;
mod flags;
mod keys;
mod table;
mod variable;
pub mod words;

pub use categories::{CATEGORIES, categories};
pub use effects::{Channels, Count, Effect, Makes, Secrets};
pub use flags::Flags;
pub use keys::{FindKeys, KeySpec, all, keys_at, keys_of, one, written_keys};
pub use keys::{KEY_CHANGED, KEY_META, KEY_OW, KEY_RO, KEY_RW, KEY_TAKEN, KEYS_RM, KEYS_RO, PAIRS_OW};
pub use table::{Entry, Table};
pub use variable::Variable;

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

/// What may stand behind the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Arguments; or one of its subcommands, where it has some.
    Plain,
    /// One of its subcommands.
    Container,
    /// One of its subcommands; or an id and, from [`PREFIX`] on, a command line (IDEMPOTENT).
    Prefix,
}

/// Arguments in front of the command line that a [`Form::Prefix`] row runs.
pub const PREFIX: usize = 2;

/// One command, or one subcommand of a container.
#[derive(Debug, Clone, Copy)]
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
    /// Categories of ACL rules beyond those that flags and group give. Who names another type of data, or connections, is not of @keyspace.
    pub categories: &'static [&'static str],
    /// What a cluster client may want to know: where to send it and how to combine the answers.
    pub tips: &'static [&'static str],
    /// Since which version it is better done otherwise, and how.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Not for applications.
    pub for_systems: bool,
    /// Types of arguments that their names do not tell, for COMMAND DOCS: name and type.
    pub types: &'static [(&'static str, &'static str)],
    /// What decides about what it does with its keys.
    pub variable: Variable,
    /// Which arguments others must not see.
    pub secrets: Secrets,
    /// The channels that a rule must allow.
    pub channels: Channels,
    /// What it leaves that may exceed a transaction.
    pub makes: Makes,
    /// All from the second argument on are members of the first one's set.
    pub names_members: bool,
    /// Where it says how much it asks for.
    pub count: Count,
    /// What it does to its connection.
    pub effect: Effect,
    /// What may stand behind the name.
    pub form: Form,
}

impl Row {
    /// Without flags, keys, arguments.
    pub const fn new(group: Group, name: &'static str, arity: i32, since: &'static str) -> Row {
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
            count: Count::None,
            effect: Effect::None,
            form: Form::Plain,
        }
    }
    /// With these flags.
    pub const fn flags(self, flags: Flags) -> Row {
        Row { flags, ..self }
    }
    /// With keys at these places.
    pub const fn keys(self, keys: &'static [KeySpec]) -> Row {
        Row { keys, ..self }
    }
    /// With these arguments, in Redis' notation.
    pub const fn syntax(self, syntax: &'static str) -> Row {
        Row { syntax, ..self }
    }
    /// With this sentence.
    pub const fn summary(self, summary: &'static str) -> Row {
        Row { summary, ..self }
    }
    /// Also of these categories.
    pub const fn categories(self, categories: &'static [&'static str]) -> Row {
        Row { categories, ..self }
    }
    /// With these tips.
    pub const fn tips(self, tips: &'static [&'static str]) -> Row {
        Row { tips, ..self }
    }
    /// Since this version `by` does it better.
    pub const fn deprecated(self, since: &'static str, by: &'static str) -> Row {
        Row { deprecated: Some((since, by)), ..self }
    }
    /// Not for applications.
    pub const fn for_systems(self) -> Row {
        Row { for_systems: true, ..self }
    }
    /// With arguments of these types.
    pub const fn types(self, types: &'static [(&'static str, &'static str)]) -> Row {
        Row { types, ..self }
    }
    /// This decides about what it does with its keys.
    pub const fn variable(self, variable: Variable) -> Row {
        Row { variable, ..self }
    }
    /// With secrets.
    pub const fn secrets(self, secrets: Secrets) -> Row {
        Row { secrets, ..self }
    }
    /// With channels.
    pub const fn channels(self, channels: Channels) -> Row {
        Row { channels, ..self }
    }
    /// Leaves this.
    pub const fn makes(self, makes: Makes) -> Row {
        Row { makes, ..self }
    }
    /// Names members of the first argument's set.
    pub const fn names_members(self) -> Row {
        Row { names_members: true, ..self }
    }
    /// Says here how much it asks for.
    pub const fn count(self, count: Count) -> Row {
        Row { count, ..self }
    }
    /// Does this to its connection.
    pub const fn effect(self, effect: Effect) -> Row {
        Row { effect, ..self }
    }
    /// In this form.
    pub const fn form(self, form: Form) -> Row {
        Row { form, ..self }
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
