//! Runs calls inside one transaction.

use super::Call;
use crate::commands::args::Args;
use crate::commands::binding::Run;
use crate::commands::cx::Cx;
use crate::commands::registry::run_of;
use crate::env::Rng;
use crate::error::{ReplyError, Result};
use crate::keyspace::Scope;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::keys::Prefix;
use crate::keyspace::life::Lives;
use crate::keyspace::messages::Outbox;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::store::Tx;
use crate::telemetry::counters::LookupTally;
use crate::types::memo::Memo;
use crate::types::staged::Staged;
use futures_util::future::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The reply of a handler that panicked. The panic hook has logged the panic.
pub(crate) const PANICKED: ReplyError =
    ReplyError::new("ERR internal error: the command failed, see the server's log");

/// A transaction, and the state that its calls share.
pub(crate) struct Runner<'a> {
    /// The state that all connections share.
    pub server: &'a Server,
    /// The transaction.
    pub tx: &'a Tx,
    /// The databases, as the transaction sees them after the calls that have run.
    pub catalog: Arc<Catalog>,
    /// The keys that the calls have seen alive.
    pub lives: Lives,
    rng: Rng,
    /// Keys that the calls looked up.
    pub lookups: LookupTally,
    memo: Memo,
    /// Messages to publish once the transaction has committed.
    pub outbox: Outbox,
    /// False while a unit runs whose replies are kept under an id.
    pub may_stream: bool,
    /// Whether the last call only read data, whatever its row says.
    pub only_read: bool,
    /// Whether a call that turns out to be heavy is refused, because others queue behind it.
    pub in_lane: bool,
}

impl<'a> Runner<'a> {
    /// Creates a runner for a new transaction that began after the timeline said `now`.
    pub async fn new(server: &'a Server, tx: &'a Tx, now: u64, rng: Rng) -> Result<Self> {
        let catalog = server.space.catalog.load(tx).await?;
        let sure = server.env.timeline.now();
        tx.runs_at(now, sure);
        Ok(Runner { lives: Lives::new(now, sure), ..Runner::with(server, tx, rng, catalog) })
    }

    /// Creates a runner with a catalog that the transaction has not read: for calls about the server while
    /// the store is unavailable.
    pub fn with(server: &'a Server, tx: &'a Tx, rng: Rng, catalog: Arc<Catalog>) -> Self {
        let outbox = server.outbox(&catalog);
        Runner {
            server,
            tx,
            catalog,
            lives: Lives::new(server.env.timeline.now(), 0),
            rng,
            lookups: LookupTally::default(),
            memo: Memo::default(),
            outbox,
            may_stream: true,
            only_read: false,
            in_lane: false,
        }
    }

    /// Another runner on the same transaction, whose calls run concurrently with these.
    pub fn sibling(&self, rng: Rng) -> Self {
        Runner { lives: self.lives.again(), ..Runner::with(self.server, self.tx, rng, self.catalog.clone()) }
    }

    /// Database `number`, if it exists.
    pub fn scope(&self, number: u8) -> Option<Scope<'_>> {
        Some(self.scope_at(self.catalog.prefix(number)?, number))
    }

    /// The database at `db`.
    pub fn scope_at(&self, db: Prefix, number: u8) -> Scope<'_> {
        let (tx, now, round, space) = (self.tx, self.lives.now, self.catalog.round, &self.server.space);
        Scope { tx, db, number, now, round, space, outbox: None, life: self.lives.life() }
    }

    /// Runs a call, ignoring its id. None if the handler panicked.
    pub(crate) async fn call(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        staged: &[Staged],
    ) -> Option<Result<Reply>> {
        let Run::Handler(run) = run_of(call.row) else {
            return Some(Err(ReplyError::new("ERR this command cannot run here").into()));
        };
        let mut cx = Cx {
            tx: self.tx,
            catalog: self.catalog.clone(),
            client,
            server: self.server,
            lives: &self.lives,
            now: self.lives.now,
            rng: &mut self.rng,
            staged,
            may_stream: self.may_stream && call.id.is_none(),
            only_read: false,
            in_lane: self.in_lane,
            lookups: &self.lookups,
            memo: &self.memo,
            outbox: &self.outbox,
        };
        self.outbox.speaks(cx.client.id);
        let args = Args::behind(call.names, &call.argv);
        let result = AssertUnwindSafe(run(&mut cx, args)).catch_unwind().await;
        (self.catalog, self.only_read) = (cx.catalog, cx.only_read);
        if result.is_err() {
            self.server.telemetry.on_panic();
        }
        result.ok()
    }
}
