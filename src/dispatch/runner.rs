//! Runs calls inside one transaction.

use super::{Call, Noted};
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
use crate::keyspace::uncounted::Uncounted;
use crate::server::reply::Reply;
use crate::server::{ClientState, Server};
use crate::store::Tx;
use crate::telemetry::counters::LookupTally;
use crate::types::memo::Memo;
use crate::types::prebuilt::Prebuilt;
use crate::types::zset;
use futures_util::future::{FutureExt, try_join_all};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The reply of a handler that panicked. The panic hook has logged the panic.
pub(crate) const PANICKED: ReplyError =
    ReplyError::new("ERR internal error: the command failed, see the server's log");

/// A transaction, and the state that its calls share.
pub(crate) struct Runner<'a> {
    /// The state that all connections share.
    pub(crate) server: &'a Server,
    /// The transaction.
    pub(crate) tx: &'a Tx,
    /// The databases, as the transaction sees them after the calls that have run.
    pub(crate) catalog: Arc<Catalog>,
    /// The keys that the calls have seen alive.
    pub(crate) lives: Lives,
    rng: Rng,
    /// Keys that the calls looked up.
    pub(crate) lookups: LookupTally,
    memo: Memo,
    /// What the scripts of the unit have called, a script after the other.
    pub(crate) noted: Vec<Noted>,
    /// Messages to publish once the transaction has committed.
    pub(crate) outbox: Outbox,
    /// Changes of sorted sets whose counts [`Runner::settle`] moves. None: each change moves them.
    pub(crate) uncounted: Option<Uncounted>,
    /// False while a unit runs whose replies are kept under an id.
    pub(crate) may_stream: bool,
    /// Whether what a call makes is prebuilt if the call finds it too large.
    pub(crate) may_prebuild: bool,
    /// Whether the last call only read data, whatever its row says.
    pub(crate) only_read: bool,
    /// Whether the last call may have waited for what other clients ran.
    pub(crate) waited: bool,
    /// Whether a call that turns out to be heavy is refused, because others queue behind it.
    pub(crate) in_lane: bool,
    /// It has nothing of a lane but its limits: a script may hold its thread.
    pub(crate) is_aside: bool,
}

impl<'a> Runner<'a> {
    /// Creates a runner for a new transaction that began after the timeline said `now`.
    pub(crate) async fn new(server: &'a Server, tx: &'a Tx, now: u64, rng: Rng) -> Result<Self> {
        let catalog = server.space.catalog.load(tx).await?;
        let sure = server.env.timeline.now();
        tx.runs_at(now, sure);
        Ok(Runner::with(server, tx, rng, catalog, Lives::new(now, sure)))
    }

    /// Creates a runner with a catalog that the transaction has not read: for calls about the server while
    /// the store is unavailable.
    pub(crate) fn with_catalog(server: &'a Server, tx: &'a Tx, rng: Rng, catalog: Arc<Catalog>) -> Self {
        Runner::with(server, tx, rng, catalog, Lives::new(server.env.timeline.now(), 0))
    }

    fn with(server: &'a Server, tx: &'a Tx, rng: Rng, catalog: Arc<Catalog>, lives: Lives) -> Self {
        let outbox = server.outbox(&catalog);
        Runner {
            server,
            tx,
            catalog,
            lives,
            rng,
            lookups: LookupTally::default(),
            memo: Memo::default(),
            noted: Vec::new(),
            outbox,
            uncounted: None,
            may_stream: true,
            may_prebuild: false,
            only_read: false,
            waited: false,
            in_lane: false,
            is_aside: false,
        }
    }

    /// Another runner on the same transaction, whose calls run concurrently with these.
    pub(crate) fn sibling(&self, rng: Rng) -> Self {
        Runner::with(self.server, self.tx, rng, self.catalog.clone(), self.lives.again())
    }

