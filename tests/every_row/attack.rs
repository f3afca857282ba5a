//! Sends a script on a connection of its own, and reads and throws away what is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// What the last reply of all is. Nothing else holds it.
const MARK: &str = "the-end-of-this-attack";
/// The connection is as it was at its beginning, whatever the script did to it; so this is always answered.
const END: &str = "*1\r\n$5\r\nRESET\r\n*2\r\n$4\r\nPING\r\n$22\r\nthe-end-of-this-attack\r\n";
/// Bytes at the end of a large piece that are searched.
const TAIL: usize = 4 << 10;
/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(200);

/// How an attack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All was answered.
    Answered,
    /// The attacker has read for long enough, and left.
    Left,
    /// The server has closed the connection, as its limits say.
    Closed,
}

/// How long an attacker takes part.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A server that says nothing for so long has failed.
    pub silent: Duration,
    /// Replies that come without an end are read for so long.
    pub reading: Duration,
}

/// Runs it. Err: why that is a failure. Also the bytes that were answered.
pub fn attack(port: u16, script: &[u8], patience: Patience) -> Result<(End, usize), String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("no connection: {e}"))?;
    stream.set_read_timeout(Some(TICK)).map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        let mut writer = &stream;
        scope.spawn(move || {
            // Refused where the server has closed the connection, or the reader has left: that is seen there.
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

/// The mark is the last that comes, but for messages: of a large piece the end is searched.
fn has_mark(piece: &[u8]) -> bool {
    let from = if piece.len() > 16 * TAIL { piece.len() - TAIL } else { 0 };
    let first = MARK.as_bytes()[0];
    let piece = &piece[from..];
    piece.iter().enumerate().any(|(at, b)| *b == first && piece[at..].starts_with(MARK.as_bytes()))
}
