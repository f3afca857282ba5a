//! `tern`: the server binary. `tern [file.conf] [--directive value ...]`, as redis-server.

#[path = "main/check.rs"]
mod check;
#[path = "main/copy.rs"]
mod copy;
#[path = "main/descriptors.rs"]
mod descriptors;
#[path = "main/directory.rs"]
mod directory;
#[path = "main/ping.rs"]
mod ping;
#[path = "main/waiting.rs"]
mod waiting;

use anyhow::{Context, Result, bail};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tern::commands::config::fsync;
use tern::commands::registry::table;
use tern::commands::{REDIS_VERSION, info};
use tern::config::{ConfigStore, Settings, from_args};
use tern::env::Env;
use tern::exec::Executor;
use tern::server::Server;
use tern::store::Store;
use tern::store::local::{Local, LocalOptions};
use tern::telemetry::{http, log};
use tokio::signal::unix::{SignalKind, signal};

/// RocksDB's too, by the feature `override`: blocks come and go with every read of a table.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
Usage: tern [file.conf] [--directive value ...]
       tern copy --from <store> --to <store> [--directive value ...]
       tern check [file.conf] [--store <store>] [--dir <path>]
       tern ping [file.conf] [--port n]
       tern --version | --help

A Redis server whose data lives in an ordered transactional key-value store.
Directives have redis.conf's names and syntax; arguments win over the file:

       tern --port 7000 --dir /var/lib/tern
       tern /etc/tern.conf --loglevel verbose
       tern --store local:/fast/disk --appendfsync everysec

copy moves a whole store to another engine or place: it refuses a source that is in use and a target that is not
empty, and compares both sides at the end. Broken off, it is started again to go on. A store is written as for --store.
check reads a whole store and verifies that all of its rows fit together: exit status 0 sound, 1 damaged, 2 it could
not be read. An embedded store must not be in use; a cluster may be.
ping asks the server of this configuration whether it answers: exit status 0 if so.
";

/// Pause between two samples for the rates in INFO.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Of a thread that large work was done beside. An idle one keeps what it has allocated, also what others have freed since: with tokio's
/// ten seconds that came to a gigabyte.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
/// How long the goodbye to the other servers may take.
const LEAVE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    directory::keep_files_private();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let first = args.first().map(String::as_str);
    match first {
        Some("--help" | "-h") => print!("{HELP}"),
        Some("--version" | "-v") => println!("{}", version()),
        Some("check") => return check::start(args.get(1..).unwrap_or_default()),
        Some("copy") => return exit(copy::start(args.get(1..).unwrap_or_default())),
        Some("ping") => return exit(ping::start(args.get(1..).unwrap_or_default())),
        _ => return exit(start(&args)),
    }
    ExitCode::SUCCESS
}

fn exit(result: Result<()>) -> ExitCode {
    #[cfg(feature = "fdb")]
    tern::store::fdb::stop();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tern: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn version() -> String {
    format!("tern {} (answers as Redis {REDIS_VERSION})", env!("CARGO_PKG_VERSION"))
}

fn start(args: &[String]) -> Result<()> {
    let (settings, file) = from_args(args).context("bad configuration")?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(worker_threads(settings.io_threads));
    runtime.thread_keep_alive(KEEP_ALIVE);
    let runtime = runtime.enable_all().build().context("cannot start the worker threads")?;
    let result = runtime.block_on(run(settings, file));
    // What still hangs in a blocking call must not keep the process.
    runtime.shutdown_background();
    result
}

/// For `io-threads`. By itself one core is left to what else works for the clients: the committer and RocksDB's threads, or
/// FoundationDB's network thread. A worker too many costs more than it brings, for each wakes the others.
fn worker_threads(wanted: usize) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    if wanted > 0 { wanted } else { cores().saturating_sub(1).max(1) }
}

async fn run(settings: Settings, file: Option<PathBuf>) -> Result<()> {
    let env = Env::system();
    let log = log::init(settings.loglevel.filter(), &settings.logfile, env.clock.clone())
        .with_context(|| format!("cannot open the log file '{}'", settings.logfile))?;
    let room = descriptors::room_for(settings.maxclients);
    let listener = tern::net::listen_for_clients(&settings).await.context("cannot listen")?.with_room(room);
    let (mut server, place) = listener.while_opening(open_server(settings, file, &env)).await?;
    let store = server.store.clone();
    server.telemetry.log = log;
    let users = server.acl.load_configured(&server.config.get());
    users.map_err(|why| anyhow::anyhow!("bad users: {why}"))?;
    let server = Arc::new(server);
    observe(&server).await?;
    stop_on_signals(&server)?;
    let on: Vec<String> = listener.addresses().iter().map(ToString::to_string).collect();
    tracing::info!("{} is ready on {}, data in {}", version(), on.join(" "), place.display());
    server.space.instances.set_address(on.join(" "));
    let executor = Arc::new(Executor::new(server.clone()));
    tern::jobs::spawn(&server);
    tern::net::serve(listener, executor.clone()).await;
    drop(executor);
    if tokio::time::timeout(LEAVE, server.space.instances.leave()).await.is_err() {
        tracing::warn!(
            "the store does not answer: other servers will notice by themselves that this one has gone"
        );
    }
    store.close().await.context("the store did not close cleanly")?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the store, and reads what a server must know of it. Waits for a cluster that does not answer.
async fn open_server(settings: Settings, file: Option<PathBuf>, env: &Env) -> Result<(Server, PathBuf)> {
    let (store, place) = open_store(&settings, env, Away::Wait).await?;
    let open = async || {
        let config = ConfigStore::from_file(settings.clone(), file.clone());
        Server::open(table(), store.clone(), env.clone(), config).await
    };
    let server = match store.is_shared() {
        true => waiting::until_it_answers(&env.clock, &place, open).await,
        false => open().await,
    };
    let server = server
        .map_err(|e| anyhow::anyhow!("cannot read the data in {}: {}", place.display(), e.into_reply().0))?;
    Ok((server, place))
}

/// What is done where a cluster does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Wait,
    Fail,
}

