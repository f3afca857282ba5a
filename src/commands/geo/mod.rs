//! Geo commands: members of sorted sets whose scores are geohashes. What searches an area is in [`search`].

mod geohash;
pub(crate) mod search;

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::zset::{self as zsets, Adding, ROW};
use crate::error::{NOT_FLOAT, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_RO, KEY_RW, Row};
use crate::types::zset::{self, Score};
use bytes::Bytes;
use geohash::Place;
pub(crate) use search::COMMANDS as SEARCHES;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[GEOADD, GEODIST, GEOHASH, GEOPOS];

const READS: Flags = Flags::READONLY;

/// A number, or else this error.
fn number(raw: &[u8], error: ReplyError) -> ArgResult<f64> {
    zsets::number(raw).ok_or(error)
}

fn place(args: &mut Args<'_>) -> ArgResult<Place> {
    let (longitude, latitude) = (number(args.next()?, NOT_FLOAT)?, number(args.next()?, NOT_FLOAT)?);
    Place::new(longitude, latitude).ok_or_else(|| {
        ReplyError::of(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
    })
}

/// Meters of a unit.
fn unit(raw: &[u8]) -> ArgResult<f64> {
    const UNITS: [(&[u8], f64); 4] = [(b"m", 1.0), (b"km", 1000.0), (b"ft", 0.3048), (b"mi", 1609.34)];
    let unit = UNITS.iter().find(|(name, _)| raw.eq_ignore_ascii_case(name));
    unit.map(|(_, meters)| *meters)
        .ok_or(ReplyError::new("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// A distance with four decimals.
fn distance(meters: f64) -> Reply {
    let parts = (meters * 10_000.0).round_ties_even() as u64;
    Reply::text(format!("{}.{:04}", parts / 10_000, parts % 10_000))
}

fn coordinates(place: Place) -> Reply {
    Reply::Array(vec![Reply::Double(place.longitude), Reply::Double(place.latitude)])
}

const GEOADD: Command = Command::new(
    Row::new(Group::Geo, "geoadd", -5, "3.2.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM))
        .keys(KEY_RW)
        .syntax("key [<condition: NX | XX>] [<change: CH>] <data: longitude latitude member> [longitude latitude member ...]")
        .types(&[("longitude", "double"), ("latitude", "double")])
        .summary("Adds members to a sorted set, with geohashes of their places as scores."),
    handler!(geoadd),
);

async fn geoadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let mut options = Adding::default();
    loop {
        match () {
            () if args.keyword("NX") => options.if_absent = true,
            () if args.keyword("XX") => options.if_present = true,
            () if args.keyword("CH") => options.counts_changed = true,
            () => break,
        }
    }
    if args.is_empty() || !args.len().is_multiple_of(3) || options.if_absent && options.if_present {
        return Err(SYNTAX.into());
    }
    let mut pairs: Vec<(&Bytes, Score)> = Vec::with_capacity(args.len() / 3);
    while !args.is_empty() {
        let score = Score::new(place(&mut args)?.score()).ok_or(NOT_FLOAT)?;
        pairs.push((args.next()?, score));
    }
    zsets::add(cx, key, &options, &pairs, "zadd").await
}

/// The places of members; a command that reads.
async fn places(cx: &Cx<'_>, key: &Bytes, members: &[Bytes]) -> Result<Vec<Option<Place>>> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    cx.light(members.iter().map(|member| member.len() as u64 + ROW).sum())?;
    let scores = zset::scores(&s, slot.zset()?, members).await?;
    Ok(scores.into_iter().map(|score| score.map(|score| Place::of_score(score.number()))).collect())
}

const GEOPOS: Command = Command::new(
    Row::new(Group::Geo, "geopos", -2, "3.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key [member [member ...]]")
        .summary("Returns the longitudes and latitudes of members."),
    handler!(geopos),
);

async fn geopos(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let found = places(cx, args.next()?, args.rest()).await?;
    Ok(Reply::Array(found.into_iter().map(|place| place.map_or(Reply::NilArray, coordinates)).collect()))
}

const GEOHASH: Command = Command::new(
    Row::new(Group::Geo, "geohash", -2, "3.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key [member [member ...]]")
        .summary("Returns the geohashes of members, as text."),
    handler!(geohash),
);

async fn geohash(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let found = places(cx, args.next()?, args.rest()).await?;
    let text = |place: Option<Place>| place.map_or(Reply::Nil, |place| Reply::text(place.text()));
    Ok(Reply::Array(found.into_iter().map(text).collect()))
}

const GEODIST: Command = Command::new(
    Row::new(Group::Geo, "geodist", -4, "3.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key member1 member2 [<unit: M | KM | FT | MI>]")
        .summary("Returns the distance between two members."),
    handler!(geodist),
);

async fn geodist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, members) = (args.next()?, args.take(2)?);
    let meters = match args.len() {
        0 => 1.0,
        1 => unit(args.next()?)?,
        _ => return Err(SYNTAX.into()),
    };
    Ok(match places(cx, key, members).await?.as_slice() {
        [Some(a), Some(b)] => distance(a.distance(*b) / meters),
        _ => Reply::Nil,
    })
}
