//! `conf/tern.conf` is generated from the table of options, and each option accepts its own default.
//!
//! `TERN_BLESS=1 cargo test --test config_table` regenerates the file.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::fmt::Write as _;
use tern::config::{Change, Opt, SECTIONS, Settings, from_text, options};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tern.conf");
/// The width of the file's comments.
const WIDTH: usize = 110;

const HEAD: &str = "\
# Tern's options with their defaults, generated from src/config/table.rs. The syntax is that of redis.conf: one
# directive per line, followed by its arguments; quotes around words with spaces; # starts a comment line; sizes
# like 64mb or 1gb; later lines override earlier ones.
#
# Start with this file:               tern /path/to/tern.conf
# Arguments override the file:        tern /path/to/tern.conf --port 7000 --loglevel verbose
# Options marked [runtime] can be changed while the server runs: CONFIG SET name value. CONFIG REWRITE saves the
# current values to the file and keeps its comments.
#
# include /path/to/other.conf reads another file at that point.
";

#[test]
fn names_are_unique_and_lower_case() {
    let mut seen = HashSet::new();
    for opt in options() {
        assert!(seen.insert(opt.name), "{} occurs twice", opt.name);
        assert!(
            opt.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{}",
            opt.name
        );
        assert!(!opt.doc.trim().is_empty(), "{} has no description", opt.name);
    }
}

#[test]
fn every_default_is_accepted_and_shown_unchanged() {
    for opt in options() {
        let mut settings = Settings::default();
        assert_eq!(opt.show(&settings), opt.default, "{}", opt.name);
        opt.set(&mut settings, &[opt.default]).unwrap_or_else(|why| panic!("{}: {why}", opt.name));
        assert_eq!(settings, Settings::default(), "{}", opt.name);
    }
}

/// `text` as comment lines of at most [`WIDTH`] columns.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_ascii_whitespace() {
        if lines.last().unwrap().len() + 1 + word.len() > WIDTH {
            lines.push("#".to_owned());
        }
        write!(lines.last_mut().unwrap(), " {word}").unwrap();
    }
    lines.join("\n") + "\n"
}

/// An option's description, then its examples, one per line, then the directive.
fn directive(opt: &Opt) -> String {
    let (examples, sentences): (Vec<&str>, Vec<&str>) =
        opt.doc.lines().partition(|line| line.trim().starts_with("Example: "));
    let runtime = if opt.change == Change::Runtime { " [runtime]" } else { "" };
    let mut text = comment(&(sentences.join(" ") + runtime));
    for example in examples {
        writeln!(text, "# {}", example.trim()).unwrap();
    }
    let value = if opt.default.is_empty() { "\"\"" } else { opt.default };
    writeln!(text, "{} {value}", opt.name).unwrap();
    text
}

fn rendered() -> String {
    let mut text = HEAD.to_owned();
    let rule = "# ".to_owned() + &"-".repeat(WIDTH - 2);
    for section in SECTIONS {
        write!(text, "\n{rule}\n# {}\n{rule}\n", section.title).unwrap();
        if !section.about.is_empty() {
            text += &comment(section.about);
        }
        for opt in section.options {
            text += "\n";
            text += &directive(opt);
        }
    }
    text
}

#[test]
fn the_file_matches_the_table() {
    let wanted = rendered();
    if std::env::var_os("TERN_BLESS").is_some() {
        std::fs::write(FILE, &wanted).unwrap();
    }
    let text = std::fs::read_to_string(FILE).unwrap();
    assert_eq!(text, wanted, "run: TERN_BLESS=1 cargo test --test config_table");
    let directives = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!(directives, options().count());
}

#[test]
fn the_file_parses_to_the_defaults() {
    let text = std::fs::read_to_string(FILE).unwrap();
    let mut settings = Settings { port: 1, databases: 3, ..Settings::default() };
    from_text(&mut settings, "conf/tern.conf", &text).unwrap();
    assert_eq!(settings, Settings::default());
}
