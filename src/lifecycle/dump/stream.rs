//! The payload of a long string, produced while it is sent.

use super::crc::Crc;
use super::{FOOTER, STRING, VERSION, put_length};
use crate::error::Result;
use crate::types::string::stream::Long;
use crate::types::string::walk::Stretch;
use bytes::{BufMut, Bytes};

/// See the module. A clone continues from the same position.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    len: u64,
    /// The bytes before the string, until they have been returned.
    head: Option<Bytes>,
    body: Long,
    crc: Crc,
    /// Whether the footer has been returned.
    ended: bool,
}

impl Payload {
    /// The payload of a whole string, longer than any integer.
    pub(crate) fn new(body: Long) -> Self {
        let mut head = vec![STRING];
        put_length(&mut head, body.len());
        let len = head.len() as u64 + body.len() + FOOTER as u64;
        Payload { len, head: Some(head.into()), body, crc: Crc::default(), ended: false }
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The next part; None at the end. After an error, the call can be repeated: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Stretch>> {
        let next = match self.head.take() {
            Some(head) => Some(Stretch::Bytes(head)),
            None => self.body.next().await?,
        };
        match &next {
            Some(Stretch::Bytes(bytes)) => self.crc.add(bytes),
            Some(Stretch::Zeroes(n)) => self.crc.add_zeroes(*n),
            None if self.ended => {}
            None => return Ok(Some(Stretch::Bytes(self.footer()))),
        }
        Ok(next)
    }

    fn footer(&mut self) -> Bytes {
        self.ended = true;
        let version = VERSION.to_le_bytes();
        self.crc.add(&version);
        let mut footer = Vec::from(version);
        footer.put_u64_le(self.crc.sum());
        footer.into()
    }
}
