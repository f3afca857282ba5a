//! What calls about groups are going to read.

use super::deletions::Wanted;
use super::ids;
use super::read::Asked;
use crate::commands::args::Args;
use crate::spec::{InGroup, Row};
use crate::types::stream::{Ahead, Id};
use bytes::Bytes;

/// The keys whose groups a call names, each with what it is going to do there.
pub(crate) fn ahead<'a>(row: &Row, argv: &'a [Bytes]) -> Vec<(&'a Bytes, Ahead<'a>)> {
    if row.in_group == InGroup::Delivered {
        return deliveries(argv.get(1..).unwrap_or_default());
    }
    let [_, key, group, rest @ ..] = argv else { return Vec::new() };
    let consumer = rest.first().map(|name| &name[..]);
    let mut found = Ahead { group, ..Ahead::default() };
    match row.in_group {
        InGroup::None | InGroup::Delivered => return Vec::new(),
        InGroup::Name => {}
        InGroup::Consumer => found.consumer = consumer,
        InGroup::Pending => found.pending = all(rest),
        InGroup::Counted => {
            let ids = Wanted::parse(&mut Args::new(rest)).and_then(|wanted| wanted.parsed());
            found.pending = ids.unwrap_or_default();
            found.entries = found.pending.clone();
        }
        InGroup::Claimed => {
            let ids = all(rest.get(2..).unwrap_or_default());
            (found.consumer, found.pending, found.entries) = (consumer, ids.clone(), ids);
        }
    }
    vec![(key, found)]
}

/// The ids at the beginning.
fn all(args: &[Bytes]) -> Vec<Id> {
    args.iter().map_while(|raw| ids::parse(raw, 0).ok()).collect()
}

fn deliveries(args: &[Bytes]) -> Vec<(&Bytes, Ahead<'_>)> {
    let Ok(asked) = Asked::parse(Args::new(args), true) else { return Vec::new() };
    let Some((group, consumer)) = asked.group else { return Vec::new() };
    let of = |id: &Bytes| {
        let new = if &id[..] == b">" { asked.count } else { 0 };
        Ahead { group, consumer: Some(consumer), new, ..Ahead::default() }
    };
    asked.keys.iter().zip(asked.ids).map(|(key, id)| (key, of(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

    /// As text: key group consumer, pending, entries, new.
    fn of(line: &str) -> Vec<String> {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let (row, _) = table().resolve(&argv).unwrap().unwrap();
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        let ids = |ids: &[Id]| ids.iter().map(Id::to_string).collect::<Vec<_>>().join(",");
        let shown = |(key, ahead): (&Bytes, Ahead<'_>)| {
            let consumer = ahead.consumer.map_or("-".into(), text);
            let (pending, entries, new) = (ids(&ahead.pending), ids(&ahead.entries), ahead.new);
            format!("{} {} {consumer} [{pending}] [{entries}] {new}", text(key), text(ahead.group))
        };
        ahead(row, &argv).into_iter().map(shown).collect()
    }

    #[test]
    fn what_a_call_is_going_to_read_is_found() {
        for (line, expected) in [
            ("XACK s g 1-2 3 x 4", &["s g - [1-2,3-0] [] 0"][..]),
            ("XACKDEL s g ACKED IDS 2 1-2 3-4", &["s g - [1-2,3-4] [1-2,3-4] 0"]),
            ("XACKDEL s g IDS 3 1-2 3-4", &["s g - [] [] 0"]),
            ("XCLAIM s g c 10 1-2 3-4 JUSTID", &["s g c [1-2,3-4] [1-2,3-4] 0"]),
            ("XAUTOCLAIM s g c 10 0 COUNT 5", &["s g c [] [] 0"]),
            ("XPENDING s g", &["s g - [] [] 0"]),
            ("XREADGROUP GROUP g c COUNT 5 STREAMS s t > 1-1", &["s g c [] [] 5", "t g c [] [] 0"]),
            ("XREADGROUP GROUP g c STREAMS s t >", &[]),
            ("XADD s * a b", &[]),
            ("XINFO GROUPS s", &[]),
            ("GET s", &[]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }
}
