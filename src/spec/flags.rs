//! Flags of a command: Redis' own, as COMMAND prints them, and some of ours.

/// Command flags, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// May write: goes through a lane.
    pub const WRITE: Flags = Flags(1);
    /// Reads only.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused when out of memory (Redis); here: adds data.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Not from scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 4);
    /// Also while loading.
    pub const LOADING: Flags = Flags(1 << 5);
    /// Also on a stale replica.
    pub const STALE: Flags = Flags(1 << 6);
    /// O(1) or O(log n).
    pub const FAST: Flags = Flags(1 << 7);
    /// Before AUTH too.
    pub const NO_AUTH: Flags = Flags(1 << 8);
    /// Also while a script runs.
    pub const ALLOW_BUSY: Flags = Flags(1 << 9);
    /// Not inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 10);
    /// Keys are not at fixed places.
    pub const MOVABLEKEYS: Flags = Flags(1 << 11);
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 12);
    /// May block.
    pub const BLOCKING: Flags = Flags(1 << 13);
    /// Not while loading asynchronously.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 14);
    /// Pub/Sub.
    pub const PUBSUB: Flags = Flags(1 << 15);
    /// A cluster's node takes it also for a slot that it is still getting.
    pub const ASKING: Flags = Flags(1 << 16);
    /// Ours, not in COMMAND's list: also for a client in RESP2 that is subscribed.
    pub const WHILE_SUBSCRIBED: Flags = Flags(1 << 25);
    /// Ours, not in COMMAND's list, and a container's subcommands have it too: what CLIENT CACHING has said holds on behind it.
    pub const KEEPS_CACHING: Flags = Flags(1 << 26);
    /// Ours, not in COMMAND's list: it sends messages, which go through a store that servers share.
    pub const TELLS: Flags = Flags(1 << 27);
    /// Ours, not in COMMAND's list: for clients it only reads, but it may keep in the key what it found out.
    pub const KEEPS: Flags = Flags(1 << 28);
    /// Not in COMMAND's list: only where `enable-debug-command` allows it.
    pub const PROTECTED: Flags = Flags(1 << 29);
    /// Ours, not in COMMAND's list: never rides in a lane, runs in a transaction of its own.
    pub const HEAVY: Flags = Flags(1 << 30);

    /// Both.
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}
