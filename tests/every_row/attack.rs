//! Sends a script on a connection of its own, and discards the replies.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The last of all replies. No other reply contains it.
const MARK: &str = "the-end-of-this-attack";
/// Whatever the script did to the connection, RESET restores it; so this is always answered.
const END: &str = "*1\r\n$5\r\nRESET\r\n*2\r\n$4\r\nPING\r\n$22\r\nthe-end-of-this-attack\r\n";
/// The number of bytes searched at the end of a large piece.
const TAIL: usize = 4 << 10;
/// The time between two looks at the clock.
const TICK: Duration = Duration::from_millis(200);

/// The end of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Everything was answered.
    Answered,
    /// The attacker has read long enough and left.
    Left,
    /// The server has closed the connection, as its limits demand.
    Closed,
}

/// The limits of an attacker.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A server that sends nothing for this long has failed.
    pub silent: Duration,
    /// Endless replies are read for this long.
    pub reading: Duration,
}

/// Runs the attack. Err: why it failed. Also returns the number of bytes read.
pub fn attack(port: u16, script: &[u8], patience: Patience) -> Result<(End, usize), String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("no connection: {e}"))?;
    stream.set_read_timeout(Some(TICK)).map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        let mut writer = &stream;
        scope.spawn(move || {
            // Fails if the server has closed the connection or the reader has left: the reader reports that.
            let _ = writer.write_all(script).and_then(|()| writer.write_all(END.as_bytes()));
        });
        let ended = read(&stream, patience);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    })
}

fn read(mut stream: &TcpStream, patience: Patience) -> Result<(End, usize), String> {
    let (begin, mut heard) = (Instant::now(), Instant::now());
    let (mut buffer, mut kept, mut total) = (vec![0; 1 << 20], 0, 0);
    loop {
        match stream.read(&mut buffer[kept..]) {
            Ok(0) => return Ok((End::Closed, total)),
            Ok(n) => {
                (heard, total) = (Instant::now(), total + n);
                let there = kept + n;
                if has_mark(&buffer[..there]) {
                    return Ok((End::Answered, total));
                }
                kept = there.min(MARK.len());
                buffer.copy_within(there - kept..there, 0);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Ok((End::Closed, total)),
        }
        if heard.elapsed() > patience.silent {
            return Err(format!("no answer for {:?}, after {total} bytes", patience.silent));
        }
        if total > 0 && begin.elapsed() > patience.reading && heard.elapsed() < TICK * 5 {
            return Ok((End::Left, total));
        }
    }
}

/// Whether a piece holds the mark, which comes last except for messages: of a large piece only the end is
/// searched.
fn has_mark(piece: &[u8]) -> bool {
    let from = if piece.len() > 16 * TAIL { piece.len() - TAIL } else { 0 };
    let first = MARK.as_bytes()[0];
    let piece = &piece[from..];
    piece.iter().enumerate().any(|(at, b)| *b == first && piece[at..].starts_with(MARK.as_bytes()))
}
