//! IDEMPOTENT: a command under an id that the client chose, so that a client that lost the answer can ask again.
//!
//! * The reply is kept in the command's own transaction (`types/receipt.rs`), so it is there exactly where the effect is. The
//!   same id again, on any connection to any server, is answered with it and runs nothing. `exec/once.rs` does that.
//! * **Ids are one space per store**: not per database and not per user, because a retry may come before SELECT, and there is
//!   one user. The selected database is part of the command's fingerprint, so an id that is used again in another database is
//!   an error, not an answer. A server with several users will have to put the user into the fingerprint.
//! * **The fingerprint** is the 128-bit xxh3 of the arguments, byte for byte (`incr` is not `INCR`); of EXEC, of all queued
//!   commands, but not of WATCH: a retry that has watched again is still the retry.
//! * **What may run**: commands whose effect is all in the transaction, and SELECT, because the receipt says which database
//!   was selected afterwards. What changes the connection or the server itself would be lost with it.
//! * **What is kept**: every outcome, a read's and an error's too. Not the store's own errors (nothing was done, or nobody
//!   knows), and not the null of an EXEC that WATCH aborted: nothing ran, and the retry shall be able to.
//! * `IDEMPOTENT RESULT` that answers 0 says that nothing is committed yet. What is still under way may be; only sending the
//!   command again under its id settles it.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::reply_codec;
use super::table::{Flags, Group, Row, Run, SessionOp};
use crate::error::{ReplyError, Result, StoreError};
use crate::keyspace::receipt::Receipt;
use crate::store::Tx;
use crate::types::receipt;
use crate::{handler, help};
use bytes::Bytes;
use std::ops::RangeInclusive;
use xxhash_rust::xxh3::Xxh3;

/// Lengths that an id may have, in bytes. Shorter words are subcommands.
pub const ID_LENGTH: RangeInclusive<usize> = 16..=255;

const BAD_ID: ReplyError = ReplyError::new("ERR an id has 16 to 255 bytes. Try IDEMPOTENT HELP.");
const OTHER_COMMAND: ReplyError =
    ReplyError::new("ERR the id was used for another command, or in another database");

const BASE: Row = Row {
    name: "idempotent",
    arity: -2,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::NOSCRIPT).or(Flags::MOVABLEKEYS),
    keys: &[],
    group: Group::Transactions,
    since: "7.4.0",
    syntax: "id command [arg [arg ...]]",
    summary: "Runs a command once under an id, and answers again what it answered.",
    run: Run::Prefix,
    subs: &[],
};

/// The row.
pub const ROWS: &[Row] = &[Row { subs: SUBS, ..BASE }];

const SUBS: &[Row] = &[
    Row {
        name: "forget",
        arity: -3,
        flags: Flags::WRITE,
        syntax: "id [id ...]",
        summary: "Forgets what the commands under ids answered.",
        run: handler!(forget),
        ..BASE
    },
    help!("idempotent", Group::Transactions, "7.4.0"),
    Row {
        name: "result",
        arity: 3,
        flags: Flags::READONLY,
        syntax: "id",
        summary: "Says whether the command under an id was committed, and what it answered.",
        run: handler!(result),
        ..BASE
    },
];

/// An error unless `id` can be one.
pub fn check_id(id: &[u8]) -> std::result::Result<(), ReplyError> {
    if ID_LENGTH.contains(&id.len()) { Ok(()) } else { Err(BAD_ID) }
}

/// Whether a retry can be answered for `row`: all that it does is in the transaction or in the receipt.
pub fn may_run(row: &Row) -> bool {
    let in_transaction = row.is_write() || row.flags.has(Flags::READONLY) || row.flags.has(Flags::TELLS);
    match row.run {
        Run::Handler(_) => in_transaction || row.name == "select",
        Run::Session(op) => op == SessionOp::Exec,
        Run::Prefix | Run::Refuse(_) | Run::Container => false,
    }
}

/// A command line, or an EXEC, under its id.
#[derive(Debug)]
pub struct Keyed<'a> {
    id: &'a [u8],
    fingerprint: u128,
}

/// What is known of one that ran.
pub struct Known {
    /// What it answered.
    pub reply: Reply,
    /// The database that was selected afterwards.
    pub db: u8,
}

impl<'a> Keyed<'a> {
    /// The command `argv` while database `db` is selected.
    pub fn command(id: &'a [u8], db: u8, argv: &[Bytes]) -> Self {
        Keyed { id, fingerprint: fingerprint(0, db, std::iter::once(argv)) }
    }

