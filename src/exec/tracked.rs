//! Remembers what clients read that track (`server::tracking`).

use super::unit::Unit;
use crate::server::Server;
use crate::spec::{Flags, keys_of};

/// Before a unit runs: what it reads of what its client wants to be remembered.
pub(super) async fn remember(server: &Server, unit: &mut Unit) {
    let (mode, exec) = (&mut unit.client.tracking, unit.exec);
    if !mode.remembers() {
        return;
    }
    for call in &unit.calls {
        if mode.wants() && call.row.flags.has(Flags::READONLY) {
            let keys = keys_of(call.row, &call.argv).unwrap_or_default();
            server.tracking.remember(unit.client.id, &keys).await;
        }
        // CLIENT CACHING holds until the next command that is not CLIENT, or until EXEC.
        if !exec && !call.row.flags.has(Flags::KEEPS_CACHING) {
            mode.caching = false;
        }
    }
}
