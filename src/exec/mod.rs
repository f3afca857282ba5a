//! Units and how they run: lanes for writes, snapshots for reads. SCAFFOLD of the interface: the lead writes it.

use crate::commands::cx::{ClientState, Server};
use crate::commands::reply::Reply;
use crate::commands::table::Row;
use crate::types::object::Fingerprint;
use bytes::Bytes;
use std::sync::Arc;

/// One command that passed the gates.
#[derive(Clone)]
pub struct Call {
    /// Its row.
    pub row: &'static Row,
    /// All arguments, the name first.
    pub argv: Vec<Bytes>,
    /// How many of them are names (2 for a subcommand).
    pub names: usize,
}

/// A key that WATCH remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Database number.
    pub db: u8,
    /// The key.
    pub key: Bytes,
    /// Its state at WATCH.
    pub seen: Fingerprint,
}

/// What arrived together on one connection: a pipeline window, or an EXEC. Runs in one transaction.
pub struct Unit {
    /// In order.
    pub calls: Vec<Call>,
    /// The client's state; comes back changed in [`Done`].
    pub client: ClientState,
    /// EXEC only: compared inside the transaction before the first command runs.
    pub watches: Vec<Watched>,
    /// True for EXEC: `client.in_exec` is set while it runs.
    pub exec: bool,
}

/// A finished unit.
pub struct Done {
    /// The client's state after the unit.
    pub client: ClientState,
    /// One reply a call; None where a watched key had changed and nothing ran.
    pub replies: Option<Vec<Reply>>,
}

/// Runs units.
pub struct Executor {
    server: Arc<Server>,
}

impl Executor {
    /// Starts the lanes of `server`.
    pub fn new(server: Arc<Server>) -> Self {
        Executor { server }
    }
    /// What all connections share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
    /// Runs a unit to its end. Once started, it goes on also when the caller is dropped.
    pub async fn run(&self, unit: Unit) -> Done {
        Done { client: unit.client, replies: None }
    }
    /// Reads the fingerprints of `keys` in `db` for WATCH.
    pub async fn watch(&self, _db: u8, _keys: &[Bytes]) -> crate::error::Result<Vec<Watched>> {
        Ok(Vec::new())
    }
}
