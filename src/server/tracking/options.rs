//! The arguments of CLIENT TRACKING and CLIENT CACHING, checked in Redis' order and with its texts.

use super::{Choice, Mode};
use crate::error::{NOT_INTEGER, ReplyError, SYNTAX};
use crate::spec::words::{parse_i64, quoted};
use bytes::Bytes;
use std::collections::BTreeSet;

const ONE_REDIRECT: ReplyError = ReplyError::new("ERR A client can only redirect to a single other client");
const NO_CLIENT: ReplyError = ReplyError::new("ERR The client ID you want redirect to does not exist");
const PREFIX_ALONE: ReplyError = ReplyError::new("ERR PREFIX option requires BCAST mode to be enabled");
const SWITCH_BCAST: ReplyError = ReplyError::new(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
);
const BCAST_CHOICE: ReplyError = ReplyError::new("ERR OPTIN and OPTOUT are not compatible with BCAST");
const BOTH_CHOICES: ReplyError = ReplyError::new("ERR You can't specify both OPTIN mode and OPTOUT mode");
const SWITCH_CHOICE: ReplyError = ReplyError::new(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
);
const CACHING_OFF: ReplyError = ReplyError::new(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
);
const CACHING_YES: ReplyError =
    ReplyError::new("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
const CACHING_NO: ReplyError =
    ReplyError::new("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");

/// CLIENT TRACKING's arguments.
#[derive(Debug, Default)]
pub struct TrackingOptions {
    /// The requested mode; [`Mode::choice`] is checked for both options.
    pub(crate) mode: Mode,
    /// The client that gets the invalidations; 0: none.
    pub(crate) redirect: u64,
    /// PREFIX.
    pub(crate) prefixes: Vec<Bytes>,
    optin: bool,
    optout: bool,
}

impl TrackingOptions {
    /// Parses them. `there`: whether the client may redirect to the connected client with this id.
    pub(crate) fn parse(args: &[Bytes], there: impl Fn(u64) -> bool) -> Result<Self, ReplyError> {
        let (switch, mut rest) = args.split_first().ok_or(SYNTAX)?;
        let mut options = TrackingOptions::default();
        while let [word, after @ ..] = rest {
            rest = match (word.to_ascii_lowercase().as_slice(), after) {
                (b"redirect", [id, after @ ..]) => {
                    options.redirect(id, &there)?;
                    after
                }
                (b"prefix", [prefix, after @ ..]) => {
                    options.prefixes.push(Bytes::copy_from_slice(prefix));
                    after
                }
                (word, after) => {
                    options.flag(word)?;
                    after
                }
            };
        }
        match switch.to_ascii_lowercase().as_slice() {
            b"on" => options.mode.on = true,
            b"off" => {}
            _ => return Err(SYNTAX),
        }
        Ok(options)
    }

    fn redirect(&mut self, id: &Bytes, there: impl Fn(u64) -> bool) -> Result<(), ReplyError> {
        if self.redirect != 0 {
            return Err(ONE_REDIRECT);
        }
        let id = parse_i64(id).ok_or(NOT_INTEGER)?;
        self.redirect = u64::try_from(id).ok().filter(|id| *id > 0 && there(*id)).ok_or(NO_CLIENT)?;
        Ok(())
    }

    fn flag(&mut self, word: &[u8]) -> Result<(), ReplyError> {
        match word {
            b"bcast" => self.mode.bcast = true,
            b"noloop" => self.mode.noloop = true,
            b"optin" => (self.optin, self.mode.choice) = (true, Choice::OptIn),
            b"optout" => (self.optout, self.mode.choice) = (true, Choice::OptOut),
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    /// Whether they are compatible with each other and with the client's current state.
    pub(crate) fn check(&self, now: Mode, prefixes: &BTreeSet<Bytes>) -> Result<(), ReplyError> {
        let (bcast, switched) = (self.mode.bcast, self.optin && now.choice == Choice::OptOut);
        let refusals = [
            (!bcast && !self.prefixes.is_empty(), PREFIX_ALONE),
            (now.on && now.bcast != bcast, SWITCH_BCAST),
            (bcast && (self.optin || self.optout), BCAST_CHOICE),
            (self.optin && self.optout, BOTH_CHOICES),
            (now.on && (switched || self.optout && now.choice == Choice::OptIn), SWITCH_CHOICE),
        ];
        match refusals.into_iter().find(|(refused, _)| *refused) {
            Some((_, refusal)) => Err(refusal),
            None => self.overlap(prefixes),
        }
    }

    /// Except for an empty prefix, `existing` do not overlap among themselves.
    fn overlap(&self, existing: &BTreeSet<Bytes>) -> Result<(), ReplyError> {
        let again = self.first_again();
        for (n, prefix) in self.prefixes.iter().enumerate() {
            let overlaps = |other: &&Bytes| prefix.starts_with(other) || other.starts_with(prefix);
            // Without PREFIX the empty prefix is added to the others, and everything begins with it.
            let all = existing.first().filter(|first| first.is_empty());
            let before = existing.range::<Bytes, _>(..=prefix).next_back();
            let behind = existing.range::<Bytes, _>(prefix..).next();
            let (what, other) = match all.into_iter().chain(before).chain(behind).find(overlaps) {
                Some(other) => ("an existing prefix", other),
                None if again != Some(n) => continue,
                None => match self.prefixes.iter().skip(n + 1).find(overlaps) {
                    Some(other) => ("another provided prefix", other),
                    None => continue,
                },
            };
            let [prefix, other] = [prefix, other].map(|text| quoted(text));
            return Err(ReplyError::of(format!(
                "ERR Prefix '{prefix}' overlaps with {what} '{other}'. Prefixes for a single client must not overlap."
            )));
        }
        Ok(())
    }

    /// The first provided prefix that overlaps with a later one. In sorted order, the prefixes of a text come
    /// before it, and only texts with the same beginning lie between: so a stack of them suffices, and many
    /// prefixes take little time.
    fn first_again(&self) -> Option<usize> {
        let mut sorted: Vec<(&Bytes, usize)> = self.prefixes.iter().zip(0..).collect();
        sorted.sort();
        let (mut open, mut first): (Vec<(&Bytes, usize)>, Option<usize>) = (Vec::new(), None);
        for (prefix, n) in sorted {
            while open.last().is_some_and(|(outer, _)| !prefix.starts_with(outer)) {
                open.pop();
            }
            // Each entry on the stack already overlaps the one below it.
            let outer = open.last().map(|(_, outer)| *outer);
            first = outer.map(|outer| outer.min(n)).into_iter().chain(first).min();
            open.push((prefix, n));
        }
        first
    }
}

/// Whether a client that tracks as `now` may send CLIENT CACHING with these arguments.
pub fn check_caching(args: &[Bytes], now: Mode) -> Result<(), ReplyError> {
    if !now.on {
        return Err(CACHING_OFF);
    }
    let [word] = args else { return Err(SYNTAX) };
    match word.to_ascii_lowercase().as_slice() {
        b"yes" if now.choice == Choice::OptIn => Ok(()),
        b"yes" => Err(CACHING_YES),
        b"no" if now.choice == Choice::OptOut => Ok(()),
        b"no" => Err(CACHING_NO),
        _ => Err(SYNTAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares each with each, as Redis does.
    fn plain(provided: &[Bytes], existing: &BTreeSet<Bytes>) -> Option<(Bytes, bool, Bytes)> {
        let overlap = |a: &Bytes, b: &Bytes| a.starts_with(b) || b.starts_with(a);
        for (n, prefix) in provided.iter().enumerate() {
            if let Some(other) = existing.iter().find(|other| overlap(prefix, other)) {
                return Some((prefix.clone(), true, other.clone()));
            }
            if let Some(other) = provided[n + 1..].iter().find(|other| overlap(prefix, other)) {
                return Some((prefix.clone(), false, other.clone()));
            }
        }
        None
    }

    proptest! {
        #[test]
        fn overlaps_are_found_as_if_each_was_compared_with_each(
            provided in proptest::collection::vec("[ab]{1,4}", 0..6),
            before in proptest::collection::vec("[ab]{1,4}", 0..6),
            all: bool,
        ) {
            let mut existing: BTreeSet<Bytes> = BTreeSet::new();
            for text in before.into_iter().map(Bytes::from) {
                if !existing.iter().any(|other| text.starts_with(other) || other.starts_with(&text)) {
                    existing.insert(text);
                }
            }
            existing.extend(all.then(Bytes::new));
            let prefixes: Vec<Bytes> = provided.into_iter().map(Bytes::from).collect();
            let options = TrackingOptions { prefixes: prefixes.clone(), ..TrackingOptions::default() };
            let said = options.overlap(&existing).err().map(|e| e.0.into_owned());
            let wanted = plain(&prefixes, &existing).map(|(prefix, old, other)| {
                let what = if old { "an existing prefix" } else { "another provided prefix" };
                let [prefix, other] = [prefix, other].map(|text| quoted(&text).into_owned());
                format!("ERR Prefix '{prefix}' overlaps with {what} '{other}'. Prefixes for a single client must not overlap.")
            });
            prop_assert_eq!(said, wanted);
        }
    }
}
