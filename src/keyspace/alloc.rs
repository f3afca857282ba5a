//! The high-contention allocator. SCAFFOLD: written by the keyspace's helper.
