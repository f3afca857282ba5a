//! Decodes requests. The only file that uses `redis-protocol`.
//!
//! Requests have the form of RESP2 even after HELLO 3. `decode_range` returns the positions of the arguments
//! in a shared [`Bytes`]: no argument is copied. On its own it recurses on nested arrays, accepts frames that
//! are no requests, and restarts at the first byte whenever something is missing; so [`Scan`] runs first, and
//! it sees only complete, valid requests. Requests of few arguments do not pass through it but through
//! [`short`]: for a GET, `decode_range` takes 1100 of 8400 instructions.
//!
//! Replies are not encoded by `redis-protocol`, whose encoders require a tree of frames and fill the buffer
//! with zeros before they write; see [`super::encode`].

use super::scan::{Limits, ProtocolError, Scan, Scanned};
use crate::env::aside;
use crate::words;
use bytes::{Buf, Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

/// Buffer space for a read when little is expected.
const MIN_READ: usize = 4 * 1024;
/// Buffer space for a read when much is expected. A buffer larger than this is not kept for small requests.
const MAX_READ: usize = 64 * 1024;
/// A request with more bytes is moved and split aside.
const LONG: usize = 1 << 20;
/// The most arguments of a request that [`short`] splits.
const SHORT: usize = 256;

/// The bytes of one connection that are not yet requests.
#[derive(Debug, Default)]
pub struct Decoder {
    buf: BytesMut,
    scan: Scan,
    /// The known number of missing bytes of the current request.
    lacks: usize,
    /// Whether the last read returned much.
    busy: bool,
    /// Whether the buffer was allocated for large reads.
    large: bool,
    /// Whether the client has not logged in: then little is read at once.
    stranger: bool,
}

impl Decoder {
    /// The next complete request: its arguments, at least one. None: more bytes are needed. The `Bytes` of a
    /// request share the read buffer: copy anything that is kept for long.
    pub fn next_request(&mut self, limits: &Limits) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        self.stranger = !limits.authenticated;
        loop {
            let argv = match self.scan.run(&mut self.buf, limits)? {
                Scanned::Needs(n) => {
                    self.lacks = n;
                    return Ok(None);
                }
                Scanned::Nothing(len) => {
                    self.buf.advance(len);
                    Vec::new()
                }
                // Millions of arguments take a while.
                Scanned::Array(len) if len > LONG => aside(|| arguments(self.take(len)))?,
                Scanned::Array(len) => {
                    let request = self.take(len);
                    match short(&request) {
                        Some(argv) => argv,
                        None => arguments(request)?,
                    }
                }
                Scanned::Inline(len) => {
                    let line = self.take(len);
                    words::split(line.strip_suffix(b"\n").unwrap_or(&line))
                        .map_err(|_| ProtocolError::new("unbalanced quotes in request"))?
                }
            };
            self.scan = Scan::default();
            if !argv.is_empty() {
                return Ok(Some(argv));
            }
        }
    }

    /// The buffer to read into, with free space. Grows at most by doubling towards the known missing bytes,
    /// so that an announced length alone allocates nothing; shrinks again once little arrives.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.large && !self.busy && self.buf.is_empty() {
            self.buf = BytesMut::new();
            self.large = false;
        }
        let usual = if self.busy { MAX_READ } else { MIN_READ };
        let (least, want) = if self.lacks > usual {
            (self.lacks.min(MAX_READ), self.lacks.min(self.buf.len().max(MAX_READ)))
        } else {
            (usual / 4, usual)
        };
        if self.spare() < least {
            self.grow(want);
            self.large |= want > MIN_READ;
        }
        &mut self.buf
    }

    fn grow(&mut self, by: usize) {
        if self.stranger {
            // Exact, because many clients may connect that never log in.
            let mut grown = BytesMut::with_capacity(self.buf.len() + by);
            grown.extend_from_slice(&self.buf);
            self.buf = grown;
        } else if self.buf.len() > LONG {
            // This copies the whole buffer.
            aside(|| self.buf.reserve(by));
        } else {
            self.buf.reserve(by);
        }
    }

    /// Records how many bytes the last read returned.
    pub fn filled(&mut self, n: usize) {
        self.busy = n >= MIN_READ && !self.stranger;
    }

    /// Bytes of the incomplete request (`client-query-buffer-limit`).
    pub(crate) fn pending(&self) -> usize {
        self.buf.len()
    }

    /// Bytes that can be read without allocating.
    pub(crate) fn spare(&self) -> usize {
        self.buf.capacity() - self.buf.len()
    }

    /// Splits off the first `len` bytes. The rest of a large buffer moves to a new one: otherwise the
    /// connection would keep the large one forever.
    fn take(&mut self, len: usize) -> Bytes {
        let request = self.buf.split_to(len).freeze();
        if len > MAX_READ {
            self.buf = BytesMut::from(&*self.buf);
        }
        self.lacks = 0;
        request
    }
}

/// The arguments of a complete array of few bulk strings, whose form has been checked.
fn short(request: &Bytes) -> Option<Vec<Bytes>> {
    let (n, mut at) = header(request, 0)?;
    if n > SHORT {
        return None;
    }
    let mut argv = Vec::with_capacity(n);
    for _ in 0..n {
        let (len, from) = header(request, at)?;
        let to = from.checked_add(len)?;
        request.get(from..to)?;
        argv.push(request.slice(from..to));
        at = to + 2;
    }
    Some(argv)
}

