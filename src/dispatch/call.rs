//! A command with its arguments, once its row is known.

use crate::commands::outgrows;
use crate::spec::{Entry, Flags};
use bytes::Bytes;

/// Weight of a call beyond which it does not ride in a lane. Less than what makes it write more than a transaction can: interning a
/// member writes up to six times its bytes.
const HEAVY: usize = 1 << 19;
/// What an argument weighs beside its bytes.
const ARGUMENT: usize = 128;

/// One command that passed the gates.
#[derive(Clone)]
pub struct Call {
    /// Its row.
    pub row: &'static Entry,
    /// All arguments, the name first.
    pub argv: Vec<Bytes>,
    /// How many of them are names (2 for a subcommand).
    pub names: usize,
    /// The client's id, under which it runs once (IDEMPOTENT). On EXEC's own call it is the unit's.
    pub id: Option<Bytes>,
}

impl Call {
    /// Bytes of its arguments.
    pub fn bytes(&self) -> usize {
        self.argv.iter().map(Bytes::len).sum()
    }

    /// How much work it is to take its arguments into the store, as bytes.
    pub fn weight(&self) -> usize {
        self.bytes() + self.argv.len() * ARGUMENT
    }

    /// Whether what it makes can be built outside of a transaction.
    pub fn can_be_built(&self) -> bool {
        outgrows::outcome(self.row, &self.argv).is_some()
    }

    /// Whether nothing should queue behind it.
    pub fn is_heavy(&self) -> bool {
        self.row.flags.has(Flags::HEAVY)
            || self.weight() > HEAVY
            || outgrows::asks_for_many(self.row, &self.argv)
    }
}
