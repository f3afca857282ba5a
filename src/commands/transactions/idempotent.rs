//! IDEMPOTENT: a command under an id chosen by the client, so that a client that lost the reply can retry
//! exactly once.
//!
//! * The reply is kept in the command's own transaction (`lifecycle/idempotency.rs`), so it exists exactly if the
//!   effect does. The same id, on any connection to any server, is answered with it and runs nothing
//!   (`exec/idempotency.rs`).
//! * **An id belongs to its user.** The user's name is part of the idempotency record's key and of its fingerprint:
//!   RESULT and FORGET only see the user's own ids, and nobody can take another user's id by using it first.
//!   A user who is deleted and created again has the ids of that name. Ids are not per database, because a
//!   retry may come before SELECT. The selected database is part of the command's fingerprint, so reusing an
//!   id in another database is an error, not a reply.
//! * **The prefix is a command with a permission of its own**, in addition to that of the command behind it:
//!   `+get` does not allow keeping replies, and `-idempotent` forbids it. Kept replies are limited per user
//!   and in total (`idempotency-max-size`): beyond a limit a new id is refused before its command runs; a
//!   known one is answered.
//! * **The fingerprint** is a hash, keyed with the store's secret (`keyspace/secret.rs`), of the arguments,
//!   byte for byte (`incr` is not `INCR`). For EXEC it covers all queued commands but not WATCH: a retry that
//!   has watched again is still the same retry.
//! * **What may run**: commands whose whole effect is in the transaction, and SELECT, because the idempotency record
//!   records the database selected afterwards. Other effects on the connection or the server would be lost on
//!   a retry.
//! * **What is kept**: every outcome, including replies of reads and errors. Not the store's own errors
//!   (nothing was done, or the result is unknown), and not the null of an EXEC aborted by WATCH: nothing ran,
//!   and a retry must be able to run.
//! * `IDEMPOTENT RESULT` with the reply 0 says that nothing is committed yet. A command in flight may still
//!   commit; only sending the command again under its id settles that.

use crate::commands::args::Args;
use crate::commands::binding::{Command, Run, SessionOp};
use crate::commands::cx::Cx;
use crate::config::Settings;
use crate::error::{ReplyError, Result, StoreError};
use crate::keyspace::idempotency::IdempotencyRecord;
use crate::keyspace::keys::{IdempotencyName, Owner};
use crate::keyspace::secret::{Secret, Sum};
use crate::lifecycle::idempotency::{self, Sizes};
use crate::server::reply::Reply;
use crate::server::reply_codec;
use crate::spec::{Effect, Flags, Form, Group, PREFIX, Row, Secrets, Waits};
use crate::store::Tx;
use crate::{handler, help};
use bytes::Bytes;
use std::ops::RangeInclusive;

/// Valid lengths of an id, in bytes. Shorter words are subcommands.
pub(crate) const ID_LENGTH: RangeInclusive<usize> = 16..=255;

const BAD_ID: ReplyError = ReplyError::new("ERR an id must have 16 to 255 bytes. Try IDEMPOTENT HELP.");
const OTHER_COMMAND: ReplyError =
    ReplyError::new("ERR the id was already used for another command or in another database");

const USER_FULL: ReplyError = ReplyError::new(
    "ERR no room for another id: the replies kept for this user have reached idempotency-max-size-per-user. Forget ids that are \
     settled (IDEMPOTENT FORGET), or wait until the oldest are idempotency-min-age seconds old",
);
const ALL_FULL: ReplyError = ReplyError::new(
    "ERR no room for another id: the replies kept for all users have reached idempotency-max-size. Forget ids that are settled \
     (IDEMPOTENT FORGET), or wait until the oldest are idempotency-min-age seconds old",
);

/// Bytes to hash before other tasks run.
const SUMMED_AT_ONCE: usize = 256 << 10;

/// The command.
pub(crate) const COMMANDS: &[Command] = &[IDEMPOTENT];

const SUBS: &[Command] =
    &[IDEMPOTENT_FORGET, help!("idempotent", Group::Transactions, "7.4.0"), IDEMPOTENT_RESULT];

