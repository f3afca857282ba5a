//! `tern copy --from <store> --to <store>`: the command line around `keyspace::transfer`. Progress on stderr, the result on
//! stdout, the exit status says whether the target is whole.

use crate::open_store;
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::time::Duration;
use tern::config::{AppendFsync, Settings};
use tern::env::{Clock, Env};
use tern::keyspace::transfer::{Stage, Tally, copy};
use tern::store::Store;
use tern::store::local::Local;

/// Between two lines of progress.
const EVERY: Duration = Duration::from_secs(1);

/// Runs with the arguments behind `copy`.
pub fn start(args: &[String]) -> Result<()> {
    let (from, to) = stores(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the worker threads")?.block_on(run(from, to))
}

fn stores(args: &[String]) -> Result<(&str, &str)> {
    let mut found = (None, None);
    for pair in args.chunks(2) {
        match pair {
            [name, value] if name == "--from" => found.0 = Some(value.as_str()),
            [name, value] if name == "--to" => found.1 = Some(value.as_str()),
            _ => bail!("'{}': copy takes --from <store> --to <store>", pair.join(" ")),
        }
    }
    match found {
        (Some(from), Some(to)) if from == to => bail!("--from and --to name one store"),
        (Some(from), Some(to)) => Ok((from, to)),
        _ => bail!("copy needs --from <store> and --to <store>"),
    }
}

async fn run(from: &str, to: &str) -> Result<()> {
    if let Some(dir) = from.strip_prefix("local:")
        && !Local::exists(Path::new(dir))
    {
        bail!("there is no store in {dir}");
    }
    let env = Env::system();
    let source = open(from, &env).await.context("the source")?;
    let target = open(to, &env).await.context("the target")?;
    let mut progress = Progress { clock: env.clock, last: Duration::ZERO };
    let result = copy(&source, &target, &mut |stage, done| progress.on(stage, done)).await;
    let closed = target.close().await;
    source.close().await.context("the source did not close cleanly")?;
    let copied = result.map_err(|e| anyhow!(e))?;
    closed.context("the target did not close cleanly, copy anew")?;
    println!("copied {copied}: equal on both sides");
    Ok(())
}

async fn open(name: &str, env: &Env) -> Result<Store> {
    // Synced once, when it is closed.
    let settings = Settings { store: name.to_owned(), appendfsync: AppendFsync::No, ..Settings::default() };
    Ok(open_store(&settings, env).await?.0)
}

struct Progress {
    clock: Clock,
    last: Duration,
}

impl Progress {
    fn on(&mut self, stage: Stage, done: Tally) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.last) < EVERY {
            return;
        }
        self.last = now;
        let what = match stage {
            Stage::Copying => "copied",
            Stage::ReadingSource => "read again from the source",
            Stage::ReadingTarget => "read from the target",
        };
        eprintln!("{what}: {} rows, {:.1} MB", done.rows, done.bytes as f64 / 1e6);
    }
}
