//! What an operator sees: clients, counters, latencies. SCAFFOLD of the interface.

pub mod clients;

/// Counters and latencies of one server.
#[derive(Debug, Default)]
pub struct Telemetry {}
