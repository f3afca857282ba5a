//! The figures of all runs, `bench/results/ids.csv`: a run replaces its own, and the report shows all.

use std::collections::BTreeMap;
use std::fmt::Write;

const FILE: &str = "bench/results/ids.csv";
const HEADER: &str = "store,processes,tasks,ids a second,conflicts an id,way";

/// Where a figure belongs: tasks are those of each process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub store: String,
    pub way: String,
    pub processes: u64,
    pub tasks: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub per_second: f64,
    pub conflicts_per_id: f64,
}

#[derive(Default)]
pub struct Figures {
    pub cells: BTreeMap<Place, Cell>,
    /// How each store's figures were measured.
    pub notes: BTreeMap<String, String>,
}

impl Figures {
    /// What runs have left.
    pub fn load() -> Self {
        let mut figures = Figures::default();
        for line in std::fs::read_to_string(FILE).unwrap_or_default().lines().filter(|l| *l != HEADER) {
            if let Some((store, note)) = line.strip_prefix("# ").and_then(|l| l.split_once(": ")) {
                figures.notes.insert(store.into(), note.into());
                continue;
            }
            let [store, processes, tasks, per_second, conflicts, way] =
                line.splitn(6, ',').collect::<Vec<_>>()[..]
            else {
                panic!("{FILE}: {line}")
            };
            let place = Place {
                store: store.into(),
                way: way.into(),
                processes: processes.parse().unwrap(),
                tasks: tasks.parse().unwrap(),
            };
            let (per_second, conflicts_per_id) = (per_second.parse().unwrap(), conflicts.parse().unwrap());
            figures.cells.insert(place, Cell { per_second, conflicts_per_id });
        }
        figures
    }

    pub fn save(&self) {
        let mut out = String::new();
        for (store, note) in &self.notes {
            let _ = writeln!(out, "# {store}: {note}");
        }
        let _ = writeln!(out, "{HEADER}");
        for (place, cell) in &self.cells {
            let Place { store, way, processes, tasks } = place;
            let Cell { per_second, conflicts_per_id } = cell;
            let _ = writeln!(out, "{store},{processes},{tasks},{per_second:.0},{conflicts_per_id:.4},{way}");
        }
        std::fs::create_dir_all("bench/results").unwrap();
        std::fs::write(FILE, out).unwrap();
    }

    pub fn get(&self, store: &str, way: &str, processes: u64, tasks: u64) -> Option<Cell> {
        let place = Place { store: store.into(), way: way.into(), processes, tasks };
        self.cells.get(&place).copied()
    }
}
