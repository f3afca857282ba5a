//! The servers of a store: who they are, what they tell each other, and what they keep each other from.

pub mod bus;
pub(crate) mod fences;
pub mod instances;
pub mod messages;
pub mod transfer;
