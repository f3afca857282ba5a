//! Rows of the string commands since Redis 7.0: LCS, comparing deletes, digests, MSETEX, INCREX.

use super::binding::Command;
use super::{strings_compare, strings_increx, strings_lcs, strings_set};

/// The commands of this family.
pub const COMMANDS: &[Command] = &[
    strings_compare::DELEX,
    strings_compare::DELIFEQ,
    strings_compare::DIGEST,
    strings_increx::INCREX,
    strings_lcs::LCS,
    strings_set::MSETEX,
];
