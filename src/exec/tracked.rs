//! Remembers the keys that tracking clients read (`server::tracking`).

use super::unit::Unit;
use crate::server::Server;
use crate::spec::{Flags, keys_of};

/// Before a unit runs: remembers the keys that it reads, as far as its client wants them tracked.
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
        // CLIENT CACHING applies to the next command other than CLIENT, or until EXEC.
        if !exec && !call.row.flags.has(Flags::KEEPS_CACHING) {
            mode.caching = false;
        }
    }
}