    /// EXEC of `queue` while database `db` is selected.
    pub fn exec<'q>(id: &'a [u8], db: u8, queue: impl Iterator<Item = &'q [Bytes]>) -> Self {
        Keyed { id, fingerprint: fingerprint(1, db, queue) }
    }

    /// What it answered; None where it has not run. An error where the id belongs to another command.
    pub async fn recall(&self, tx: &Tx) -> Result<Option<Known>> {
        let Some(receipt) = receipt::read(tx, self.id).await? else { return Ok(None) };
        if receipt.fingerprint != self.fingerprint {
            return Err(OTHER_COMMAND.into());
        }
        Ok(Some(Known { reply: decode(&receipt)?, db: receipt.db }))
    }

    /// Keeps the encoded `reply` (None: it cannot be) of a command that ran at `now` and after which `db` was selected. Only after
    /// [`Keyed::recall`] has found nothing in `tx`.
    pub fn keep(&self, tx: &Tx, now: u64, db: u8, reply: Option<Vec<u8>>) -> Result<()> {
        let reply = reply.ok_or(StoreError::Corrupt("a reply that is read while it is sent".into()))?;
        let len = u32::try_from(reply.len()).map_err(|_| StoreError::ReplyTooLarge(reply.len()))?;
        let receipt = Receipt { fingerprint: self.fingerprint, at: now, db, len, reply: reply.into() };
        Ok(receipt::keep(tx, self.id, receipt)?)
    }
}

fn fingerprint<'a>(kind: u8, db: u8, lines: impl Iterator<Item = &'a [Bytes]>) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&[kind, db]);
    for argv in lines {
        hasher.update(&(argv.len() as u64).to_le_bytes());
        for arg in argv {
            hasher.update(&(arg.len() as u64).to_le_bytes());
            hasher.update(arg);
        }
    }
    hasher.digest128()
}

fn decode(receipt: &Receipt) -> Result<Reply> {
    let reply = reply_codec::decode(&receipt.reply);
    Ok(reply.ok_or_else(|| StoreError::Corrupt("a kept reply".into()))?)
}

async fn result(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let id = args.next()?;
    check_id(id)?;
    Ok(Reply::Array(match receipt::read(cx.tx, id).await? {
        Some(receipt) => vec![Reply::Int(1), decode(&receipt)?],
        None => vec![Reply::Int(0), Reply::Nil],
    }))
}

async fn forget(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    args.rest().iter().try_for_each(|id| check_id(id))?;
    let mut forgotten = 0;
    for id in args.rest() {
        forgotten += i64::from(receipt::forget(cx.tx, id).await?);
    }
    Ok(Reply::Int(forgotten))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn line(words: &[&str]) -> Vec<Bytes> {
        words.iter().map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()
    }

    /// Stored, so it must not change from version to version.
    #[test]
    fn fingerprints_are_these() {
        let argv = line(&["INCR", "k"]);
        assert_eq!(fingerprint(0, 0, std::iter::once(&argv[..])), 216414636954869376066840562817233887933);
    }

    #[test]
    fn fingerprints_tell_apart() {
        let queues: Vec<(u8, u8, Vec<Vec<Bytes>>)> = vec![
            (0, 0, vec![line(&["INCR", "k"])]),
            (1, 0, vec![line(&["INCR", "k"])]),
            (0, 1, vec![line(&["INCR", "k"])]),
            (0, 0, vec![line(&["incr", "k"])]),
            (0, 0, vec![line(&["INCRk"])]),
            (0, 0, vec![line(&["INC", "Rk"])]),
            (0, 0, vec![line(&["INCR", "k", ""])]),
            (1, 0, vec![]),
            (1, 0, vec![line(&["INCR", "k"]), line(&["INCR", "k"])]),
            (1, 0, vec![line(&["INCR", "k", "INCR", "k"])]),
            (1, 0, vec![line(&["INCR"]), line(&["k"])]),
        ];
        let mut seen = HashMap::new();
        for (kind, db, lines) in queues {
            let print = fingerprint(kind, db, lines.iter().map(Vec::as_slice));
            if let Some(other) = seen.insert(print, (kind, db, lines.clone())) {
                panic!("{other:?} and {:?} have one fingerprint", (kind, db, lines));
            }
        }
    }

    proptest! {
        #[test]
        fn another_split_of_the_same_bytes_is_another_command(
            bytes in prop::collection::vec(any::<u8>(), 1..40),
            a: prop::sample::Index,
            b: prop::sample::Index,
        ) {
            let bytes = Bytes::from(bytes);
            let split = |at: usize| [bytes.slice(..at), bytes.slice(at..)];
            let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
            let print = |at| fingerprint(0, 0, std::iter::once(&split(at)[..]));
            prop_assert_eq!(print(a) == print(b), a == b);
        }
    }
}
