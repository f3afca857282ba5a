//! The log: structured events through `tracing`, to standard output or a file, at a level that CONFIG SET
//! changes.

use crate::env::Clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Changes the level of a running log. The default controls none.
#[derive(Default)]
pub struct LogControl(Option<reload::Handle<LevelFilter, Registry>>);

impl std::fmt::Debug for LogControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "LogControl(running)" } else { "LogControl(none)" })
    }
}

impl LogControl {
    /// Sets the level: events at least this severe are logged.
    pub(crate) fn set_level(&self, level: LevelFilter) {
        if let Some(handle) = &self.0 {
            // Fails only if the subscriber is gone: then nothing has to change.
            let _ = handle.reload(level);
        }
    }
}

/// Starts the log of this process, which from now on also gets panics: to `file`, or to standard output if it
/// is empty. Fails if the file cannot be opened or a log is already running.
pub fn init(level: LevelFilter, file: &str, clock: Clock) -> io::Result<LogControl> {
    let (filter, handle) = reload::Layer::new(level);
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false).with_timer(Timer(clock));
    let registry = tracing_subscriber::registry().with(filter);
    let started = if file.is_empty() {
        registry.with(layer.with_writer(io::stdout)).try_init()
    } else {
        registry.with(layer.with_writer(LogFile::open(Path::new(file))?)).try_init()
    };
    started.map_err(io::Error::other)?;
    std::panic::set_hook(Box::new(|panic| {
        let lines = panic.to_string();
        tracing::error!("{}", lines.lines().collect::<Vec<_>>().join(" "));
    }));
    Ok(LogControl(Some(handle)))
}

/// A file that is opened for every event, so that it can be renamed while the server runs.
struct LogFile(PathBuf);

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        append(path)?;
        Ok(LogFile(std::path::absolute(path)?))
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Box<dyn Write + 'a>;
    /// Standard error if the file can no longer be opened.
    fn make_writer(&'a self) -> Self::Writer {
        match append(&self.0) {
            Ok(file) => Box::new(file),
            Err(_) => Box::new(io::stderr()),
        }
    }
}

/// `2026-01-31T23:59:59.123Z` from the server's clock.
struct Timer(Clock);

impl FormatTime for Timer {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        w.write_str(&timestamp(self.0.now_ms()))
    }
}

/// Formats milliseconds since the Unix epoch as ISO 8601 in UTC.
fn timestamp(ms: u64) -> String {
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
}

/// Year, month and day of a number of days since the Unix epoch: eras of 400 years, 146097 days, that start
/// in March, so that the leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(timestamp(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp(1_795_228_858_565), "2026-11-21T02:40:58.565Z");
        assert_eq!(timestamp(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_log_file_survives_being_renamed_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = LogFile::open(&path).unwrap();
        log.make_writer().write_all(b"one\n").unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        log.make_writer().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert!(LogFile::open(&dir.path().join("no/such/dir")).is_err());
    }
}
