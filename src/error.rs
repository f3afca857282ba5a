//! Errors as values with a decision inside: what happened, whether to retry, whose fault.
//!
//! A [`StoreError`] keeps its identity from the engine up to the reply; it becomes text only in
//! [`Error::into_reply`]. A [`ReplyError`] is an answer to the client: it never aborts a transaction.

use std::borrow::Cow;

/// What a storage engine can answer instead of a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another transaction wrote what this one read. Run it again.
    #[error("conflict with another transaction")]
    Conflict,
    /// The transaction is older than 5 s, or its read version is no longer held. Run it again.
    #[error(
        "transaction too old: the command takes longer than a transaction may last (limit 5 s), or the store is overloaded"
    )]
    TooOld,
    /// The transaction's writes and conflict ranges exceed 10 MB.
    #[error("the command writes more than a transaction can hold (limit 10 MB)")]
    TooLarge,
    /// A key longer than 9.9 kB (bytes given).
    #[error("key of {0} bytes exceeds the store's limit of 9900")]
    KeyTooLarge(usize),
    /// A value longer than 100 kB (bytes given).
    #[error("value of {0} bytes exceeds the store's limit of 100000")]
    ValueTooLarge(usize),
    /// A reply that is too long to be kept under a client's id (bytes given).
    #[error("reply of {0} bytes is too long to be kept under an id (limit 8000000): nothing was written")]
    ReplyTooLarge(usize),
    /// The commit may or may not have happened.
    #[error("commit result unknown")]
    Unknown,
    /// The engine refuses writes after a failed write or sync; reads go on.
    #[error("the store refuses writes: {0}")]
    ReadOnly(String),
    /// The engine cannot be reached, or failed while reading.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Stored bytes do not decode.
    #[error("corrupt data: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// True where running the same transaction again can succeed and nothing was committed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Conflict | StoreError::TooOld)
    }
}

/// An error line for the client, with its code first (`ERR ...`, `WRONGTYPE ...`), without CRLF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError(pub Cow<'static, str>);

impl ReplyError {
    /// An error line known at compile time.
    pub const fn new(line: &'static str) -> Self {
        ReplyError(Cow::Borrowed(line))
    }
    /// An error line with details; line breaks at its ends go, others become spaces, as Redis does.
    pub fn of(line: impl Into<String>) -> Self {
        let mut line: String = line.into();
        if line.contains(['\r', '\n']) {
            line = line.trim_matches(['\r', '\n']).replace(['\r', '\n'], " ");
        }
        ReplyError(Cow::Owned(line))
    }
    /// The code: what stands before the first space.
    pub fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

/// `WRONGTYPE`: the key holds another type.
pub const WRONGTYPE: ReplyError =
    ReplyError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// An option or its place is wrong.
pub const SYNTAX: ReplyError = ReplyError::new("ERR syntax error");
/// An argument or a stored value is not a signed 64-bit decimal integer.
pub const NOT_INTEGER: ReplyError = ReplyError::new("ERR value is not an integer or out of range");
/// An argument or a stored value is not a float.
pub const NOT_FLOAT: ReplyError = ReplyError::new("ERR value is not a valid float");
/// RENAME and friends on a missing key.
pub const NO_SUCH_KEY: ReplyError = ReplyError::new("ERR no such key");
/// A write to a key that the store cannot hold.
pub const KEY_TOO_LONG: ReplyError = ReplyError::new("ERR key is longer than 8192 bytes");

/// What a command can fail with: the store's error (decides about the transaction) or a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// From the store: the attempt loop decides.
    Store(StoreError),
    /// An answer to the client.
    Reply(ReplyError),
    /// What is stored makes the call too much work for a lane, and it has written nothing yet: the executor runs it where nobody
    /// queues behind it. Only where the call's context says that it runs in a lane.
    TooHeavy,
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
    /// The line a client reads. Called where retries are over.
    pub fn into_reply(self) -> ReplyError {
        match self {
            Error::Reply(e) => e,
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