const IDEMPOTENT: Command = Command::new(
    Row::new(Group::Transactions, "idempotent", -2, "7.4.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM).or(Flags::NOSCRIPT).or(Flags::MOVABLEKEYS))
        .syntax("id command [arg [arg ...]]")
        .summary("Runs a command exactly once under an id; a retry gets the first reply.")
        .secrets(Secrets::Line(PREFIX))
        .form(Form::Prefix),
    Run::Nothing,
)
.with(SUBS);

/// Fails unless `id` is a valid id.
pub(crate) fn check_id(id: &[u8]) -> std::result::Result<(), ReplyError> {
    if ID_LENGTH.contains(&id.len()) { Ok(()) } else { Err(BAD_ID) }
}

/// Whether a retry of `row` can be answered: its whole effect is in the transaction or in the idempotency record.
pub(crate) fn may_run(row: &Row, run: Run) -> bool {
    let in_transaction = row.is_write() || row.flags.has(Flags::READONLY) || row.flags.has(Flags::PUBLISHES);
    match run {
        // Without waiting: XREAD answers at once.
        Run::Handler(_) => {
            (in_transaction || row.effect == Effect::Selects) && matches!(row.waits, Waits::No | Waits::Block)
        }
        Run::Script(_) => true,
        Run::Session(op) => op == SessionOp::Exec,
        Run::Refuse(_) | Run::Nothing => false,
    }
}

/// A command line, or an EXEC, under its id.
#[derive(Debug)]
pub(crate) struct IdempotentRequest<'a> {
    of: IdempotencyName<'a>,
    owner: Owner,
    fingerprint: u128,
}

/// What is known about one that ran.
pub(crate) struct KeptAnswer {
    /// Its reply.
    pub(crate) reply: Reply,
    /// The database selected afterwards.
    pub(crate) db: u8,
}

impl<'a> IdempotentRequest<'a> {
    /// The command `argv` of `user`, with database `db` selected.
    pub(crate) async fn command(secret: &Secret, user: &[u8], id: &'a [u8], db: u8, argv: &[Bytes]) -> Self {
        Self::new(secret, user, id, fingerprint(secret, [0, db], std::iter::once(argv)).await)
    }

    /// EXEC of `queue` by `user`, with database `db` selected.
    pub(crate) async fn exec<'q>(
        secret: &Secret,
        user: &[u8],
        id: &'a [u8],
        db: u8,
        queue: impl Iterator<Item = &'q [Bytes]>,
    ) -> Self {
        Self::new(secret, user, id, fingerprint(secret, [1, db], queue).await)
    }

    fn new(secret: &Secret, user: &[u8], id: &'a [u8], mut sum: Sum) -> Self {
        let owner = secret.owner(user);
        sum.update(&owner.0);
        let fingerprint = u128::from_le_bytes(sum.end());
        IdempotentRequest { of: IdempotencyName { owner: Some(owner), id }, owner, fingerprint }
    }

    /// Its reply; None if it has not run and may. Fails if the id belongs to another command, or if there is
    /// no room for the reply.
    pub(crate) async fn recall(&self, tx: &Tx, settings: &Settings) -> Result<Option<KeptAnswer>> {
        let (per_user, all) = (settings.idempotency_max_size_per_user, settings.idempotency_max_size);
        let sizes = async {
            if per_user == 0 && all == 0 {
                Ok(Sizes::default())
            } else {
                idempotency::sizes(tx, self.owner).await
            }
        };
        let (record, sizes) = tokio::try_join!(idempotency::read(tx, self.of), sizes)?;
        let Some(record) = record else {
            let full = |size: u64, most: usize| most > 0 && size >= most as u64;
            return match sizes {
                Sizes { user, .. } if full(user, per_user) => Err(USER_FULL.into()),
                Sizes { all: size, .. } if full(size, all) => Err(ALL_FULL.into()),
                _ => Ok(None),
            };
        };
        if record.fingerprint != self.fingerprint {
            return Err(OTHER_COMMAND.into());
        }
        Ok(Some(KeptAnswer { reply: decode(&record)?, db: record.db }))
    }

    /// Keeps the encoded `reply` (None: it cannot be kept) of a command that ran at `now` and left `db`
    /// selected. Only after [`IdempotentRequest::recall`] found nothing in `tx`.
    pub(crate) fn keep(&self, tx: &Tx, now: u64, db: u8, reply: Option<Vec<u8>>) -> Result<()> {
        let reply = reply.ok_or(StoreError::Corrupt("a streamed reply cannot be kept under an id".into()))?;
        let len = u32::try_from(reply.len()).map_err(|_| StoreError::ReplyTooLarge(reply.len()))?;
        let fingerprint = self.fingerprint;
        let record = IdempotencyRecord { is_owned: true, fingerprint, at: now, db, len, reply: reply.into() };
        Ok(idempotency::keep(tx, self.of, record)?)
    }
}

