//! The list of tests that cannot pass.
//!
//! ```text
//! = reason
//! unit/name
//!   name of a test, or * if the unit cannot run at all
//! ```

/// Stands for all tests of a unit.
pub const ALL: &str = "*";

/// Unit and test, in the order of the file.
pub struct Skips(Vec<(String, String)>);

impl Skips {
    /// From the text of the list.
    pub fn read(text: &str) -> Self {
        let (mut reason, mut unit, mut all) = (None, None, Vec::new());
        for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            if let Some(because) = line.strip_prefix("= ") {
                (reason, unit) = (Some(because), None);
            } else if let Some(name) = line.strip_prefix("  ") {
                let unit: &str = unit.unwrap_or_else(|| panic!("no unit for {line:?}"));
                all.push((unit.to_owned(), name.to_owned()));
            } else {
                assert!(reason.is_some() && line.starts_with("unit/"), "no reason for {line:?}");
                unit = Some(line);
            }
        }
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "a test must be named once");
        Skips(all)
    }

    /// The names of a unit's skipped tests.
    pub fn of<'s>(&'s self, unit: &'s str) -> impl Iterator<Item = &'s str> {
        self.0.iter().filter(move |(of, _)| of == unit).map(|(_, name)| name.as_str())
    }

    /// The names of all skipped tests of `units`.
    pub fn names<'s>(&'s self, units: &'s [&str]) -> impl Iterator<Item = &'s str> {
        self.0.iter().filter(|(unit, _)| units.contains(&unit.as_str())).map(|(_, name)| name.as_str())
    }
}

#[test]
fn a_list_is_read() {
    let skips =
        Skips::read("# x\n= lists\nunit/a\n  one\n  two words\nunit/b\n  one\n\n= other\nunit/a\n  three\n");
    assert_eq!(skips.of("unit/a").collect::<Vec<_>>(), ["one", "two words", "three"]);
    assert_eq!(skips.names(&["unit/a", "unit/b"]).count(), 4);
    assert_eq!(skips.names(&["unit/b"]).count(), 1);
}
