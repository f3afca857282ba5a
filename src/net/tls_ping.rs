//! Checks for `tern ping` whether a server that only serves TLS answers.
//!
//! Nothing secret is sent, so any certificate is accepted: one that has been renewed on disk but not yet
//! reloaded by the server must not make it look dead. Its signatures are verified all the same.

use super::tls::{certificates, key};
use crate::config::Settings;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

/// The first line of the server's answer to PING, over TLS on `stream`. Presents the server's own certificate
/// if asked for one; an alert, by which the server demands another, is returned as the line `alert`.
pub fn tls_ping(settings: &Settings, host: &str, stream: TcpStream) -> io::Result<String> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(client(settings)?), name).map_err(io::Error::other)?;
    match ask(StreamOwned::new(connection, stream)) {
        Err(e) if is_alert(&e) => Ok("alert".into()),
        line => line,
    }
}

fn ask(mut stream: StreamOwned<ClientConnection, TcpStream>) -> io::Result<String> {
    stream.write_all(b"PING\r\n")?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && stream.read(&mut byte)? == 1 {
        line.extend(byte);
    }
    stream.conn.send_close_notify();
    stream.conn.write_tls(&mut stream.sock)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn is_alert(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(inner, Some(Error::AlertReceived(_)))
}

fn client(settings: &Settings) -> io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    let own = certificates(Path::new(&settings.tls_cert_file)).ok();
    match own.zip(key(Path::new(&settings.tls_key_file)).ok()) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(io::Error::other),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
