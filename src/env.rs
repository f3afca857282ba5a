//! The only file that reads clocks and randomness. All other code gets them as arguments.

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Wall-clock time and a monotonic clock; the manual one is for tests and simulation.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// Moved by a test.
    Manual(Arc<Hands>),
}

/// The state of a manual clock.
#[derive(Debug, Default)]
pub struct Hands {
    /// Milliseconds of the monotonic clock.
    ms: AtomicU64,
    /// Milliseconds by which the wall clock is ahead of the monotonic one.
    ahead: AtomicI64,
}

impl Clock {
    /// A manual clock at `ms` since the Unix epoch; its monotonic clock shows the same.
    pub fn manual(ms: u64) -> Self {
        Clock::Manual(Arc::new(Hands { ms: AtomicU64::new(ms), ahead: AtomicI64::new(0) }))
    }
    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }
    /// Microseconds since the Unix epoch.
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Clock::System => {
                let us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
                u64::try_from(us).unwrap_or(u64::MAX)
            }
            Clock::Manual(hands) => {
                let ms = hands.ms.load(Ordering::Acquire);
                ms.saturating_add_signed(hands.ahead.load(Ordering::Acquire)) * 1000
            }
        }
    }
    /// Monotonic time since an arbitrary start, for ages and latencies.
    pub fn monotonic(&self) -> Duration {
        match self {
            Clock::System => {
                static START: OnceLock<Instant> = OnceLock::new();
                START.get_or_init(Instant::now).elapsed()
            }
            Clock::Manual(hands) => Duration::from_millis(hands.ms.load(Ordering::Acquire)),
        }
    }
    /// Moves a manual clock forward. No effect on the system's clock.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(hands) = self {
            hands.ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }
    /// Moves the wall clock of a manual clock forward or back, in milliseconds; its monotonic clock is
    /// unchanged.
    pub fn jump(&self, ms: i64) {
        if let Clock::Manual(hands) = self {
            hands.ahead.fetch_add(ms, Ordering::AcqRel);
        }
    }
}

/// The time that transactions see: the wall clock, as far as promises allow.
///
/// A reader that is told that a key has expired must not be contradicted by a transaction that found the key
/// alive a moment earlier and commits a moment later (PERSIST, EXPIRE, GETEX ...). So this time never runs
/// backwards, and stops before the earliest expiry that a committing transaction relies on
/// ([`Timeline::claim`]). All servers of a process share one timeline; between processes, clock skew matters.
#[derive(Debug)]
pub struct Timeline {
    clock: Clock,
    state: Mutex<Times>,
    /// Held by the holder of the time.
    holder: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Times {
    /// The latest time given out.
    shown: u64,
    /// The number of claims on each time.
    claims: BTreeMap<u64, usize>,
}

/// If the wall clock is set back by more than this (in ms), the timeline follows it: otherwise keys would
/// live on until the clock has caught up.
const FOLLOWED: u64 = 1000;

impl Timeline {
    /// A timeline on `clock`.
    pub fn new(clock: Clock) -> Self {
        Timeline { clock, state: Mutex::default(), holder: Arc::default() }
    }

    /// Milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        self.advance(&mut self.state.lock())
    }

    fn advance(&self, times: &mut Times) -> u64 {
        let wall = self.clock.now_ms();
        let first = times.claims.first_key_value().map_or(u64::MAX, |(until, _)| *until);
        let time = wall.min(first.saturating_sub(1));
        if wall.saturating_add(FOLLOWED) < times.shown {
            times.shown = time;
        }
        times.shown = times.shown.max(time);
        times.shown
    }

    /// Keeps the time below `until` while the claim lives. None if that time has already come: a caller that
    /// relied on it must check again.
    pub(crate) fn claim(self: &Arc<Self>, until: u64) -> Option<Claim> {
        // Checks the wall clock too: otherwise successive claims could hold the time forever.
        if until <= self.clock.now_ms() { None } else { self.claim_again(until) }
    }

