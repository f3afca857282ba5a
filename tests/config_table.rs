//! The table of options and `conf/tern.conf` say the same, and every default is a value that the option accepts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use tern::config::{Change, OPTIONS, Settings, from_text};

const FILE: &str = include_str!("../conf/tern.conf");

#[test]
fn names_are_unique_and_lower_case() {
    let mut seen = HashSet::new();
    for opt in OPTIONS {
        assert!(seen.insert(opt.name), "{} is there twice", opt.name);
        assert!(
            opt.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{}",
            opt.name
        );
        assert!(opt.doc.trim().ends_with('.'), "{} has no sentence about it", opt.name);
    }
}

#[test]
fn every_default_is_accepted_and_shown_as_it_is() {
    for opt in OPTIONS {
        let mut settings = Settings::default();
        assert_eq!(opt.show(&settings), opt.default, "{}", opt.name);
        opt.set(&mut settings, &[opt.default]).unwrap_or_else(|why| panic!("{}: {why}", opt.name));
        assert_eq!(settings, Settings::default(), "{}", opt.name);
    }
}

/// The comment lines directly above a directive, as one line.
fn comment_above(lines: &[&str], at: usize) -> String {
    let start = lines[..at].iter().rposition(|l| !l.starts_with('#')).map_or(0, |n| n + 1);
    let words = lines[start..at].iter().map(|l| l.trim_start_matches('#').trim());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_file_documents_every_option_with_its_default() {
    let lines: Vec<&str> = FILE.lines().collect();
    for opt in OPTIONS {
        let value = if opt.default.is_empty() { "\"\"" } else { opt.default };
        let line = format!("{} {value}", opt.name);
        let at = lines.iter().position(|l| **l == line);
        let at = at.unwrap_or_else(|| panic!("conf/tern.conf lacks the line '{line}'"));
        let comment = comment_above(&lines, at);
        let doc = opt.doc.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(comment.starts_with(&doc), "{}: the file says\n{comment}\nthe table\n{doc}", opt.name);
        assert_eq!(comment.ends_with("[runtime]"), opt.change == Change::Runtime, "{}", opt.name);
    }
    let directives = lines.iter().filter(|l| !l.is_empty() && !l.starts_with('#')).count();
    assert_eq!(directives, OPTIONS.len(), "a directive is there twice, or the table lacks it");
}

#[test]
fn the_file_reads_as_the_defaults() {
    let mut settings = Settings { port: 1, databases: 3, ..Settings::default() };
    from_text(&mut settings, "conf/tern.conf", FILE).unwrap();
    assert_eq!(settings, Settings::default());
}