    /// Database `number`, if it exists.
    pub(crate) fn scope(&self, number: u8) -> Option<Scope<'_>> {
        Some(self.scope_at(self.catalog.prefix(number)?, number))
    }

    /// The database at `db`.
    pub(crate) fn scope_at(&self, db: Prefix, number: u8) -> Scope<'_> {
        let (tx, now, round, space) = (self.tx, self.lives.now, self.catalog.round, &self.server.space);
        let (outbox, uncounted, life) = (None, self.uncounted.as_ref(), self.lives.life());
        Scope { tx, db, number, now, round, space, outbox, uncounted, life }
    }

    /// Moves the counts of all that has changed in sorted sets. Call this before the commit.
    pub(crate) async fn settle(&self) -> Result<()> {
        let Some(uncounted) = &self.uncounted else { return Ok(()) };
        let each = uncounted
            .take_all()
            .map(async |((db, oid), changes)| zset::move_counts(&self.scope_at(db, 0), oid, &changes).await);
        let all = AssertUnwindSafe(try_join_all(each)).catch_unwind().await;
        all.unwrap_or_else(|_| Err(PANICKED.into())).map(drop)
    }

    fn cx<'b>(&'b mut self, call: &Call, client: &'b mut ClientState, prebuilt: &'b [Prebuilt]) -> Cx<'b> {
        Cx {
            tx: self.tx,
            catalog: &mut self.catalog,
            client,
            server: self.server,
            lives: &self.lives,
            now: self.lives.now,
            rng: &mut self.rng,
            prebuilt,
            may_stream: self.may_stream && call.id.is_none(),
            may_prebuild: self.may_prebuild,
            only_read: false,
            waits: false,
            in_lane: self.in_lane,
            lookups: &self.lookups,
            memo: &self.memo,
            outbox: &self.outbox,
            uncounted: self.uncounted.as_ref(),
        }
    }

    /// Runs a call, ignoring its id. None if the handler panicked.
    pub(crate) async fn call(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        prebuilt: &[Prebuilt],
    ) -> Option<Result<Reply>> {
        let Run::Handler(run) = run_of(call.row) else {
            return Some(Err(ReplyError::new("ERR this command cannot run here").into()));
        };
        self.outbox.acts_for(client.id);
        let mut cx = self.cx(call, client, prebuilt);
        let args = Args::behind(call.names, &call.argv);
        let result = AssertUnwindSafe(run(&mut cx, args)).catch_unwind().await;
        (self.only_read, self.waited) = (cx.only_read, cx.waits);
        if result.is_err() {
            self.server.telemetry.on_panic();
        }
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;
    use crate::dispatch::gate::{self, Decision, Standing};
    use crate::exec::fixtures::World;
    use bytes::Bytes;

    /// Gates and runs a line, as code does that runs inside of a command: its error is an answer, too.
    async fn run(runner: &mut Runner<'_>, client: &mut ClientState, line: &str) -> Reply {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let standing = Standing {
            authenticated: true,
            in_multi: false,
            may_debug: false,
            rights: None,
            only_listens: false,
        };
        match gate::check(&argv, standing) {
            Decision::Pass { row, names, .. } => {
                let call = Call { row, argv, names, id: None };
                let ran = runner.call(&call, client, &[]).await.expect("no handler panics");
                ran.unwrap_or_else(|e| Reply::Error(e.into_reply()))
            }
            Decision::Refuse(_, e) | Decision::Missing(_, e) => Reply::Error(e),
            Decision::Deny(..) | Decision::Attack => panic!("{line}"),
        }
    }

    /// Bytes that the allocator of glibc hands out of a cache of the thread.
    const SMALL: usize = 1032;

    /// Hazard: a command's future, which is allocated and filled once a call, outgrows what the allocator hands out at once.
    #[tokio::test]
    async fn the_futures_of_frequent_commands_are_small() {
        let World { server, env, .. } = &World::new().await;
        let mut client = ClientState::new(Default::default(), true);
        let tx = server.store.begin();
        let mut runner = Runner::new(server, &tx, env.timeline.now(), env.rng()).await.unwrap();
        let mut large = Vec::new();
        for name in ["get", "set", "incr", "exists", "mget", "mset", "sadd", "sismember", "del", "expire"] {
            let argv = vec![Bytes::from_static(name.as_bytes())];
            let row = table().resolve(&argv).unwrap().ok().unwrap().0;
            let call = Call { row, argv, names: 1, id: None };
            let Run::Handler(run) = run_of(row) else { panic!("{name}") };
            let mut cx = runner.cx(&call, &mut client, &[]);
            let size = size_of_val(&*run(&mut cx, Args::behind(1, &call.argv)));
            large.extend((size > SMALL).then_some((name, size)));
        }
        assert_eq!(large, []);
    }

    /// Calls of one transaction, without a session, a unit or a lane: they see each other's writes, nobody else does before the commit.
    #[tokio::test]
    async fn calls_run_in_the_transaction_of_whoever_asks() {
        let World { server, env, .. } = &World::new().await;
        let mut client = ClientState::new(Default::default(), true);
        let (tx, other) = (server.store.begin(), server.store.begin());
        let now = env.timeline.now();
        let mut runner = Runner::new(server, &tx, now, env.rng()).await.unwrap();
        let mut beside = Runner::new(server, &other, now, env.rng()).await.unwrap();
        let lines = ["SADD s a b", "SCARD s", "GET s", "GET", "VDIM x", "MULTI", "SELECT 3", "SCARD s"];
        let mut said = Vec::new();
        for line in lines {
            said.push(match run(&mut runner, &mut client, line).await {
                Reply::Int(n) => n.to_string(),
                Reply::Error(e) => e.0.split(' ').take(4).collect::<Vec<_>>().join(" "),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(
            said,
            [
                "2",
                "2",
                "WRONGTYPE Operation against a",
                "ERR wrong number of",
                "ERR unknown command 'VDIM':",
                "ERR this command cannot",
                "Ok",
                "0"
            ]
        );
        client.db = 0;
        assert_eq!(run(&mut beside, &mut client, "SCARD s").await, Reply::Int(0));
        tx.commit().await.unwrap();
        let after = server.store.begin();
        let mut after = Runner::new(server, &after, now, env.rng()).await.unwrap();
        assert_eq!(run(&mut after, &mut client, "SCARD s").await, Reply::Int(2));
    }
}
