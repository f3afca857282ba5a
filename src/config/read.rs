//! Parses redis.conf's syntax: one directive per line, quotes, comments, `include`; and the same as
//! arguments. Later directives win.

use super::file;
use super::table::{Settings, lookup};
use crate::words;
use std::path::{Path, PathBuf};

/// The deepest nesting of included files.
const MAX_INCLUDES: usize = 16;

/// A rejected directive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Reading {place}\n>>> '{text}'\n{why}")]
pub struct ConfigError {
    /// The file and line, or the arguments.
    pub(crate) place: String,
    /// The directive as written.
    pub(crate) text: String,
    /// The reason.
    pub(crate) why: String,
}

/// Parses the program's arguments (without its name): `[file] [--name value ...]...`, also `--name=value`.
/// Returns the settings with the file's path.
pub fn from_args(args: &[String]) -> Result<(Settings, Option<PathBuf>), ConfigError> {
    let mut settings = Settings::default();
    let (file, args) = match args.split_first() {
        Some((first, rest)) if !first.starts_with("--") => (Some(PathBuf::from(first)), rest),
        _ => (None, args),
    };
    if let Some(file) = &file {
        read_file(&mut settings, file, 0)?;
    }
    let (before, options) = args.split_at(args.iter().take_while(|a| !a.starts_with("--")).count());
    if let Some(text) = before.first() {
        return Err(refuse("the arguments", text, "an option starts with --"));
    }
    for words in options.chunk_by(|_, next| !next.starts_with("--")) {
        let words = argument(words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        apply(&mut settings, &words).map_err(|why| refuse("the arguments", &words.join(" "), &why))?;
    }
    Ok((settings, file))
}

/// Applies the directives of `text` to `settings`. `name` appears in errors; `include` is relative to the
/// working directory.
pub fn from_text(settings: &mut Settings, name: &str, text: &str) -> Result<(), ConfigError> {
    read_text(settings, name, text, 0)
}

/// Splits `--name=value more` and `--name value more` into words.
fn argument(words: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len() + 1);
    for (n, word) in words.iter().enumerate() {
        match (n, word.trim_start_matches("--").split_once('=')) {
            (0, Some((name, value))) => out.extend([name.to_owned(), value.to_owned()]),
            (0, None) => out.push(word.trim_start_matches("--").to_owned()),
            _ => out.push(word.clone()),
        }
    }
    out
}

fn read_file(settings: &mut Settings, file: &Path, depth: usize) -> Result<(), ConfigError> {
    let name = file.display().to_string();
    let text = file::read_text(file);
    let text = text.map_err(|e| refuse(&name, &name, &format!("Can't open the file: {e}")))?;
    read_text(settings, &name, &text, depth)
}

fn read_text(settings: &mut Settings, name: &str, text: &str, depth: usize) -> Result<(), ConfigError> {
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        let here = |why: &str| refuse(&format!("{name}, at line {}", n + 1), line, why);
        let words = directive(line).ok_or_else(|| here("Unbalanced quotes in configuration line"))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => {}
            [word, ..] if word.eq_ignore_ascii_case("include") && depth == MAX_INCLUDES => {
                return Err(here("files include each other too deeply"));
            }
            [word, file] if word.eq_ignore_ascii_case("include") => {
                read_file(settings, Path::new(file), depth + 1)?;
            }
            words => apply(settings, words).map_err(|why| here(&why))?,
        }
    }
    Ok(())
}

fn apply(settings: &mut Settings, words: &[&str]) -> Result<(), String> {
    let Some((name, args)) = words.split_first() else { return Ok(()) };
    if name.eq_ignore_ascii_case("user") && !args.is_empty() {
        settings.users.push(args.iter().map(|word| (*word).to_owned()).collect());
        return Ok(());
    }
    let opt = lookup(name).ok_or("Bad directive or wrong number of arguments")?;
    opt.set(settings, args)
}

fn refuse(place: &str, text: &str, why: &str) -> ConfigError {
    ConfigError { place: place.into(), text: text.into(), why: why.into() }
}

/// The words of a line; empty for a comment. None if quotes are not closed.
pub(super) fn directive(line: &str) -> Option<Vec<String>> {
    if line.trim_start().starts_with('#') { Some(Vec::new()) } else { split(line) }
}

fn split(line: &str) -> Option<Vec<String>> {
    let words = words::split(line.as_bytes()).ok()?;
    words.into_iter().map(|word| String::from_utf8(word.into()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let words = |line| directive(line).map(|w| w.join("|"));
        assert_eq!(words("a  b\tc "), Some("a|b|c".into()));
        assert_eq!(words(r#"a "b c" 'd "e' "\x41\n\"" """#), Some("a|b c|d \"e|A\n\"|".into()));
        assert_eq!(words(r"a 'it\'s' b\n"), Some(r"a|it's|b\n".into()));
        assert_eq!(words("  # a comment \" with a quote"), Some(String::new()));
        for unbalanced in ["a \"b", "a 'b", "a \"b\"c", "\"\\x4", "a 'b\\'"] {
            assert_eq!(words(unbalanced), None, "{unbalanced}");
        }
    }
}
