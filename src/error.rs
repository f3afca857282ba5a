//! Errors as values that carry a decision: what happened, whether to retry, whose fault it is.
//!
//! A [`StoreError`] keeps its identity from the engine to the reply; it becomes text only in
//! [`Error::into_reply`]. A [`ReplyError`] is a reply to the client: it never aborts a transaction.

use std::borrow::Cow;

/// An error of a storage engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another transaction wrote what this one read. Retry.
    #[error("conflict with another transaction")]
    Conflict,
    /// The transaction is older than 5 s, or its read version is no longer available. Retry.
    #[error(
        "transaction too old: the command takes longer than a transaction may last (limit 5 s), or the store is overloaded"
    )]
    TooOld,
    /// The transaction's writes and conflict ranges exceed 10 MB.
    #[error("the command writes more than a transaction can hold (limit 10 MB)")]
    TooLarge,
    /// A key longer than 9.9 kB (its length).
    #[error("key of {0} bytes exceeds the store's limit of 9900")]
    KeyTooLarge(usize),
    /// A value longer than 100 kB (its length).
    #[error("value of {0} bytes exceeds the store's limit of 100000")]
    ValueTooLarge(usize),
    /// A reply too long to be kept under a client's id (its length).
    #[error("reply of {0} bytes is too long to be kept under an id (limit 8000000): nothing was written")]
    ReplyTooLarge(usize),
    /// The commit may or may not have been applied.
    #[error("commit result unknown")]
    Unknown,
    /// The engine refuses writes after a failed write or sync; reads still work.
    #[error("the store refuses writes: {0}")]
    ReadOnly(String),
    /// The engine is unreachable, or a read failed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Stored bytes do not decode.
    #[error("corrupt data: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether running the same transaction again can succeed and nothing was committed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Conflict | StoreError::TooOld)
    }
    /// True where nobody knows whether the transaction was committed.
    pub(crate) fn may_have_committed(&self) -> bool {
        *self == StoreError::Unknown
    }
    /// True where the store cannot be reached, or refuses for load: it may answer later.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }
}

/// An error line for the client, with its code first (`ERR ...`, `WRONGTYPE ...`), without CRLF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError(pub Cow<'static, str>);

impl ReplyError {
    /// An error line known at compile time.
    pub(crate) const fn new(line: &'static str) -> Self {
        ReplyError(Cow::Borrowed(line))
    }
    /// An error line with details. As in Redis, line breaks at its ends are removed and others become spaces.
    pub(crate) fn of(line: impl Into<String>) -> Self {
        let mut line: String = line.into();
        if line.contains(['\r', '\n']) {
            line = line.trim_matches(['\r', '\n']).replace(['\r', '\n'], " ");
        }
        ReplyError(Cow::Owned(line))
    }
    /// The code: the text before the first space.
    pub(crate) fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

/// `WRONGTYPE`: the key holds another type.
pub(crate) const WRONGTYPE: ReplyError =
    ReplyError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// An option is wrong or misplaced.
pub(crate) const SYNTAX: ReplyError = ReplyError::new("ERR syntax error");
/// An argument or a stored value is not a signed 64-bit decimal integer.
pub(crate) const NOT_INTEGER: ReplyError = ReplyError::new("ERR value is not an integer or out of range");
/// An argument or a stored value is not a float.
pub(crate) const NOT_FLOAT: ReplyError = ReplyError::new("ERR value is not a valid float");
/// RENAME and friends on a missing key.
pub(crate) const NO_SUCH_KEY: ReplyError = ReplyError::new("ERR no such key");
/// The key is too long for the store.
pub(crate) const KEY_TOO_LONG: ReplyError = ReplyError::new("ERR key is longer than 8192 bytes");

/// An error of a command: the store's, which decides about the transaction, or a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An error of the store: the attempt loop decides.
    Store(StoreError),
    /// A reply to the client.
    Reply(ReplyError),
    /// The stored data makes the call too much work for a lane; it has not written anything yet. The executor
    /// runs it where nothing queues behind it. Only returned if the call's context says that it runs in a
    /// lane.
    TooHeavy,
    /// A reply to the client of a call that may have written: its writes are not kept.
    Undone(ReplyError),
}

impl From<StoreError> for Error {
    fn from(e: StoreError) -> Self {
        Error::Store(e)
    }
}

impl From<ReplyError> for Error {
    fn from(e: ReplyError) -> Self {
        Error::Reply(e)
    }
}

impl Error {
    /// The error line for the client. Called once no retry is left.
    pub fn into_reply(self) -> ReplyError {
        match self {
            Error::Reply(e) | Error::Undone(e) => e,
            Error::TooHeavy => {
                ReplyError::new("ERR internal error: a heavy command was not moved out of its lane")
            }
            Error::Store(StoreError::ReadOnly(why)) => ReplyError::of(format!(
                "MISCONF Errors writing to the store: {why}. Writes are refused until the server can write again, which it retries on its own; reads still work."
            )),
            Error::Store(StoreError::Unknown) => ReplyError::new(
                "ERR commit result unknown: the store did not answer, so the write may or may not have happened",
            ),
            Error::Store(e) => ReplyError::of(format!("ERR {e}")),
        }
    }
}

/// The result of a command and of an operation on values.
pub type Result<T> = std::result::Result<T, Error>;
/// The result of a store operation.
pub type StoreResult<T> = std::result::Result<T, StoreError>;
