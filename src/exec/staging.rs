//! Arguments too large for a transaction are built before the unit that carries them runs.
//!
//! Only where a unit's arguments exceed one transaction together. What no command took over is given up, so that its rows
//! are reclaimed soon.

use super::{Call, Unit};
use crate::commands::args::parse_i64;
use crate::commands::cx::Server;
use crate::commands::table::Group;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::keys::Prefix;
use crate::types::string::{DIRECT_MAX, INLINE_MAX, Staged, abandon, stage, stage_change};
use bytes::Bytes;

/// How long a built string waits for its command, in ms: longer than any unit is tried.
const LEASE_MS: u64 = 60_000;
/// Attempts at continuing a string that others change meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// Builds what `unit` needs. To be called again after a conflict: what was built may be stale.
pub(super) async fn prepare(server: &Server, unit: &Unit, staged: &mut Vec<Staged>) -> Result<()> {
    if bytes(unit) <= DIRECT_MAX {
        return Ok(());
    }
    let tx = server.store.begin();
    let catalog = server.space.catalog.load(&tx).await?;
    drop(tx);
    let mut db = unit.client.db;
    for call in &unit.calls {
        if let Some(selected) = selected(call) {
            db = selected;
        }
        let Some(prefix) = catalog.prefixes.get(usize::from(db)) else { continue };
        if call.row.group == Group::String && call.row.is_write() {
            build(server, *prefix, call, staged).await?;
        }
    }
    Ok(())
}

/// Gives up what was built and no command took over.
pub(super) async fn give_up(server: &Server, staged: &mut Vec<Staged>) {
    for staged in staged.drain(..) {
        if let Err(e) = abandon(&server.space, &staged).await {
            tracing::debug!(?e, "an abandoned string is reclaimed when its lease ends");
        }
    }
}

fn bytes(unit: &Unit) -> usize {
    unit.calls.iter().flat_map(|c| &c.argv).map(Bytes::len).sum()
}

/// The database that a SELECT inside the unit changes to.
fn selected(call: &Call) -> Option<u8> {
    let index = call.argv.get(1).filter(|_| call.row.name == "select")?;
    u8::try_from(parse_i64(index)?).ok()
}

async fn build(server: &Server, db: Prefix, call: &Call, staged: &mut Vec<Staged>) -> Result<()> {
    let large = call.argv.iter().skip(2).filter(|a| a.len() > INLINE_MAX);
    for argument in large {
        let offset = match call.row.name {
            "append" => Some(None),
            "setrange" => {
                call.argv.get(2).and_then(|o| parse_i64(o)).and_then(|o| u64::try_from(o).ok()).map(Some)
            }
            _ => None,
        };
        staged.extend(match (offset, call.argv.get(1)) {
            (Some(offset), Some(key)) => continued(server, db, key, offset, argument).await?,
            _ => Some(stage(&server.space, db, argument, LEASE_MS).await?),
        });
    }
    Ok(())
}

/// Builds the continuation of a string; again where it changed meanwhile.
async fn continued(
    server: &Server,
    db: Prefix,
    key: &Bytes,
    offset: Option<u64>,
    patch: &Bytes,
) -> Result<Option<Staged>> {
    for _ in 0..MAX_ATTEMPTS {
        match stage_change(&server.space, db, key, offset, patch, LEASE_MS).await {
            Err(Error::Store(StoreError::Conflict)) => {}
            other => return other,
        }
    }
    Err(StoreError::Conflict.into())
}
