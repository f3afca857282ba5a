//! Offences of clients: counted by kind, with log lines that no client can flood.
//!
//! A client can repeat an offence thousands of times a second, so each kind gets at most [`LINES`] lines per
//! [`PERIOD`]; the first line of the next period says how many were left out.

use super::counters::Count;
use parking_lot::Mutex;
use std::time::Duration;

/// The most log lines of a kind per [`PERIOD`].
const LINES: u32 = 10;
/// The length of a period.
const PERIOD: Duration = Duration::from_secs(10);

/// A kind of offence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offence {
    /// A wrong user or password.
    Password,
    /// A TLS handshake that failed.
    Handshake,
    /// A protocol violation.
    Protocol,
    /// A browser that was tricked into talking to the server.
    CrossProtocol,
    /// More waiting requests than allowed.
    Requests,
    /// More waiting replies or messages than allowed.
    Replies,
    /// A connection beyond `maxclients`, or against protected mode.
    Refused,
}

/// Kinds, with their labels in the metrics.
const KINDS: [(Offence, &str); 7] = [
    (Offence::Password, "password"),
    (Offence::Handshake, "handshake"),
    (Offence::Protocol, "protocol"),
    (Offence::CrossProtocol, "cross_protocol"),
    (Offence::Requests, "query_buffer"),
    (Offence::Replies, "output_buffer"),
    (Offence::Refused, "refused"),
];

#[derive(Debug, Default)]
struct OffenceCounter {
    count: Count,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    /// Monotonic time of the start of the period.
    since: Option<Duration>,
    logged: u32,
    unlogged: u64,
}

impl Lines {
    fn line(&mut self, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_sub(since) >= PERIOD) {
            (self.since, self.logged) = (Some(now), 0);
        }
        if self.logged == LINES {
            self.unlogged += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// The offences of all clients.
#[derive(Debug, Default)]
pub(crate) struct Offences([OffenceCounter; KINDS.len()]);

impl Offences {
    /// Counts an offence at the monotonic time `now`. Some: log it, with this number of unlogged ones since
    /// the last line.
    pub(crate) fn add(&self, offence: Offence, now: Duration) -> Option<u64> {
        let counter = self.counter(offence)?;
        counter.count.add(1);
        counter.lines.lock().line(now)
    }
    /// The number of offences of a kind.
    pub(crate) fn count(&self, offence: Offence) -> u64 {
        self.counter(offence).map_or(0, |counter| counter.count.get())
    }
    /// All kinds by label.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.iter().map(|(offence, label)| (*label, self.count(*offence)))
    }
    /// Resets the counts.
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|counter| counter.count.reset());
    }
    fn counter(&self, offence: Offence) -> Option<&OffenceCounter> {
        KINDS.iter().zip(&self.0).find(|((known, _), _)| *known == offence).map(|(_, counter)| counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_say_what_they_leave_out() {
        let all = Offences::default();
        let at = Duration::from_secs;
        let logged = (0..1000).filter(|_| all.add(Offence::Password, at(5)).is_some()).count();
        assert_eq!((logged, all.count(Offence::Password)), (LINES as usize, 1000));
        assert_eq!(all.add(Offence::Protocol, at(5)), Some(0), "each kind has its own lines");
        assert_eq!(all.add(Offence::Password, at(14)), None);
        assert_eq!(all.add(Offence::Password, at(15)), Some(1000 - u64::from(LINES) + 1));
        assert_eq!(all.add(Offence::Password, at(15)), Some(0));
        let labels: Vec<_> = all.all().map(|(label, _)| label).collect();
        assert_eq!(labels.len(), KINDS.len());
        all.reset();
        assert_eq!(all.count(Offence::Password), 0);
    }
}
