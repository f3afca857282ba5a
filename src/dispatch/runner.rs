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
use crate::keyspace::cluster::messages::Outbox;
use crate::keyspace::keys::Prefix;
use crate::keyspace::life::Lives;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::store::Tx;
use crate::telemetry::counters::LookupTally;
use crate::types::memo::Memo;
use crate::types::prebuilt::Prebuilt;
use futures_util::future::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The answer of a handler that panicked. The panic hook has logged it.
pub(crate) const PANICKED: ReplyError =
    ReplyError::new("ERR internal error: the command failed, see the server's log");

/// A transaction, and what its calls share.
pub(crate) struct Runner<'a> {
    /// What all connections share.
    pub server: &'a Server,
    /// The transaction.
    pub tx: &'a Tx,
    /// The databases, as the transaction sees them after the calls that ran.
    pub catalog: Arc<Catalog>,
    /// What the calls took for alive.
    pub lives: Lives,
    rng: Rng,
    /// Keys that the calls looked up.
    pub lookups: LookupTally,
    memo: Memo,
    /// What the calls publish, once the transaction is committed.
    pub outbox: Outbox,
    /// False while a unit runs whose answers are kept under its id.
    pub may_stream: bool,
    /// The last call has only read, whatever its row says.
    pub only_read: bool,
    /// Whether a call that turns out to be heavy is refused, for others queue behind it.
    pub in_lane: bool,
}

impl<'a> Runner<'a> {
    /// On a transaction that has just begun, after the timeline said `now`.
    pub async fn new(server: &'a Server, tx: &'a Tx, now: u64, rng: Rng) -> Result<Self> {
        let catalog = server.space.catalog.load(tx).await?;
        let sure = server.env.timeline.now();
        tx.runs_at(now, sure);
        Ok(Runner { lives: Lives::new(now, sure), ..Runner::with(server, tx, rng, catalog) })
    }

    /// With a catalog that the transaction has not read: for what is about the server, while the store is away.
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

    /// Another one on the same transaction, whose calls run beside these.
    pub fn sibling(&self, rng: Rng) -> Self {
        Runner { lives: self.lives.again(), ..Runner::with(self.server, self.tx, rng, self.catalog.clone()) }
    }

    /// Database `number`, where there is one.
    pub fn scope(&self, number: u8) -> Option<Scope<'_>> {
        Some(self.scope_at(self.catalog.prefix(number)?, number))
    }

    /// The database at `db`.
    pub fn scope_at(&self, db: Prefix, number: u8) -> Scope<'_> {
        let (tx, now, round, space) = (self.tx, self.lives.now, self.catalog.round, &self.server.space);
        Scope { tx, db, number, now, round, space, outbox: None, life: self.lives.life() }
    }

    /// Runs a call, whatever its id. None where the handler panicked.
    pub(crate) async fn call(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        staged: &[Prebuilt],
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
            prebuilt: staged,
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
