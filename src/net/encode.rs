//! Encodes replies in RESP2 and RESP3.
//!
//! The encoder walks a reply with its own stack, writes into a buffer until that is full, and drops what it
//! has written. So a reply of any size and depth needs one small buffer; long strings are handed out to be
//! written directly. A scalar allocates nothing.
//!
//! Members and long strings that have yet to be read are requested piece by piece ([`Step::Empty`]): the
//! encoder itself never waits.

use crate::server::reply::{Drawn, Reply, Shape, sent, strings};
use crate::server::unread::{Part, Strings, Text};
use crate::server::{Protocol, doubles};
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::Arc;
use std::vec::IntoIter;

/// Strings of at least this number of bytes are not copied into the buffer.
const DIRECT: usize = 32 * 1024;

/// The state of an encoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The whole reply is in the buffer.
    Done,
    /// The buffer is full: write it, then continue.
    Full,
    /// Write the buffer, then these bytes, then continue.
    Direct(Bytes),
    /// Read [`Encoder::unread`], then continue.
    Empty,
}

/// The rest of an aggregate.
#[derive(Debug)]
enum Rest {
    Items(IntoIter<Reply>),
    /// Elements shared with other receivers, and the number already written.
    Shared(Arc<[Reply]>, usize),
    Pairs(IntoIter<(Reply, Reply)>, Option<Reply>),
    /// Each pair as an array.
    Twos(IntoIter<(Reply, Reply)>),
    Strings(Strings),
    /// Members in turn with their scores; and whether each member and its score are an array.
    Scored(Strings, bool),
    /// Entries of a stream; and whether a missing one is written as in RESP3.
    Entries(Strings, bool),
    /// Random fields, and the number of elements already written.
    Drawn(Box<Drawn>, Form, usize),
    Text(Text),
}

/// The elements of random fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Fields,
    /// Fields and values in turn.
    Flat,
    /// Each field and its value as an array.
    Twos,
}

/// Writes bulk strings until `out` holds `full` bytes. Returns whether all strings that have been read were
/// written.
fn drain(strings: &mut Strings, out: &mut BytesMut, full: usize) -> bool {
    while let Some(string) = strings.take() {
        head(out, b'$', string.len());
        out.extend_from_slice(string);
        out.extend_from_slice(b"\r\n");
        if out.len() >= full {
            return false;
        }
    }
    true
}

/// The same for members in turn with their scores, in pairs (RESP3) or not.
fn drain_scored(strings: &mut Strings, in_pairs: bool, out: &mut BytesMut, full: usize) -> bool {
    while let Some(member) = strings.take() {
        if in_pairs {
            head(out, b'*', 2);
        }
        head(out, b'$', member.len());
        out.extend_from_slice(member);
        out.extend_from_slice(b"\r\n");
        let score = strings.take().and_then(|raw| raw.try_into().ok()).map_or(0.0, f64::from_le_bytes);
        let text = doubles::text(score);
        if in_pairs {
            line(out, b',', text.as_bytes());
        } else {
            head(out, b'$', text.len());
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if out.len() >= full {
            return false;
        }
    }
    true
}

/// The same for entries of a stream.
fn drain_entries(entries: &mut Strings, resp3: bool, out: &mut BytesMut, full: usize) -> bool {
    while let Some(entry) = entries.take() {
        let (id, fields) = sent(entry);
        head(out, b'*', 2);
        let id = id.to_string();
        head(out, b'$', id.len());
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(b"\r\n");
        match strings(fields).count() {
            0 => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"*-1\r\n" }),
            n => head(out, b'*', n),
        }
        for string in strings(fields) {
            let string = string.unwrap_or_default();
            head(out, b'$', string.len());
            out.extend_from_slice(string);
            out.extend_from_slice(b"\r\n");
        }
        if out.len() >= full {
            return false;
        }
    }
    true
}

/// The next step of an aggregate.
enum Next {
    Reply(Reply),
    /// A piece of the members, or the part that fits, was written.
    Written,
    /// A piece has to be read first.
    Unread,
    End,
}

