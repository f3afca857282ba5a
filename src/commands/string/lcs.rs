//! LCS: the longest common subsequence of two strings; if there are several, the one that Redis finds.
//!
//! Redis keeps a table of lengths, four bytes per pair of bytes, and walks it back from its end. The walk
//! only asks which of two neighbours is larger, so here a pair takes one bit, and two rows of lengths are
//! kept. The limit on the table stays Redis', because it also limits the time.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::Server;
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::types::string;
use crate::types::string::Str;
use bytes::Bytes;

const TWO: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Range { last: 1, step: 1 } }];

/// Pairs of bytes after which other tasks run.
const BREATH: usize = 1 << 20;

/// The form of the reply.
#[derive(Debug, Clone, Copy, Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    min_match: i64,
    with_match_len: bool,
}

fn options(mut args: Args<'_>) -> ArgResult<LcsOptions> {
    let mut options = LcsOptions::default();
    while !args.is_empty() {
        if args.keyword("IDX") {
            options.idx = true;
        } else if args.keyword("LEN") {
            options.len = true;
        } else if args.keyword("WITHMATCHLEN") {
            options.with_match_len = true;
        } else if args.len() > 1 && args.keyword("MINMATCHLEN") {
            options.min_match = args.int()?;
        } else {
            return Err(crate::error::SYNTAX);
        }
    }
    if options.len && options.idx {
        return Err(ReplyError::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    Ok(options)
}

pub(super) const LCS: Command = Command::new(
    Row::new(Group::String, "lcs", -3, "7.0.0")
        .flags(Flags::READONLY)
        .keys(TWO)
        .syntax("key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]")
        .summary("Finds the longest common subsequence of two strings."),
    handler!(lcs),
);

async fn lcs(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slots = [cx.look_up(&s, args.next()?).await?, cx.look_up(&s, args.next()?).await?];
    let [Ok(a), Ok(b)] = slots.each_ref().map(|slot| slot.string()) else {
        return Err(ReplyError::new("ERR The specified keys must contain string values").into());
    };
    let options = options(args)?;
    let length = |value: Option<&Str>| value.map_or(0, string::len);
    check_size(cx.server, length(a), length(b))?;
    let mut strings = [Bytes::new(), Bytes::new()];
    let something = length(a) > 0 && length(b) > 0;
    for (bytes, value) in strings.iter_mut().zip([a, b]) {
        if let Some(value) = value.filter(|_| something) {
            *bytes = string::read(&s, value).await?;
        }
    }
    let [a, b] = &strings;
    let table = Table::of(a, b).await;
    Ok(match options {
        LcsOptions { len: true, .. } => Reply::Int(table.length as i64),
        LcsOptions { idx: true, .. } => indexes(&table, a, b, options).await,
        _ => Reply::Bulk(common(&table, a, b).await),
    })
}

fn check_size(server: &Server, a: u64, b: u64) -> ArgResult<()> {
    let bytes = u128::from(a + 1) * u128::from(b + 1) * 4;
    if bytes > server.config.get().proto_max_bulk_len as u128 {
        return Err(ReplyError::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(())
}

async fn common(table: &Table, a: &[u8], b: &[u8]) -> Bytes {
    let (mut walk, mut bytes) = (table.walk(a, b), Vec::new());
    while let Some((i, _)) = walk.next().await {
        bytes.extend(a.get(i));
    }
    bytes.reverse();
    bytes.into()
}

/// For each pair of prefixes, which of them to shorten.
struct Table {
    /// Bit `i * width + j`: whether the first i + 1 bytes of a, minus the last one, have more in common with
    /// the first j + 1 of b than the other way round.
    up: Vec<u64>,
    width: usize,
    length: u32,
}

impl Table {
    async fn of(a: &[u8], b: &[u8]) -> Table {
        let width = b.len();
        let mut up = vec![0u64; (a.len() * width).div_ceil(64)];
        // For the previous prefix of a, and from the left on for this one.
        let mut row = vec![0u32; width];
        let (mut since, mut at) = (0, 0);
        for x in a {
            let (mut left, mut corner) = (0, 0);
            for (ys, row) in b.chunks(BREATH).zip(row.chunks_mut(BREATH)) {
                for (y, here) in ys.iter().zip(row) {
                    let above = *here;
                    if above > left
                        && let Some(word) = up.get_mut(at / 64)
                    {
                        *word |= 1 << (at % 64);
                    }
                    left = if x == y { corner + 1 } else { left.max(above) };
                    (*here, corner) = (left, above);
                    at += 1;
                }
                since += ys.len();
                if since >= BREATH {
                    since = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
        let length = row.last().copied().unwrap_or(0);
        Table { up, width, length }
    }

    /// The common positions in a and b, from last to first.
    fn walk<'a>(&'a self, a: &'a [u8], b: &'a [u8]) -> Walk<'a> {
        Walk { table: self, a, b, steps: 0 }
    }

    /// The same as stretches without a gap in either string: starts and length, from last to first.
    async fn stretches(&self, a: &[u8], b: &[u8]) -> Vec<(usize, usize, usize)> {
        let (mut walk, mut out) = (self.walk(a, b), Vec::<(usize, usize, usize)>::new());
        while let Some((i, j)) = walk.next().await {
            match out.last_mut() {
                Some((x, y, length)) if *x == i + 1 && *y == j + 1 => (*x, *y, *length) = (i, j, *length + 1),
                _ => out.push((i, j, 1)),
            }
        }
        out
    }
}

/// The walk back through a [`Table`].
struct Walk<'a> {
    table: &'a Table,
    /// The prefixes that remain.
    a: &'a [u8],
    b: &'a [u8],
    steps: usize,
}

impl Walk<'_> {
    async fn next(&mut self) -> Option<(usize, usize)> {
        while let (Some((x, a)), Some((y, b))) = (self.a.split_last(), self.b.split_last()) {
            self.steps += 1;
            if self.steps.is_multiple_of(BREATH) {
                tokio::task::yield_now().await;
            }
            let (i, j) = (a.len(), b.len());
            if x == y {
                (self.a, self.b) = (a, b);
                return Some((i, j));
            }
            let at = i * self.table.width + j;
            if self.table.up.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1) {
                self.a = a;
            } else {
                self.b = b;
            }
        }
        None
    }
}

async fn indexes(table: &Table, a: &[u8], b: &[u8], options: LcsOptions) -> Reply {
    let range = |from: usize, length: usize| {
        Reply::Array(vec![Reply::Int(from as i64), Reply::Int((from + length - 1) as i64)])
    };
    let long =
        table.stretches(a, b).await.into_iter().filter(|(.., length)| *length as i64 >= options.min_match);
    let matches = long.map(|(x, y, length)| {
        let mut stretch = vec![range(x, length), range(y, length)];
        stretch.extend(options.with_match_len.then_some(Reply::Int(length as i64)));
        Reply::Array(stretch)
    });
    Reply::Map(vec![
        (Reply::bulk_static("matches"), Reply::Array(matches.collect())),
        (Reply::bulk_static("len"), Reply::Int(table.length.into())),
    ])
}
