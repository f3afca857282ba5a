//! Limits a lane's batches while other servers write the same keys.
//!
//! The more units a batch has, the sooner it meets what another server writes. A batch that conflicts is retried once
//! as it is, and then halved after each further conflict; so one contended unit does not hold up the others for long.
//! Later batches stay that narrow, and grow by a quarter with each full one that commits.
//!
//! That does not help units that all touch the same keys, such as INCR of one counter: those stay together, and fence
//! their keys ([`crate::keyspace::cluster::fences`]), as a unit alone does that keeps conflicting. If they go on to
//! conflict, it is about other rows, such as those of new members: after [`TOGETHER`] attempts they are halved too.

use super::unit::Job;
use crate::env::aside_of;
use crate::error::StoreError;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Conflicts of a unit before it fences its keys, for attempts from [`SHORT`] to [`LONG`].
const FENCED_AFTER: u32 = 1;
/// The same for attempts shorter than [`SHORT`]: one of them soon finds a gap between two writers.
const SHORT_FENCED_AFTER: u32 = 6;
const SHORT: Duration = Duration::from_millis(5);
/// The same for attempts of [`LONG`] or more, where writers would notice the fence.
const LONG_FENCED_AFTER: u32 = 2;
const LONG: Duration = Duration::from_millis(100);

/// Attempts of units that touch the same keys before they are halved. Another server may learn of a fence only after
/// some of them.
pub(super) const TOGETHER: u32 = 16;

/// The most units of the next batch.
pub(super) struct Width(usize);

impl Width {
    pub(super) fn unlimited() -> Self {
        Width(usize::MAX)
    }

    /// How many of the first `n` jobs run.
    pub(super) fn of(&self, n: usize) -> usize {
        n.min(self.0)
    }

    /// How many of the first `n` jobs, of which attempt `tries` failed with `e`, run next.
    pub(super) fn after(&mut self, e: &StoreError, tries: u32, n: usize) -> usize {
        match e {
            StoreError::Unavailable(_) => return n,
            StoreError::TooLarge => return 1,
            _ if tries == 1 => return n,
            StoreError::Conflict => {}
            _ => return 1,
        }
        self.0 = self.0.min(n.div_ceil(2));
        n.div_ceil(2)
    }

    /// `n` units have committed.
    pub(super) fn committed(&mut self, n: usize) {
        if n >= self.0 {
            self.0 = self.0.saturating_add(self.0 / 4 + 1);
        }
    }
}

/// Whether the first `n` jobs touch the keys of the first one only. Not if those are none: a script without keys may
/// touch any.
pub(super) fn are_alike(jobs: &VecDeque<Job>, n: usize) -> bool {
    let Some(first) = jobs.front().filter(|_| n > 1) else { return true };
    let calls = jobs.iter().take(n).map(|job| job.unit.calls.len()).sum();
    aside_of(calls, || {
        let touched: HashSet<u64> = first.unit.touched().into_iter().collect();
        let written: HashSet<u64> = first.unit.written().into_iter().collect();
        let is_alike = |job: &Job| job.unit.is_within(&touched, &written);
        !touched.is_empty() && jobs.iter().take(n).skip(1).all(is_alike)
    })
}

/// The number of conflicts after which keys are fenced for attempts of this duration.
pub(super) fn fenced_after(took: Duration) -> u32 {
    match took {
        _ if took < SHORT => SHORT_FENCED_AFTER,
        _ if took < LONG => FENCED_AFTER,
        _ => LONG_FENCED_AFTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::attempt::{Attempts, Slot};
    use crate::exec::deadline::Deadline;
    use crate::exec::fixtures::{World, job, unit};
    use crate::keyspace::keys::hash;
    use StoreError::*;

    #[test]
    fn a_batch_is_split_after_its_second_failure_and_never_for_an_outage() {
        let mut width = Width::unlimited();
        assert_eq!(width.after(&TooLarge, 1, 100), 1);
        for (e, then) in [(Conflict, 50), (TooOld, 1), (Unknown, 1)] {
            assert_eq!([1, 2].map(|tries| width.after(&e, tries, 100)), [100, then], "{e:?}");
        }
        assert_eq!(width.after(&Unavailable(String::new()), 9, 100), 100);
    }

    #[test]
    fn batches_shrink_with_conflicts_and_grow_with_commits() {
        let mut width = Width::unlimited();
        assert_eq!(width.of(100), 100);
        assert_eq!(
            [100, 50, 25, 13, 7, 4, 2, 1].map(|n| width.after(&Conflict, 2, n)),
            [50, 25, 13, 7, 4, 2, 1, 1]
        );
        let grown = [1, 1, 2, 3].map(|n| {
            width.committed(n);
            width.of(100)
        });
        assert_eq!(grown, [2, 2, 3, 4], "one that is not full says nothing");
        (0..40).for_each(|_| width.committed(usize::MAX));
        assert_eq!(width.of(100), 100);
    }

    #[test]
    fn units_of_other_keys_are_not_alike() {
        let alike = |lines: &[&str]| {
            let jobs: VecDeque<Job> = lines.iter().map(|line| job(unit(&[line]), Duration::ZERO).0).collect();
            are_alike(&jobs, jobs.len())
        };
        assert!(alike(&[]) && alike(&["INCR k"]) && alike(&["INCR k", "INCR k", "GET k"]));
        assert!(alike(&["RENAME a b", "INCR a"]));
        assert!(!alike(&["INCR k", "INCR k", "INCR l"]));
        assert!(!alike(&["GET k", "INCR k"]), "the first one does not write");
        assert!(!alike(&["INCR a", "RENAME a b"]));
        assert!(!alike(&["INCR k", "FLUSHDB"]) && !alike(&["INCR k", "PUBLISH c m"]));
        assert!(!alike(&["PUBLISH c m", "PUBLISH c m"]), "without keys");
    }

    /// What runs next when the first `width` of these jobs meet a conflict in attempt `tries`, and whether their keys are
    /// fenced.
    async fn next(lines: &[&str], tries: u32, width: usize, may_pass: bool) -> (Option<usize>, bool) {
        let w = World::new().await;
        let mut attempts = Attempts::new(w.server.clone(), Slot::new(7, 0));
        let mut deadline = Deadline::new(&w.server, w.env.clock.monotonic());
        let mut jobs = lines.iter().map(|line| job(unit(&[line]), Duration::ZERO).0).collect();
        let attempt = (tries, width, SHORT);
        let next = attempts.contend(&mut jobs, &mut deadline, &Conflict, attempt, may_pass).await;
        let is_fenced = w.server.space.try_fence([hash(b"k")].into(), [hash(b"k")].into()).is_none();
        (next, is_fenced)
    }

    #[tokio::test]
    async fn units_of_one_key_fence_it_together() {
        let mixed = ["INCR k", "INCR k", "INCR k", "INCR l", "INCR k"];
        assert_eq!(next(&mixed, 1, 3, true).await, (Some(3), true));
        assert_eq!(next(&mixed, 1, 2, true).await, (Some(3), true), "and those behind them");
        assert_eq!(
            next(&mixed, 1, 2, false).await,
            (Some(2), true),
            "not if an attempt may have been applied"
        );
        assert_eq!(next(&mixed, 1, 5, true).await, (Some(5), false));
        assert_eq!(next(&mixed, 2, 5, true).await, (Some(3), false));
        assert_eq!(next(&mixed, TOGETHER, 3, true).await, (Some(2), false), "it is about other rows");
    }
}
