//! The one decision about a transaction that failed: whether another attempt follows.
//!
//! [`StoreError`] tells what became of the transaction, in FoundationDB's terms:
//! * [`StoreError::is_retryable`]: it was not committed, and the same transaction may succeed now (`RETRYABLE_NOT_COMMITTED`);
//! * [`StoreError::may_have_committed`]: nobody knows whether it was (`MAYBE_COMMITTED`).
//!
//! Background work and set-up ask [`Retries::on_error`], as with FoundationDB's `onError`. What clients sent is tried as long as
//! `store-timeout` says, and knows by its lane's number whether it was committed: `exec::deadline` and `exec::attempt`.

use super::{StoreError, held};
use crate::error::Error;

/// The attempts at one piece of work.
#[derive(Debug, Clone)]
pub struct Retries {
    /// How many may follow; None: any number.
    left: Option<u32>,
    /// Whether it may run again after a commit that nobody knows of.
    idempotent: bool,
}

impl Retries {
    /// At most `attempts`, of what only reads, or must not be done twice.
    pub(crate) fn new(attempts: u32) -> Self {
        Retries { left: Some(attempts.saturating_sub(1)), idempotent: false }
    }
    /// Any number, of the same: an attempt fails only where another transaction succeeds. Whoever holds a
    /// transaction must not wait so: see [`super::held`].
    pub(crate) fn endless() -> Self {
        Retries { left: None, idempotent: false }
    }
    /// Of what may be done twice: the next attempt sees what the last one did, or does it again to no harm.
    pub(crate) fn idempotent(self) -> Self {
        Retries { idempotent: true, ..self }
    }
    /// Another attempt follows one that failed with `e`, or the error is the end.
    pub(crate) fn on_error<E: Failure>(&mut self, e: E) -> Result<(), E> {
        let helps = e.store().is_some_and(|e| e.is_retryable() || self.idempotent && e.may_have_committed());
        match &mut self.left {
            _ if !helps => Err(e),
            None => {
                held::must_be_none();
                Ok(())
            }
            Some(0) => Err(e),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

/// An error that a transaction may have ended with.
pub trait Failure {
    /// What the store said, where it said something.
    fn store(&self) -> Option<&StoreError>;
}

impl Failure for StoreError {
    fn store(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl Failure for Error {
    fn store(&self) -> Option<&StoreError> {
        match self {
            Error::Store(e) => Some(e),
            Error::Reply(_) | Error::Undone(_) | Error::TooHeavy => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SYNTAX;

    #[test]
    fn attempts_are_counted_and_only_those_that_help() {
        let mut retries = Retries::new(3);
        assert_eq!(retries.on_error(StoreError::Conflict), Ok(()));
        assert_eq!(retries.on_error(StoreError::Unknown), Err(StoreError::Unknown));
        assert_eq!(retries.on_error(StoreError::TooOld), Ok(()));
        assert_eq!(
            retries.on_error(StoreError::Conflict),
            Err(StoreError::Conflict),
            "the third was the last"
        );
        assert!(Retries::new(1).on_error(StoreError::Conflict).is_err());
        let mut retries = Retries::endless().idempotent();
        for e in [StoreError::Conflict, StoreError::Unknown].into_iter().cycle().take(1000) {
            assert_eq!(retries.on_error(e), Ok(()));
        }
        for e in
            [StoreError::TooLarge, StoreError::Unavailable(String::new()), StoreError::Corrupt(String::new())]
        {
            assert_eq!(retries.on_error(e.clone()), Err(e));
        }
        assert!(retries.on_error(Error::from(SYNTAX)).is_err() && retries.on_error(Error::TooHeavy).is_err());
        assert!(retries.on_error(Error::from(StoreError::TooOld)).is_ok());
    }

    #[cfg(debug_assertions)]
    #[tokio::test]
    async fn nobody_who_holds_a_transaction_retries_endlessly() {
        let waits = tokio::spawn(async {
            let _held = held::Held::begin();
            assert_eq!(Retries::new(2).on_error(StoreError::TooOld), Ok(()), "waits, but ends");
            Retries::endless().on_error(StoreError::TooOld)
        });
        assert!(waits.await.is_err_and(|e| e.is_panic()));
    }
}