    /// Like [`Timeline::claim`], for a caller whose own claim keeps the time below `until` and which would
    /// otherwise wait for itself: does not check the wall clock.
    pub(crate) fn claim_again(self: &Arc<Self>, until: u64) -> Option<Claim> {
        let mut times = self.state.lock();
        (until > times.shown).then(|| self.keep_below(until, &mut times))
    }

    fn keep_below(self: &Arc<Self>, until: u64, times: &mut Times) -> Claim {
        *times.claims.entry(until).or_default() += 1;
        Claim { timeline: self.clone(), until }
    }

    /// Stops the time, for a transaction that repeatedly found that something expired before it could commit.
    /// Only one at a time, and each begins at the clock's time: so the timeline never lags by more than one
    /// transaction takes.
    pub(crate) async fn hold(self: &Arc<Self>) -> Hold {
        let turn = self.holder.clone().lock_owned().await;
        let mut times = self.state.lock();
        let until = self.advance(&mut times).saturating_add(1);
        Hold { _claim: self.keep_below(until, &mut times), _turn: turn }
    }
}

/// See [`Timeline::hold`].
#[derive(Debug)]
pub(crate) struct Hold {
    _claim: Claim,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

/// See [`Timeline::claim`].
#[derive(Debug)]
pub(crate) struct Claim {
    timeline: Arc<Timeline>,
    until: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut times = self.timeline.state.lock();
        if let Some(n) = times.claims.get_mut(&self.until) {
            *n -= 1;
            if *n == 0 {
                times.claims.remove(&self.until);
            }
        }
    }
}

thread_local! {
    /// Seeds a thread's generators. The system's generator is read once per thread, because that costs as
    /// much as a short read.
    static ROOT: RefCell<fastrand::Rng> = RefCell::new(seeded_by_the_system());
}

fn seeded_by_the_system() -> fastrand::Rng {
    let mut seed = [0; 8];
    match SystemRandom::new().fill(&mut seed) {
        Ok(()) => fastrand::Rng::with_seed(u64::from_le_bytes(seed)),
        // Seeded by the clock and the thread, so two machines may draw the same numbers. Code that must avoid
        // that uses `Env::secret`.
        Err(_) => fastrand::Rng::new(),
    }
}

/// A seedable random number generator. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// Seeded from the system's generator.
    pub fn from_entropy() -> Self {
        Rng(ROOT.try_with(|root| root.borrow_mut().fork()).unwrap_or_else(|_| seeded_by_the_system()))
    }
    /// A repeatable generator: the same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Rng(fastrand::Rng::with_seed(seed))
    }
    /// 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0.u64(..)
    }
    /// 128 random bits.
    pub fn u128(&mut self) -> u128 {
        self.0.u128(..)
    }
    /// Uniform in `0..n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.u64(..n) }
    }
    /// Uniform in `0.0..1.0`.
    pub(crate) fn f64(&mut self) -> f64 {
        self.0.f64()
    }
    /// An independent generator, seeded from this one.
    pub fn fork(&mut self) -> Self {
        Rng(self.0.fork())
    }
    /// Shuffles in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}

/// Clock and entropy of one server, handed down from `main`.
#[derive(Debug, Clone)]
pub struct Env {
    /// The clock.
    pub clock: Clock,
    /// The time that transactions see.
    pub timeline: Arc<Timeline>,
    seed: Option<Arc<AtomicU64>>,
}

impl Env {
    /// The machine's clock and entropy.
    pub fn system() -> Self {
        static TIMELINE: OnceLock<Arc<Timeline>> = OnceLock::new();
        let timeline = TIMELINE.get_or_init(|| Arc::new(Timeline::new(Clock::System))).clone();
        Env { clock: Clock::System, timeline, seed: None }
    }
    /// A manual clock at `now_ms` and generators derived from `seed`, for repeatable tests.
    pub fn seeded(now_ms: u64, seed: u64) -> Self {
        let clock = Clock::manual(now_ms);
        let timeline = Arc::new(Timeline::new(clock.clone()));
        Env { clock, timeline, seed: Some(Arc::new(AtomicU64::new(seed))) }
    }
    /// Bytes that cannot be guessed or drawn again, for passwords and names; a seeded environment repeats
    /// them. None if the system's generator fails.
    pub(crate) fn secret(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut secret = vec![0; bytes];
        match &self.seed {
            None => SystemRandom::new().fill(&mut secret).ok()?,
            Some(_) => {
                let mut rng = self.rng();
                secret.fill_with(|| rng.below(256) as u8);
            }
        }
        Some(secret)
    }
    /// A new generator.
    pub fn rng(&self) -> Rng {
        match &self.seed {
            None => Rng::from_entropy(),
            Some(seed) => Rng::seeded(seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::AcqRel)),
        }
    }
}

