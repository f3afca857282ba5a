//! The rows that units are going to look up first are touched together ([`crate::store::Touch`]): the records of their
//! keys, and the ids of their members.
//!
//! Processor time of the server a command, in microseconds, with and without (100 000 random keys, windows of 16, the
//! least of five rounds in turn): GET 1.32 and 1.57, MGET of ten 6.5 and 7.8, MSET of ten 16.7 and 19.0.

use super::batch::Batch;
use super::unit::Unit;
use crate::dispatch::Call;
use crate::keyspace::dictionary::ids::integer_id;
use crate::keyspace::keys::{MAX_INLINE_MEMBER, Prefix, root};
use crate::spec::keys_at;
use crate::store::{TOGETHER, Touch};
use bytes::Bytes;

/// The most rows of a unit that are touched: more would push each other out of the processor's caches.
const MOST: usize = 256;

/// What was touched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// The number of units whose rows were touched.
    pub(super) units: usize,
    /// The rows that memory knew.
    pub(super) known: usize,
}

impl Batch<'_> {
    /// Touches rows of the first of these units, until there are enough of them.
    pub(super) fn touch<'u>(&self, of: impl Iterator<Item = &'u Unit>) -> Touched {
        let Some(touch) = self.runner.tx.touch() else { return Touched { units: usize::MAX, known: 0 } };
        let mut rows = Rows { touch, row: Vec::with_capacity(128), last: None, touched: 0 };
        let mut units = 0;
        for unit in of {
            units += 1;
            let Some(db) = self.runner.catalog.prefix(unit.client.db) else { continue };
            let most = rows.touched + MOST;
            for call in &unit.calls {
                if rows.touched >= most {
                    break;
                }
                rows.touch(db, call, most);
            }
            if rows.touched >= TOGETHER {
                break;
            }
        }
        Touched { units, known: rows.touch.finish() }
    }
}

struct Rows<'t, 'u> {
    touch: Touch<'t>,
    row: Vec<u8>,
    /// The last key.
    last: Option<&'u Bytes>,
    touched: usize,
}

impl<'u> Rows<'_, 'u> {
    /// Touches what a call looks up, unless `most` rows were touched.
    fn touch(&mut self, db: Prefix, call: &'u Call, most: usize) {
        let specs = call.row.keys.iter().filter(|spec| spec.is_keys());
        for key in specs.filter_map(|spec| keys_at(spec, &call.argv)).flatten() {
            if self.touched >= most {
                return;
            }
            if self.last != Some(key) {
                self.row.clear();
                db.record_into(key, &mut self.row);
                self.touch.row(&self.row);
                self.touched += 1;
                self.last = Some(key);
            }
        }
        let members = call.row.members(&call.argv).iter();
        let words = members.filter(|m| m.len() <= MAX_INLINE_MEMBER && integer_id(m).is_none());
        for word in words.take(most.saturating_sub(self.touched)) {
            self.touch.row(&root::forward(word));
            self.touched += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::{World, unit};

    #[tokio::test]
    async fn what_units_look_up_first_is_touched() {
        let World { server, exec, env, .. } = &World::new().await;
        // Members of small sets have no ids.
        let many: String = (0..1000).map(|n| format!(" w{n}")).collect();
        for line in ["MSET a 1 b 2 c 3", &format!("SADD s 3{many}"), "HSET h f v"] {
            exec.run(unit(&[line])).await;
        }
        let tx = server.store.begin();
        let batch = Batch::new(server, &tx, env.timeline.now(), env.rng()).await.unwrap();
        for (lines, known) in [
            (&["GET a"][..], 0), // alone
            (&["GET a", "GET a"], 0),
            (&["GET a", "GET b", "GET none"], 2),
            (&["MGET a b none c"], 3),
            (&["MSET a 1 none 1 b 2"], 2),
            (&["SISMEMBER s w1", "SISMEMBER s w4", "SISMEMBER s none"], 3),
            (&["SADD s w1 w2 3 w5"], 4),
            (&["PING", "HGET h f", "SINTERCARD 2 s none"], 2),
        ] {
            assert_eq!(batch.touch([unit(lines)].iter()), Touched { units: 1, known }, "{lines:?}");
        }
        let long: Vec<String> = (0..MOST).map(|n| format!("GET {n}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let (some, rest) = long.split_at(TOGETHER / 2);
        let units = |each: &[&[&str]]| {
            batch.touch(each.iter().map(|lines| unit(lines)).collect::<Vec<_>>().iter()).units
        };
        assert_eq!(units(&[some, some, rest]), 2);
        assert_eq!(units(&[&["PING"], rest, some]), 2);
        assert_eq!(units(&[some]), 1);
        assert_eq!(units(&[]), 0);
    }
}
