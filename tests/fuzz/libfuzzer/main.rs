//! Drives the targets of `tests/fuzz` with libFuzzer, which measures coverage and keeps inputs that reach
//! something new. Neither CI nor `cargo test` builds this. With `cargo install cargo-fuzz`, from the top of
//! the checkout:
//!
//! ```text
//! mkdir -p /tmp/corpus/chunks
//! TERN_FUZZ_TARGET=chunks cargo fuzz run --fuzz-dir tests/fuzz/libfuzzer --sanitizer none target \
//!     /tmp/corpus/chunks -- -max_total_time=600 -timeout=60 -rss_limit_mb=4096
//! ```
//! It uses no sanitizer, because nothing here is `unsafe`; so the stable compiler will do. Overflow checks
//! and debug assertions are on. `TERN_FUZZ_TARGET` is a name in `targets.rs`. Each named folder first
//! receives the target's own inputs. To repeat an input, name its file in place of the folder. RocksDB is not
//! instrumented.

#![no_main]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../choices.rs"]
mod choices;
#[path = "../commands.rs"]
mod commands;
#[path = "../corpus.rs"]
mod corpus;
#[path = "../mutate.rs"]
mod mutate;
#[path = "../../rig/mod.rs"]
mod rig;
#[path = "../rows.rs"]
mod rows;
#[path = "../../support"]
mod support {
    pub mod rng;
}
#[path = "../targets.rs"]
mod targets;
#[path = "../unseen.rs"]
mod unseen;

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;
use targets::{ALL, Target, WHOLE};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// libFuzzer reads the folders after this.
fn choose() {
    let name = std::env::var("TERN_FUZZ_TARGET").expect("TERN_FUZZ_TARGET names a target");
    let target = ALL.iter().chain(WHOLE).find(|t| t.name == name);
    let target = TARGET.get_or_init(|| target.expect("a name in tests/fuzz/targets.rs"));
    let folders = std::env::args().skip(1).filter(|arg| Path::new(arg).is_dir());
    for folder in folders {
        for (n, input) in (target.corpus)().iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("made-{n}")), input).expect("a folder for inputs");
        }
    }
}

fuzz_target!(
    init: choose(),
    |input: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(input);
        }
    }
);
