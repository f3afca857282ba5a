//! `tern copy --from <store> --to <store> [--directive value ...]`: the command line of `keyspace::cluster::transfer`.
//! Progress goes to stderr, the result to stdout; the exit status says whether the target is complete.

use super::open::{Away, open_store};
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::time::Duration;
use tern::config::{AppendFsync, Settings, from_args};
use tern::env::{Clock, Env};
use tern::keyspace::cluster::transfer::{Stage, Tally, copy};
use tern::store::Store;
use tern::store::local::Local;

/// Interval between progress lines.
const EVERY: Duration = Duration::from_secs(1);

/// Runs with the arguments after `copy`.
pub fn start(args: &[String]) -> Result<()> {
    let (from, to, settings) = arguments(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the worker threads")?.block_on(run(&from, &to, &settings))
}

/// Both stores, and the settings to open them with.
fn arguments(args: &[String]) -> Result<(String, String, Settings)> {
    let (mut from, mut to, mut rest) = (None, None, Vec::new());
    let mut words = args.iter().cloned();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--from" => from = words.next(),
            "--to" => to = words.next(),
            _ => rest.push(word),
        }
    }
    let (Some(from), Some(to)) = (from, to) else { bail!("tern copy needs --from <store> and --to <store>") };
    if from == to {
        bail!("--from and --to name the same store");
    }
    let (settings, _) = from_args(&rest).context("bad configuration")?;
    Ok((from, to, settings))
}

async fn run(from: &str, to: &str, settings: &Settings) -> Result<()> {
    if let Some(dir) = from.strip_prefix("local:")
        && !Local::exists(Path::new(dir))
    {
        bail!("{dir} holds no store: check --from");
    }
    let env = Env::system();
    let source = open(from, settings, &env).await.context("cannot open the source")?;
    let target = open(to, settings, &env).await.context("cannot open the target")?;
    let mut progress = Progress { clock: env.clock, last: Duration::ZERO };
    let result = copy(&source, &target, &mut |stage, done| progress.on(stage, done)).await;
    let closed = target.close().await;
    source.close().await.context("the source did not close cleanly")?;
    let copied = result.map_err(|e| anyhow!(e))?;
    closed.context("the target did not close cleanly: run the copy again")?;
    println!("copied {copied}: source and target are equal");
    Ok(())
}

async fn open(name: &str, settings: &Settings, env: &Env) -> Result<Store> {
    // Synced once, when the store is closed.
    let settings = Settings { store: name.to_owned(), appendfsync: AppendFsync::No, ..settings.clone() };
    Ok(open_store(&settings, env, Away::Fail).await?.0)
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
            Stage::ReadingSource => "read back from the source",
            Stage::ReadingTarget => "read back from the target",
        };
        eprintln!("{what}: {} rows, {:.1} MB", done.rows, done.bytes as f64 / 1e6);
    }
}
