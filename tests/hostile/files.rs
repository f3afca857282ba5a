//! Paths that are not regular files: a FIFO has no end until a writer closes it, a device has none at all.

use crate::support::resp::Value;
use crate::support::server::{binary, free_port, tern_in, tern_on};
use crate::witness::{FEW, Witness, tried};
use crate::{assert_unharmed, support};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest wait for an answer.
const SOON: Duration = Duration::from_secs(3);

/// Replaces a file by something else.
fn odd(file: &Path, what: &str) {
    let _ = std::fs::remove_file(file);
    match what {
        "fifo" => assert!(Command::new("mkfifo").arg(file).status().unwrap().success()),
        device => symlink(device, file).unwrap(),
    }
}

#[test]
fn users_are_read_from_a_file_only() {
    tried(|| {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("users.acl");
        std::fs::write(&file, "user default on nopass ~* &* +@all\n").unwrap();
        let tern = tern_in(&home.path().join("data"), &["--aclfile", file.to_str().unwrap()]);
        let mut c = tern.client();
        c.set_timeout(SOON);
        assert_eq!(c.line("ACL LOAD"), Value::Simple(b"OK".to_vec()));
        for what in ["fifo", "/dev/zero"] {
            odd(&file, what);
            let witness = Witness::start(&tern);
            let since = Instant::now();
            let reply = c.line("ACL LOAD");
            assert!(support::resp::text(reply_text(&reply)).contains("not a regular file"), "{reply:?}");
            witness.was_served(FEW, &format!("ACL LOAD of {what} ({:.1?})", since.elapsed()));
        }
        assert_unharmed(&tern);
    });
}

fn reply_text(reply: &Value) -> &[u8] {
    match reply {
        Value::Error(line) => line,
        other => panic!("expected an error, not {other:?}"),
    }
}

#[test]
fn options_are_rewritten_in_a_file_only() {
    tried(|| {
        let home = tempfile::tempdir().unwrap();
        let (file, port) = (home.path().join("tern.conf"), free_port());
        std::fs::write(&file, "timeout 0\n").unwrap();
        let mut command = Command::new(binary());
        command.arg(&file).args(["--port", &port.to_string(), "--dir"]).arg(home.path().join("data"));
        let tern = tern_on(&mut command, port);
        let mut c = tern.client();
        c.set_timeout(SOON);
        for what in ["fifo", "/dev/zero"] {
            odd(&file, what);
            let witness = Witness::start(&tern);
            let reply = c.line("CONFIG REWRITE");
            assert!(support::resp::text(reply_text(&reply)).contains("not a regular file"), "{reply:?}");
            witness.was_served(FEW, &format!("CONFIG REWRITE of {what}"));
        }
        assert_unharmed(&tern);
    });
}
