//! The rows that units are going to look up first are touched together ([`crate::store::Touch`]): the records of their
//! keys, and the ids of their members.
//!
//! It saves up to a fifth of the processor time of a command in a pipeline: `bench/results/2026-11-29-touched.md`.

use super::batch::Batch;
use super::unit::{Job, Unit};
use crate::dispatch::Call;
use crate::keyspace::dictionary::ids::integer_id;
use crate::keyspace::keys::{Prefix, root};
use crate::spec::keys_at;
use crate::store::{AT_ONCE, Touch};
use bytes::Bytes;

/// The most rows that are touched at a time: more would push one another out of the processor's caches.
const MOST: usize = 256;
/// The longest name of a key that is hashed for that, in bytes.
const LONGEST: usize = 1024;
/// The most calls that are looked at for them.
const MOST_CALLS: usize = 256;

/// What was touched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// The number of units whose rows were touched.
    pub(super) units: usize,
    /// The rows that memory knew.
    pub(super) known: usize,
}

impl Batch<'_> {
    /// Touches rows of the first of these jobs that were not `touched`, if job `n` is one of them.
    pub(super) fn touch_from<'j>(&self, n: usize, of: impl Iterator<Item = &'j Job>, touched: &mut usize) {
        if n >= *touched {
            *touched = n.saturating_add(self.touch(of.skip(n).map(|job| &job.unit)).units);
        }
    }

    /// Touches rows of the first of these units, until there are enough of them.
    pub(super) fn touch<'u>(&self, of: impl Iterator<Item = &'u Unit>) -> Touched {
        let Some(touch) = self.runner.tx.touch() else { return Touched { units: usize::MAX, known: 0 } };
        let mut toucher = Toucher { touch, last: None, rows: 0, calls: 0 };
        let mut units = 0;
        for unit in of {
            units += 1;
            if let Some(db) = self.runner.catalog.prefix(unit.client.db) {
                unit.calls.iter().take(MOST_CALLS).for_each(|call| toucher.touch(&db, call));
            }
            if toucher.rows >= AT_ONCE || toucher.calls >= MOST_CALLS {
                break;
            }
        }
        Touched { units, known: toucher.touch.finish() }
    }
}

struct Toucher<'t, 'u> {
    touch: Touch<'t>,
    /// The last key.
    last: Option<&'u Bytes>,
    rows: usize,
    calls: usize,
}

impl<'u> Toucher<'_, 'u> {
    /// Touches what a call looks up.
    fn touch(&mut self, db: &Prefix, call: &'u Call) {
        self.calls += 1;
        for spec in call.row.keys.iter().filter(|spec| spec.is_keys()) {
            let keys = keys_at(spec, &call.argv).into_iter().flatten().take(MOST);
            for key in keys.filter(|key| key.len() <= LONGEST) {
                if self.rows >= MOST {
                    return;
                }
                if self.last != Some(key) {
                    db.with_record(key, |parts| self.touch.row(parts));
                    self.rows += 1;
                    self.last = Some(key);
                }
            }
        }
        let members = call.row.members(&call.argv).iter().take(MOST.saturating_sub(self.rows));
        for word in members.filter(|member| integer_id(member).is_none()) {
            let touched = root::with_forward(word, |parts| self.touch.row(parts));
            self.rows += usize::from(touched.is_some());
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
            let touched = batch.touch([unit(lines)].iter());
            // One hash in some thousands looks like that of another row.
            assert!(
                touched.units == 1 && (known..=known + 1).contains(&touched.known),
                "{lines:?}: {touched:?}"
            );
        }
        let long: Vec<String> = (0..MOST).map(|n| format!("GET {n}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let (some, rest) = long.split_at(AT_ONCE / 2);
        let units = |each: &[&[&str]]| {
            batch.touch(each.iter().map(|lines| unit(lines)).collect::<Vec<_>>().iter()).units
        };
        assert_eq!(units(&[some, some, rest]), 2);
        assert_eq!(units(&[&["PING"], rest, some]), 2);
        assert_eq!(units(&[some]), 1);
        let hot = ["INCR a"; MOST_CALLS];
        assert_eq!(units(&[&hot, &hot]), 1, "one row, but many calls to look at");
        assert_eq!(units(&[]), 0);
    }
}
