//! What a script called and logged. It is counted, logged and shown to MONITOR once, when its unit has run, however often
//! the unit ran again.

use crate::error::ReplyError;
use crate::server::Server;
use crate::spec::Entry;
use crate::telemetry::Outcome;
use bytes::Bytes;
use std::time::Duration;

/// Calls of a script that are kept; the others are counted when they run.
const MOST_CALLS: usize = 20_000;
/// Lines of a script that are logged, and bytes of a line.
const MOST_LINES: usize = 1_000;
const LONGEST_LINE: usize = 1_024;

/// A level of redis.log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// A call of a script.
#[derive(Debug)]
struct Called {
    row: &'static Entry,
    took: Duration,
    error: Option<ReplyError>,
    /// It was not allowed to run.
    is_refused: bool,
    /// For MONITOR, if anyone monitors: the database and the arguments.
    shown: Option<(u8, Vec<Bytes>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    calls: Vec<Called>,
    lines: Vec<(Level, String)>,
    /// Whether the error that the script ended with is that of a call, which is counted already.
    pub(crate) error_is_counted: bool,
}

impl Noted {
    /// A call has run.
    pub(crate) fn call(
        &mut self,
        server: &Server,
        row: &'static Entry,
        took: Duration,
        error: Option<&ReplyError>,
        shown: Option<(u8, Vec<Bytes>)>,
    ) {
        self.push(server, Called { row, took, error: error.cloned(), is_refused: false, shown });
    }

    /// A call was not allowed to run.
    pub(crate) fn refused(&mut self, server: &Server, row: &'static Entry, error: &ReplyError) {
        let error = Some(error.clone());
        self.push(server, Called { row, took: Duration::ZERO, error, is_refused: true, shown: None });
    }

    fn push(&mut self, server: &Server, called: Called) {
        if self.calls.len() < MOST_CALLS {
            self.calls.push(called);
        } else {
            called.count(server);
        }
    }

    /// The script logs a line.
    pub(crate) fn line(&mut self, level: Level, mut line: String) {
        if self.lines.len() < MOST_LINES {
            let end = (0..=LONGEST_LINE).rev().find(|end| line.is_char_boundary(*end));
            line.truncate(end.unwrap_or_default());
            self.lines.push((level, line));
        }
    }

    /// The calls to show, with the database of each.
    pub(crate) fn shown(&self) -> Vec<(u8, &[Bytes])> {
        let shown = self.calls.iter().filter_map(|called| called.shown.as_ref());
        shown.map(|(db, argv)| (*db, argv.as_slice())).collect()
    }

    /// Counts the calls and logs the lines.
    pub(crate) fn publish(&self, server: &Server) {
        self.calls.iter().for_each(|called| called.count(server));
        for (level, line) in &self.lines {
            match level {
                Level::Debug => tracing::debug!(script = true, "{line}"),
                Level::Verbose | Level::Notice => tracing::info!(script = true, "{line}"),
                Level::Warning => tracing::warn!(script = true, "{line}"),
            }
        }
    }
}

impl Called {
    fn count(&self, server: &Server) {
        let outcome = match &self.error {
            Some(e) => {
                server.telemetry.error(e.code());
                Outcome::Failed
            }
            None => Outcome::Done,
        };
        if self.is_refused {
            return server.telemetry.rejected(self.row.index);
        }
        server.telemetry.command(self.row.index, self.took, server.config.get().latency_tracking, outcome);
    }
}
