//! The outcome of a run of the suite.

/// Lines shown of a unit that was cut off.
const LAST: usize = 12;

/// The outcome of one unit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub passed: usize,
    /// Failed tests with their messages.
    pub failed: Vec<String>,
    /// Tests listed in skipped.txt.
    pub skipped: Vec<String>,
    /// Tests that the suite itself omits.
    pub left_out: usize,
    /// The whole output.
    pub text: String,
}

impl Outcome {
    /// From the suite's output. `ended`: in time.
    pub fn read(said: &str, ended: bool) -> Self {
        let text = without_colours(said);
        let mut outcome = Outcome::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((mark, rest)) = line.strip_prefix('[').and_then(|l| l.split_once("]: ")) else {
                continue;
            };
            match mark {
                "ok" => outcome.passed += 1,
                "skip" => outcome.skipped.push(rest.to_owned()),
                "ignore" => outcome.left_out += 1,
                "err" | "exception" => {
                    let why = lines.peek().copied().unwrap_or_default();
                    outcome.failed.push(format!("{rest}: {why}"));
                }
                _ => {}
            }
        }
        let (before, timeout) = text.split_once("[TIMEOUT]").unwrap_or((&text, ""));
        if !ended || !timeout.is_empty() {
            outcome.failed.push(format!("it did not end in time, after {}", last_lines(before)));
        }
        if !text.contains("The End") {
            outcome.failed.push(format!("it did not come to its end: {}", last_lines(&text)));
        }
        outcome.text = text;
        outcome
    }

    /// For a unit that is not run.
    pub fn left_out() -> Self {
        Outcome { skipped: vec![super::skips::ALL.to_owned()], ..Outcome::default() }
    }

    /// One line per failure.
    pub fn failures<'o>(&'o self, unit: &'o str) -> impl Iterator<Item = String> + 'o {
        self.failed.iter().map(move |failure| format!("{unit}: {failure}"))
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LAST)..).unwrap_or_default().join("\n  ")
}

fn without_colours(said: &str) -> String {
    let mut parts = said.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    text
}

#[test]
fn outcomes_are_read() {
    let said = "[\x1b[0;32;49mok\x1b[0m]: GET (3 ms)\n[ok]: SET [0] (1 ms)\n[\x1b[0;31;49merr\x1b[0m]: DEL in tests/unit/x.tcl\n\
                Expected 1\n[skip]: LPUSH\n[ignore]: a b: Tag: needs:repl denied\n";
    let outcome = Outcome::read(said, true);
    assert_eq!((outcome.passed, outcome.left_out), (2, 1));
    assert_eq!(outcome.skipped, ["LPUSH"]);
    assert_eq!(outcome.failed[0], "DEL in tests/unit/x.tcl: Expected 1");
    assert!(
        outcome.failed[1].starts_with("it did not come to its end: [ok]: GET"),
        "{:?}",
        outcome.failed[1]
    );
    let stuck = ["it did not end in time, after [ok]: GET"];
    assert_eq!(Outcome::read("[ok]: GET\n[TIMEOUT]: state\nThe End\n", true).failed, stuck);
    let endless = ["it did not end in time, after The End"];
    assert_eq!(Outcome::read("The End", false).failed, endless);
}
