//! The contract: the fixed list of operations that every type of value implements.
//!
//! [`Type`] is that list. A type implements it in its own folder, and one line of `types!` in
//! [`crate::types`] registers it: the macro generates [`Value`](crate::types::Value) and
//! [`Kind`](crate::types::Kind), with a `match` without wildcard for each operation. Generic code (the door
//! [`crate::types::object`], the room [`crate::lifecycle`], commands on any key) knows no type: it calls
//! those two.
//!
//! # What all types share
//! * A value is stored in its record, or in rows under an object id that its record names. Only this type
//!   uses the tags of those rows ([`Type::ROWS`]), and each key begins with the tag and the id. So the tags
//!   are enough to copy, remove and audit them.
//! * A type whose objects change without their record counts its elements in the row `N` ([`Type::COUNTED`]).
//!   Such a key exists while the count is above 0, and WATCH compares that row as well as the record's
//!   revision.

use super::audit::{Auditor, Findings};
use super::dumped::Dump;
use super::prebuilt::{Object, Source};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::Read;
use bytes::Bytes;

/// The operations on one value of a type; see the module.
pub(crate) trait Type: Sized {
    /// The answer to TYPE, and the name for SCAN's TYPE option.
    const NAME: &'static str;
    /// Tags of its records, never reused; 8 belongs to ghosts.
    const TAGS: &'static [u8];
    /// Tags of its objects' rows below a database's prefix, besides `N`; never reused.
    const ROWS: &'static [u8];
    /// Whether its objects have a row `N`.
    const COUNTED: bool;
    /// The name of its objects in a report of `tern check`.
    const OBJECTS: &'static str;

    /// One of [`Type::TAGS`].
    fn tag(&self) -> u8;
    /// Appends the payload that follows the record's head.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes the bytes that [`Type::encode`] wrote under `tag`. None if they are damaged.
    fn decode(tag: u8, payload: Bytes) -> Option<Self>;

    /// The object whose rows belong to the value.
    fn oid(&self) -> Option<Oid>;
    /// The same value with its rows under another object id.
    fn moved(&self, oid: Oid) -> Self;
    /// The object whose rows hold ids of the dictionary of members, which the collector must therefore read.
    fn interned(&self) -> Option<Oid>;

    /// A time before which none of its elements expires by itself. None if no element expires. The expiry index
    /// names the key at this time, so that a job calls `lifecycle::expire`.
    fn due(&self) -> Option<u64> {
        None
    }
    /// Whether some of its `n` elements exist, which their row `N` counts: elements may have expired and not
    /// been removed yet.
    fn has_any(&self, _: &Scope<'_>, n: u64, _: Read) -> impl Future<Output = Result<bool>> + Send {
        std::future::ready(Ok(n > 0))
    }

    /// A number that changes with each change of the value that moves neither its record nor `N`: a copy that takes
    /// several transactions depends on it. WATCH does not, as in Redis.
    fn aside(&self, _: &Scope<'_>, _: Read) -> impl Future<Output = Result<i128>> + Send {
        std::future::ready(Ok(0))
    }

