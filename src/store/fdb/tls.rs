//! TLS to the cluster, used for addresses that end in `:tls` in the cluster file.
//!
//! The library reports a bad certificate only in its own log, and keeps trying: to a caller, a cluster that
//! rejects this client looks silent. So the files are checked before the library gets them, and the error for
//! a silent cluster mentions TLS.

use super::errors::unavailable;
use crate::config::file;
use crate::error::{StoreError, StoreResult};
use foundationdb::api::NetworkBuilder;
use foundationdb::options::NetworkOption;
use std::path::Path;

/// TLS files and rules; empty means none, or FoundationDB's default.
#[derive(Debug, Clone, Default)]
pub struct FdbTls {
    /// The file with the certificate chain, PEM.
    pub certificate: String,
    /// The file with the private key, PEM.
    pub key: String,
    /// The file with the trusted certificates, PEM.
    pub authorities: String,
    /// The password of the private key.
    pub password: String,
    /// FoundationDB's conditions on the peer's certificate, such as `Check.Valid=1,S.O=Example`.
    pub verify_peers: String,
}

impl FdbTls {
    /// Passes all of it to the library.
    pub(super) fn apply(&self, builder: NetworkBuilder) -> StoreResult<NetworkBuilder> {
        self.check_files()?;
        let options = [
            (&self.certificate, NetworkOption::TLSCertPath(self.certificate.clone())),
            (&self.key, NetworkOption::TLSKeyPath(self.key.clone())),
            (&self.authorities, NetworkOption::TLSCaPath(self.authorities.clone())),
            (&self.password, NetworkOption::TLSPassword(self.password.clone())),
            (&self.verify_peers, NetworkOption::TLSVerifyPeers(self.verify_peers.clone().into_bytes())),
        ];
        let mut given = options.into_iter().filter(|(value, _)| !value.is_empty());
        given.try_fold(builder, |builder, (_, option)| builder.set_option(option).map_err(unavailable))
    }

    fn check_files(&self) -> StoreResult<()> {
        for name in [&self.certificate, &self.key, &self.authorities] {
            if !name.is_empty()
                && let Err(e) = file::read(Path::new(name), file::PEM)
            {
                return Err(StoreError::Unavailable(format!("cannot read {name} for TLS: {e}")));
            }
        }
        Ok(())
    }
}

/// Adds advice about TLS to the error of a store that could not be opened, if its cluster uses TLS.
pub(super) fn explain(e: StoreError, cluster_file: &Path) -> StoreError {
    let uses_tls = || std::fs::read_to_string(cluster_file).is_ok_and(|text| text.contains(":tls"));
    match e {
        StoreError::Unavailable(why) if uses_tls() => StoreError::Unavailable(format!(
            "{why}; the cluster speaks TLS: are store-tls-ca-cert-file, store-tls-cert-file and store-tls-key-file right?"
        )),
        e => e,
    }
}