/// Opens what `store` names: `local` in `dir`, `local:<path>` elsewhere, `fdb:<cluster file>`.
async fn open_store(settings: &Settings, env: &Env, away: Away) -> Result<(Store, PathBuf)> {
    match settings.store.split_once(':') {
        None if settings.store == "local" => open_local(settings, env, Path::new(&settings.dir)).await,
        Some(("local", path)) if !path.is_empty() => open_local(settings, env, Path::new(path)).await,
        Some(("fdb", file)) if !file.is_empty() => open_fdb(settings, env, Path::new(file), away).await,
        _ => {
            bail!("unknown store '{}': there are local, local:<path> and fdb:<cluster file>", settings.store)
        }
    }
}

#[cfg(feature = "fdb")]
async fn open_fdb(settings: &Settings, env: &Env, file: &Path, away: Away) -> Result<(Store, PathBuf)> {
    let options = tern::store::fdb::FdbOptions {
        cluster_file: file.to_owned(),
        namespace: settings.store_namespace.clone(),
        timeout: Duration::from_millis(settings.store_timeout.into()),
        tls: tern::store::fdb::FdbTls {
            certificate: settings.store_tls_cert_file.clone(),
            key: settings.store_tls_key_file.clone(),
            authorities: settings.store_tls_ca_cert_file.clone(),
            password: settings.store_tls_key_file_pass.clone(),
            verify_peers: settings.store_tls_verify_peers.clone(),
        },
        clock: env.clock.clone(),
    };
    let what = || format!("cannot open the cluster of {}", file.display());
    let client = tern::store::fdb::FdbClient::new(options).with_context(what)?;
    let opened = match away {
        Away::Wait => waiting::until_it_answers(&env.clock, file, async || client.open().await).await,
        Away::Fail => client.open().await,
    };
    let fdb = opened.with_context(what)?;
    Ok((Store::Fdb(fdb), file.to_owned()))
}

#[cfg(not(feature = "fdb"))]
async fn open_fdb(_: &Settings, _: &Env, _: &Path, _: Away) -> Result<(Store, PathBuf)> {
    bail!("this build is without FoundationDB: build it with --features fdb")
}

async fn open_local(settings: &Settings, env: &Env, path: &Path) -> Result<(Store, PathBuf)> {
    directory::make(path).with_context(|| format!("cannot create the data directory {}", path.display()))?;
    let mut options = LocalOptions::new(env.clock.clone());
    options.fsync = fsync(settings.appendfsync);
    options.write_buffer = settings.store_write_buffer_size;
    options.block_cache = settings.store_cache_size;
    options.value_cache = settings.store_value_cache_size;
    let dir = path.to_owned();
    let local = tokio::task::spawn_blocking(move || Local::open(&dir, options)).await?;
    let local = local.with_context(|| format!("cannot open the data directory {}", path.display()))?;
    let shown = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Ok((Store::Local(local), shown))
}

/// Serves the metrics where they are wanted, and samples what INFO shows as rates.
async fn observe(server: &Arc<Server>) -> Result<()> {
    let settings = Settings::clone(&server.config.get());
    if settings.metrics_port != 0 {
        let listener =
            tern::net::listen(&settings, settings.metrics_port).await.context("cannot listen for metrics")?;
        let on: Vec<String> = listener.addresses().iter().map(ToString::to_string).collect();
        tracing::info!("metrics are at http://{}/metrics", on.join(" "));
        let (asked, door) = (server.clone(), server.clone());
        let text = Box::new(move || info::metrics(&asked));
        let admits = Box::new(move |peer| tern::net::admits(&door, peer));
        tokio::spawn(http::serve(listener.into_sockets(), http::Site { text, admits }));
    }
    let server = server.clone();
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(SAMPLE_EVERY);
        loop {
            tick.tick().await;
            info::sample(&server);
        }
    });
    Ok(())
}

/// The first SIGTERM or SIGINT asks for a graceful stop, the second ends the process.
fn stop_on_signals(server: &Arc<Server>) -> Result<()> {
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let server = server.clone();
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            let name = tokio::select! { biased; _ = term.recv() => "SIGTERM", _ = int.recv() => "SIGINT" };
            if asked {
                tracing::warn!("{name} again: exiting now");
                std::process::exit(1);
            }
            tracing::info!("{name}: stopping");
            asked = true;
            server.stop.send_replace(true);
        }
    });
    Ok(())
}
