//! What the calls of a batch will read and write of sorted sets, so that it can be read in one round.

use super::number;
use crate::spec::{Flags, Row, Scores};
use crate::types::zset::{Ahead, Score};
use bytes::Bytes;

/// The members that a call names, each with what is going to become of it.
pub(crate) fn ahead<'a>(row: &Row, argv: &'a [Bytes]) -> impl Iterator<Item = (&'a Bytes, Ahead)> {
    let (scores, writes) = (row.scores, row.flags.has(Flags::WRITE));
    let ahead = move |given: Option<&Bytes>| match given.map(|raw| number(raw)) {
        None if writes => Ahead::Goes,
        None | Some(None) => Ahead::Stays,
        Some(Some(number)) if scores == Scores::Added => Ahead::Rises(number),
        Some(Some(number)) => Score::new(number).map_or(Ahead::Stays, Ahead::Gets),
    };
    scores.of(argv).into_iter().map(move |(member, given)| (member, ahead(given)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

    fn of(line: &str) -> Vec<(String, String)> {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let (row, _) = table().resolve(&argv).unwrap().unwrap();
        let shown = |(member, ahead): (&Bytes, Ahead)| {
            let ahead = match ahead {
                Ahead::Gets(score) => format!("gets {}", score.number()),
                ahead => format!("{ahead:?}"),
            };
            (String::from_utf8_lossy(member).into_owned(), ahead)
        };
        ahead(row, &argv).map(shown).collect()
    }

    #[test]
    fn the_members_of_a_call_are_found() {
        let is = |line: &str, wanted: &[(&str, &str)]| {
            let wanted = wanted.iter().map(|(member, ahead)| (member.to_string(), ahead.to_string()));
            assert_eq!(of(line), wanted.collect::<Vec<_>>(), "{line}");
        };
        is("ZADD z 1 a 2.5 b", &[("a", "gets 1"), ("b", "gets 2.5")]);
        is("ZADD z nx CH -inf nx", &[("nx", "gets -inf")]);
        is("ZADD z many a", &[("a", "Stays")]);
        is("ZADD z 1", &[]);
        is("ZINCRBY z 3 a", &[("a", "Rises(3.0)")]);
        is("ZINCRBY z nx a", &[("a", "Stays")]);
        is("ZREM z a b", &[("a", "Goes"), ("b", "Goes")]);
        is("ZSCORE z a", &[("a", "Stays")]);
        is("ZMSCORE z a b", &[("a", "Stays"), ("b", "Stays")]);
        is("ZRANK z a WITHSCORE", &[("a", "Stays")]);
        is("ZCARD z", &[]);
        is("SET k v", &[]);
    }
}
