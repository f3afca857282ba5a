//! Finds the end of a request, and checks its form: `*N\r\n($len\r\n<data>\r\n)*`, or an inline line.
//!
//! A scan remembers its position, so a request of n bytes costs O(n) however many pieces it arrives in: an
//! argument's data is never examined, and the search for the end of a header line continues where it stopped.
//! Announced lengths allocate nothing. Texts and limits are those of Redis 7.0 (`processMultibulkBuffer`,
//! `processInlineBuffer`).

use crate::spec::words::parse_i64;

/// The longest header line and the longest inline command, in bytes without the line end.
const MAX_LINE: usize = 64 * 1024;
/// The most arguments of a client that has not authenticated.
const MAX_UNAUTHENTICATED_ARGS: i64 = 10;
/// The longest argument, header line and inline command of a client that has not authenticated, and its
/// longest request: a name and a password of that length, and a few words.
const MAX_UNAUTHENTICATED_BULK: usize = 16 * 1024;
const MAX_UNAUTHENTICATED_LINE: usize = 16 * 1024;
const MAX_UNAUTHENTICATED_REQUEST: usize = 36 * 1024;

/// The current limits on requests of a client.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest argument in bytes (`proto-max-bulk-len`).
    pub max_bulk: usize,
    /// False before AUTH if a password is required: only small requests.
    pub authenticated: bool,
}

/// A protocol error. The line goes to the client, then the connection is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(Vec<u8>);

impl ProtocolError {
    pub(super) fn new(what: impl AsRef<[u8]>) -> Self {
        ProtocolError(what.as_ref().to_vec())
    }
    /// The whole error line with its CRLF.
    pub(crate) fn line(&self) -> Vec<u8> {
        let text = self.0.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b });
        b"-ERR Protocol error: ".iter().copied().chain(text).chain(*b"\r\n").collect()
    }
}

/// The result of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// At least this number of bytes is missing.
    Needs(usize),
    /// The first bytes, of this number, are an array of bulk strings.
    Array(usize),
    /// The first bytes, of this number, are an inline line with its end.
    Inline(usize),
    /// The first bytes, of this number, are an empty request (`*0`, `*-1`).
    Nothing(usize),
}

/// The state of scanning the request at the beginning of a buffer.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Bytes already checked.
    done: usize,
    /// Bytes searched for the end of the current line; not below `done`.
    searched: usize,
    /// Arguments yet to come; None before the array's header.
    left: Option<u64>,
}

impl Limits {
    fn max_line(&self) -> usize {
        if self.authenticated { MAX_LINE } else { MAX_UNAUTHENTICATED_LINE }
    }
}

