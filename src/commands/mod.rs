//! Commands: one row and one short function each, a family a file.

pub mod args;
pub mod cx;
pub mod reply;
pub mod table;

pub mod glob;

pub mod strings;

/// The rows of all families.
pub const FAMILIES: &[&[table::Row]] = &[strings::ROWS];
