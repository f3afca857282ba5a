//! Command flags: Redis' own, as COMMAND prints them, and some of Tern's.

/// Command flags, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub(crate) const NONE: Flags = Flags(0);
    /// May write: goes through a lane.
    pub const WRITE: Flags = Flags(1);
    /// Reads only.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Redis: refused when out of memory; here: adds data.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Not allowed in scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 4);
    /// Allowed while loading.
    pub const LOADING: Flags = Flags(1 << 5);
    /// Allowed on a stale replica.
    pub const STALE: Flags = Flags(1 << 6);
    /// O(1) or O(log n).
    pub const FAST: Flags = Flags(1 << 7);
    /// Allowed before AUTH.
    pub const NO_AUTH: Flags = Flags(1 << 8);
    /// Allowed while a script runs.
    pub const ALLOW_BUSY: Flags = Flags(1 << 9);
    /// Not allowed inside MULTI.
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
    pub(crate) const PUBSUB: Flags = Flags(1 << 15);
    /// A cluster node also accepts it for a slot that it is importing.
    pub const ASKING: Flags = Flags(1 << 16);
    /// It is shown to MONITOR before what it calls.
    pub const SKIP_MONITOR: Flags = Flags(1 << 17);
    /// It may have no keys.
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 18);
    /// Tern's own, not in COMMAND's reply: also allowed for a subscribed client in RESP2.
    pub(crate) const WHILE_SUBSCRIBED: Flags = Flags(1 << 25);
    /// Tern's own, not in COMMAND's reply; a container's subcommands inherit it: CLIENT CACHING stays in
    /// effect after it.
    pub(crate) const KEEPS_CACHING: Flags = Flags(1 << 26);
    /// Tern's own, not in COMMAND's reply: it publishes messages, which go through a shared store.
    pub(crate) const PUBLISHES: Flags = Flags(1 << 27);
    /// Tern's own, not in COMMAND's reply: it only reads as far as clients see, but may store what it found
    /// out in the key.
    pub const KEEPS: Flags = Flags(1 << 28);
    /// Not in COMMAND's reply: only if `enable-debug-command` allows it.
    pub(crate) const PROTECTED: Flags = Flags(1 << 29);
    /// Tern's own, not in COMMAND's reply: never runs in a lane, but in a transaction of its own.
    pub(crate) const HEAVY: Flags = Flags(1 << 30);

    /// Both sets of flags.
    pub(crate) const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}
