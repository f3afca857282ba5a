//! What an operator sees: clients, counters, latencies. SCAFFOLD of the interface.

pub mod clients;

/// Counters and latencies of one server.
#[derive(Debug, Default)]
pub struct Telemetry {}

impl Telemetry {
    /// A transaction is run again because of `e`.
    pub fn on_retry(&self, _e: &crate::error::StoreError) {}
    /// A batch of `units` was committed after `took`.
    pub fn on_batch(&self, _units: usize, _took: std::time::Duration) {}
}
