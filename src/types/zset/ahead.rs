//! Reading ahead, for engines behind a network: what the calls of a batch will read, in a round for each step instead
//! of a round for each call and step. The transaction answers repeated reads itself.

use super::counts::Counts;
use super::rows::{place_of, scores};
use super::score::Score;
use super::{ZsetRep, object};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::MAX_RANKED;
use crate::store::Read;
use bytes::Bytes;
use futures_util::future::try_join;
use std::collections::{BTreeMap, BTreeSet};

/// What a call is going to do with a member.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ahead {
    /// It reads its score.
    Stays,
    /// It removes it.
    Goes,
    /// It sets its score.
    Gets(Score),
    /// It adds a number to its score.
    Rises(f64),
}

/// Reads what these calls will read of a sorted set whose record has been read: the scores of members, N, and the
/// counts that will move.
pub(crate) async fn prefetch(s: &Scope<'_>, key: &[u8], asked: &[(&Bytes, Ahead)]) -> Result<()> {
    let Some(ZsetRep::Rows { oid, .. }) = object::ahead(s, key).await? else { return Ok(()) };
    let members: BTreeSet<&Bytes> = asked.iter().map(|(member, _)| *member).collect();
    let members: Vec<Bytes> = members.into_iter().filter(|m| m.len() <= MAX_RANKED).cloned().collect();
    let found = scores(s, oid, &members, Read::Snapshot);
    let (found, _) = try_join(found, object::count(s, oid, Read::Snapshot)).await?;
    let old: BTreeMap<&Bytes, Option<Score>> = members.iter().zip(found).collect();
    let mut places = BTreeSet::new();
    for (member, ahead) in asked {
        let Some(before) = old.get(member).copied() else { continue };
        let after = match ahead {
            Ahead::Stays => before,
            Ahead::Goes => None,
            Ahead::Gets(score) => Some(*score),
            Ahead::Rises(by) => Score::new(before.map_or(0.0, Score::number) + by),
        };
        if before != after {
            places.extend([before, after].into_iter().flatten().map(|score| place_of(score, member)));
        }
    }
    Counts::new(s, oid).prefetch(&places).await
}
