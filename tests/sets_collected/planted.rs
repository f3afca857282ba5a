//! Mistakes planted into the assumptions of the protocol. Each must make the test fail.

use crate::cluster::Cluster;
use crate::{cluster, stress};
use std::sync::Arc;
use std::time::Duration;
use tern::store::Read;
use tern::store::tamper::Tamper;

/// Rows of the dictionary are read without a conflict: a client that adds a member does not see that it is
/// being collected.
struct NoConflict;

impl Tamper for NoConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if key.first() == Some(&b'f') { Read::Snapshot } else { read }
    }
}

async fn breaks(tamper: Arc<dyn Tamper>) -> bool {
    for seed in 0..10 {
        let c: Arc<Cluster> = Arc::new(cluster().await);
        c.faulty.set_tamper(Some(tamper.clone()));
        let done = stress(&c, 100 + seed, Duration::from_secs(3)).await;
        println!("seed {seed}: {done:?}");
        if done.is_err() {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_conflict_on_the_dictionary_is_noticed() {
    assert!(breaks(Arc::new(NoConflict)).await, "the mistake must be noticed");
}
