//! A namespace of a FoundationDB cluster, and the allocator of its directory layer beside ours.

use foundationdb::tuple::Subspace;
use foundationdb::tuple::hca::{HcaError, HighContentionAllocator};
use foundationdb::{Database, FdbError};
use std::time::Duration;
use tern::env::Clock;
use tern::error::{Error, StoreError};
use tern::store::Store;
use tern::store::fdb::{Fdb, FdbOptions, FdbTls};

/// Where FoundationDB's own allocator keeps its rows.
pub struct Native {
    database: Database,
    subspace: Subspace,
}

impl Native {
    /// A number in a transaction of its own. An allocator for each call: one that is shared serializes its callers by a lock.
    pub async fn one(&self) -> Result<i64, Error> {
        let tx = self.database.create_trx().map_err(failed)?;
        let number = HighContentionAllocator::new(self.subspace.clone()).allocate(&tx).await;
        let number = number.map_err(|e| match e {
            HcaError::FdbError(e) => failed(e),
            e => panic!("{e:?}"),
        })?;
        tx.commit().await.map_err(|e| failed(e.into()))?;
        Ok(number)
    }
}

fn failed(e: FdbError) -> Error {
    assert!(e.is_retryable_not_committed(), "{e}");
    StoreError::Conflict.into()
}

/// Opens what `name` stands for on the cluster of `file`.
pub async fn open(file: &str, name: &str) -> (Store, Native) {
    let options = FdbOptions {
        cluster_file: file.into(),
        namespace: name.into(),
        timeout: Duration::from_secs(10),
        tls: FdbTls::default(),
        clock: Clock::System,
    };
    let store = Store::Fdb(Fdb::open(options).await.unwrap());
    let native = Native { database: Database::from_path(file).unwrap(), subspace: Subspace::from(name) };
    (store, native)
}

/// Removes all rows. (The empty namespace stays in the directory.)
pub async fn clear(store: &Store, native: &Native) {
    let tx = store.begin();
    tx.clear_range(&[], &[0xff]).unwrap();
    tx.commit().await.unwrap();
    let tx = native.database.create_trx().unwrap();
    let (begin, end) = native.subspace.range();
    tx.clear_range(&begin, &end);
    tx.commit().await.unwrap();
}
