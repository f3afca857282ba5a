//! Tern: a Redis server whose data lives in an ordered transactional key-value store.
//!
//! ```text
//! cli -> net -> session -> exec -> dispatch -> commands -> server -> lifecycle -> types -> keyspace -> store
//!            (env, error, config, telemetry, spec: leaves; jobs: beside exec)
//! ```
//! Imports point rightwards only. `tests/tidy` fails on an arrow that points back, and on a circle of more
//! than three files.
//!
//! # The life of a command
//! 1. `net` reads bytes from a socket and finds a request in them; `session` takes it. `dispatch::gate` looks
//!    up its row ([`spec`]) and asks every gate: arity, login, MULTI, access rules. What passes is a **call**.
//! 2. Calls that arrived together form a **unit**. [`exec`] runs a unit that only reads on a snapshot; one
//!    that writes goes to a **lane**, whose **batch** shares one transaction and one commit.
//! 3. `dispatch::Runner` runs each call inside that transaction: the handler in [`commands`] opens its keys
//!    through [`types::object`], works, and returns a reply. It publishes into an outbox.
//! 4. The batch commits, exactly once, retried until its deadline. Then messages go to subscribers and caches
//!    ([`server::publisher`]), and the replies to their clients. `docs/architecture.md` follows SADD and a
//!    MULTI through the files.
//!
//! # Why these rooms
//! * A row is data without a function, so [`spec`] is a leaf: access rules, COMMAND and MONITOR need no
//!   handler, and the circle row, handler, server, access rules, row is gone.
//! * `dispatch` knows neither sessions nor units, so a script can gate and run its calls in its own
//!   transaction, as a session's unit does.
//! * [`lifecycle`] asks a value through the contract that every type answers ([`types::contract`]), so a new
//!   type is a folder, its rows and a line in a list.
//! * The dictionary of members and the cluster are folders of [`keyspace`], not rooms of their own: a
//!   [`keyspace::Keyspace`] holds both, and both consist of its rows.
//!
//! # Glossary
//! Redis', FoundationDB's and Roaring's words mean what they mean there: key, member, database, expiry (a
//! time; the TTL is the rest of it), transaction, version, conflict, lease, container, group commit, publish.
//! Ours:
//!
//! | word | what it is | where |
//! |---|---|---|
//! | row (of the table) | one command: name, arity, flags, keys, documentation; its handler is bound to it elsewhere | [`spec`], [`commands::binding`] |
//! | row (of the store) | a key and a value of the ordered store | [`keyspace`] |
//! | call, window, unit | a command with its arguments; the calls of a client that run together; a window or an EXEC in flight | [`dispatch::Call`], [`session`], [`exec`] |
//! | batch, attempt | units that share a transaction; one run of a batch | `exec::attempt` |
//! | lane, slot | a queue of units; the key that makes its unknown commits exactly-once | `exec::lane` |
//! | heavy | a unit that runs beside the lanes, because others would wait for it | [`exec`] |
//! | outbox, message, publication | collects what an attempt publishes; one item of that; all that a commit publishes | [`keyspace::cluster::messages`], [`server::publisher`] |
//! | place, prefix, swaps | where a database is: the first bytes of its rows, and how often its number was swapped | [`keyspace::catalog`] |
//! | record, revision | a key's row; a number that no other state of any key has | [`types::record`] |
//! | type, kind, contract | a folder that answers a fixed list of operations; its name; that list | [`types::contract`] |
//! | object | rows of a value that is too large for its record | [`types::prebuilt`] |
//! | dictionary, id, interning | members and their numbers; giving a member its number | [`keyspace::dictionary`] |
//! | chunk, delta | a Roaring bitmap of 65 536 ids; changes of one that are not folded into it | [`types::set`] |
//! | ghost | the mark that WATCH leaves in the row of an absent key | [`lifecycle::watched`] |
//! | claim, hold | a commit keeps the time below an expiry that it relied on; the time stands still for one attempt | [`keyspace::life`], [`mod@env`] |
//! | bus | carries messages between the servers of a store | [`keyspace::cluster::bus`] |
//! | fence | a command keeps other writers of its keys away for a moment | [`keyspace::cluster::fences`] |
//! | instance, epoch | a server of a store; one registration of it | [`keyspace::cluster::instances`] |
//! | generation | changes when a store has lost commits that it had acknowledged | [`store::Tx::generation`] |
//! | layer, drain | the recent commits of one log, in memory; moving the oldest of them to RocksDB's tables | `store::local::recent` |
//! | gap | a range of keys that is known to be empty, so that reads jump over what was removed | `store::local::gaps` |
//! | round | the state of the dictionary's collection, for writers of sets | [`keyspace::dictionary::collector`] |
//! | prebuilt | built before the transaction that swaps it in, because it exceeds one | [`types::prebuilt`] |
//! | idempotency record | the reply of a command under a client's id | [`lifecycle::idempotency`] |
//! | lease | the ids that a server may hand out, or the time for which it may build, without asking again | [`keyspace::dictionary::leases`], [`types::lease`] |

pub mod commands;
pub mod config;
pub mod dispatch;
pub mod env;
pub mod error;
pub mod exec;
pub mod jobs;
pub mod keyspace;
pub mod lifecycle;
mod lua;
pub mod net;
mod script;
pub mod server;
pub mod session;
pub mod spec;
pub mod store;
pub mod telemetry;
pub mod types;
mod words;
