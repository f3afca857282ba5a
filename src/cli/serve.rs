//! `tern [file.conf] [--directive value ...]`: runs the server, from its configuration to the last client.

use super::open::{Away, open_store};
use super::{descriptors, version, waiting};
use anyhow::{Context, Result};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tern::commands::registry::table;
use tern::commands::server::info;
use tern::config::{ConfigStore, Settings, from_args};
use tern::env::Env;
use tern::exec::Executor;
use tern::server::Server;
use tern::telemetry::{http, log};
use tokio::signal::unix::{SignalKind, signal};

/// Interval between samples for the rates in INFO.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Keep-alive of blocking threads, which do large work. An idle thread retains memory that it allocated, even
/// after others have freed it: with tokio's ten seconds this amounted to a gigabyte.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
/// How long deregistering from the store may take.
const LEAVE: Duration = Duration::from_secs(2);

/// Runs a server until it is stopped.
pub fn start(args: &[String]) -> Result<()> {
    let (settings, file) = from_args(args).context("bad configuration")?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(worker_threads(settings.io_threads));
    runtime.thread_keep_alive(KEEP_ALIVE);
    let runtime = runtime.enable_all().build().context("cannot start the worker threads")?;
    let result = runtime.block_on(run(settings, file));
    // A blocking call that hangs must not keep the process alive.
    runtime.shutdown_background();
    result
}

/// The number of worker threads for `io-threads`. The default leaves one core to other work for the clients:
/// the committer and RocksDB's threads, or FoundationDB's network thread. One worker too many costs more than
/// it helps, because workers wake each other.
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
    users.map_err(|why| anyhow::anyhow!("cannot load the users: {why}"))?;
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
            "the store does not answer: other servers will find out on their own that this one has stopped"
        );
    }
    store.close().await.context("the store did not close cleanly")?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the store, and reads from it what a server must know. Waits for a cluster that does not answer.
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

/// Serves the metrics if configured, and samples the rates that INFO shows.
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

/// The first SIGTERM or SIGINT requests a graceful stop, the second ends the process.
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
