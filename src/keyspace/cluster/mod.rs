//! The servers of a store: their registration, their messages to each other, and the fences between them.

pub mod bus;
pub(crate) mod fences;
pub mod instances;
pub mod messages;
pub mod transfer;