impl Next {
    fn of(is_drained: bool, strings: &Strings) -> Self {
        match is_drained {
            false => Next::Written,
            true if strings.is_read() => Next::End,
            true => Next::Unread,
        }
    }
}

impl Rest {
    fn next(&mut self, out: &mut BytesMut, full: usize) -> Next {
        let reply = match self {
            Rest::Items(items) => items.next(),
            Rest::Shared(items, at) => {
                *at += 1;
                items.get(*at - 1).cloned()
            }
            Rest::Pairs(pairs, value) => value.take().or_else(|| {
                let (key, next) = pairs.next()?;
                *value = Some(next);
                Some(key)
            }),
            Rest::Twos(pairs) => pairs.next().map(|(one, other)| Reply::Array(vec![one, other])),
            Rest::Drawn(drawn, form, at) => {
                let nth = *at;
                *at += 1;
                match form {
                    Form::Fields => drawn.get(nth).map(|[field, _]| Reply::Bulk(field.clone())),
                    Form::Flat => {
                        let part = |pair: &[Bytes; 2]| pair.get(nth % 2).cloned();
                        drawn.get(nth / 2).and_then(part).map(Reply::Bulk)
                    }
                    Form::Twos => drawn.get(nth).map(|pair| Reply::bulks(pair.iter().cloned())),
                }
            }
            Rest::Strings(strings) => {
                let is_drained = drain(strings, out, full);
                return Next::of(is_drained, strings);
            }
            Rest::Scored(strings, in_pairs) => {
                let is_drained = drain_scored(strings, *in_pairs, out, full);
                return Next::of(is_drained, strings);
            }
            Rest::Entries(entries, resp3) => {
                let is_drained = drain_entries(entries, *resp3, out, full);
                return Next::of(is_drained, entries);
            }
            Rest::Text(text) => {
                if !text.pour(out, full) {
                    return Next::Written;
                }
                if !text.is_read() {
                    return Next::Unread;
                }
                out.extend_from_slice(b"\r\n");
                return Next::End;
            }
        };
        reply.map_or(Next::End, Next::Reply)
    }
}

/// A reply being encoded.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    stack: Vec<Rest>,
    /// Whether the string handed out last still needs its terminator.
    open: bool,
    /// As [`Reply::Speaking`] says.
    speaking: Option<Protocol>,
}

impl Encoder {
    /// Begins `reply`. Call it when the previous reply is [`Step::Done`], then [`Encoder::go_on`] until this
    /// one is.
    pub(crate) fn start(&mut self, reply: Reply, protocol: Protocol, out: &mut BytesMut) -> Step {
        match self.write(reply, protocol, out) {
            Some(bytes) => Step::Direct(bytes),
            None if self.stack.is_empty() => Step::Done,
            None => Step::Full,
        }
    }

    /// Continues until the reply is written or `out` holds `full` bytes.
    pub(crate) fn go_on(&mut self, protocol: Protocol, out: &mut BytesMut, full: usize) -> Step {
        if std::mem::take(&mut self.open) {
            out.extend_from_slice(b"\r\n");
        }
        while let Some(rest) = self.stack.last_mut() {
            match rest.next(out, full) {
                Next::Unread => return Step::Empty,
                Next::Written => {}
                Next::End => drop(self.stack.pop()),
                Next::Reply(reply) => {
                    if let Some(bytes) = self.write(reply, protocol, out) {
                        return Step::Direct(bytes);
                    }
                }
            }
            if out.len() >= full {
                return Step::Full;
            }
        }
        Step::Done
    }

