//! `bench/results/ids.md` and `ids.svg`: tables and plots of the figures, and what depends on no store: the size of bitmaps
//! of such ids, and how often hashes meet.

use super::figures::Figures;
use super::{ALL_WAYS, Way};
use roaring::RoaringTreemap;
use std::collections::HashMap;
use std::fmt::Write;
use tern::env::{Clock, Rng};
use tern::keyspace::dictionary::ids::BLOCK;
use xxhash_rust::xxh3::xxh3_64;

/// A store's part: its name in the figures, its title, tasks in one process, and (processes, tasks in each).
pub struct Part {
    pub store: &'static str,
    pub title: &'static str,
    pub tasks: &'static [u64],
    pub processes: &'static [(u64, u64)],
}

pub const PARTS: [Part; 2] = [
    Part { store: "local", title: "Embedded store", tasks: &[1, 2, 4, 8, 16, 32, 64], processes: &[] },
    Part {
        store: "fdb",
        title: "FoundationDB",
        tasks: &[1, 2, 4, 8, 16, 32, 64, 128, 256],
        processes: &[(2, 32), (4, 32), (8, 32)],
    },
];

impl Part {
    /// Processes and tasks in each, of all columns.
    pub fn columns(&self) -> impl Iterator<Item = (u64, u64)> {
        self.tasks.iter().map(|t| (1, *t)).chain(self.processes.iter().copied())
    }
}
/// `n` ids as this way numbers members that eight workers create at the same time.
fn numbered(way: Way, n: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(super::SEED);
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let leases: Vec<u64> = (0..8).map(|_| rng.below(256) << 54).collect();
    let window = (0..).map(|k| 64u64 << k).find(|w| *w >= 2 * n.max(8192)).unwrap();
    let mut numbers: Vec<u64> = (0..if way == Way::Allocator { window } else { 0 }).collect();
    rng.shuffle(&mut numbers);
    (0..n)
        .map(|i| match way {
            Way::Counter => i,
            Way::Hash => xxh3_64(format!("member:{i}").as_bytes()),
            Way::Sequences(bits) => {
                let sequence = rng.u64() >> (64 - bits);
                let next = counts.entry(sequence).or_default();
                *next += 1;
                sequence << (64 - bits) | *next
            }
            Way::Allocator | Way::Native => numbers[i as usize],
            Way::Leases | Way::Interned => {
                let (worker, nth) = (i as usize % 8, i / 8);
                leases[worker] + ((nth / BLOCK) << 20) + nth % BLOCK
            }
        })
        .collect()
}

fn bytes_a_member(ids: impl Iterator<Item = u64>) -> f64 {
    let mut map: RoaringTreemap = ids.collect();
    map.optimize();
    map.serialized_size() as f64 / map.len() as f64
}

/// Bytes a member of a set of: the first 1 000 members, the first million, and every tenth of ten million at random.
fn sizes(way: Way) -> [f64; 3] {
    let mut rng = Rng::seeded(super::SEED);
    let all = numbered(way, 10_000_000);
    [
        bytes_a_member(numbered(way, 1_000).into_iter()),
        bytes_a_member(numbered(way, 1_000_000).into_iter()),
        bytes_a_member(all.into_iter().filter(|_| rng.below(10) == 0)),
    ]
}

