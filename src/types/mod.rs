//! What a Redis value is, as operations on a transaction. `object` is the one door.

pub mod check;
pub mod copy;
pub mod dump;
pub mod expire;
pub mod hyperloglog;
pub mod memo;
pub mod object;
pub mod receipt;
pub mod reclaim;
pub mod set;
pub mod staged;
pub mod string;
pub mod watched;
