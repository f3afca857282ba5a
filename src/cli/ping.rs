//! `tern ping [file.conf] [--directive value ...]`: checks whether the server with that configuration
//! answers. For health checks, which then need no client in the image.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tern::config::from_args;

/// The time limit for connecting, and for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs with the arguments after `ping`.
pub fn start(args: &[String]) -> Result<()> {
    let (settings, _) = from_args(args).context("bad configuration")?;
    let word = settings.bind.first().map_or("127.0.0.1", String::as_str);
    let host = match word.trim_start_matches('-') {
        "*" | "0.0.0.0" => "127.0.0.1",
        "::*" | "::" => "::1",
        host => host,
    };
    let secure = settings.port == 0 && settings.tls_port != 0;
    let port = if secure { settings.tls_port } else { settings.port };
    let place = format!("{host}:{port}");
    let answer = connect(host, port).and_then(|stream| match secure {
        true => Ok(tern::net::tls_ping(&settings, host, stream)?),
        false => ask(stream),
    });
    let answer = answer.with_context(|| format!("no answer from {place}"))?;
    // With a password set, a request to authenticate is a sign of life; so is a request for another
    // certificate.
    if !["+PONG", "-NOAUTH", "alert"].iter().any(|sign| answer.starts_with(sign)) {
        bail!("{place} answers {}", answer.trim_end());
    }
    println!("PONG");
    Ok(())
}

fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let address = (host, port).to_socket_addrs()?.next().context("no such address")?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(mut stream: TcpStream) -> Result<String> {
    stream.write_all(b"PING\r\n")?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && stream.read(&mut byte)? == 1 {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
