//! A command's reply: its meaning, not its encoding. `net/encode.rs` encodes it for RESP2 and RESP3.

use crate::error::ReplyError;
use crate::keyspace::packed::Packed;
use crate::lifecycle::dump::Payload;
use crate::server::protocol::Protocol;
pub use crate::types::contents::Shape;
pub(crate) use crate::types::hash::sample::Drawn;
use crate::types::items::Items;
use crate::types::set::stream::Members;
pub(crate) use crate::types::stream::entry::{sent, strings};
use crate::types::string::stream::Long;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

/// The format of plain text.
pub(super) const TXT: [u8; 3] = *b"txt";

/// A reply. If RESP2 and RESP3 differ, the variant states the meaning and the encoder chooses the form.
/// Small, because it is moved a dozen times on its way to the socket: what is rare and large is boxed.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Ok,
    /// A simple string.
    Simple(Cow<'static, str>),
    /// An error line.
    Error(ReplyError),
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Bytes),
    /// The null of a missing value: `$-1`, in RESP3 `_`.
    Nil,
    /// The null of a missing array (EXEC that WATCH aborted): `*-1`, in RESP3 `_`.
    NilArray,
    /// An array.
    Array(Vec<Reply>),
    /// Bulk strings in one allocation, because making and freeing each takes long: an `Array`, a `Map`, or `Pairs`
    /// of members and scores.
    Packed(Shape, Arc<Packed>),
    /// Random fields of a hash: an `Array`, or `Pairs` of fields and values. Each string is in memory once,
    /// however often it was drawn.
    Drawn(Box<Drawn>),
    /// Unordered distinct elements: an array in RESP2, `~` in RESP3.
    Set(Vec<Reply>),
    /// A `Set`, or an `Array` if it is no set, of bulk strings that are read while they are sent. Only if
    /// `Cx::may_stream`.
    Members(Box<Members>),
    /// A `Map` of fields and values, or an array of either or of elements, that are read while they are sent. Only
    /// if `Cx::may_stream`.
    Items(Box<Items>),
    /// A bulk string that is read while it is sent. Only if `Cx::may_stream`.
    Long(Box<Long>),
    /// Like `Long`, for DUMP of a long string.
    Dumped(Box<Payload>),
    /// Pairs: a flat array in RESP2, `%` in RESP3.
    Map(Vec<(Reply, Reply)>),
    /// Keys, each with what was read there: an array of arrays of two in RESP2, `%` in RESP3.
    Keyed(Vec<(Reply, Reply)>),
    /// Pairs: a flat array in RESP2, an array of arrays of two in RESP3.
    Pairs(Vec<(Reply, Reply)>),
    /// A double: a bulk string in RESP2, `,` in RESP3.
    Double(f64),
    /// A boolean: 0/1 in RESP2, `#` in RESP3.
    Bool(bool),
    /// Text in a format of three letters: a bulk string in RESP2, `=txt:` in RESP3.
    Verbatim(Bytes, [u8; 3]),
    /// An out-of-band message: an array in RESP2, `>` in RESP3.
    Push(Vec<Reply>),
    /// Like `Push`, shared by many receivers.
    Message(Arc<[Reply]>),
    /// Several replies to one request, one after the other (SUBSCRIBE).
    Several(Vec<Reply>),
    /// A number too large for 64 bits: a bulk string in RESP2, `(` in RESP3.
    BigNumber(Cow<'static, str>),
    /// Attributes of the reply that follows: `|` in RESP3, nothing in RESP2.
    Attributes(Vec<(Reply, Reply)>),
    /// No bytes: what follows is in this protocol, until the next one of these. None: in the client's.
    Speaking(Option<Protocol>),
    /// No bytes at all (CLIENT REPLY OFF/SKIP).
    None,
}

