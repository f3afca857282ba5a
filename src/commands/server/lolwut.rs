//! LOLWUT: a picture, as Redis has one for each of its versions. Tern's shows terns above the sea.

use crate::commands::REDIS_VERSION;
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::env::Rng;
use crate::error::Result;
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, Row};

/// The command.
pub(crate) const COMMANDS: &[Command] = &[LOLWUT];

const WIDTH: usize = 60;
const SKY: usize = 8;
const SEA: usize = 3;

/// The number of size arguments of each Redis version's picture. Tern's has one size, but rejects arguments
/// that are not numbers.
const SIZES: &[(i64, usize)] = &[(5, 3), (6, 2)];

const LOLWUT: Command = Command::new(
    Row::new(Group::Server, "lolwut", -1, "5.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .syntax("[VERSION version]")
        .summary("Draws a picture and shows the version."),
    handler!(lolwut),
);

/// Redis chooses the picture by its version.
async fn lolwut(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let version = if args.len() > 1 && args.keyword("VERSION") { args.int()? } else { 0 };
    let numbers = SIZES.iter().find(|(of, _)| *of == version).map_or(0, |(_, numbers)| *numbers);
    (0..numbers.min(args.len())).try_for_each(|_| args.int().map(drop))?;
    let own = env!("CARGO_PKG_VERSION");
    let text = format!("{}\nTern ver. {own}, answers as Redis ver. {REDIS_VERSION}\n", picture(cx.rng));
    Ok(Reply::verbatim(text))
}

fn picture(rng: &mut Rng) -> String {
    let sky = (0..SKY).map(|_| line(rng, &[(" ", 30), ("v", 1), ("~v~", 1)]));
    let lines: Vec<String> = sky.collect();
    let sea = (0..SEA).map(|_| line(rng, &[("~", 6), ("-", 3), ("^", 1)]));
    lines.into_iter().chain(sea).map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A line of strokes, each drawn with a frequency given by its weight.
fn line(rng: &mut Rng, strokes: &[(&str, u64)]) -> String {
    let total = strokes.iter().map(|(_, weight)| weight).sum();
    let mut line = String::new();
    while line.len() < WIDTH {
        let mut at = rng.below(total);
        let stroke = strokes.iter().find(|(_, weight)| match at.checked_sub(*weight) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        line.push_str(stroke.map_or(" ", |(stroke, _)| stroke));
    }
    line
}
