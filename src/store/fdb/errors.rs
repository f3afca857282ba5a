//! Maps FoundationDB's errors to the contract's, by number; its texts are for people only.
//!
//! What matters is the classification of failed commits: everything is `Unknown` that does not prove that the
//! commit was not and will not be applied. The library's predicate "maybe committed" is narrower (1021,
//! 1039): a timeout or cancellation of a commit in flight is unknown too.

use crate::error::StoreError;
use foundationdb::FdbError;

const TOO_OLD: i32 = 1007;
const FUTURE_VERSION: i32 = 1009;
const NOT_COMMITTED: i32 = 1020;
const TIMED_OUT: i32 = 1031;
const PROCESS_BEHIND: i32 = 1037;
const DATABASE_LOCKED: i32 = 1038;
const COMMIT_PROXY_MEMORY: i32 = 1042;
const BATCH_THROTTLED: i32 = 1051;
const GRV_PROXY_MEMORY: i32 = 1078;
const TAG_THROTTLED: i32 = 1213;
const PROXY_TAG_THROTTLED: i32 = 1223;
const TOO_LARGE: i32 = 2101;
/// Numbers of client errors, which are rejected before anything is sent.
const CLIENT_ERRORS: std::ops::Range<i32> = 2000..3000;

/// The error of a read, or of anything else that cannot have written.
pub(super) fn of_read(e: FdbError) -> StoreError {
    match e.code() {
        code if runs_again(code) => StoreError::TooOld,
        TIMED_OUT => StoreError::Unavailable("no answer within store-timeout".into()),
        _ => unavailable(e),
    }
}

/// The error of a commit.
pub(super) fn of_commit(e: FdbError) -> StoreError {
    match e.code() {
        NOT_COMMITTED => StoreError::Conflict,
        TOO_LARGE => StoreError::TooLarge,
        code if runs_again(code) => StoreError::TooOld,
        code if code == DATABASE_LOCKED || CLIENT_ERRORS.contains(&code) => unavailable(e),
        _ => StoreError::Unknown,
    }
}

/// Whether nothing was applied and the same transaction may succeed with a new read version: too old, or
/// rejected because of load.
fn runs_again(code: i32) -> bool {
    matches!(
        code,
        TOO_OLD
            | FUTURE_VERSION
            | PROCESS_BEHIND
            | COMMIT_PROXY_MEMORY
            | BATCH_THROTTLED
            | GRV_PROXY_MEMORY
            | TAG_THROTTLED
            | PROXY_TAG_THROTTLED
    )
}

/// An error that a retry does not fix.
pub(super) fn unavailable(e: FdbError) -> StoreError {
    StoreError::Unavailable(format!("FoundationDB: {} ({})", e.message(), e.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_proved_not_to_be_applied_is_not_unknown() {
        let commit = |code| of_commit(FdbError::from_code(code));
        assert_eq!(commit(1020), StoreError::Conflict);
        assert_eq!(commit(2101), StoreError::TooLarge);
        for code in [1007, 1009, 1037, 1042, 1051, 1078, 1213, 1223] {
            assert_eq!(commit(code), StoreError::TooOld, "{code}");
        }
        for code in [1021, 1022, 1025, 1026, 1030, 1031, 1039, 1100, 1101, 1510, 4100] {
            assert_eq!(commit(code), StoreError::Unknown, "{code}");
        }
        for code in [1038, 2017, 2102, 2103] {
            assert!(matches!(commit(code), StoreError::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn a_read_is_never_unknown() {
        let read = |code| of_read(FdbError::from_code(code));
        for code in [1007, 1009, 1037] {
            assert_eq!(read(code), StoreError::TooOld, "{code}");
        }
        for code in [1021, 1025, 1031, 1036, 1038, 1101, 2017] {
            assert!(matches!(read(code), StoreError::Unavailable(_)), "{code}");
        }
    }
}
