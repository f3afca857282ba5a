//! Commands in process: a server on a store of its own, without sockets.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[allow(clippy::duplicate_mod, reason = "a test may use several of the rigs")]
#[path = "../fdb_cluster/mod.rs"]
pub mod fdb_cluster;

#[allow(clippy::duplicate_mod, reason = "a test may use the cluster too")]
#[path = "../units/mod.rs"]
pub mod units;

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tern::commands::registry::table;
use tern::config::ConfigStore;
use tern::dispatch::Call;
use tern::env::{Clock, Env};
use tern::exec::{Executor, Unit};
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::keys::Prefix;
use tern::keyspace::packed::Packed;
use tern::keyspace::{Keyspace, Scope};
use tern::server::reply::Reply;
use tern::server::{ClientState, Server};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store};
use tern::types::items::Items;
use tern::types::string::walk::Stretch;

/// The start of the manual clock, in ms since the epoch.
pub const START: u64 = 1_700_000_000_000;

fn embedded(dir: &Path) -> Store {
    let mut options = LocalOptions::new(Clock::System);
    options.fsync = Fsync::No;
    Store::Local(Local::open(dir, options).unwrap())
}

/// A server, one client, and a temporary directory.
pub struct Rig {
    pub server: Arc<Server>,
    pub exec: Executor,
    pub client: ClientState,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// With a manual clock.
    pub async fn new() -> Self {
        Self::with(Env::seeded(START, 42)).await
    }

    /// On FoundationDB with the machine's clock; None without an fdbserver.
    #[cfg(feature = "fdb")]
    pub async fn on_fdb(dependent: &str) -> Option<Self> {
        let file = fdb_cluster::shared(dependent)?.cluster_file();
        let store = fdb_cluster::open(file, fdb_cluster::namespace(), Clock::System).await.unwrap();
        Some(Self::on(store, Env::system(), tempfile::tempdir().unwrap()).await)
    }

    /// With the machine's clock.
    pub async fn on_system_clock() -> Self {
        Self::with(Env::system()).await
    }

