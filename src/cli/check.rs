//! `tern check [file.conf] [--store <store>] [--dir <path>] [--directive value ...]`: the command line of
//! `lifecycle::check`. Progress goes to stderr, the report to stdout; the exit status gives the result.

use super::open::{Away, open_store};
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tern::config::{AppendFsync, Settings, from_args};
use tern::env::Env;
use tern::lifecycle::check::{Report, check};
use tern::store::local::Local;

/// Interval between progress lines.
const EVERY: Duration = Duration::from_secs(1);
const DAMAGED: u8 = 1;
const UNREADABLE: u8 = 2;

/// Runs with the arguments after `check`.
pub fn start(args: &[String]) -> ExitCode {
    let result = run(args);
    #[cfg(feature = "fdb")]
    tern::store::fdb::stop();
    match result {
        Ok(report) => {
            println!("{report}");
            if report.is_sound() { ExitCode::SUCCESS } else { DAMAGED.into() }
        }
        Err(error) => {
            eprintln!("tern: {error:#}");
            UNREADABLE.into()
        }
    }
}

fn run(args: &[String]) -> Result<Report> {
    let (settings, _) = from_args(args).context("bad configuration")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the worker threads")?.block_on(read(settings))
}

async fn read(settings: Settings) -> Result<Report> {
    let dir = match settings.store.split_once(':') {
        None => Some(settings.dir.as_str()),
        Some((engine, dir)) => Some(dir).filter(|_| engine == "local"),
    };
    if let Some(dir) = dir
        && !Local::exists(Path::new(dir))
    {
        bail!("{dir} holds no store: check --store and --dir");
    }
    let env = Env::system();
    let settings = Settings { appendfsync: AppendFsync::No, ..settings };
    let (store, _) = open_store(&settings, &env, Away::Fail).await?;
    let mut last = env.clock.monotonic();
    let mut progress = |what: &'static str, rows: u64| {
        let now = env.clock.monotonic();
        if now.saturating_sub(last) >= EVERY {
            last = now;
            eprintln!("{rows} rows read, now {what}");
        }
    };
    let result = check(&store, &mut progress).await;
    let closed = store.close().await;
    let report = result.map_err(|e| anyhow!(e))?;
    closed.context("the store did not close cleanly")?;
    Ok(report)
}
