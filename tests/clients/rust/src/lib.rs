//! What the Rust programs share: their arguments PORT PASSWORD PROTOCOL CONTROL, their cases, and how the server is started again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the program was called with.
#[derive(Clone)]
pub struct Drive {
    pub port: u16,
    pub password: String,
    pub protocol: u8,
    control: PathBuf,
    library: &'static str,
}

impl Drive {
    pub fn new(library: &'static str) -> Drive {
        let arg = |n| std::env::args().nth(n).expect("PORT PASSWORD PROTOCOL CONTROL");
        let (port, protocol) = (arg(1).parse().unwrap(), arg(3).parse().unwrap());
        Drive { port, password: arg(2), protocol, control: arg(4).into(), library }
    }

    /// A case is done.
    pub fn did(&self, case: &str) {
        println!("{} RESP{}: {case}", self.library, self.protocol);
    }

    /// Has the server killed and started again.
    pub async fn restart(&self) {
        std::fs::write(self.control.join("restart"), "").unwrap();
        until("a new server", async || self.control.join("restarted").exists()).await;
    }
}

/// Waits until it holds, 20 s at most.
pub async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The call must have failed with this text.
pub fn fails<T, E: std::fmt::Display>(text: &str, result: Result<T, E>) {
    let error = result.err().unwrap_or_else(|| panic!("expected {text}")).to_string();
    assert!(error.contains(text), "{error}, expected {text}");
}

/// Bytes of every value.
pub fn every_byte() -> Vec<u8> {
    (0..=255).cycle().take(256_000).collect()
}
