//! Tern: a Redis server whose data lives in an ordered transactional key-value store.
//!
//! ```text
//! cli -> net -> session -> exec -> dispatch -> commands -> server -> lifecycle -> types -> keyspace -> store
//!                            (env, error, config, telemetry, spec: leaves; jobs: beside exec)
//! ```
//! Imports point rightwards only; `tests/tidy` fails on an arrow that points back.
//!
//! # Glossary
//! Redis', FoundationDB's and Roaring's words mean what they mean there: key, member, database, expiry (a time; TTL is what is left
//! of it), transaction, version, conflict, container. Ours:
//!
//! | word | what it is | where |
//! |---|---|---|
//! | row (of the table) | one command: name, arity, flags, keys, documentation; what runs it is bound to it elsewhere | [`spec`], [`commands::binding`] |
//! | row (of the store) | a key and a value of the ordered store | [`keyspace`] |
//! | call, window, unit | a command with its arguments; those of a client that run together; a window or an EXEC on its way | [`session`], [`exec`] |
//! | batch, attempt | units that share a transaction; one run of a batch | `exec::attempt` |
//! | lane, slot | a queue of units; what makes its unknown commits exactly-once | `exec::lane` |
//! | heavy | what runs beside the lanes, because others would wait for it | [`exec`] |
//! | outbox, message, delivery | what an attempt tells; one of those; their way to who listens | [`keyspace::cluster::messages`], [`server::telling`] |
//! | place, prefix, swaps | where a database is: what its rows begin with, and how often its number was swapped | [`keyspace::catalog`] |
//! | record, revision | a key's row; a number that no other state of any key has | [`types::record`] |
//! | type, kind, contract | a folder that answers a fixed list of operations; its name; that list | [`types::contract`] |
//! | object | rows of a value that is too large for its record | [`types::prebuilt`] |
//! | dictionary, id, interning | members and their numbers; giving a member its number | [`keyspace::dictionary`] |
//! | chunk, delta | a Roaring bitmap of 65 536 ids; changes of one that are not folded into it | [`types::set`] |
//! | ghost | what WATCH leaves in the row of an absent key | [`lifecycle::watched`] |
//! | claim, hold | a commit keeps the time below an expiry that it relied on; the time stands still for one attempt | [`keyspace::life`], [`mod@env`] |
//! | bus | how the servers of a store hear each other's messages | [`keyspace::cluster::bus`] |
//! | fence | a command keeps those who write its keys off for a moment | [`keyspace::cluster::fences`] |
//! | instance, epoch | a server of a store; one registration of it | [`keyspace::cluster::instances`] |
//! | generation | moves where a store has lost commits that it had acknowledged | [`store::Tx::generation`] |
//! | round | where the collection of the dictionary stands, for who writes sets | [`keyspace::dictionary::collector`] |
//! | prebuilt | built before the transaction that swaps it in, because it exceeds one | [`types::prebuilt`] |
//! | idempotency record | what a command under a client's id answered | [`lifecycle::idempotency`] |
//! | lease | what a server may give out, or build, without asking again | [`keyspace::dictionary::leases`], [`types::lease`] |

pub mod commands;
pub mod config;
pub mod dispatch;
pub mod env;
pub mod error;
pub mod exec;
pub mod jobs;
pub mod keyspace;
pub mod lifecycle;
pub mod net;
pub mod server;
pub mod session;
pub mod spec;
pub mod store;
pub mod telemetry;
pub mod types;
