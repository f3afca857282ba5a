//! The store's secret: 32 random bytes, drawn once when the first server opens the store, and used by all its
//! servers.
//!
//! ```text
//! m 02 -> 01 | 32 bytes
//! ```
//! Idempotency records (`lifecycle/idempotency.rs`) contain checksums keyed with the secret: without it,
//! nobody can find two commands with the same fingerprint, or guess the input of a fingerprint by trial. The
//! checksums are HMAC-SHA256, cut to 128 bits.
//!
//! Idempotency records are found by it, so a store that has some but no secret is damaged: `tern check`
//! reports that.

use super::Keyspace;
use super::keys::{Owner, root};
use crate::env::Env;
use crate::error::{Result, StoreError, StoreResult};
use crate::store::{Read, Retries, Store};
use arc_swap::ArcSwapOption;
use ring::hmac;
use std::sync::Arc;

const FORMAT: u8 = 1;
const BYTES: usize = 32;
/// The first byte of each checksum's input, so that no checksum of one kind equals one of another.
const OF_OWNER: u8 = 1;
const OF_COMMAND: u8 = 2;

/// The secret.
pub struct Secret(hmac::Key);

impl Secret {
    /// Parses the stored row.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let bytes = raw.strip_prefix(&[FORMAT]).filter(|bytes| bytes.len() == BYTES)?;
        Some(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The owner of this user's ids.
    pub fn owner(&self, user: &[u8]) -> Owner {
        let mut sum = self.sum(OF_OWNER);
        sum.update(user);
        Owner(sum.end())
    }

    /// Begins the checksum of a command.
    pub(crate) fn of_command(&self) -> Sum {
        self.sum(OF_COMMAND)
    }

    fn sum(&self, kind: u8) -> Sum {
        let mut sum = Sum(hmac::Context::with_key(&self.0));
        sum.update(&[kind]);
        sum
    }
}

/// A checksum in progress.
pub(crate) struct Sum(hmac::Context);

impl Sum {
    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes added.
    pub(crate) fn end(self) -> [u8; 16] {
        self.0.sign().as_ref().first_chunk().copied().unwrap_or_default()
    }
}

/// A server's copy of the secret.
pub(super) struct Cached {
    env: Env,
    secret: ArcSwapOption<Secret>,
}

impl Cached {
    /// Reads the secret of `store`; draws one if it has none.
    pub(super) async fn open(store: &Store, env: &Env) -> Result<Self> {
        let cached = Cached { env: env.clone(), secret: ArcSwapOption::empty() };
        let mut retries = Retries::endless();
        loop {
            match cached.load(store).await {
                Ok(_) => return Ok(cached),
                Err(e) => retries.on_error(e)?,
            }
        }
    }

    /// Drops the copy; it is reloaded on demand.
    pub(super) fn forget(&self) {
        self.secret.store(None);
    }

    /// If two servers draw a secret at once, the store lets one commit; the other reads it.
    async fn load(&self, store: &Store) -> StoreResult<Arc<Secret>> {
        let tx = store.begin();
        let row = match tx.get(&root::secret(), Read::Serializable).await? {
            Some(row) => row,
            None => {
                let no_entropy =
                    || StoreError::Unavailable("the system's random number generator does not answer".into());
                let bytes = self.env.secret(BYTES).ok_or_else(no_entropy)?;
                let row = [&[FORMAT][..], &bytes].concat();
                tx.set(&root::secret(), &row)?;
                // A retry reads the row, and so learns whether this commit was applied.
                tx.commit()
                    .await
                    .map_err(|e| if e == StoreError::Unknown { StoreError::Conflict } else { e })?;
                row.into()
            }
        };
        let secret = Secret::decode(&row)
            .ok_or_else(|| StoreError::Corrupt("the store's secret does not decode".into()))?;
        let secret = Arc::new(secret);
        self.secret.store(Some(secret.clone()));
        Ok(secret)
    }
}

impl Keyspace {
    /// The store's secret.
    pub async fn secret(&self) -> StoreResult<Arc<Secret>> {
        match self.secret.secret.load_full() {
            Some(secret) => Ok(secret),
            None => self.secret.load(&self.store).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::decode(&[&[FORMAT][..], &[byte; BYTES]].concat()).unwrap()
    }

    fn sum(secret: &Secret, bytes: &[u8]) -> [u8; 16] {
        let mut sum = secret.of_command();
        bytes.iter().for_each(|b| sum.update(&[*b]));
        sum.end()
    }

    /// Stored checksums have this form, also those of other versions. The numbers are from Python's
    /// `hmac.digest`.
    #[test]
    fn sums_are_these() {
        let hex = |bytes: [u8; 16]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(secret(7).owner(b"default").0), "b219ef29f08017930006f1fe0ebe500a");
        assert_eq!(hex(sum(&secret(7), b"abc")), "f55d2d61b3c68d21c46a12cbd48ca029");
    }

    #[test]
    fn kinds_and_secrets_differ() {
        let sums = [sum(&secret(1), b"abc"), sum(&secret(2), b"abc"), secret(1).owner(b"abc").0];
        assert!(sums[0] != sums[1] && sums[0] != sums[2] && sums[1] != sums[2]);
    }

    #[test]
    fn other_rows_are_none() {
        for raw in [&[][..], &[FORMAT], &[FORMAT; BYTES], &[FORMAT; BYTES + 2], &[2; BYTES + 1]] {
            assert!(Secret::decode(raw).is_none());
        }
    }
}