/// Runs a computation that takes milliseconds in one piece. On a runtime with several threads, the other
/// tasks of this worker move to another thread.
pub(crate) fn aside<T>(compute: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let several = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if several { tokio::task::block_in_place(compute) } else { compute() }
}

/// The number of parts from which on work on them runs aside.
const MANY: usize = 1000;

/// Runs a computation on this number of parts.
pub(crate) fn aside_of<T>(parts: usize, compute: impl FnOnce() -> T) -> T {
    if parts > MANY { aside(compute) } else { compute() }
}

/// Frees a value of this number of parts.
pub(crate) fn free<T>(parts: usize, old: T) {
    aside_of(parts, || drop(old));
}

/// Waits until `is_true`, which is checked at once and after each notification of `changed`.
pub(crate) async fn until(changed: &Notify, is_true: impl Fn() -> bool) {
    loop {
        let mut change = pin!(changed.notified());
        change.as_mut().enable();
        if is_true() {
            return;
        }
        change.await;
    }
}

/// Runs a future that may compute for long between two waits; each such stretch runs [`aside`]. A stretch
/// ends only when `work` waits for something: it does not yield to other tasks.
pub(crate) async fn each_aside<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| aside(|| work.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> (Clock, Arc<Timeline>) {
        let clock = Clock::manual(5000);
        (clock.clone(), Arc::new(Timeline::new(clock)))
    }

    #[test]
    fn time_stands_still_below_a_claim() {
        let (clock, timeline) = timeline();
        assert_eq!(timeline.now(), 5000);
        let (first, second) = (timeline.claim(5010), timeline.claim(5005));
        clock.advance(Duration::from_millis(50));
        assert_eq!(timeline.now(), 5004);
        drop(second);
        assert_eq!(timeline.now(), 5009);
        assert!(timeline.claim(5050).is_none(), "the wall clock is there");
        assert!(timeline.claim_again(5010).is_some() && timeline.claim_again(5009).is_none());
        drop(first);
        assert_eq!(timeline.now(), 5050);
    }

    #[test]
    fn what_was_shown_as_over_cannot_be_claimed() {
        let (clock, timeline) = timeline();
        assert_eq!(timeline.now(), 5000);
        clock.jump(-10);
        assert!(timeline.claim(5000).is_none());
        let claim = timeline.claim(5001);
        clock.jump(100);
        assert_eq!((claim.is_some(), timeline.now()), (true, 5000));
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed() {
        let (clock, timeline) = timeline();
        assert_eq!(timeline.now(), 5000);
        clock.jump(-1000);
        assert_eq!(timeline.now(), 5000);
        clock.jump(-1);
        assert_eq!(timeline.now(), 3999);
    }

    /// Hazard: generators are seeded by the clock and the thread, so two machines started alike draw the same
    /// numbers.
    #[test]
    fn generators_are_seeded_by_the_system_alone() {
        let drawn = || {
            // The source from which the library seeds its own generators.
            fastrand::seed(7);
            (Rng::from_entropy().u64(), Env::system().rng().u64(), std::thread::spawn(first).join().unwrap())
        };
        let first_draw = drawn();
        let second = drawn();
        assert!(first_draw.0 != second.0 && first_draw.1 != second.1 && first_draw.2 != second.2);
    }

    fn first() -> u64 {
        fastrand::seed(7);
        Env::system().rng().u64()
    }

    #[test]
    fn a_seeded_environment_repeats_itself() {
        let drawn = || {
            let env = Env::seeded(0, 7);
            (env.rng().u64(), env.secret(16), env.rng().u64())
        };
        assert_eq!(drawn(), drawn());
    }
}
