//! The dictionary of members: it gives every member of a set a number, its id.
//!
//! ```text
//! ids           the ids themselves              forward, members  the rows from members to ids and back
//! leases        blocks of ids                   interner          gives members their ids
//! resolve       finds the members of ids        packed            many members in one allocation
//! hints         cached facts about sets         unfolded          sets whose deltas wait to be folded
//! collector     the collector's stored state    candidates        ids that the collector may remove
//! known         the ids that have members, for a reader of the whole dictionary
//! backpressure  slows down commands that make members faster than they are collected
//! ```

pub mod backpressure;
mod candidates;
pub mod collector;
pub mod forward;
pub(crate) mod hints;
pub mod ids;
pub mod interner;
pub(crate) mod known;
pub(crate) mod leases;
pub mod members;
pub mod resolve;
pub(crate) mod unfolded;
