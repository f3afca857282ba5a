//! A client that reads a reply line by line, whenever it likes.

use super::resp::request;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// See the module.
pub struct Reader(BufReader<TcpStream>);

impl Reader {
    pub fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Reader(BufReader::with_capacity(1 << 16, stream))
    }

    /// The connection, once all that was received has been read.
    pub fn stream(&mut self) -> &mut TcpStream {
        assert!(self.0.buffer().is_empty());
        self.0.get_mut()
    }

    /// Sends a command, whose arguments have no spaces.
    pub fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(&request(&line.split(' ').collect::<Vec<_>>())).unwrap();
    }

    /// The next line of the reply, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The number after `kind`.
    pub fn count(&mut self, kind: char) -> usize {
        let head = self.line();
        head.strip_prefix(kind).unwrap_or_else(|| panic!("{head}")).parse().unwrap()
    }

    pub fn bulk(&mut self) -> Vec<u8> {
        let mut body = vec![0; self.count('$') + 2];
        self.0.read_exact(&mut body).unwrap();
        let end = body.split_off(body.len() - 2);
        assert_eq!(end, b"\r\n");
        body
    }

    /// The strings of an aggregate; those of a map have two each.
    pub fn strings(&mut self, kind: char) -> Vec<Vec<u8>> {
        let n = self.count(kind);
        (0..if kind == '%' { 2 * n } else { n }).map(|_| self.bulk()).collect()
    }
}
