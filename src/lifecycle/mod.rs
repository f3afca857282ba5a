//! Everything about a value that is independent of its type: expiry, reclaim, copy, dump, check, WATCH,
//! idempotency records.
//!
//! Nothing here knows the bytes of a type: it asks [`crate::types`] through the contract that every type
//! implements.

pub mod check;
pub(crate) mod copy;
pub mod dump;
pub mod expire;
pub mod idempotency;
pub mod reclaim;
pub mod watched;