    /// The answer to OBJECT ENCODING.
    fn encoding(&self) -> &'static str;
    /// The answer to OBJECT REFCOUNT.
    fn references(&self) -> i64;
    /// Bytes that a command processes to copy the value, about. A value of weight 0 is never too heavy for a lane.
    fn weight(&self, s: &Scope<'_>) -> impl Future<Output = Result<u64>> + Send;
    /// Bytes of a string, elements of any other type.
    fn len(&self, s: &Scope<'_>, read: Read) -> impl Future<Output = Result<u64>> + Send;
    /// Approximate bytes that the value takes in the store, besides its record's head.
    fn memory(&self, s: &Scope<'_>) -> impl Future<Output = Result<u64>> + Send;

    /// Builds a copy of its rows in `to`, for a value that exceeds a transaction. `source` is the key from
    /// which `s` has read the value. None if it has no rows.
    fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> impl Future<Output = Result<Option<Object>>> + Send;
    /// The value whose rows are those of `object`.
    fn prebuilt(object: &Object) -> Self;

    /// The value in the terms of Redis' snapshot files. Fails with [`StoreError::ReplyTooLarge`] if it is read from rows
    /// that have more than `most` bytes; a set may have more.
    fn dump(&self, s: &Scope<'_>, most: usize) -> impl Future<Output = Result<Dump>> + Send;
    /// Checks its part of the record, and its rows; `row` is the record's row. Also reports rows that no
    /// value of this type can have.
    fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> impl Future<Output = Findings> + Send;
}

/// Generates [`Value`](crate::types::Value) and [`Kind`](crate::types::Kind) from the list of types.
macro_rules! types {
    ($($(#[cfg($cfg:meta)])? $name:ident($type:ty)),+ $(,)?) => {
        /// A type of value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[cfg($cfg)])? #[doc = concat!("See [`", stringify!($type), "`].")] $name),+
        }

        /// The value of a key.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Value {
            $($(#[cfg($cfg)])? #[doc = concat!("See [`", stringify!($type), "`].")] $name($type)),+
        }

        $(
            $(#[cfg($cfg)])?
            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Value::$name(value)
                }
            }

            $(#[cfg($cfg)])?
            impl OneType for $type {
                fn of(value: &Value) -> Option<&Self> {
                    if let Value::$name(value) = value { Some(value) } else { None }
                }
            }
        )+

        impl Kind {
            /// All types.
            pub const ALL: &[Kind] = &[$($(#[cfg($cfg)])? Kind::$name),+];

            /// See [`Type::NAME`].
            pub fn name(self) -> &'static str {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::NAME),+ }
            }
            /// See [`Type::TAGS`].
            pub fn tags(self) -> &'static [u8] {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::TAGS),+ }
            }
            /// See [`Type::ROWS`].
            pub fn rows(self) -> &'static [u8] {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::ROWS),+ }
            }
            /// See [`Type::COUNTED`].
            pub fn is_counted(self) -> bool {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::COUNTED),+ }
            }
            /// See [`Type::OBJECTS`].
            pub fn objects(self) -> &'static str {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::OBJECTS),+ }
            }
            /// See [`Type::decode`].
            pub fn decode(self, tag: u8, payload: Bytes) -> Option<Value> {
                match self { $($(#[cfg($cfg)])? Kind::$name => <$type>::decode(tag, payload).map(Value::$name)),+ }
            }
            /// See [`Type::prebuilt`].
            pub fn prebuilt(self, object: &Object) -> Value {
                match self { $($(#[cfg($cfg)])? Kind::$name => Value::$name(<$type>::prebuilt(object))),+ }
            }
        }

        impl Value {
            /// Its type.
            pub fn kind(&self) -> Kind {
                match self { $($(#[cfg($cfg)])? Value::$name(_) => Kind::$name),+ }
            }
            /// See [`Type::tag`].
            pub fn tag(&self) -> u8 {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.tag()),+ }
            }
            /// See [`Type::encode`].
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.encode(out)),+ }
            }
            /// See [`Type::oid`].
            pub fn oid(&self) -> Option<Oid> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.oid()),+ }
            }
            /// See [`Type::moved`].
            pub fn moved(&self, oid: Oid) -> Value {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => Value::$name(value.moved(oid))),+ }
            }
            /// See [`Type::interned`].
            pub fn interned(&self) -> Option<Oid> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.interned()),+ }
            }
            /// See [`Type::due`].
            pub fn due(&self) -> Option<u64> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.due()),+ }
            }
            /// See [`Type::has_any`].
            pub async fn has_any(&self, s: &Scope<'_>, n: u64, read: Read) -> Result<bool> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.has_any(s, n, read).await),+ }
            }
            /// See [`Type::aside`].
            pub async fn aside(&self, s: &Scope<'_>, read: Read) -> Result<i128> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.aside(s, read).await),+ }
            }
            /// See [`Type::encoding`].
            pub fn encoding(&self) -> &'static str {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => Type::encoding(value)),+ }
            }
            /// See [`Type::references`].
            pub fn references(&self) -> i64 {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.references()),+ }
            }
            /// See [`Type::weight`].
            pub async fn weight(&self, s: &Scope<'_>) -> Result<u64> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.weight(s).await),+ }
            }
            /// See [`Type::len`].
            pub async fn len(&self, s: &Scope<'_>, read: Read) -> Result<u64> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => Type::len(value, s, read).await),+ }
            }
            /// See [`Type::memory`].
            pub async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.memory(s).await),+ }
            }
            /// See [`Type::prebuild`].
            pub async fn prebuild(
                &self,
                s: &Scope<'_>,
                to: Prefix,
                source: Source,
                lease_ms: u64,
            ) -> Result<Option<Object>> {
                match self {
                    $($(#[cfg($cfg)])? Value::$name(value) => value.prebuild(s, to, source, lease_ms).await),+
                }
            }
            /// See [`Type::dump`].
            pub async fn dump(&self, s: &Scope<'_>, most: usize) -> Result<Dump> {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.dump(s, most).await),+ }
            }
            /// See [`Type::audit`].
            pub async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
                match self { $($(#[cfg($cfg)])? Value::$name(value) => value.audit(auditor, row).await),+ }
            }
        }
    };
}

pub(super) use types;
