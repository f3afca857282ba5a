//! Opens the store that the configuration names.

use super::directory;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use tern::commands::server::config::fsync;
use tern::config::Settings;
use tern::env::Env;
use tern::store::Store;
use tern::store::local::{Local, LocalOptions};

/// The reaction to a cluster that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// Wait for it.
    Wait,
    /// Fail.
    Fail,
}

/// Opens the store that `store` names: `local` in `dir`, `local:<path>` elsewhere, `fdb:<cluster file>`.
pub async fn open_store(settings: &Settings, env: &Env, away: Away) -> Result<(Store, PathBuf)> {
    match settings.store.split_once(':') {
        None if settings.store == "local" => open_local(settings, env, Path::new(&settings.dir)).await,
        Some(("local", path)) if !path.is_empty() => open_local(settings, env, Path::new(path)).await,
        Some(("fdb", file)) if !file.is_empty() => open_fdb(settings, env, Path::new(file), away).await,
        _ => {
            bail!("unknown store '{}': use local, local:<path> or fdb:<cluster file>", settings.store)
        }
    }
}

#[cfg(feature = "fdb")]
async fn open_fdb(settings: &Settings, env: &Env, file: &Path, away: Away) -> Result<(Store, PathBuf)> {
    use super::waiting;
    use std::time::Duration;
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
    bail!("this build does not include FoundationDB: build with --features fdb")
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
