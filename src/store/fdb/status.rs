//! The cluster's report about itself, for INFO. The cluster gathers it from all its processes, so it is
//! requested at most once in a few seconds, and not waited for long.

use super::Core;
use crate::error::StoreResult;
use crate::store::ClusterStatus;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::Mutex;

/// The key of the report.
const REPORT: &[u8] = b"\xff\xff/status/json";
/// How long a report is cached.
const AGE: Duration = Duration::from_secs(5);
/// How long to wait for a report.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last report, and when it was requested.
#[derive(Default)]
pub(super) struct Cached(Mutex<Option<(Duration, ClusterStatus)>>);

impl Cached {
    pub(super) async fn get(&self, core: &Core) -> ClusterStatus {
        let mut last = self.0.lock().await;
        let now = core.clock.monotonic();
        match &*last {
            Some((at, status)) if now.saturating_sub(*at) < AGE => status.clone(),
            _ => last.insert((now, ask(core).await)).1.clone(),
        }
    }
}

async fn ask(core: &Core) -> ClusterStatus {
    match tokio::time::timeout(PATIENCE, report(core)).await {
        Ok(Ok(Some(report))) => read(&report),
        _ => ClusterStatus::default(),
    }
}

async fn report(core: &Core) -> StoreResult<Option<Value>> {
    let raw = core.transaction()?.get(REPORT, true).await.map_err(super::of_read)?;
    Ok(raw.and_then(|raw| serde_json::from_slice(&raw).ok()))
}

fn read(report: &Value) -> ClusterStatus {
    let at = |path: &str| report.pointer(path);
    let text = |path: &str| at(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    ClusterStatus {
        available: at("/client/database_status/available").and_then(Value::as_bool).unwrap_or_default(),
        healthy: at("/client/database_status/healthy").and_then(Value::as_bool).unwrap_or_default(),
        state: text("/cluster/recovery_state/name"),
        redundancy: text("/cluster/configuration/redundancy_mode"),
        engine: text("/cluster/configuration/storage_engine"),
        processes: at("/cluster/processes").and_then(Value::as_object).map_or(0, |p| p.len() as u64),
        tolerated: at("/cluster/fault_tolerance/max_zone_failures_without_losing_availability")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_a_poor_one_is_no_error() {
        let raw = r#"{"client":{"database_status":{"available":true,"healthy":true}},"cluster":{
            "recovery_state":{"name":"fully_recovered"},"processes":{"a":{},"b":{}},
            "configuration":{"redundancy_mode":"double","storage_engine":"ssd-2"},
            "fault_tolerance":{"max_zone_failures_without_losing_availability":1}}}"#;
        let found = read(&serde_json::from_str(raw).unwrap());
        assert!(found.available && found.healthy);
        assert_eq!((found.state.as_str(), found.processes, found.tolerated), ("fully_recovered", 2, 1));
        assert_eq!((found.redundancy.as_str(), found.engine.as_str()), ("double", "ssd-2"));
        assert_eq!(read(&serde_json::json!({"client": 7})), ClusterStatus::default());
    }
}
