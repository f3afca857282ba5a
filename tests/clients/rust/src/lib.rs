//! Shared by the Rust programs: their arguments PORT PASSWORD PROTOCOL CONTROL, their cases, and the restart
//! of the server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The program's arguments.
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

    /// Reports a finished case.
    pub fn did(&self, case: &str) {
        println!("{} RESP{}: {case}", self.library, self.protocol);
    }

    /// Has the server killed and restarted.
    pub async fn restart(&self) {
        std::fs::write(self.control.join("restart"), "").unwrap();
        until("a new server", async || self.control.join("restarted").exists()).await;
    }
}

/// Waits until the condition holds, for at most 20 s.
pub async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Fails unless the call failed with this text.
pub fn fails<T, E: std::fmt::Display>(text: &str, result: Result<T, E>) {
    let error = result.err().unwrap_or_else(|| panic!("expected {text}")).to_string();
    assert!(error.contains(text), "{error}, expected {text}");
}

/// A string of all 256 bytes.
pub fn every_byte() -> Vec<u8> {
    (0..=255).cycle().take(256_000).collect()
}
