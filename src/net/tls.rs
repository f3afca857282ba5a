//! TLS for clients (rustls, with ring's cryptography): certificates, client authentication, and the
//! handshake.
//!
//! * Certificates are read at startup and whenever CONFIG SET names a `tls-` option, even with its current
//!   value: so a renewed certificate takes effect without a restart. Unusable files are rejected, and the old
//!   certificate stays. Existing connections keep theirs.
//! * A handshake must finish within [`HANDSHAKE`], and the client counts towards `maxclients` meanwhile, so
//!   that silent connections do not pile up.
//! * Sessions are resumed only from the server's memory, which a reload clears: a client whose authority is
//!   no longer trusted cannot resume an old session.
//!
//! Limits: keys protected by a password are rejected (rustls does not support them); certificates must be
//! X.509 version 3, as authorities have issued them for decades, whereas `openssl x509 -req` without
//! extensions creates version 1.

use crate::config::{ClientAuth, Settings, file};
use arc_swap::ArcSwap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoClientAuth, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::server::TlsStream;

/// The time limit of a handshake, which takes a few round trips.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The most files in `tls-ca-cert-dir`. A system has some hundred authorities.
const MOST_FILES: usize = 4096;
/// The most bytes of certificates in it.
const MOST_HELD: usize = 16 << 20;

/// Why the TLS options cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("{0} must be set if tls-port is set")]
    Missing(&'static str),
    #[error("tls-ca-cert-file or tls-ca-cert-dir must be set, unless tls-auth-clients is no")]
    NoAuthority,
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} contains no {1} in PEM format")]
    Empty(PathBuf, &'static str),
    #[error(
        "{0} is protected by a password, which is not supported: remove it (openssl pkey -in locked -out open) and make the file readable by this server only"
    )]
    Locked(PathBuf),
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(#[source] Error),
    #[error("the CA certificates cannot be used: {0}")]
    Authorities(#[from] VerifierBuilderError),
    #[error("the protocols cannot be used: {0}")]
    Protocols(#[source] Error),
}

/// The configuration for new handshakes.
pub(super) struct Tls(ArcSwap<ServerConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificates that `settings` names.
    pub(super) fn open(settings: &Settings) -> Result<Self, TlsError> {
        Ok(Tls(ArcSwap::from_pointee(read(settings)?)))
    }

    /// Reads them again, for future handshakes. An error leaves everything unchanged.
    pub(super) fn reload(&self, settings: &Settings) -> Result<(), TlsError> {
        self.0.store(Arc::new(read(settings)?));
        Ok(())
    }

    /// Performs the handshake with a client that has just connected.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = TlsAcceptor::from(self.0.load_full()).accept(stream);
        let in_time = tokio::time::timeout(HANDSHAKE, handshake).await;
        in_time.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no handshake within 10 seconds"))?
    }
}

fn read(settings: &Settings) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&named(&settings.tls_cert_file, "tls-cert-file")?)?;
    let key = key(&named(&settings.tls_key_file, "tls-key-file")?)?;
    let verifier = verifier(settings, &provider)?;
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(&settings.tls_protocols))
        .map_err(TlsError::Protocols)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)
}

fn named(file: &str, option: &'static str) -> Result<PathBuf, TlsError> {
    if file.is_empty() { Err(TlsError::Missing(option)) } else { Ok(PathBuf::from(file)) }
}

/// `tls-protocols`; all versions if it is empty.
fn versions(names: &[String]) -> Vec<&'static SupportedProtocolVersion> {
    let known = [("TLSv1.3", &TLS13), ("TLSv1.2", &TLS12)];
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n.eq_ignore_ascii_case(name));
    known.into_iter().filter(|(name, _)| wanted(name)).map(|(_, version)| version).collect()
}

fn verifier(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    if settings.tls_auth_clients == ClientAuth::No {
        return Ok(Arc::new(NoClientAuth));
    }
    let builder = WebPkiClientVerifier::builder_with_provider(authorities(settings)?, provider.clone());
    Ok(match settings.tls_auth_clients {
        ClientAuth::Optional => builder.allow_unauthenticated().build()?,
        _ => builder.build()?,
    })
}

/// The certificates of `tls-ca-cert-file` and of all files in `tls-ca-cert-dir`.
fn authorities(settings: &Settings) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    if !settings.tls_ca_cert_file.is_empty() {
        roots.add_parsable_certificates(certificates(Path::new(&settings.tls_ca_cert_file))?);
    }
    if !settings.tls_ca_cert_dir.is_empty() {
        let dir = Path::new(&settings.tls_ca_cert_dir);
        let mut held = 0;
        for file in files(dir).map_err(|e| TlsError::Read(dir.into(), e))? {
            // The directory may contain other files, too.
            let found = certificates(&file).unwrap_or_default();
            held += found.iter().map(|certificate| certificate.len()).sum::<usize>();
            if held > MOST_HELD {
                let why = format!("the certificates take more than {MOST_HELD} bytes");
                return Err(TlsError::Read(dir.into(), io::Error::other(why)));
            }
            roots.add_parsable_certificates(found);
        }
    }
    if roots.is_empty() { Err(TlsError::NoAuthority) } else { Ok(Arc::new(roots)) }
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(dir)?.take(MOST_FILES + 1).map(|entry| Ok(entry?.path()));
    let paths = paths.collect::<io::Result<Vec<_>>>()?;
    if paths.len() > MOST_FILES {
        return Err(io::Error::other(format!("the directory holds more than {MOST_FILES} files")));
    }
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read_file(file)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    if found.is_empty() { Err(TlsError::Empty(file.into(), "certificate")) } else { Ok(found) }
}

fn read_file(name: &Path) -> Result<Vec<u8>, TlsError> {
    file::read(name, file::PEM).map_err(|e| TlsError::Read(name.into(), e))
}

pub(super) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read_file(file)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let text = String::from_utf8_lossy(&pem);
        let locked = text.contains("ENCRYPTED");
        if locked { TlsError::Locked(file.into()) } else { TlsError::Empty(file.into(), "private key") }
    })
}
