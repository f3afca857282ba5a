//! XDELEX and XACKDEL: deleting entries with regard to the groups that refer to them.

use super::options::policy;
use super::{KEY_DELETED, WRITES_FAST, ids};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::{Scope, reads};
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Group as Family, InGroup, KeySpec, Row, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::stream::groups::{self, Place};
use crate::types::stream::pending::{self, Ledger};
use crate::types::stream::references::{Policy, References};
use crate::types::stream::{Id, StreamRep, range, trim};
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[XACKDEL, XDELEX];

const ACKNOWLEDGED: &[KeySpec] = &[one(&["RW", "update", "delete"])];

const NO_NUMBER: ReplyError = ReplyError::new("ERR Number of IDs must be a positive integer");
const TOO_FEW: ReplyError = ReplyError::new("ERR The `numids` parameter must match the number of arguments");

/// What is said of an entry that does not exist, that was deleted, and that other groups still need.
const ABSENT: i64 = -1;
const GONE: i64 = 1;
const NEEDED: i64 = 2;

/// Ids that are looked up together.
const STEP: usize = 256;

/// The options of both commands.
pub(super) struct Wanted<'a> {
    policy: Policy,
    ids: &'a [Bytes],
}

impl<'a> Wanted<'a> {
    pub(super) fn parse(args: &mut Args<'a>) -> ArgResult<Self> {
        let (mut named, mut ids) = (None, None);
        while !args.is_empty() {
            if args.keyword("IDS") {
                let n = parse_i64(args.next()?).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                ids = Some(args.take(n.ok_or(NO_NUMBER)?).map_err(|_| TOO_FEW)?);
            } else if let Some(policy) = policy(args).filter(|_| named.is_none()) {
                named = Some(policy);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(Wanted { policy: named.unwrap_or_default(), ids: ids.ok_or(SYNTAX)? })
    }

    fn absent(&self) -> Reply {
        Reply::Array(vec![Reply::Int(ABSENT); self.ids.len()])
    }

    pub(super) fn parsed(&self) -> ArgResult<Vec<Id>> {
        self.ids.iter().map(|raw| ids::parse(raw, 0)).collect()
    }
}

/// Entries that are being deleted.
struct Deleting {
    policy: Policy,
    rep: StreamRep,
    references: References,
    gone: Vec<Id>,
    seen: HashSet<Id>,
}

impl Deleting {
    async fn new(cx: &Cx<'_>, s: &Scope<'_>, rep: StreamRep, policy: Policy) -> Result<Self> {
        let references = match policy {
            Policy::Keep => References::default(),
            Policy::Delete | Policy::Acked => References::load(s, rep.oid, |bytes| cx.light(bytes)).await?,
        };
        let (gone, seen) = Default::default();
        Ok(Deleting { policy, rep, references, gone, seen })
    }

    /// Reads rows of entries that will be deleted one after the other, if that saves round trips.
    async fn fetch(&self, s: &Scope<'_>, ids: &[Id]) -> Result<()> {
        reads::fetch(s.tx, ids.iter().map(|id| s.db.entry(self.rep.oid, *id))).await?;
        self.references.fetch(s, ids).await
    }

    /// Deletes an entry, unless the policy keeps it. Says which.
    async fn delete(&mut self, s: &Scope<'_>, id: Id) -> Result<i64> {
        match self.policy {
            Policy::Keep => {}
            Policy::Delete => self.references.delete(s, id).await?,
            Policy::Acked if self.references.has(s, id).await? => return Ok(NEEDED),
            Policy::Acked => {}
        }
        let exists = range::find(s, &self.rep, id).await?.is_some() && self.seen.insert(id);
        if exists {
            self.gone.push(id);
        }
        Ok(if exists { GONE } else { ABSENT })
    }

    /// Writes what is left to write, and announces it.
    async fn settle(self, s: &Scope<'_>, slot: &mut Slot) -> Result<()> {
        self.references.settle(s)?;
        if !self.gone.is_empty() {
            trim::delete(s, slot, &self.gone).await?;
            trim::removed(s, "xdel", &slot.key, 1);
        }
        Ok(())
    }
}

const XDELEX: Command = Command::new(
    Row::new(Family::Stream, "xdelex", -5, "8.2.0")
        .flags(WRITES_FAST)
        .keys(KEY_DELETED)
        .syntax("key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]")
        .types(&[("numids", "integer")])
        .summary("Deletes entries, and perhaps what groups know of them, or only what no group needs. Says so of each."),
    handler!(xdelex),
);

async fn xdelex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let rep = slot.stream()?.copied();
    let wanted = Wanted::parse(&mut args)?;
    let Some(rep) = rep else { return Ok(wanted.absent()) };
    let (ids, mut said) = (wanted.parsed()?, Vec::with_capacity(wanted.ids.len()));
    let mut deleting = Deleting::new(cx, &s, rep, wanted.policy).await?;
    cx.light(deleting.references.bytes(ids.len() as u64))?;
    for some in ids.chunks(STEP) {
        deleting.fetch(&s, some).await?;
        for id in some {
            said.push(Reply::Int(deleting.delete(&s, *id).await?));
            consume_budget().await;
        }
    }
    deleting.settle(&s, &mut slot).await?;
    Ok(Reply::Array(said))
}

const XACKDEL: Command = Command::new(
    Row::new(Family::Stream, "xackdel", -6, "8.2.0")
        .in_group(InGroup::Counted)
        .flags(WRITES_FAST)
        .keys(ACKNOWLEDGED)
        .syntax("key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]")
        .types(&[("numids", "integer")])
        .summary(
            "Acknowledges entries for a group, and deletes those, as XDELEX does, that were pending there.",
        ),
    handler!(xackdel),
);

async fn xackdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, group) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let rep = slot.stream()?.copied();
    let wanted = Wanted::parse(&mut args)?;
    let Some(rep) = rep else { return Ok(wanted.absent()) };
    let Some(group) = groups::find_alive(&s, rep.oid, group).await? else { return Ok(wanted.absent()) };
    let (ids, mut said) = (wanted.parsed()?, Vec::with_capacity(wanted.ids.len()));
    let at = Place { oid: rep.oid, group: group.number };
    let mut deleting = Deleting::new(cx, &s, rep, wanted.policy).await?;
    cx.light(deleting.references.bytes(2 * ids.len() as u64))?;
    let mut ledger = Ledger::new(at);
    for some in ids.chunks(STEP) {
        pending::fetch(&s, at, some.iter().copied()).await?;
        deleting.fetch(&s, some).await?;
        for id in some {
            said.push(Reply::Int(match pending::get(&s, at, *id).await? {
                None => ABSENT,
                Some(old) => {
                    ledger.remove(&s, *id, old.consumer)?;
                    // It counts as deleted even if it was before.
                    deleting.delete(&s, *id).await?.max(GONE)
                }
            }));
            consume_budget().await;
        }
    }
    ledger.settle(&s)?;
    deleting.settle(&s, &mut slot).await?;
    Ok(Reply::Array(said))
}
