//! Remembers the keys that tracking clients read (`server::tracking`).

use super::unit::Unit;
use crate::dispatch::Call;
use crate::server::Server;
use crate::server::tracking::Mode;
use crate::spec::{Flags, keys_of};

/// Before a unit runs: remembers the keys that it reads, as far as its client wants them tracked. What its scripts read is
/// remembered as they read it.
pub(super) async fn remember(server: &Server, unit: &Unit) {
    let (mut mode, exec) = (unit.client.tracking, unit.exec);
    if !mode.remembers() {
        return;
    }
    for call in &unit.calls {
        if mode.wants() && call.row.flags.has(Flags::READONLY) {
            let keys = keys_of(call.row, &call.argv).unwrap_or_default();
            server.tracking.remember(unit.client.id, &keys).await;
        }
        ran(call, exec, &mut mode);
    }
}

/// A call has run. CLIENT CACHING applies to the next command other than CLIENT, or until EXEC.
pub(super) fn ran(call: &Call, exec: bool, mode: &mut Mode) {
    if !exec && !call.row.flags.has(Flags::KEEPS_CACHING) {
        mode.caching = false;
    }
}
