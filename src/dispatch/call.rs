//! A command with its arguments, once its row is known.

use crate::commands::outgrows;
use crate::spec::{Entry, Flags};
use bytes::Bytes;

/// Weight of a call beyond which it does not run in a lane. Lower than the weight at which it could write
/// more than a transaction can hold: interning a member writes up to six times its bytes.
const HEAVY: usize = 1 << 19;
/// Weight of an argument in addition to its bytes.
const ARGUMENT: usize = 128;

/// One command that passed the gates.
#[derive(Clone)]
pub struct Call {
    /// Its row.
    pub row: &'static Entry,
    /// All arguments, the name first.
    pub argv: Vec<Bytes>,
    /// The number of arguments that are names (2 for a subcommand).
    pub names: usize,
    /// The client's id, under which it runs once (IDEMPOTENT). On EXEC's own call this is the unit's id.
    pub id: Option<Bytes>,
}

impl Call {
    /// Bytes of its arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.argv.iter().map(Bytes::len).sum()
    }

    /// The work of storing its arguments, expressed in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.bytes() + self.argv.len() * ARGUMENT
    }

    /// Whether its outcome can be built outside a transaction.
    pub(crate) fn can_be_prebuilt(&self) -> bool {
        outgrows::large_result(self.row, &self.argv).is_some()
    }

    /// Whether it is too heavy for anything to queue behind it.
    pub(crate) fn is_heavy(&self) -> bool {
        self.row.flags.has(Flags::HEAVY)
            || self.weight() > HEAVY
            || outgrows::asks_for_many(self.row, &self.argv)
    }
}
