//! The dictionary of members: each member of a set has a number, an id.
//!
//! ```text
//! ids         the numbers themselves            forward, members    the rows that lead there and back
//! leases      blocks of numbers                 interner            gives members their numbers
//! resolve     finds the members of numbers      packed              many members in one allocation
//! hints       what is remembered of sets        unfolded            sets whose deltas wait to be folded
//! collector   state of the collection           condemned           numbers that it may remove
//! known       which numbers have members, for who reads them all
//! backpressure  slows commands down that make members faster than they are collected
//! ```

pub mod backpressure;
pub mod collector;
mod condemned;
pub mod forward;
pub(crate) mod hints;
pub mod ids;
pub mod interner;
pub(crate) mod known;
pub(crate) mod leases;
pub mod members;
pub mod packed;
pub mod resolve;
pub(crate) mod unfolded;
