//! The categories of ACL rules.

use super::{Entry, Flags, Group};

/// The categories in Redis' order, including those of commands that this server lacks.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// ACL categories of a row, without `@`.
pub fn categories(row: &Entry) -> Vec<&'static str> {
    let named = |category: &&str| row.categories.contains(category);
    let group = match row.group {
        _ if !row.subs.is_empty() => None,
        Group::String => Some("string"),
        Group::Bitmap => Some("bitmap"),
        Group::HyperLogLog => Some("hyperloglog"),
        Group::Set => Some("set"),
        Group::Hash => Some("hash"),
        Group::List => Some("list"),
        Group::SortedSet => Some("sortedset"),
        Group::Geo => Some("geo"),
        Group::Stream => Some("stream"),
        Group::Generic => Some("keyspace").filter(|_| !["set", "connection"].iter().any(named)),
        Group::Connection => Some("connection"),
        Group::Transactions => Some("transaction"),
        Group::Scripting => Some("scripting"),
        Group::Pubsub => Some("pubsub").filter(|_| row.flags.has(Flags::PUBSUB)),
        Group::Server | Group::Cluster => None,
    };
    let has = |flag, word| row.flags.has(flag).then_some(word);
    let implied = [
        has(Flags::WRITE, "write"),
        has(Flags::READONLY, "read").filter(|_| row.group != Group::Scripting),
        has(Flags::ADMIN, "admin"),
        has(Flags::ADMIN, "dangerous"),
        has(Flags::BLOCKING, "blocking"),
        Some(if row.flags.has(Flags::FAST) { "fast" } else { "slow" }),
        group,
    ];
    let all: Vec<_> = implied.into_iter().flatten().chain(row.categories.iter().copied()).collect();
    CATEGORIES.iter().copied().filter(|c| all.contains(c)).collect()
}