impl Reply {
    /// A bulk string from static text.
    pub(crate) const fn bulk_static(text: &'static str) -> Self {
        Reply::Bulk(Bytes::from_static(text.as_bytes()))
    }
    /// A bulk string from owned text.
    pub fn text(text: impl Into<String>) -> Self {
        Reply::Bulk(Bytes::from(text.into()))
    }
    /// Text without a format.
    pub(crate) fn verbatim(text: impl Into<Bytes>) -> Self {
        Reply::Verbatim(text.into(), TXT)
    }
    /// A bulk string, or nil.
    pub(crate) fn bulk_or_nil(value: Option<Bytes>) -> Self {
        value.map_or(Reply::Nil, Reply::Bulk)
    }
    /// An array of bulk strings.
    pub fn bulks(items: impl IntoIterator<Item = Bytes>) -> Self {
        Reply::Array(items.into_iter().map(Reply::Bulk).collect())
    }
    /// What [`Reply::Packed`] means, a reply for each string.
    pub fn unpacked(shape: Shape, strings: &Packed) -> Self {
        let bulk = |string: &[u8]| Reply::Bulk(Bytes::copy_from_slice(string));
        let score = |raw: &[u8]| raw.try_into().map_or(0.0, f64::from_le_bytes);
        let pairs = strings.iter().step_by(2).zip(strings.iter().skip(1).step_by(2));
        match shape {
            Shape::Single => Reply::Array(strings.iter().map(bulk).collect()),
            Shape::Map => Reply::Map(pairs.map(|(field, value)| (bulk(field), bulk(value))).collect()),
            Shape::Scored => {
                Reply::Pairs(pairs.map(|(member, of)| (bulk(member), Reply::Double(score(of)))).collect())
            }
            Shape::Entries => Reply::Array(strings.iter().map(Reply::entry).collect()),
        }
    }
    /// An entry of a stream in [`Shape::Entries`].
    fn entry(raw: &[u8]) -> Self {
        let (id, fields) = sent(raw);
        let bulk = |string: &[u8]| Reply::Bulk(Bytes::copy_from_slice(string));
        let fields = match fields.is_empty() {
            true => Reply::NilArray,
            false => Reply::Array(strings(fields).map(|string| bulk(string.unwrap_or_default())).collect()),
        };
        Reply::Array(vec![Reply::text(id.to_string()), fields])
    }
    /// Whether it is sent even if CLIENT REPLY suppresses replies.
    pub(crate) fn is_push(&self) -> bool {
        match self {
            Reply::Push(_) | Reply::Message(_) => true,
            Reply::Several(replies) => replies.iter().all(Reply::is_push),
            _ => false,
        }
    }
    /// Approximate bytes that the reply holds or is going to send: for output limits and batch sizes.
    pub fn weight(&self) -> usize {
        match self {
            Reply::Bulk(b) | Reply::Verbatim(b, _) => b.len() + 16,
            Reply::Simple(s) => s.len() + 3,
            Reply::Error(e) => e.0.len() + 3,
            Reply::Array(a) | Reply::Set(a) | Reply::Push(a) | Reply::Several(a) => {
                16 + a.iter().map(Reply::weight).sum::<usize>()
            }
            Reply::Packed(_, strings) => 16 + strings.size() + 16 * strings.len(),
            Reply::Drawn(drawn) => 16 + drawn.size() + 32 * drawn.len(),
            // As for `Long`.
            Reply::Items(items) => 16 + items.size(),
            // Counted as if it were this receiver's alone, as in Redis.
            Reply::Message(items) => 16 + items.iter().map(Reply::weight).sum::<usize>(),
            Reply::Members(members) => 64 + members.held(),
            // Counted as in Redis, although little of it is in memory unless the data changes while it is
            // sent.
            Reply::Long(long) => long.len() as usize + 16,
            Reply::Dumped(payload) => payload.len() as usize + 16,
            Reply::Map(m) | Reply::Pairs(m) | Reply::Keyed(m) => {
                16 + m.iter().map(|(k, v)| k.weight() + v.weight()).sum::<usize>()
            }
            _ => 16,
        }
    }
}

impl From<i64> for Reply {
    fn from(n: i64) -> Self {
        Reply::Int(n)
    }
}

impl From<bool> for Reply {
    /// 1 or 0, the reply of most commands.
    fn from(b: bool) -> Self {
        Reply::Int(i64::from(b))
    }
}

impl From<ReplyError> for Reply {
    fn from(e: ReplyError) -> Self {
        Reply::Error(e)
    }
}
