//! GEOSEARCH, GEORADIUS and their relatives: the members in an area.

use super::geohash::{Place, Search, Shape};
use super::{coordinates, distance, number, place, unit};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::zset::{self as zsets, ROW};
use crate::env::aside_of;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KEY_RO, KeySpec, Makes, Ranked, Row, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::zset::{self, Entry, Pick, Places, Score, ZsetRep};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::cmp::Ordering;
use std::ops::Bound;
use tokio::task::coop::consume_budget;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] =
    &[GEORADIUS, GEORADIUSBYMEMBER, GEORADIUSBYMEMBER_RO, GEORADIUS_RO, GEOSEARCH, GEOSEARCHSTORE];

/// Members that are read at once.
const PAGE: u64 = 1024;

/// The form of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `key longitude latitude radius unit`, then options.
    Around,
    /// `key member radius unit`, then options.
    AroundMember,
    /// `key`, then options.
    Options,
}

/// Whether a command stores what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stores {
    Never,
    /// Under the key that an option names.
    Option,
    /// Under its first argument.
    Always,
}

/// What a line asks for. Of a key that does not exist, `search` is not known.
#[derive(Debug, Default)]
struct Asked<'a> {
    center: Option<Place>,
    shape: Option<(Shape, f64)>,
    /// FROMMEMBER or FROMLONLAT was given, and by which.
    from_member: bool,
    from_place: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    /// Whether the nearest ones come first.
    order: Option<Ordering>,
    /// 0: all of them.
    count: u64,
    any: bool,
    /// Where to store them.
    store: Option<&'a Bytes>,
    stores_distances: bool,
}

/// A sorted set, in which a member's place is looked up.
struct Source<'a> {
    s: &'a Scope<'a>,
    rep: Option<&'a ZsetRep>,
}

impl Source<'_> {
    /// The place of a member. None: there is no sorted set.
    async fn place(&self, member: &Bytes) -> Result<Option<Place>> {
        if self.rep.is_none() {
            return Ok(None);
        }
        let score = zset::scores(self.s, self.rep, std::slice::from_ref(member)).await?.pop().flatten();
        let score = score.ok_or(ReplyError::new("ERR could not decode requested zset member"))?;
        Ok(Some(Place::of_score(score.number())))
    }
}

