//! Rows of the string commands since Redis 7.0: LCS, comparing deletes, digests, MSETEX, INCREX.

use super::strings_compare::{delex, delifeq, show_digest};
use super::strings_increx::increx;
use super::strings_lcs::lcs;
use super::strings_set::msetex;
use super::table::{FindKeys, Flags, Group, KEY_RO, KeySpec, Row, one};
use crate::handler;

const COMPARED: &[KeySpec] = &[one(&["RW", "access", "delete", "variable_flags"])];
const TAKEN: &[KeySpec] = &[one(&["RW", "access", "delete"])];
const CHANGED: &[KeySpec] = &[one(&["RW", "access", "update"])];
const TWO: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Range { last: 1, step: 1 } }];
const NUMBERED: &[KeySpec] =
    &[KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Keynum { step: 2 } }];
const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "delex",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: COMPARED,
        group: Group::String,
        since: "8.4.0",
        syntax: "key [condition: IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
        summary: "Removes a key if its value or its digest compares as told.",
        run: handler!(delex),
        subs: &[],
    },
    Row {
        name: "delifeq",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: TAKEN,
        group: Group::String,
        since: "9.0.0",
        syntax: "key value",
        summary: "Removes a key if it holds this string: Valkey's DELEX with IFEQ.",
        run: handler!(delifeq),
        subs: &[],
    },
    Row {
        name: "digest",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: KEY_RO,
        group: Group::String,
        since: "8.4.0",
        syntax: "key",
        summary: "Returns the XXH3 digest of a string in hex.",
        run: handler!(show_digest),
        subs: &[],
    },
    Row {
        name: "increx",
        arity: -2,
        flags: WRITES.or(Flags::FAST),
        keys: CHANGED,
        group: Group::String,
        since: "8.8.0",
        syntax: "key [BYFLOAT float | BYINT integer] [SATURATE] [LBOUND lowerbound] [UBOUND upperbound] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
        summary: "Adds to a number inside bounds, and sets its expiry.",
        run: handler!(increx),
        subs: &[],
    },
    Row {
        name: "lcs",
        arity: -3,
        flags: Flags::READONLY,
        keys: TWO,
        group: Group::String,
        since: "7.0.0",
        syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        summary: "Finds the longest common subsequence of two strings.",
        run: handler!(lcs),
        subs: &[],
    },
    Row {
        name: "msetex",
        arity: -4,
        flags: WRITES.or(Flags::MOVABLEKEYS),
        keys: NUMBERED,
        group: Group::String,
        since: "8.4.0",
        syntax: "numkeys <data: key value> [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        summary: "Sets strings together with an expiry, all of them or none.",
        run: handler!(msetex),
        subs: &[],
    },
];