/// `begin`: its kind, and the selected database.
async fn fingerprint<'a>(secret: &Secret, begin: [u8; 2], lines: impl Iterator<Item = &'a [Bytes]>) -> Sum {
    let mut sum = secret.of_command();
    sum.update(&begin);
    let mut at_once = 0;
    for argv in lines {
        sum.update(&(argv.len() as u64).to_le_bytes());
        for arg in argv {
            sum.update(&(arg.len() as u64).to_le_bytes());
            for piece in arg.chunks(SUMMED_AT_ONCE) {
                sum.update(piece);
                at_once += piece.len();
                if at_once > SUMMED_AT_ONCE {
                    at_once = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    sum
}

fn decode(record: &IdempotencyRecord) -> Result<Reply> {
    let reply = reply_codec::decode(&record.reply);
    Ok(reply.ok_or_else(|| StoreError::Corrupt("a kept reply does not decode".into()))?)
}

/// The owner of the client's ids.
async fn owner(cx: &Cx<'_>) -> Result<Owner> {
    Ok(cx.server.space.secret().await?.owner(&cx.client.user))
}

const IDEMPOTENT_RESULT: Command = Command::new(
    Row::new(Group::Transactions, "result", 3, "7.4.0")
        .flags(Flags::READONLY)
        .syntax("id")
        .summary("Returns whether the command under an id was committed, and its reply."),
    handler!(result),
);

async fn result(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let id = args.next()?;
    check_id(id)?;
    let owner = Some(owner(cx).await?);
    Ok(Reply::Array(match idempotency::read(cx.tx, IdempotencyName { owner, id }).await? {
        Some(record) => vec![Reply::Int(1), decode(&record)?],
        None => vec![Reply::Int(0), Reply::Nil],
    }))
}

const IDEMPOTENT_FORGET: Command = Command::new(
    Row::new(Group::Transactions, "forget", -3, "7.4.0")
        .flags(Flags::WRITE)
        .syntax("id [id ...]")
        .summary("Deletes the replies kept under ids."),
    handler!(forget),
);

async fn forget(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    args.rest().iter().try_for_each(|id| check_id(id))?;
    let owner = Some(owner(cx).await?);
    let mut forgotten = 0;
    for id in args.rest() {
        forgotten += i64::from(idempotency::forget(cx.tx, IdempotencyName { owner, id }).await?);
    }
    Ok(Reply::Int(forgotten))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// For `bob`, with a secret of ones. Short lines need no yields.
    fn print<'a>(kind: u8, db: u8, lines: impl Iterator<Item = &'a [Bytes]>) -> u128 {
        let secret = Secret::decode(&[1; 33]).unwrap();
        let sum = fingerprint(&secret, [kind, db], lines).now_or_never().unwrap();
        IdempotentRequest::new(&secret, b"bob", b"", sum).fingerprint
    }

    fn line(words: &[&str]) -> Vec<Bytes> {
        words.iter().map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()
    }

    /// Stored, so it must not change between versions.
    #[test]
    fn fingerprints_are_these() {
        let argv = line(&["INCR", "k"]);
        assert_eq!(print(0, 0, std::iter::once(&argv[..])), 114391659099464752780046669114838857541);
    }

    #[test]
    fn the_user_is_part_of_it() {
        let secret = Secret::decode(&[1; 33]).unwrap();
        let argv = line(&["INCR", "k"]);
        let of = |user: &[u8]| {
            let request = IdempotentRequest::command(&secret, user, b"0123456789abcdef", 0, &argv);
            let request = request.now_or_never().unwrap();
            (request.fingerprint, request.owner)
        };
        let (one, other) = (of(b"ann"), of(b"bob"));
        assert!(one.0 != other.0 && one.1 != other.1);
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
            let sum = print(kind, db, lines.iter().map(Vec::as_slice));
            if let Some(other) = seen.insert(sum, (kind, db, lines.clone())) {
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
            let sum = |at| print(0, 0, std::iter::once(&split(at)[..]));
            prop_assert_eq!(sum(a) == sum(b), a == b);
        }
    }
}