    /// With a manual clock, on the embedded engine whatever `TERN_TEST_STORE` says: for what is about rows, not engines.
    pub async fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = embedded(dir.path());
        Self::on(store, Env::seeded(START, 42), dir).await
    }

    async fn with(env: Env) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Self::store(dir.path()).await;
        Self::on(store, env, dir).await
    }

    /// The store that `TERN_TEST_STORE` selects, or the embedded engine.
    async fn store(dir: &Path) -> Store {
        #[cfg(feature = "fdb")]
        if fdb_cluster::wanted() {
            return fdb_cluster::fresh().await;
        }
        embedded(dir)
    }

    async fn on(store: Store, env: Env, dir: tempfile::TempDir) -> Self {
        let server = Arc::new(Server::open(table(), store, env, ConfigStore::default()).await.unwrap());
        Rig {
            exec: Executor::new(server.clone()),
            server,
            client: ClientState::new(Arc::default(), true),
            _dir: dir,
        }
    }

    /// Runs one command.
    pub async fn run<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Reply {
        let argv = argv.iter().map(|a| Bytes::copy_from_slice(a.as_ref())).collect();
        self.run_bytes(argv).await
    }

    /// Runs one command, words separated by spaces, under an id.
    pub async fn under_id(&self, id: &str, line: &str) -> Reply {
        let calls = vec![units::call_under_id(id, line)];
        let unit = Unit { client: Box::new(self.client.clone()), ..units::unit(calls) };
        units::replies(&self.exec, unit).await.remove(0)
    }

    /// Runs one command, words separated by spaces.
    pub async fn line(&mut self, line: &str) -> Reply {
        self.run(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// Runs commands as one unit: they arrive together and share a transaction.
    pub async fn together(&mut self, lines: &[&str]) -> Vec<Reply> {
        self.unit(units::pipeline(lines)).await
    }

    /// Runs one command without copying its arguments.
    pub async fn run_bytes(&mut self, argv: Vec<Bytes>) -> Reply {
        let name = String::from_utf8_lossy(&argv[0]).to_lowercase();
        let (row, names) = match table().resolve(&argv) {
            Some(Ok(found)) => found,
            _ => return Reply::text(format!("no row for {name}")),
        };
        if !row.accepts(argv.len()) {
            return Reply::text(format!("arity of {name}"));
        }
        self.unit(units::unit(vec![Call { row, argv, names, id: None }])).await.remove(0)
    }

    async fn unit(&mut self, unit: Unit) -> Vec<Reply> {
        let (answered, client) =
            units::run(&self.exec, Unit { client: Box::new(self.client.clone()), ..unit }).await;
        self.client = client;
        let mut replies = Vec::new();
        for reply in answered {
            replies.push(whole(reply).await);
        }
        replies
    }

    /// Moves the clock.
    pub fn advance(&self, ms: u64) {
        self.server.env.clock.advance(Duration::from_millis(ms));
    }

    /// Fails if `tern check` finds damage.
    pub async fn assert_sound(&self) {
        let report = tern::lifecycle::check::check(&self.server.store, &mut |_, _| {}).await.unwrap();
        assert!(report.is_sound(), "{report}");
    }

    /// The layout.
    pub fn space(&self) -> &Keyspace {
        &self.server.space
    }

    /// The selected database's prefix.
    pub async fn prefix(&self) -> Prefix {
        let tx = self.server.store.begin();
        self.space().catalog.load(&tx).await.unwrap().prefix(self.client.db).unwrap()
    }

    /// The state of the dictionary's collection.
    pub async fn round(&self) -> Round {
        self.space().catalog.load(&self.server.store.begin()).await.unwrap().round
    }

    /// The selected database in a transaction.
    pub async fn scope<'a>(&'a self, tx: &'a tern::store::Tx) -> Scope<'a> {
        Scope {
            tx,
            db: self.prefix().await,
            number: self.client.db,
            now: self.server.env.clock.now_ms(),
            round: self.round().await,
            space: self.space(),
            outbox: None,
            uncounted: None,
            life: Default::default(),
        }
    }
}

/// A reply with its long strings as a client gets them.
pub async fn whole(reply: Reply) -> Reply {
    let mut bytes = Vec::new();
    let mut add = |stretch| match stretch {
        Stretch::Bytes(some) => bytes.extend_from_slice(&some),
        Stretch::Zeroes(n) => bytes.resize(bytes.len() + n as usize, 0),
    };
    match reply {
        Reply::Long(mut long) => {
            while let Some(stretch) = long.next().await.unwrap() {
                add(stretch);
            }
            assert_eq!(bytes.len() as u64, long.len());
        }
        Reply::Dumped(mut payload) => {
            while let Some(stretch) = payload.next().await.unwrap() {
                add(stretch);
            }
            assert_eq!(bytes.len() as u64, payload.len());
        }
        Reply::Array(mut items) => {
            for item in items.iter_mut().filter(|item| has_long(item)) {
                *item = Box::pin(whole(item.clone())).await;
            }
            return Reply::Array(items);
        }
        Reply::Items(items) => return whole_items(&items).await,
        Reply::Drawn(drawn) if drawn.with_values() => {
            let pair = |[field, value]: &[Bytes; 2]| (Reply::Bulk(field.clone()), Reply::Bulk(value.clone()));
            return Reply::Pairs(drawn.iter().map(pair).collect());
        }
        Reply::Drawn(drawn) => return Reply::bulks(drawn.iter().map(|[field, _]| field.clone())),
        Reply::Packed(shape, strings) => return Reply::unpacked(shape, &strings),
        other => return other,
    }
    Reply::Bulk(bytes.into())
}

async fn whole_items(items: &Items) -> Reply {
    let (mut strings, mut piece) = (Vec::new(), Packed::default());
    loop {
        if let Err(e) = items.next(&mut piece).await {
            // Of damaged rows: the connection would end.
            return Reply::Error(e.into_reply());
        }
        if piece.is_empty() {
            break;
        }
        strings.extend(piece.iter().map(bulk));
    }
    if strings.len() as u64 == items.len() {
        return Reply::Array(strings);
    }
    assert_eq!(strings.len() as u64, 2 * items.len());
    Reply::Map(strings.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn has_long(reply: &Reply) -> bool {
    match reply {
        Reply::Long(_) | Reply::Dumped(_) | Reply::Packed(..) | Reply::Items(_) => true,
        Reply::Array(items) => items.iter().any(has_long),
        _ => false,
    }
}

/// A bulk string.
pub fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(text.as_ref()))
}

/// The line of an error.
pub fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(e) => &e.0,
        other => panic!("no error: {other:?}"),
    }
}