impl Scan {
    /// Continues with the bytes that have arrived. Rewrites the byte after a header's CR to LF, which Redis
    /// does not check either.
    pub(super) fn run(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Scanned, ProtocolError> {
        match (self.left, buf.first()) {
            (_, None) => Ok(Scanned::Needs(1)),
            (Some(_), _) => self.arguments(buf, limits),
            (None, Some(b'*')) => self.array(buf, limits),
            (None, Some(_)) => self.inline(buf, limits),
        }
    }

    fn inline(&mut self, buf: &[u8], limits: &Limits) -> Result<Scanned, ProtocolError> {
        let from = buf.get(self.searched..).unwrap_or_default();
        match from.iter().position(|b| *b == b'\n') {
            Some(at) => Ok(Scanned::Inline(self.searched + at + 1)),
            None if buf.len() > limits.max_line() => Err(ProtocolError::new("too big inline request")),
            None => {
                self.searched = buf.len();
                Ok(Scanned::Needs(1))
            }
        }
    }

    fn array(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Scanned, ProtocolError> {
        let Some((header, end)) = self.line(buf, limits, "too big mbulk count string")? else {
            return Ok(Scanned::Needs(1));
        };
        let n = header.get(1..).and_then(parse_i64).filter(|n| *n <= i64::from(i32::MAX));
        let n = n.ok_or_else(|| ProtocolError::new("invalid multibulk length"))?;
        if n > MAX_UNAUTHENTICATED_ARGS && !limits.authenticated {
            return Err(ProtocolError::new("unauthenticated multibulk length"));
        }
        if n <= 0 {
            return Ok(Scanned::Nothing(end));
        }
        self.left = Some(n.unsigned_abs());
        self.advance(end);
        self.arguments(buf, limits)
    }

    fn arguments(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Scanned, ProtocolError> {
        while let Some(left @ 1..) = self.left {
            // Beyond the data of an argument that has not completely arrived.
            if let Some(missing @ 1..) = self.done.checked_sub(buf.len()) {
                return Ok(Scanned::Needs(missing));
            }
            let Some((header, end)) = self.line(buf, limits, "too big bulk count string")? else {
                return Ok(Scanned::Needs(1));
            };
            self.advance(end + bulk_len(header, limits)? + 2);
            if self.done > MAX_UNAUTHENTICATED_REQUEST && !limits.authenticated {
                return Err(ProtocolError::new("unauthenticated bulk length"));
            }
            self.left = Some(left - 1);
        }
        match self.done.checked_sub(buf.len()) {
            Some(missing @ 1..) => Ok(Scanned::Needs(missing)),
            _ => Ok(Scanned::Array(self.done)),
        }
    }

    fn advance(&mut self, to: usize) {
        self.done = to;
        self.searched = to;
    }

    /// The header line at `done`, without its end, and the position after its end. None: it has not
    /// completely arrived.
    fn line<'b>(
        &mut self,
        buf: &'b mut [u8],
        limits: &Limits,
        too_big: &str,
    ) -> Result<Option<(&'b [u8], usize)>, ProtocolError> {
        let from = buf.get(self.searched..).unwrap_or_default();
        let Some(at) = from.iter().position(|b| *b == b'\r').map(|at| self.searched + at) else {
            self.searched = buf.len();
            return if buf.len() - self.done > limits.max_line() {
                Err(ProtocolError::new(too_big))
            } else {
                Ok(None)
            };
        };
        self.searched = at;
        let Some(end) = buf.get_mut(at + 1) else { return Ok(None) };
        *end = b'\n';
        Ok(buf.get(self.done..at).map(|line| (line, at + 2)))
    }
}

/// The length in an argument's header.
fn bulk_len(header: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
    let digits = match header {
        [b'$', digits @ ..] => digits,
        // An empty line: the byte in its place is its CR.
        other => {
            let got = other.first().copied().unwrap_or(b'\r');
            return Err(ProtocolError::new([&b"expected '$', got '"[..], &[got], b"'"].concat()));
        }
    };
    let len = parse_i64(digits).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= limits.max_bulk);
    let len = len.ok_or_else(|| ProtocolError::new("invalid bulk length"))?;
    if len > MAX_UNAUTHENTICATED_BULK && !limits.authenticated {
        return Err(ProtocolError::new("unauthenticated bulk length"));
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_bulk: 512 << 20, authenticated: true };

    #[test]
    fn a_scan_goes_on_where_it_stopped() {
        let mut raw = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n\r\n$1\r\r\n".to_vec();
        let whole = raw.len();
        let mut scan = Scan::default();
        for n in 0..whole {
            let before = scan.searched;
            assert!(matches!(scan.run(&mut raw[..n], &LIMITS), Ok(Scanned::Needs(1..))), "{n}");
            assert!(scan.searched >= before && scan.searched >= scan.done, "{n}");
        }
        assert_eq!(scan.run(&mut raw, &LIMITS), Ok(Scanned::Array(whole)));
    }

    #[test]
    fn the_data_of_an_argument_is_not_searched() {
        let mut raw = b"*1\r\n$1000000\r\nabc".to_vec();
        let mut scan = Scan::default();
        assert_eq!(scan.run(&mut raw, &LIMITS), Ok(Scanned::Needs(1_000_002 - 3)));
        assert_eq!(scan.done, raw.len() - 3 + 1_000_002);
    }

    #[test]
    fn only_small_requests_before_auth() {
        let strangers = Limits { authenticated: false, ..LIMITS };
        let error = |raw: &[u8]| Scan::default().run(&mut raw.to_vec(), &strangers).unwrap_err();
        assert_eq!(error(b"*11\r\n"), ProtocolError::new("unauthenticated multibulk length"));
        assert_eq!(error(b"*1\r\n$16385\r\n"), ProtocolError::new("unauthenticated bulk length"));
        let long = [&b"$16384\r\n"[..], &[b'x'; 16384], b"\r\n"].concat();
        let request =
            |n: usize| [format!("*{}\r\n$4\r\nAUTH\r\n", n + 1).as_bytes(), &long.repeat(n)].concat();
        assert!(matches!(Scan::default().run(&mut request(2), &strangers), Ok(Scanned::Array(_))));
        assert_eq!(error(&request(3)), ProtocolError::new("unauthenticated bulk length"));
        assert_eq!(error(&[b'x'; 16385]), ProtocolError::new("too big inline request"));
        assert_eq!(
            error(&[&b"*1\r\n$"[..], &[b'1'; 16385]].concat()),
            ProtocolError::new("too big bulk count string")
        );
    }
}
