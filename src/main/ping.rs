//! `tern ping [file.conf] [--directive value ...]`: whether the server of that configuration answers. For health checks,
//! which then need no client in the image.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tern::config::from_args;

/// For connecting, and for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs with the arguments behind `ping`.
pub fn start(args: &[String]) -> Result<()> {
    let (settings, _) = from_args(args).context("bad configuration")?;
    let word = settings.bind.first().map_or("127.0.0.1", String::as_str);
    let host = match word.trim_start_matches('-') {
        "*" | "0.0.0.0" => "127.0.0.1",
        "::*" | "::" => "::1",
        host => host,
    };
    let place = format!("{host}:{}", settings.port);
    let answer = ask(host, settings.port).with_context(|| format!("no answer from {place}"))?;
    // Where a password is set, being asked for it is a sign of life.
    if !answer.starts_with("+PONG") && !answer.starts_with("-NOAUTH") {
        bail!("{place} answers {}", answer.trim_end());
    }
    println!("PONG");
    Ok(())
}

fn ask(host: &str, port: u16) -> Result<String> {
    let address = (host, port).to_socket_addrs()?.next().context("no such address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"PING\r\n")?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && stream.read(&mut byte)? == 1 {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
