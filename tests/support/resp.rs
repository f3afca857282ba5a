//! A blocking RESP client and a parser of RESP2 and RESP3 replies.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply's meaning. Types stay apart even where RESP2 and RESP3 mean the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-`
    Error(Vec<u8>),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` or `_`: which one
    Nil(u8),
    /// `*`
    Array(Vec<Value>),
    /// `~`
    Set(Vec<Value>),
    /// `>`
    Push(Vec<Value>),
    /// `%`, keys and values alternating
    Map(Vec<Value>),
    /// `,`
    Double(String),
    /// `#`
    Bool(bool),
    /// `=`, with its three letters
    Verbatim(Vec<u8>),
    /// `(`
    BigNumber(String),
}

/// A reply and its bytes.
#[derive(Clone)]
pub struct Reply {
    /// The bytes received.
    pub raw: Vec<u8>,
    /// Their meaning.
    pub value: Value,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Simple(b) => write!(f, "+{}", text(b)),
            Value::Error(b) => write!(f, "-{}", text(b)),
            Value::Int(n) => write!(f, ":{n}"),
            Value::Bulk(b) | Value::Verbatim(b) => write!(f, "\"{}\"", text(b)),
            Value::Nil(kind) => write!(f, "nil{}", char::from(*kind)),
            Value::Array(v) => f.debug_list().entries(v).finish(),
            Value::Set(v) => write!(f, "~{v:?}"),
            Value::Push(v) => write!(f, ">{v:?}"),
            Value::Map(v) => write!(f, "%{v:?}"),
            Value::Double(s) => write!(f, ",{s}"),
            Value::Bool(b) => write!(f, "#{b}"),
            Value::BigNumber(s) => write!(f, "({s}"),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.raw))
    }
}

/// Bytes as a line of text, escaped.
pub fn text(bytes: &[u8]) -> String {
    let shown = bytes.escape_ascii().to_string();
    if shown.len() <= 400 {
        return shown;
    }
    format!("{}... ({} bytes)", &shown[..400], bytes.len())
}

impl Value {
    /// The elements of an array, set, push or map.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::Array(v) | Value::Set(v) | Value::Push(v) | Value::Map(v) => Some(v),
            _ => None,
        }
    }
    /// The bytes of a string of any kind.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(b) | Value::Error(b) | Value::Bulk(b) | Value::Verbatim(b) => Some(b),
            _ => None,
        }
    }
    /// The number of an integer reply.
    pub fn int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }
    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }
}

/// A request as clients send it: an array of bulk strings.
pub fn request<A: AsRef<[u8]>>(argv: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", argv.len()).into_bytes();
    for arg in argv {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// One reply at the start of `bytes` and its length. None: more bytes are needed.
pub fn parse(bytes: &[u8]) -> io::Result<Option<(Value, usize)>> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
    let (line, after) = (&bytes[..end], end + 2);
    let Some((&kind, rest)) = line.split_first() else { return Err(bad("empty line")) };
    let word = || String::from_utf8_lossy(rest).into_owned();
    let number = || word().parse::<i64>().map_err(|_| bad(&format!("bad number in {}", text(line))));
    let value = match kind {
        b'+' => Value::Simple(rest.to_vec()),
        b'-' => Value::Error(rest.to_vec()),
        b':' => Value::Int(number()?),
        b',' => Value::Double(word()),
        b'(' => Value::BigNumber(word()),
        b'#' => Value::Bool(rest == b"t"),
        b'_' => Value::Nil(b'_'),
        b'$' | b'=' => return parse_bulk(bytes, after, kind, number()?),
        b'*' | b'~' | b'>' | b'%' => return parse_items(bytes, after, kind, number()?),
        _ => return Err(bad(&format!("unknown type: {}", text(line)))),
    };
    Ok(Some((value, after)))
}

fn parse_bulk(bytes: &[u8], start: usize, kind: u8, length: i64) -> io::Result<Option<(Value, usize)>> {
    let Ok(length) = usize::try_from(length) else { return Ok(Some((Value::Nil(kind), start))) };
    let Some(body) = bytes.get(start..start + length + 2) else { return Ok(None) };
    if !body.ends_with(b"\r\n") {
        return Err(bad("bulk string without its end"));
    }
    let body = body[..length].to_vec();
    let value = if kind == b'$' { Value::Bulk(body) } else { Value::Verbatim(body) };
    Ok(Some((value, start + length + 2)))
}

fn parse_items(bytes: &[u8], start: usize, kind: u8, count: i64) -> io::Result<Option<(Value, usize)>> {
    let Ok(count) = usize::try_from(count) else { return Ok(Some((Value::Nil(kind), start))) };
    let count = if kind == b'%' { count * 2 } else { count };
    let (mut items, mut at) = (Vec::with_capacity(count.min(1024)), start);
    for _ in 0..count {
        let Some((value, length)) = parse(&bytes[at..])? else { return Ok(None) };
        items.push(value);
        at += length;
    }
    let value = match kind {
        b'*' => Value::Array(items),
        b'~' => Value::Set(items),
        b'>' => Value::Push(items),
        _ => Value::Map(items),
    };
    Ok(Some((value, at)))
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

impl Client {
    /// Connects to a local port. Reads time out after 30 s.
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { stream, buffer: Vec::new(), start: 0 })
    }
    /// The local address, as the server sees it.
    pub fn address(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }
    /// Sets the timeout of reads.
    pub fn set_timeout(&self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).unwrap();
    }
    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
    /// Sends one command.
    pub fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> io::Result<()> {
        self.send_raw(&request(argv))
    }
    /// Closes the sending direction.
    pub fn finish(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
    /// Whether the server closes the connection without sending anything; silence does not count.
    pub fn is_closed(&mut self) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        self.read().is_err_and(|e| !matches!(e.kind(), TimedOut | WouldBlock))
    }
    /// Whether the server sends nothing for `long` and keeps the connection; a close does not count.
    pub fn is_silent(&mut self, long: Duration) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        let before = self.stream.read_timeout().unwrap();
        self.set_timeout(long);
        let silent = self.read().is_err_and(|e| matches!(e.kind(), TimedOut | WouldBlock));
        self.stream.set_read_timeout(before).unwrap();
        silent
    }
    /// The next reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((value, length)) = parse(&self.buffer[self.start..])? {
                let raw = self.buffer[self.start..self.start + length].to_vec();
                self.start += length;
                if self.start == self.buffer.len() {
                    self.buffer.clear();
                    self.start = 0;
                }
                return Ok(Reply { raw, value });
            }
            self.fill()?;
        }
    }
    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            n => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }
    /// Everything received until the server closes or the timeout passes; true if it closed.
    pub fn drain(&mut self) -> (Vec<u8>, bool) {
        let closed = loop {
            match self.fill() {
                Ok(()) => {}
                Err(e) => break !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            }
        };
        (self.buffer.split_off(self.start), closed)
    }
    /// Runs one command and returns its reply; a broken connection fails the test.
    pub fn run<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Reply {
        self.try_run(argv).unwrap_or_else(|e| {
            let line: Vec<String> = argv.iter().map(|a| text(a.as_ref())).collect();
            panic!("{}: {e}", line.join(" "))
        })
    }
    /// Runs one command and returns its reply.
    pub fn try_run<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> io::Result<Reply> {
        self.send(argv)?;
        self.read()
    }
    /// Runs one command in words and returns its reply's meaning.
    pub fn line(&mut self, line: &str) -> Value {
        self.run(&line.split(' ').collect::<Vec<_>>()).value
    }
}
