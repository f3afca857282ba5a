//! A cursor over a command's arguments.
//!
//! The row's arity has been checked before a handler runs, so a missing argument here is a syntax error of an
//! option.

use crate::error::{NOT_FLOAT, NOT_INTEGER, ReplyError, SYNTAX};
use crate::spec::words::{MAX_QUOTED, parse_i64, quoted_up_to};
use bytes::Bytes;

/// The arguments after the command's name (after the subcommand's, for a container).
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    /// All arguments, names included.
    argv: &'a [Bytes],
    rest: &'a [Bytes],
}

/// Results of argument parsing.
pub(crate) type ArgResult<T> = Result<T, ReplyError>;

impl<'a> Args<'a> {
    /// A cursor at the first of `rest`.
    pub(crate) fn new(rest: &'a [Bytes]) -> Self {
        Args { argv: rest, rest }
    }
    /// A cursor after the first `names` of `argv`.
    pub(crate) fn behind(names: usize, argv: &'a [Bytes]) -> Self {
        Args { argv, rest: argv.get(names..).unwrap_or_default() }
    }
    /// The error for a container's subcommand that has no form with these arguments; shows its name as the
    /// client wrote it.
    pub(crate) fn no_such_form(&self) -> ReplyError {
        let [container, sub, ..] = self.argv else { return SYNTAX };
        let (container, sub) =
            (quoted_up_to(container, MAX_QUOTED).to_uppercase(), quoted_up_to(sub, MAX_QUOTED));
        ReplyError::of(format!(
            "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {container} HELP."
        ))
    }
    /// The command's name as the client wrote it.
    pub(crate) fn name(&self) -> String {
        self.argv.first().map_or_else(String::new, |name| quoted_up_to(name, MAX_QUOTED).into_owned())
    }
    /// The number of arguments left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
    /// True at the end.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// All arguments left, without advancing.
    pub(crate) fn rest(&self) -> &'a [Bytes] {
        self.rest
    }
    /// The next argument, without advancing.
    pub(crate) fn peek(&self) -> Option<&'a Bytes> {
        self.rest.first()
    }
    /// The next argument, or a syntax error.
    #[allow(clippy::should_implement_trait)]
    pub(crate) fn next(&mut self) -> ArgResult<&'a Bytes> {
        let (first, rest) = self.rest.split_first().ok_or(SYNTAX)?;
        self.rest = rest;
        Ok(first)
    }
    /// The next `n` arguments, or a syntax error.
    pub(crate) fn take(&mut self, n: usize) -> ArgResult<&'a [Bytes]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(SYNTAX)?;
        self.rest = rest;
        Ok(head)
    }
    /// Skips the next argument if it is `word` (given in upper case, matched in any case).
    pub(crate) fn keyword(&mut self, word: &str) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if first.eq_ignore_ascii_case(word.as_bytes()) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }
    /// The next argument as a signed 64-bit decimal integer, as strict as Redis' `string2ll`.
    pub(crate) fn int(&mut self) -> ArgResult<i64> {
        parse_i64(self.next()?).ok_or(NOT_INTEGER)
    }
    /// The next argument as a float.
    pub(crate) fn float(&mut self) -> ArgResult<f64> {
        let raw = std::str::from_utf8(self.next()?).map_err(|_| NOT_FLOAT)?;
        raw.parse::<f64>().ok().filter(|f| !f.is_nan()).ok_or(NOT_FLOAT)
    }
    /// A syntax error unless everything has been read.
    pub(crate) fn end(&self) -> ArgResult<()> {
        if self.is_empty() { Ok(()) } else { Err(SYNTAX) }
    }
}
