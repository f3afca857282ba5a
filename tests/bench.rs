//! The programs in `bench` reject a load that failed or got error replies, because errors are answered fast.
//! This test does not check the figures themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;
use support::{program, say, skipped};

#[test]
fn a_failed_load_yields_no_figure() {
    let wanted = ["python3", "redis-server", "redis-cli", "redis-benchmark"];
    if let Some(missing) = wanted.iter().find(|name| program(name).is_none()) {
        let what = format!("the programs in bench: no {missing}");
        return skipped(&what, "apt-get install python3 redis-server redis-tools");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/self_check.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).args(["--tern", env!("CARGO_BIN_EXE_tern")]);
    let out = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let checks = said.lines().filter(|line| line.starts_with("ok: ")).count();
    say(&format!("bench/self_check.py: {checks} checks"));
    assert!(checks >= 24, "{said}");
    assert_eq!(said.lines().last(), Some("all checks fail where they should"));
}