fn human(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Collisions of a hash of `bits` among `n` members, found and expected.
fn birthday(bits: u32, n: u64) -> (u64, f64) {
    let mut hashes: Vec<u64> =
        (0..n).map(|i| xxh3_64(format!("member:{i}").as_bytes()) >> (64 - bits)).collect();
    hashes.sort_unstable();
    let found = hashes.windows(2).filter(|w| w[0] == w[1]).count() as u64;
    (found, expected(bits, n as f64))
}

fn expected(bits: u32, n: f64) -> f64 {
    n * (n - 1.0) / 2.0 / 2f64.powi(bits as i32)
}

/// Begins what people write into the report.
const REMARKS: &str = "\n## What it says";

/// The whole report; remarks stay as they are in `before`.
pub fn report(figures: &Figures, before: &str) -> String {
    let mut out = String::from("# Ids for new members\n\n![ids a second](ids.svg)\n");
    PARTS.iter().for_each(|part| table(&mut out, part, figures));
    out.push_str(
        "\n## Bytes a member in a Roaring bitmap\n\nEight workers create members at the same time.\n\n",
    );
    out.push_str("| | first 1 000 | first 1 M | 1 M of 10 M at random |\n|---|---:|---:|---:|\n");
    for way in ALL_WAYS.into_iter().filter(|w| !matches!(w, Way::Interned | Way::Native)) {
        let [a, b, c] = sizes(way);
        let _ = writeln!(out, "| {} | {a:.2} | {b:.2} | {c:.2} |", way.name());
    }
    out.push_str("\n## Birthdays\n\nPairs of members with one hash, and n(n-1)/2^(bits+1).\n\n");
    out.push_str("| hash | members | found | expected |\n|---|---:|---:|---:|\n");
    for (bits, n) in [(24, 10_000), (32, 100_000), (32, 1_000_000), (40, 2_000_000)] {
        let (found, expected) = birthday(bits, n);
        let _ = writeln!(out, "| xxHash, top {bits} bits | {} | {found} | {expected:.1} |", human(n as f64));
    }
    for n in [1e6, 1e9, 6e9] {
        let _ = writeln!(out, "| xxHash, 64 bits | {n:.0e} | | {:.2e} |", expected(64, n));
    }
    out.push_str(before.find(REMARKS).and_then(|at| before.get(at..)).unwrap_or_default());
    out
}

fn table(out: &mut String, part: &Part, figures: &Figures) {
    let Some(note) = figures.notes.get(part.store) else { return };
    let _ = write!(out, "\n## {}: ids a second (conflicts an id)\n\n{note}\n\n| |", part.title);
    for (processes, tasks) in part.columns() {
        let _ = match (processes, tasks) {
            (1, 1) => write!(out, " 1 task |"),
            (1, _) => write!(out, " {tasks} tasks |"),
            _ => write!(out, " {processes} x {tasks} |"),
        };
    }
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(part.columns().count()));
    for way in ALL_WAYS {
        let cells = part.columns().map(|(p, t)| figures.get(part.store, &way.name(), p, t));
        let shown: Vec<String> = cells
            .map(|c| c.map_or("".into(), |c| format!("{} ({:.2})", human(c.per_second), c.conflicts_per_id)))
            .collect();
        if shown.iter().any(|s| !s.is_empty()) {
            let _ = writeln!(out, "| {} | {} |", way.name(), shown.join(" | "));
        }
    }
}

const LEFT: f64 = 70.0;
const TOP: f64 = 66.0;
const PLOT_WIDTH: f64 = 380.0;
const PLOT_HEIGHT: f64 = 370.0;
const PANEL: f64 = PLOT_WIDTH + LEFT + 10.0;

fn x(tasks: u64) -> f64 {
    (tasks as f64).log2() / 8.0 * PLOT_WIDTH
}

fn y(per_second: f64) -> f64 {
    TOP + PLOT_HEIGHT - (per_second.max(10.0).log10() - 1.0) / 8.0 * PLOT_HEIGHT
}

/// Ids a second over tasks of one process, both logarithmic, a panel for each store.
pub fn plot(figures: &Figures) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">Ids a second over concurrent tasks</text>\n",
        PANEL * 2.0 + 300.0,
        TOP + PLOT_HEIGHT + 40.0,
    );
    for (n, part) in PARTS.iter().enumerate() {
        panel(&mut out, LEFT + n as f64 * PANEL, part, figures);
    }
    for (n, way) in ALL_WAYS.iter().enumerate() {
        let (left, legend) = (PANEL * 2.0 + 24.0, TOP + 14.0 + n as f64 * 22.0);
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{legend}\">{}</text>",
            legend - 6.0,
            way.color(),
            left + 22.0,
            way.name()
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, left: f64, part: &Part, figures: &Figures) {
    let _ = writeln!(out, "<text x=\"{left}\" y=\"48\" font-size=\"13\">{}</text>", part.title);
    for power in 1..=9 {
        let v = 10f64.powi(power);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + PLOT_WIDTH,
            left - 8.0,
            y(v) + 4.0,
            human(v),
            y = y(v),
        );
    }
    for tasks in part.tasks {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{tasks}</text>",
            left + x(*tasks),
            TOP + PLOT_HEIGHT + 20.0
        );
    }
    for way in ALL_WAYS {
        let at = |tasks: &u64| Some((*tasks, figures.get(part.store, &way.name(), 1, *tasks)?));
        let points: Vec<String> = part
            .tasks
            .iter()
            .filter_map(at)
            .map(|(t, c)| format!("{:.1},{:.1}", left + x(t), y(c.per_second)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            points.join(" "),
            way.color(),
        );
    }
}

/// What the figures were measured on.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or(": unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {cores} cores of {}", date(), model.trim_start_matches(['\t', ' ', ':']))
}

/// Today in UTC: year, month and day of the proleptic Gregorian calendar.
fn date() -> String {
    let days = Clock::System.now_ms() / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