fn circle(args: &mut Args<'_>) -> ArgResult<(Shape, f64)> {
    let radius = number(args.next()?, ReplyError::new("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(ReplyError::new("ERR radius cannot be negative"));
    }
    Ok((Shape::Circle { radius }, unit(args.next()?)?))
}

fn rectangle(args: &mut Args<'_>) -> ArgResult<(Shape, f64)> {
    let width = number(args.next()?, ReplyError::new("ERR need numeric width"))?;
    let height = number(args.next()?, ReplyError::new("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(ReplyError::new("ERR height or width cannot be negative"));
    }
    Ok((Shape::Box { width, height }, unit(args.next()?)?))
}

impl<'a> Asked<'a> {
    /// Reads the arguments behind the key. The order of checks is Redis'.
    async fn parse(
        args: &mut Args<'a>,
        form: Form,
        stores: Stores,
        source: &Source<'_>,
    ) -> Result<Asked<'a>> {
        let mut asked = Asked::default();
        match form {
            Form::Around => {
                asked.center = Some(place(args)?);
                asked.shape = Some(circle(args)?);
            }
            Form::AroundMember => {
                asked.center = source.place(args.next()?).await?;
                match asked.center {
                    Some(_) => asked.shape = Some(circle(args)?),
                    None => drop(args.take(2)?),
                }
            }
            Form::Options => {}
        }
        while !args.is_empty() {
            asked.option(args, form, stores, source).await?;
        }
        asked.check(args, form, stores)?;
        Ok(asked)
    }

    async fn option(
        &mut self,
        args: &mut Args<'a>,
        form: Form,
        stores: Stores,
        source: &Source<'_>,
    ) -> Result<()> {
        let (left, is_search) = (args.len(), form == Form::Options);
        match () {
            () if args.keyword("WITHDIST") => self.with_distance = true,
            () if args.keyword("WITHHASH") => self.with_hash = true,
            () if args.keyword("WITHCOORD") => self.with_place = true,
            () if args.keyword("ANY") => self.any = true,
            () if args.keyword("ASC") => self.order = Some(Ordering::Less),
            () if args.keyword("DESC") => self.order = Some(Ordering::Greater),
            () if left > 1 && args.keyword("COUNT") => {
                let count = parse_i64(args.next()?).ok_or(NOT_INTEGER)?;
                let positive = u64::try_from(count).ok().filter(|count| *count > 0);
                self.count = positive.ok_or(ReplyError::new("ERR COUNT must be > 0"))?;
            }
            () if left > 1 && stores == Stores::Option && args.keyword("STORE") => {
                (self.store, self.stores_distances) = (Some(args.next()?), false);
            }
            () if left > 1 && stores == Stores::Option && args.keyword("STOREDIST") => {
                (self.store, self.stores_distances) = (Some(args.next()?), true);
            }
            () if stores == Stores::Always && args.keyword("STOREDIST") => self.stores_distances = true,
            () if is_search && left > 1 && !self.from_place && args.keyword("FROMMEMBER") => {
                let found = source.place(args.next()?).await?;
                (self.center, self.from_member) = (found, true);
            }
            () if is_search && left > 2 && !self.from_member && args.keyword("FROMLONLAT") => {
                (self.center, self.from_place) = (Some(place(args)?), true);
            }
            () if is_search && left > 2 && !self.is_box() && args.keyword("BYRADIUS") => {
                self.shape = Some(circle(args)?);
            }
            () if is_search && left > 3 && !self.is_circle() && args.keyword("BYBOX") => {
                self.shape = Some(rectangle(args)?);
            }
            () => return Err(SYNTAX.into()),
        }
        Ok(())
    }

    fn is_box(&self) -> bool {
        matches!(self.shape, Some((Shape::Box { .. }, _)))
    }

    fn is_circle(&self) -> bool {
        matches!(self.shape, Some((Shape::Circle { .. }, _)))
    }

    fn is_decorated(&self) -> bool {
        self.with_distance || self.with_hash || self.with_place
    }

    fn check(&self, args: &Args<'_>, form: Form, stores: Stores) -> ArgResult<()> {
        if (self.store.is_some() || stores == Stores::Always) && self.is_decorated() {
            let what = if form == Form::Options { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(ReplyError::of(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if form == Form::Options && !(self.from_member || self.from_place) {
            let name = args.name();
            return Err(ReplyError::of(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if form == Form::Options && self.shape.is_none() {
            let name = args.name();
            return Err(ReplyError::of(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if self.any && self.count == 0 {
            return Err(ReplyError::new("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// The area. None: there is no sorted set to search.
    fn search(&self) -> Option<Search> {
        let ((shape, unit), center) = (self.shape?, self.center?);
        Some(Search { center, shape, unit })
    }

    /// Brings the members into the order that is asked for, and keeps no more than are asked for.
    fn choose(&self, found: &mut Vec<Found>) {
        // As in Redis, a number without an order means the nearest ones.
        match self.order.or((self.count > 0 && !self.any).then_some(Ordering::Less)) {
            Some(Ordering::Greater) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            Some(_) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            None => {}
        }
        if self.count > 0 {
            found.truncate(usize::try_from(self.count).unwrap_or(usize::MAX));
        }
    }

    /// What an entry of the answer is.
    fn decorated(&self, found: Found, unit: f64) -> Reply {
        let member = Reply::Bulk(found.member);
        if !self.is_decorated() {
            return member;
        }
        let all = [
            Some(member),
            self.with_distance.then(|| distance(found.distance / unit)),
            self.with_hash.then(|| Reply::Int(found.score.number() as i64)),
            self.with_place.then(|| coordinates(found.place)),
        ];
        Reply::Array(all.into_iter().flatten().collect())
    }

    /// What an entry of the stored sorted set is.
    fn stored(&self, found: Found, unit: f64) -> Option<Entry> {
        let score = match self.stores_distances {
            true => Score::new(found.distance / unit)?,
            false => found.score,
        };
        Some((found.member, score))
    }
}

/// A member in the area.
struct Found {
    member: Bytes,
    score: Score,
    place: Place,
    /// From the center, in meters.
    distance: f64,
}

/// The members that a line asks for. `light` refuses too much work; fails if they have more than `most` bytes.
async fn find(
    source: &Source<'_>,
    asked: &Asked<'_>,
    search: &Search,
    light: impl Fn(u64) -> Result<()>,
    most: usize,
) -> Result<Vec<Found>> {
    let enough = if asked.any { usize::try_from(asked.count).unwrap_or(usize::MAX) } else { usize::MAX };
    let (mut found, mut bytes, mut read) = (Vec::new(), 0, 0);
    let bounds = search.cells().into_iter().map(|cell| cell.scores());
    let cells = bounds.filter_map(|(min, max)| {
        Some(Places::of_scores(Bound::Included(Score::new(min)?), Bound::Excluded(Score::new(max)?)))
    });
    let cells: Vec<Places> = cells.collect();
    // In one round trip, where that is long.
    let at_once = source.s.tx.prefers_prefetch() && !asked.any;
    let first: Vec<Vec<Entry>> = match at_once {
        true => try_join_all(cells.iter().map(|places| page(source, places))).await?,
        false => Vec::new(),
    };
    let mut first = first.into_iter();
    for mut places in cells {
        let mut known = first.next();
        while found.len() < enough {
            let page = match known.take() {
                Some(page) => page,
                None => page(source, &places).await?,
            };
            read += page.len() as u64;
            light(read.saturating_mul(ROW))?;
            let next = page.last().filter(|_| page.len() as u64 == PAGE).map(|last| places.behind(last));
            for (member, score) in page {
                let place = Place::of_score(score.number());
                if let Some(distance) = search.distance(place).filter(|_| found.len() < enough) {
                    bytes += member.len();
                    found.push(Found { member, score, place, distance });
                }
            }
            if found.len() as u64 >= asked.count.saturating_mul(2).max(PAGE) && asked.count > 0 {
                aside_of(found.len(), || asked.choose(&mut found));
                bytes = found.iter().map(|found| found.member.len()).sum();
            }
            if bytes > most {
                return Err(StoreError::ReplyTooLarge(bytes).into());
            }
            let Some(next) = next else { break };
            places = next;
            consume_budget().await;
        }
    }
    aside_of(found.len(), || asked.choose(&mut found));
    Ok(found)
}

/// The first members of some places.
async fn page(source: &Source<'_>, places: &Places) -> Result<Vec<Entry>> {
    let pick = Pick { limit: PAGE, ..Pick::ALL };
    zset::range(source.s, source.rep, places, pick, usize::MAX).await
}

/// Runs a command whose other arguments are read up to the source's key.
async fn run(
    cx: &Cx<'_>,
    mut args: Args<'_>,
    form: Form,
    stores: Stores,
    event: &'static str,
) -> Result<Reply> {
    let target = if stores == Stores::Always { Some(args.next()?) } else { None };
    let key = args.next()?;
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let source = Source { s: &s, rep: slot.zset()? };
    let asked = Asked::parse(&mut args, form, stores, &source).await?;
    let target = target.or(asked.store);
    let search = asked.search().filter(|_| source.rep.is_some());
    let light = |bytes| cx.light(bytes);
    let most = if target.is_some() { usize::MAX } else { cx.most_kept() };
    let (found, unit) = match search {
        Some(search) if target.is_none() || prebuilt::result(cx.prebuilt).is_none() => {
            (find(&source, &asked, &search, light, most).await?, search.unit)
        }
        Some(_) | None => (Vec::new(), 1.0),
    };
    let Some(target) = target else {
        return Ok(aside_of(found.len(), || {
            Reply::Array(found.into_iter().map(|found| asked.decorated(found, unit)).collect())
        }));
    };
    let entries =
        aside_of(found.len(), || found.into_iter().filter_map(|found| asked.stored(found, unit)).collect());
    zsets::put(cx, &s, target, entries, event).await
}

/// The sorted set that a call searches, and what it stores. None if it stores nothing, or if its arguments, without the
/// destination in front, are wrong.
pub(crate) async fn of_call(
    s: &Scope<'_>,
    operation: Ranked,
    mut args: Args<'_>,
) -> Result<Option<(Vec<Slot>, Vec<Entry>)>> {
    let (form, stores) = match operation {
        Ranked::Around => (Form::Around, Stores::Option),
        Ranked::AroundMember => (Form::AroundMember, Stores::Option),
        Ranked::Search => (Form::Options, Stores::Always),
        Ranked::Union | Ranked::Intersection | Ranked::Difference | Ranked::Range => return Ok(None),
    };
    let Ok(key) = args.next() else { return Ok(None) };
    let slot = object::open(s, key, Read::Snapshot).await?;
    let found = {
        let Ok(rep) = slot.zset() else { return Ok(None) };
        let source = Source { s, rep };
        let asked = match Asked::parse(&mut args, form, stores, &source).await {
            Ok(asked) => asked,
            Err(crate::error::Error::Store(e)) => return Err(e.into()),
            Err(_) => return Ok(None),
        };
        if stores == Stores::Option && asked.store.is_none() {
            return Ok(None);
        }
        let Some(search) = asked.search() else { return Ok(None) };
        let found = find(&source, &asked, &search, |_| Ok(()), usize::MAX).await?;
        aside_of(found.len(), || {
            found.into_iter().filter_map(|found| asked.stored(found, search.unit)).collect()
        })
    };
    Ok(Some((vec![slot], found)))
}

const STORES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const UNITS: &[(&str, &str)] = &[
    ("longitude", "double"),
    ("latitude", "double"),
    ("radius", "double"),
    ("width", "double"),
    ("height", "double"),
];

/// The keys of GEORADIUS and GEORADIUSBYMEMBER, whose options begin there.
const fn stored(begin: usize) -> [KeySpec; 3] {
    [
        one(&["RO", "access"]),
        KeySpec { flags: &["OW", "update"], begin, find: FindKeys::After("STORE") },
        KeySpec { flags: &["OW", "update"], begin, find: FindKeys::After("STOREDIST") },
    ]
}

const GEORADIUS: Command = Command::new(
    Row::new(Group::Geo, "georadius", -6, "3.2.0")
        .flags(STORES.or(Flags::MOVABLEKEYS))
        .makes(Makes::Ranked(Ranked::Around))
        .keys(&stored(6))
        .syntax("key longitude latitude radius <unit: M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [<count-block: COUNT count [ANY]>] [<order: ASC | DESC>] [<store: STORE storekey | STOREDIST storedistkey>]")
        .types(UNITS)
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument")
        .summary("Returns or stores the members within a distance from a place."),
    handler!(georadius),
);

async fn georadius(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::Around, Stores::Option, "georadiusstore").await
}

const GEORADIUS_RO: Command = Command::new(
    Row::new(Group::Geo, "georadius_ro", -6, "3.2.10")
        .flags(super::READS)
        .keys(KEY_RO)
        .syntax("key longitude latitude radius <unit: M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [<count-block: COUNT count [ANY]>] [<order: ASC | DESC>]")
        .types(UNITS)
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
        .summary("Returns the members within a distance from a place."),
    handler!(georadius_ro),
);

async fn georadius_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::Around, Stores::Never, "").await
}

const GEORADIUSBYMEMBER: Command = Command::new(
    Row::new(Group::Geo, "georadiusbymember", -5, "3.2.0")
        .flags(STORES.or(Flags::MOVABLEKEYS))
        .makes(Makes::Ranked(Ranked::AroundMember))
        .keys(&stored(5))
        .syntax("key member radius <unit: M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [<count-block: COUNT count [ANY]>] [<order: ASC | DESC>] [<store: STORE storekey | STOREDIST storedistkey>]")
        .types(UNITS)
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments")
        .summary("Returns or stores the members within a distance from a member."),
    handler!(georadiusbymember),
);

async fn georadiusbymember(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::AroundMember, Stores::Option, "georadiusstore").await
}

const GEORADIUSBYMEMBER_RO: Command = Command::new(
    Row::new(Group::Geo, "georadiusbymember_ro", -5, "3.2.10")
        .flags(super::READS)
        .keys(KEY_RO)
        .syntax("key member radius <unit: M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [<count-block: COUNT count [ANY]>] [<order: ASC | DESC>]")
        .types(UNITS)
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")
        .summary("Returns the members within a distance from a member."),
    handler!(georadiusbymember_ro),
);

async fn georadiusbymember_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::AroundMember, Stores::Never, "").await
}

const GEOSEARCH: Command = Command::new(
    Row::new(Group::Geo, "geosearch", -7, "6.2.0")
        .flags(super::READS)
        .keys(KEY_RO)
        .syntax("key <from: FROMMEMBER member | FROMLONLAT <fromlonlat: longitude latitude>> <by: <circle: BYRADIUS radius <unit: M | KM | FT | MI>> | <box: BYBOX width <height: height> <unit: M | KM | FT | MI>>> [<order: ASC | DESC>] [<count-block: COUNT count [ANY]>] [WITHCOORD] [WITHDIST] [WITHHASH]")
        .types(UNITS)
        .summary("Returns the members in a circle or a box."),
    handler!(geosearch),
);

async fn geosearch(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::Options, Stores::Never, "").await
}

const GEOSEARCHSTORE: Command = Command::new(
    Row::new(Group::Geo, "geosearchstore", -8, "6.2.0")
        .flags(STORES)
        .makes(Makes::Ranked(Ranked::Search))
        .keys(zsets::RANGE_STORED)
        .syntax("destination source <from: FROMMEMBER member | FROMLONLAT <fromlonlat: longitude latitude>> <by: <circle: BYRADIUS radius <unit: M | KM | FT | MI>> | <box: BYBOX width <height: height> <unit: M | KM | FT | MI>>> [<order: ASC | DESC>] [<count-block: COUNT count [ANY]>] [STOREDIST]")
        .types(UNITS)
        .summary("Stores the members in a circle or a box."),
    handler!(geosearchstore),
);

async fn geosearchstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    run(cx, args, Form::Options, Stores::Always, "geosearchstore").await
}
