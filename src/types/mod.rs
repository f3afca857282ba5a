//! What a Redis value is, as operations on a transaction. `object` is the one door.

pub mod audit;
pub mod hyperloglog;
pub mod lease;
pub mod memo;
pub mod object;
pub mod set;
pub mod staged;
pub mod string;