    /// The part that [`Step::Empty`] asks to read.
    pub(crate) fn unread(&mut self) -> Option<Part<'_>> {
        match self.stack.last_mut() {
            Some(Rest::Strings(strings) | Rest::Scored(strings, _) | Rest::Entries(strings, _)) => {
                Some(Part::Strings(strings))
            }
            Some(Rest::Text(text)) => Some(Part::Text(text)),
            Some(Rest::Items(_) | Rest::Shared(..) | Rest::Pairs(..) | Rest::Twos(_) | Rest::Drawn(..))
            | None => None,
        }
    }

    /// Writes a scalar, or the header of an aggregate. Returns a string too long to copy, after writing its
    /// header.
    fn write(&mut self, reply: Reply, protocol: Protocol, out: &mut BytesMut) -> Option<Bytes> {
        let resp3 = self.speaking.unwrap_or(protocol) == Protocol::Resp3;
        match reply {
            Reply::Ok => out.extend_from_slice(b"+OK\r\n"),
            Reply::Simple(text) => line(out, b'+', text.as_bytes()),
            Reply::Error(e) => line(out, b'-', e.0.as_bytes()),
            Reply::Int(n) => line(out, b':', itoa::Buffer::new().format(n).as_bytes()),
            Reply::Bulk(bytes) => return self.string(out, b'$', b"", bytes),
            Reply::Verbatim(bytes, [a, b, c]) if resp3 => {
                return self.string(out, b'=', &[a, b, c, b':'], bytes);
            }
            Reply::Verbatim(bytes, _) => return self.string(out, b'$', b"", bytes),
            Reply::Nil | Reply::NilArray if resp3 => out.extend_from_slice(b"_\r\n"),
            Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
            Reply::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Reply::Double(d) if resp3 => line(out, b',', doubles::text(d).as_bytes()),
            Reply::Double(d) => return self.string(out, b'$', b"", doubles::text(d).into()),
            Reply::Bool(b) if resp3 => out.extend_from_slice(if b { b"#t\r\n" } else { b"#f\r\n" }),
            Reply::Bool(b) => out.extend_from_slice(if b { b":1\r\n" } else { b":0\r\n" }),
            Reply::Array(items) => self.items(out, b'*', items),
            Reply::Packed(shape, strings) => {
                let n = strings.len() as u64 / shape.strings();
                self.shaped(out, resp3, (n, shape), strings);
            }
            Reply::Drawn(drawn) => self.drawn(out, resp3, drawn),
            Reply::Set(items) => self.items(out, if resp3 { b'~' } else { b'*' }, items),
            Reply::Members(members) => {
                let kind = if resp3 && members.is_set() { b'~' } else { b'*' };
                self.strings(out, kind, members.len(), *members);
            }
            Reply::Items(items) => self.shaped(out, resp3, (items.len(), items.shape()), *items),
            Reply::Long(long) => self.text(out, long.len(), *long),
            Reply::Dumped(payload) => self.text(out, payload.len(), *payload),
            Reply::Push(items) => self.items(out, if resp3 { b'>' } else { b'*' }, items),
            Reply::Message(items) => {
                head(out, if resp3 { b'>' } else { b'*' }, items.len());
                self.stack.push(Rest::Shared(items, 0));
            }
            Reply::Map(pairs) => {
                head(out, if resp3 { b'%' } else { b'*' }, pairs.len() << usize::from(!resp3));
                self.stack.push(Rest::Pairs(pairs.into_iter(), None));
            }
            Reply::Keyed(pairs) if resp3 => {
                head(out, b'%', pairs.len());
                self.stack.push(Rest::Pairs(pairs.into_iter(), None));
            }
            Reply::Pairs(pairs) if resp3 => self.twos(out, pairs),
            Reply::Keyed(pairs) => self.twos(out, pairs),
            Reply::Pairs(pairs) => {
                head(out, b'*', 2 * pairs.len());
                self.stack.push(Rest::Pairs(pairs.into_iter(), None));
            }
            Reply::Several(replies) => self.stack.push(Rest::Items(replies.into_iter())),
            Reply::BigNumber(digits) if resp3 => line(out, b'(', digits.as_bytes()),
            Reply::BigNumber(digits) => {
                return self.string(out, b'$', b"", Bytes::from(digits.into_owned()));
            }
            Reply::Attributes(pairs) if resp3 => {
                head(out, b'|', pairs.len());
                self.stack.push(Rest::Pairs(pairs.into_iter(), None));
            }
            Reply::Speaking(protocol) => self.speaking = protocol,
            Reply::Attributes(_) | Reply::None => {}
        }
        None
    }

    /// `n` elements, fields or members.
    fn shaped(
        &mut self,
        out: &mut BytesMut,
        resp3: bool,
        (n, shape): (u64, Shape),
        strings: impl Into<Strings>,
    ) {
        let of_two = if resp3 { n } else { 2 * n };
        match shape {
            Shape::Single => self.strings(out, b'*', n, strings),
            Shape::Map => self.strings(out, if resp3 { b'%' } else { b'*' }, of_two, strings),
            Shape::Scored => {
                head(out, b'*', of_two);
                self.stack.push(Rest::Scored(strings.into(), resp3));
            }
            Shape::Entries => {
                head(out, b'*', n);
                self.stack.push(Rest::Entries(strings.into(), resp3));
            }
        }
    }

    /// Pairs, each an array.
    fn twos(&mut self, out: &mut BytesMut, pairs: Vec<(Reply, Reply)>) {
        head(out, b'*', pairs.len());
        self.stack.push(Rest::Twos(pairs.into_iter()));
    }

    fn strings(&mut self, out: &mut BytesMut, kind: u8, n: u64, strings: impl Into<Strings>) {
        head(out, kind, n);
        self.stack.push(Rest::Strings(strings.into()));
    }

    fn text(&mut self, out: &mut BytesMut, len: u64, text: impl Into<Text>) {
        head(out, b'$', len);
        self.stack.push(Rest::Text(text.into()));
    }

    fn drawn(&mut self, out: &mut BytesMut, resp3: bool, drawn: Box<Drawn>) {
        let (form, each) = match drawn.with_values() {
            false => (Form::Fields, 1),
            true if resp3 => (Form::Twos, 1),
            true => (Form::Flat, 2),
        };
        head(out, b'*', drawn.len() * each);
        self.stack.push(Rest::Drawn(drawn, form, 0));
    }

    fn items(&mut self, out: &mut BytesMut, kind: u8, items: Vec<Reply>) {
        head(out, kind, items.len());
        self.stack.push(Rest::Items(items.into_iter()));
    }

    fn string(&mut self, out: &mut BytesMut, kind: u8, prefix: &[u8], bytes: Bytes) -> Option<Bytes> {
        head(out, kind, prefix.len() + bytes.len());
        out.extend_from_slice(prefix);
        if bytes.len() >= DIRECT {
            self.open = true;
            return Some(bytes);
        }
        out.extend_from_slice(&bytes);
        out.extend_from_slice(b"\r\n");
        None
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.put_u8(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn head(out: &mut BytesMut, kind: u8, n: impl itoa::Integer) {
    line(out, kind, itoa::Buffer::new().format(n).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WRONGTYPE;
    use crate::keyspace::packed::Packed;

    fn encoded(reply: Reply, protocol: Protocol, full: usize) -> Vec<u8> {
        let (mut encoder, mut out, mut sent) = (Encoder::default(), BytesMut::new(), Vec::new());
        let mut step = encoder.start(reply, protocol, &mut out);
        loop {
            sent.extend_from_slice(&out.split());
            match step {
                Step::Done => return sent,
                Step::Direct(bytes) => sent.extend_from_slice(&bytes),
                Step::Full => {}
                Step::Empty => panic!("nothing is to be read"),
            }
            step = encoder.go_on(protocol, &mut out, full);
        }
    }

    fn bulk(text: &'static str) -> Reply {
        Reply::bulk_static(text)
    }

    fn packed(strings: &[&str]) -> Packed {
        let mut packed = Packed::default();
        strings.iter().for_each(|string| packed.push(string.as_bytes()));
        packed
    }

    #[test]
    fn every_kind_in_both_protocols() {
        let table: Vec<(Reply, &str, &str)> = vec![
            (Reply::Ok, "+OK\r\n", "+OK\r\n"),
            (Reply::Simple("PONG".into()), "+PONG\r\n", "+PONG\r\n"),
            (Reply::Int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::NilArray, "*-1\r\n", "_\r\n"),
            (Reply::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (Reply::Bool(true), ":1\r\n", "#t\r\n"),
            (Reply::Bool(false), ":0\r\n", "#f\r\n"),
            (Reply::Verbatim("ab".into(), *b"mkd"), "$2\r\nab\r\n", "=6\r\nmkd:ab\r\n"),
            (Reply::verbatim("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (
                Reply::Packed(Shape::Single, packed(&["a", "", "b"]).into()),
                "*3\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nb\r\n",
                "*3\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nb\r\n",
            ),
            (Reply::Packed(Shape::Single, Default::default()), "*0\r\n", "*0\r\n"),
            (Reply::Set(vec![bulk("a")]), "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"),
            (Reply::Push(vec![Reply::Int(1)]), "*1\r\n:1\r\n", ">1\r\n:1\r\n"),
            (
                Reply::Message([bulk("a"), Reply::Int(1)].into()),
                "*2\r\n$1\r\na\r\n:1\r\n",
                ">2\r\n$1\r\na\r\n:1\r\n",
            ),
            (Reply::BigNumber("10".into()), "$2\r\n10\r\n", "(10\r\n"),
            (
                Reply::Several(vec![Reply::Attributes(vec![(Reply::Int(1), Reply::Int(2))]), Reply::Ok]),
                "+OK\r\n",
                "|1\r\n:1\r\n:2\r\n+OK\r\n",
            ),
            (
                Reply::Map(vec![(bulk("a"), Reply::Int(1)), (bulk("b"), Reply::Nil)]),
                "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n",
                "%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n",
            ),
            (
                Reply::Pairs(vec![(bulk("a"), Reply::Int(1)), (bulk("b"), Reply::Nil)]),
                "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n",
                "*2\r\n*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\nb\r\n_\r\n",
            ),
            (
                Reply::Several(vec![Reply::Push(vec![bulk("a")]), Reply::Ok]),
                "*1\r\n$1\r\na\r\n+OK\r\n",
                ">1\r\n$1\r\na\r\n+OK\r\n",
            ),
            (Reply::None, "", ""),
        ];
        for (reply, resp2, resp3) in table {
            for full in [1, 1 << 20] {
                assert_eq!(encoded(reply.clone(), Protocol::Resp2, full), resp2.as_bytes(), "{reply:?}");
                assert_eq!(encoded(reply.clone(), Protocol::Resp3, full), resp3.as_bytes(), "{reply:?}");
            }
        }
        let error = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
        assert_eq!(encoded(Reply::Error(WRONGTYPE), Protocol::Resp2, 1), error);
    }

    #[test]
    fn long_strings_are_handed_out_and_large_arrays_come_in_pieces() {
        let long = Bytes::from(vec![b'x'; DIRECT]);
        let (mut encoder, mut out) = (Encoder::default(), BytesMut::new());
        let reply = Reply::Array(vec![Reply::Bulk(long.clone()), Reply::Int(7)]);
        assert_eq!(encoder.start(reply, Protocol::Resp2, &mut out), Step::Full);
        assert_eq!(encoder.go_on(Protocol::Resp2, &mut out, 4096), Step::Direct(long));
        assert_eq!(out.split(), format!("*2\r\n${DIRECT}\r\n"));
        assert_eq!(encoder.go_on(Protocol::Resp2, &mut out, 4096), Step::Done);
        assert_eq!(out.split(), "\r\n:7\r\n");

        encoder.start(Reply::Array(vec![Reply::Int(1); 100_000]), Protocol::Resp2, &mut out);
        while encoder.go_on(Protocol::Resp2, &mut out, 4096) != Step::Done {
            assert!(out.len() < 4096 + 16);
            out.clear();
        }
    }

    #[test]
    fn deep_replies_need_no_stack() {
        let deep = (0..20_000).fold(Reply::Int(1), |inner, _| Reply::Array(vec![inner]));
        let text = encoded(deep, Protocol::Resp3, 4096);
        assert_eq!(text.len(), 20_000 * 4 + 4);
    }
}
