//! Random operations on few keys. Each group has its own keys, so that a history falls into parts.

mod commands;
mod ranked;
mod streams;

use crate::support::rng::Rng;
use commands::command;
use std::time::Duration;

/// The use of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Strings that are set, read and renamed.
    Registers,
    /// Numbers that are incremented, also two in one EXEC.
    Counters,
    /// Small sets with SPOP, SMOVE and SINTERSTORE.
    Sets,
    /// A set in chunks: its members come and go as deltas.
    Chunked,
    /// WATCH, GET, then an EXEC that builds on it.
    Watched,
    /// WATCH of sets in chunks, of small ones and of absent ones.
    WatchedSets,
    /// Hashes in their record and in rows, whose fields are set, incremented and removed.
    Hashes,
    /// WATCH of such hashes.
    WatchedHashes,
    /// Lists in their record and in rows, changed at their ends and in the middle.
    Lists,
    /// WATCH of such lists.
    WatchedLists,
    /// Sorted sets in their record and in rows, read by member, rank and score, and united.
    Ranked,
    /// A sorted set so large that its counted ranges are divided and joined.
    Counted,
    /// WATCH of small sorted sets.
    WatchedRanked,
    /// Streams whose entries are added, trimmed, delivered to the consumers of a group and acknowledged.
    Streams,
    /// Strings with an expiry.
    Expiring,
    /// WATCH of strings with an expiry that is extended, shortened and removed.
    WatchedExpiring,
    /// Two databases that are swapped and flushed, between which strings, small sets and chunked ones move.
    Databases,
    /// Strings of several pieces.
    Long,
    /// Sets of many chunks, written into their chunks, combined and removed.
    Large,
    /// Commands under ids that several clients use.
    Once,
    /// Lists and a sorted set, whose elements clients wait for.
    Waiting,
}

/// All groups but [`Group::Waiting`]: what waits runs in units of its own, which have no marks for the replay.
pub const EVERYTHING: &[Group] = &[
    Group::Registers,
    Group::Counters,
    Group::Sets,
    Group::Chunked,
    Group::Watched,
    Group::WatchedSets,
    Group::Hashes,
    Group::WatchedHashes,
    Group::Lists,
    Group::WatchedLists,
    Group::Ranked,
    Group::Counted,
    Group::WatchedRanked,
    Group::Streams,
    Group::Expiring,
    Group::WatchedExpiring,
    Group::Databases,
    Group::Long,
    Group::Large,
    Group::Once,
];

/// The maximum pause of a client that watches expiring keys, in ms.
const PAUSE: usize = 8;

/// A command's words.
pub type Line = Vec<String>;

pub enum Step {
    /// With this database selected.
    Send(u8, Vec<Line>),
    /// MULTI, these, EXEC.
    Exec(u8, Vec<Line>),
    /// One script that calls these.
    Script(u8, Vec<Line>),
    /// A command that waits for a while.
    Wait(Line),
    /// WATCH of the key that the line reads, that line, and after a pause an EXEC of the calls.
    Watched { read: Line, pause: Duration, calls: Vec<Line> },
}

pub fn words(line: &str) -> Line {
    line.split(' ').map(str::to_owned).collect()
}

impl Group {
    /// The prefix of its keys.
    pub fn first(self) -> Vec<Step> {
        let lines: &[String] = match self {
            Group::Chunked => &[commands::fill("l0", 160)],
            Group::WatchedSets => &["v0", "v1"].map(|key| commands::fill(key, commands::WATCHED_MEMBERS)),
            Group::Hashes => &[commands::pad("h1")],
            Group::WatchedHashes => &[commands::pad("u1")],
            Group::Lists => &[commands::longer("q1")],
            Group::WatchedLists => &[commands::longer("t1")],
            Group::Ranked => &[ranked::longer("z1")],
            Group::Counted => &[ranked::longer("n0"), ranked::fill("n0")],
            Group::WatchedRanked => &[ranked::longer("j1")],
            Group::Streams => {
                &[("f0", "g"), ("f0", "h"), ("f1", "g")].map(|(key, group)| streams::begin(key, group))
            }
            Group::Large => &["SADD b0 i0+2000".to_owned(), "SADD b1 i1000+2000".to_owned()],
            _ => &[],
        };
        lines.iter().map(|line| Step::Send(0, vec![words(line)])).collect()
    }

    /// Whether its clients WATCH.
    pub fn watches(self) -> bool {
        matches!(
            self,
            Group::Watched
                | Group::WatchedSets
                | Group::WatchedHashes
                | Group::WatchedLists
                | Group::WatchedRanked
                | Group::WatchedExpiring
        )
    }

    /// The pause of its client before the EXEC: keys may expire meanwhile.
    fn pause(self, rng: &mut Rng) -> Duration {
        let most = if self == Group::WatchedExpiring { PAUSE } else { 1 };
        Duration::from_millis(rng.below(most) as u64)
    }

    /// Whether its commands come in EXECs. A long SMEMBERS would hold its members, and a call of an EXEC has
    /// no id.
    fn is_for_exec(self) -> bool {
        !matches!(self, Group::Chunked | Group::Once)
    }

    /// Whether its commands are also called by scripts: those whose answers a script hands on as they are.
    fn is_for_scripts(self) -> bool {
        matches!(self, Group::Registers | Group::Counters | Group::Expiring)
    }

    /// The database of its next command.
    fn database(self, rng: &mut Rng) -> u8 {
        if self == Group::Databases { 1 + rng.below(2) as u8 } else { 0 }
    }
}

/// A client's next step. `fresh`: a value that no other client writes, with its own number after the dot.
pub fn step(rng: &mut Rng, groups: &[Group], pipeline: usize, fresh: &str) -> Step {
    let group = groups[rng.below(groups.len())];
    if group.watches() && rng.below(3) > 0 {
        let (read, calls) = commands::watched(rng, group, fresh);
        let calls = calls.iter().map(|line| words(line)).collect();
        return Step::Watched { read: words(&read), pause: group.pause(rng), calls };
    }
    if group == Group::Waiting && rng.below(2) == 0 {
        return Step::Wait(words(&commands::waiting(rng)));
    }
    if rng.below(5) == 0 && group.is_for_exec() {
        let groups = vec![group; 2 + rng.below(2)];
        let (db, lines) = lines(rng, &groups, fresh);
        let as_script = group.is_for_scripts() && rng.below(2) == 0;
        return if as_script { Step::Script(db, lines) } else { Step::Exec(db, lines) };
    }
    let n = 1 + rng.below(pipeline);
    let groups: Vec<Group> = (0..n).map(|_| groups[rng.below(groups.len())]).collect();
    let (db, lines) = lines(rng, &groups, fresh);
    Step::Send(db, lines)
}

/// One command of each of the groups, with SELECT between those of different databases, and the database of
/// the first.
fn lines(rng: &mut Rng, groups: &[Group], fresh: &str) -> (u8, Vec<Line>) {
    let databases: Vec<u8> = groups.iter().map(|group| group.database(rng)).collect();
    let first = databases.first().copied().unwrap_or(0);
    let (mut selected, mut lines) = (first, Vec::new());
    for (group, db) in groups.iter().zip(databases) {
        if db != selected {
            lines.push(words(&format!("SELECT {db}")));
            selected = db;
        }
        lines.push(words(&command(rng, *group, db, fresh)));
    }
    (first, lines)
}
