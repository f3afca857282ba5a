//! MONITOR: sends every command that ran on this server, as a line, to the clients that asked for them.
//!
//! A line is posted once its command has been answered, in the order of one client's replies. A client that
//! does not read is closed at its mailbox's limit (`client-output-buffer-limit pubsub`). While no client
//! monitors, a unit costs one load. As in Redis, commands for administrators are left out and passwords are
//! hidden.

use super::mailbox::Mailbox;
use super::redact::redacted;
use super::reply::Reply;
use super::{ClientState, Server};
use crate::spec::words::parse_i64;
use crate::spec::{Effect, Entry, Flags};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most bytes of an argument that a line shows.
const SHOWN: usize = 64 << 10;

/// The clients that monitor.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    some: AtomicBool,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
}

impl Monitors {
    /// Whether any client monitors.
    pub(crate) fn is_on(&self) -> bool {
        self.some.load(Ordering::Relaxed)
    }

    /// Adds a client, which may already be there.
    pub(crate) fn add(&self, mailbox: &Arc<Mailbox>) {
        self.keep(|m| !Arc::ptr_eq(m, mailbox), Some(mailbox.clone()));
        mailbox.client().set_monitor(true);
    }

    /// Removes a client, which need not be there.
    pub(crate) fn remove(&self, mailbox: &Arc<Mailbox>) {
        if self.is_on() {
            self.keep(|m| !Arc::ptr_eq(m, mailbox), None);
            mailbox.client().set_monitor(false);
        }
    }

    fn keep(&self, keep: impl Fn(&Arc<Mailbox>) -> bool, new: Option<Arc<Mailbox>>) {
        let mut mailboxes = self.mailboxes.lock();
        mailboxes.retain(keep);
        mailboxes.extend(new);
        self.some.store(!mailboxes.is_empty(), Ordering::Relaxed);
    }
}

/// A command that ran.
pub(crate) struct Ran<'a> {
    pub(crate) row: &'static Entry,
    pub(crate) argv: &'a [Bytes],
    pub(crate) reply: &'a Reply,
    /// The calls of its script, with the database of each.
    pub(crate) called: Vec<(u8, &'a [Bytes])>,
}

/// Posts the lines of commands that ran for `client`, which had selected `db` before the first.
pub(crate) fn feed<'a>(
    server: &Server,
    client: &ClientState,
    mut db: u8,
    ran: impl Iterator<Item = Ran<'a>>,
) {
    for Ran { row, argv, reply, called } in ran {
        if row.effect == Effect::Selects && *reply == Reply::Ok {
            let chosen = argv.get(1).and_then(|n| parse_i64(n));
            db = chosen.and_then(|n| u8::try_from(n).ok()).unwrap_or(db);
        }
        let show = |db: u8, who: &str, argv: &[Bytes]| {
            post(server, &line(server.env.clock.now_us(), db, who, &redacted(server.table, argv)));
        };
        if !row.flags.has(Flags::ADMIN) {
            show(db, &client.handle.addr, argv);
        }
        called.into_iter().for_each(|(db, argv)| show(db, "lua", argv));
    }
}

/// Posts a line to all clients that monitor; removes those that have left.
fn post(server: &Server, line: &str) {
    let mailboxes = server.monitors.mailboxes.lock().clone();
    let reads = |m: &&Arc<Mailbox>| server.post(m, Reply::Simple(line.to_owned().into()));
    let (reading, gone): (Vec<_>, Vec<_>) = mailboxes.iter().partition(reads);
    drop(reading);
    gone.into_iter().for_each(|mailbox| server.monitors.remove(mailbox));
}

fn line(now: u64, db: u8, addr: &str, argv: &[Bytes]) -> String {
    let mut out = format!("{}.{:06} [{db} {addr}]", now / 1_000_000, now % 1_000_000);
    for arg in argv {
        let (shown, more) = arg.split_at_checked(SHOWN).unwrap_or((arg, &[]));
        out.push_str(" \"");
        shown.iter().for_each(|byte| escape(*byte, &mut out));
        if !more.is_empty() {
            let _ = write!(out, "... ({} more bytes)", more.len());
        }
        out.push('"');
    }
    out
}

/// Escapes a byte as Redis' `sdscatrepr` does.
fn escape(byte: u8, out: &mut String) {
    match byte {
        b'\\' | b'"' => out.extend(['\\', char::from(byte)]),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        7 => out.push_str("\\a"),
        8 => out.push_str("\\b"),
        b' '..=b'~' => out.push(char::from(byte)),
        _ => out.push_str(&format!("\\x{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line() {
        let argv = [&b"SET"[..], b"k \"\\", b"\r\n\t\x07\x08\x00\xff"].map(Bytes::copy_from_slice);
        let want = r#"1700000000.000042 [3 1.2.3.4:5] "SET" "k \"\\" "\r\n\t\a\b\x00\xff""#;
        assert_eq!(line(1_700_000_000_000_042, 3, "1.2.3.4:5", &argv), want);
        let long = line(0, 0, "a", &[Bytes::from(vec![b'x'; SHOWN + 7])]);
        assert!(long.ends_with("xx... (7 more bytes)\""));
    }
}