/// The number in the header line at `at`, and the position after the line.
fn header(request: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = request.get(at + 1..)?;
    let mut n = 0usize;
    for (digits, byte) in line.iter().enumerate() {
        match byte {
            b'0'..=b'9' => n = n.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?,
            b'\r' => return Some((n, at + digits + 3)),
            _ => return None,
        }
    }
    None
}

/// The arguments of a complete array of bulk strings.
fn arguments(request: Bytes) -> Result<Vec<Bytes>, ProtocolError> {
    let Ok(Some((RangeFrame::Array(frames), _))) = decode_range(&request) else {
        return Err(ProtocolError::new("invalid multibulk length"));
    };
    frames.iter().map(|frame| argument(&request, frame)).collect()
}

fn argument(request: &Bytes, frame: &RangeFrame) -> Result<Bytes, ProtocolError> {
    match frame {
        RangeFrame::BulkString((from, to)) => Ok(request.slice(*from..*to)),
        _ => Err(ProtocolError::new("invalid bulk length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { max_bulk: 512 << 20, authenticated: true };

    fn feed(decoder: &mut Decoder, bytes: &[u8]) -> Option<Vec<Bytes>> {
        decoder.room().extend_from_slice(bytes);
        decoder.filled(bytes.len());
        decoder.next_request(&LIMITS).unwrap()
    }

    #[test]
    fn arguments_share_the_read_buffer() {
        let mut decoder = Decoder::default();
        let argv = feed(&mut decoder, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n").unwrap();
        assert_eq!(argv, [&b"GET"[..], b"k"]);
        let distance = argv[1].as_ptr() as usize - argv[0].as_ptr() as usize;
        assert_eq!(distance, "GET\r\n$1\r\n".len());
        assert_eq!(decoder.next_request(&LIMITS).unwrap().unwrap(), [&b"PING"[..]]);
        assert_eq!(decoder.next_request(&LIMITS), Ok(None));
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let mut decoder = Decoder::default();
        assert_eq!(feed(&mut decoder, b"*2147483647\r\n$536870912\r\nx"), None);
        assert_eq!(decoder.lacks, (512 << 20) + 2 - 1);
        decoder.room();
        assert!(decoder.buf.capacity() <= 3 * MAX_READ, "{}", decoder.buf.capacity());
    }

    #[test]
    fn a_large_request_leaves_no_large_buffer() {
        let mut decoder = Decoder::default();
        let n = 4 << 20;
        assert_eq!(feed(&mut decoder, format!("*2\r\n$4\r\nECHO\r\n${n}\r\n").as_bytes()), None);
        for _ in 0..n / MAX_READ {
            assert_eq!(feed(&mut decoder, &[b'x'; MAX_READ]), None);
        }
        let argv = feed(&mut decoder, b"\r\nPI").unwrap();
        assert_eq!(argv[1].len(), n);
        assert!(decoder.buf.capacity() < MIN_READ);
        assert_eq!(feed(&mut decoder, b"NG\r\n").unwrap(), [&b"PING"[..]]);
    }

    #[test]
    fn idle_connections_keep_small_buffers() {
        let mut decoder = Decoder::default();
        let many = b"PING\r\n".repeat(MIN_READ);
        let mut next = feed(&mut decoder, &many);
        while next.is_some() {
            next = decoder.next_request(&LIMITS).unwrap();
        }
        assert!(feed(&mut decoder, b"PING\r\n").is_some());
        decoder.room();
        assert!(decoder.buf.capacity() <= MIN_READ, "{}", decoder.buf.capacity());
    }

    /// All requests of a stream, and the error that ends it, when it arrives in these pieces.
    fn outcome<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
        let (mut decoder, mut requests) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.room().extend_from_slice(piece);
            decoder.filled(piece.len());
            loop {
                match decoder.next_request(&LIMITS) {
                    Ok(Some(argv)) => requests.push(argv),
                    Ok(None) => break,
                    Err(e) => return (requests, Some(e)),
                }
            }
        }
        (requests, None)
    }

    fn token() -> impl Strategy<Value = Vec<u8>> {
        let known: &[&[u8]] = &[
            b"*2\r\n",
            b"*1\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*1\rx",
            b"$3\r\nabc\r\n",
            b"$0\r\n\r\n",
            b"$4\r\n\r\n$1\r\n",
            b"$-1\r\n",
            b"PING\r\n",
            b"a 'b c' \"d\"\n",
            b"\r\n",
            b"\"x",
            b":1\r\n",
        ];
        prop_oneof![
            8 => proptest::sample::select(known).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        #[test]
        fn short_requests_are_split_as_by_the_library(
            argv in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..20)
        ) {
            let bulk = |arg: &Vec<u8>| [format!("${}\r\n", arg.len()).as_bytes(), arg, b"\r\n"].concat();
            let rest: Vec<u8> = argv.iter().flat_map(bulk).collect();
            let request = Bytes::from([format!("*{}\r\n", argv.len()).into_bytes(), rest].concat());
            let split = short(&request).unwrap();
            prop_assert_eq!(&split, &argv);
            prop_assert_eq!(Ok(split), arguments(request));
        }
        #[test]
        fn pieces_do_not_matter(tokens in proptest::collection::vec(token(), 0..24), size in 1usize..9) {
            let stream = tokens.concat();
            prop_assert_eq!(outcome(stream.chunks(size)), outcome(std::iter::once(&stream[..])));
        }
    }
}
