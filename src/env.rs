//! The only file that reads clocks and randomness. Everything else gets them as arguments.

use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time and a monotonic clock; the manual one is for tests and simulation.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// Moved by the test.
    Manual(Arc<Hands>),
}

/// What a manual clock shows.
#[derive(Debug, Default)]
pub struct Hands {
    /// Milliseconds of the monotonic clock.
    ms: AtomicU64,
    /// Milliseconds by which the wall clock is ahead of it.
    ahead: AtomicI64,
}

impl Clock {
    /// A manual clock that stands at `ms` since the Unix epoch; so does its monotonic one.
    pub fn manual(ms: u64) -> Self {
        Clock::Manual(Arc::new(Hands { ms: AtomicU64::new(ms), ahead: AtomicI64::new(0) }))
    }
    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }
    /// Microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
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
                static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
                START.get_or_init(Instant::now).elapsed()
            }
            Clock::Manual(hands) => Duration::from_millis(hands.ms.load(Ordering::Acquire)),
        }
    }
    /// Moves a manual clock forward. Does nothing on the system's.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(hands) = self {
            hands.ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }
    /// Sets the wall clock of a manual clock forward or back, by milliseconds; the monotonic one goes on as it was.
    pub fn jump(&self, ms: i64) {
        if let Clock::Manual(hands) = self {
            hands.ahead.fetch_add(ms, Ordering::AcqRel);
        }
    }
}

/// A seedable generator. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// Seeded from the machine.
    pub fn from_entropy() -> Self {
        Rng(fastrand::Rng::new())
    }
    /// Repeats itself: the same seed, the same numbers.
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
    pub fn f64(&mut self) -> f64 {
        self.0.f64()
    }
    /// A generator of its own, seeded from this one.
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
    seed: Option<Arc<AtomicU64>>,
}

impl Env {
    /// The machine's clock and entropy.
    pub fn system() -> Self {
        Env { clock: Clock::System, seed: None }
    }
    /// A manual clock at `now_ms` and generators derived from `seed`, for repeatable tests.
    pub fn seeded(now_ms: u64, seed: u64) -> Self {
        Env { clock: Clock::manual(now_ms), seed: Some(Arc::new(AtomicU64::new(seed))) }
    }
    /// Bytes that nobody can guess, for passwords; a seeded environment repeats them. None where the system has none.
    pub fn secret(&self, bytes: usize) -> Option<Vec<u8>> {
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
    /// A fresh generator.
    pub fn rng(&self) -> Rng {
        match &self.seed {
            None => Rng::from_entropy(),
            Some(seed) => Rng::seeded(seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::AcqRel)),
        }
    }
}
