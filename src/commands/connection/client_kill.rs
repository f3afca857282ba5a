//! CLIENT KILL: which connections it selects, and how it closes them.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::connection::client::{ClientKind, OPEN};
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::AfterReply;
use crate::server::clients::ClientHandle;
use crate::server::reply::Reply;
use crate::spec::words::{parse_i64, quoted};
use crate::spec::{Effect, Flags, Group, Row};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// All conditions must hold.
#[derive(Default)]
struct Filter {
    /// Any of these.
    ids: BTreeSet<u64>,
    kind: Option<ClientKind>,
    user: Option<Bytes>,
    addr: Option<Bytes>,
    laddr: Option<Bytes>,
    max_age: Option<u64>,
    skip_me: bool,
}

impl Filter {
    fn parse(cx: &Cx<'_>, args: &mut Args<'_>) -> Result<Self> {
        let mut filter = Filter { skip_me: true, ..Filter::default() };
        while !args.is_empty() {
            let option = args.next()?.to_ascii_lowercase();
            let value = args.next()?;
            match option.as_slice() {
                b"id" => {
                    filter.ids = [positive(value, "client-id should be greater than 0")?].into();
                    while let Some(id) = args.peek().and_then(|raw| positive(raw, "").ok()) {
                        args.next()?;
                        filter.ids.insert(id);
                    }
                }
                b"maxage" => {
                    parse_i64(value)
                        .ok_or(ReplyError::new("ERR maxage is not an integer or out of range"))?;
                    filter.max_age = Some(positive(value, "maxage should be greater than 0")?);
                }
                b"type" => filter.kind = Some(ClientKind::parse(value)?),
                b"user" => filter.user = Some(known_user(cx, value)?),
                b"addr" => filter.addr = Some(value.clone()),
                b"laddr" => filter.laddr = Some(value.clone()),
                b"skipme" => filter.skip_me = yes_no(value)?,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    fn is(&self, client: &ClientHandle, now: Duration) -> bool {
        let same = |want: &Option<Bytes>, have: &str| want.as_ref().is_none_or(|w| *w == have.as_bytes());
        (self.ids.is_empty() || self.ids.contains(&client.id))
            && self.kind.is_none_or(|k| k.is(client))
            && self.user.as_ref().is_none_or(|user| *user == client.identity().user)
            && same(&self.addr, &client.addr)
            && same(&self.laddr, &client.laddr)
            && self.max_age.is_none_or(|age| client.age(now) >= age)
    }
}

fn positive(raw: &[u8], otherwise: &str) -> Result<u64> {
    let n = parse_i64(raw).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    Ok(n.ok_or_else(|| ReplyError::of(format!("ERR {otherwise}")))?)
}

fn known_user(cx: &Cx<'_>, raw: &Bytes) -> Result<Bytes> {
    if cx.server.acl.get(raw).is_some() {
        return Ok(raw.clone());
    }
    let raw = quoted(raw);
    Err(ReplyError::of(format!("ERR No such user '{raw}'")).into())
}

fn yes_no(raw: &[u8]) -> Result<bool> {
    match raw.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

pub(super) const CLIENT_KILL: Command = Command::new(
    Row::new(Group::Connection, "kill", -3, "2.4.0")
        .flags(OPEN.or(Flags::ADMIN))
        .syntax(
            "<ip:port | [ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [USER username] [ADDR addr] \
             [LADDR laddr] [SKIPME <YES | NO>] [MAXAGE maxage]>",
        )
        .summary("Closes connections.")
        .categories(&["dangerous"])
        .effect(Effect::Closes),
    handler!(kill),
);

/// The old form names one address and replies OK; the new one replies with the number of closed connections.
async fn kill(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let old_form = args.len() == 1;
    let filter = if old_form {
        Filter { addr: Some(args.next()?.clone()), ..Filter::default() }
    } else {
        Filter::parse(cx, &mut args)?
    };
    let now = cx.server.env.clock.monotonic();
    let mut chosen = cx.server.clients.all();
    chosen.retain(|client| filter.is(client, now) && !(filter.skip_me && client.id == cx.client.id));
    let (own, others): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|client| client.id == cx.client.id);
    if !others.is_empty() {
        cx.may_wait()?;
    }
    if !own.is_empty() {
        cx.client.after_reply = AfterReply::Close;
    }
    let killed = i64::try_from(own.len() + cx.close(others).await).unwrap_or(i64::MAX);
    match (old_form, killed) {
        (true, 0) => Err(ReplyError::new("ERR No such client").into()),
        (true, _) => Ok(Reply::Ok),
        (false, n) => Ok(Reply::Int(n)),
    }
}
