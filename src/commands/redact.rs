//! What must not be seen of a command line by others: passwords, and who uses which. For the slow log and MONITOR.

use bytes::Bytes;
use std::borrow::Cow;

const HIDDEN: Bytes = Bytes::from_static(b"(redacted)");
/// Options whose values are secrets.
const SECRET_OPTIONS: [&[u8]; 5] =
    [b"requirepass", b"masterauth", b"masteruser", b"tls-key-file-pass", b"tls-client-key-file-pass"];

/// `argv` with its secrets replaced.
pub fn redacted(argv: &[Bytes]) -> Cow<'_, [Bytes]> {
    let is = |n: usize, word: &str| argv.get(n).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()));
    if is(0, "auth") {
        hide(argv, |n| n > 0)
    } else if is(0, "hello") {
        hide(argv, |n| n > 2 && (is(n - 1, "auth") || n > 3 && is(n - 2, "auth")))
    } else if is(0, "config") && is(1, "set") {
        let secret = |name: &Bytes| SECRET_OPTIONS.iter().any(|o| name.eq_ignore_ascii_case(o));
        hide(argv, |n| n > 2 && n % 2 == 1 && argv.get(n - 1).is_some_and(secret))
    } else if is(0, "acl") && is(1, "setuser") {
        hide(argv, |n| n > 1)
    } else {
        Cow::Borrowed(argv)
    }
}

fn hide(argv: &[Bytes], secret: impl Fn(usize) -> bool) -> Cow<'_, [Bytes]> {
    let shown = argv.iter().enumerate().map(|(n, arg)| if secret(n) { HIDDEN } else { arg.clone() });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (line, shown) in [
            ("auth secret", "auth (redacted)"),
            ("AUTH user secret", "AUTH (redacted) (redacted)"),
            ("hello 3 AUTH user secret SETNAME x", "hello 3 AUTH (redacted) (redacted) SETNAME x"),
            ("hello 3 SETNAME auth", "hello 3 SETNAME auth"),
            ("hello 3 SETNAME auth AUTH u s", "hello 3 SETNAME auth (redacted) (redacted) (redacted)"),
            ("config set timeout 0 RequirePass x", "config set timeout 0 RequirePass (redacted)"),
            ("config set requirepass x requirepass", "config set requirepass (redacted) requirepass"),
            ("config get requirepass", "config get requirepass"),
            ("acl setuser bob on >x", "acl setuser (redacted) (redacted) (redacted)"),
            ("acl getuser bob", "acl getuser bob"),
            ("set auth x", "set auth x"),
        ] {
            let argv: Vec<Bytes> = line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
            let words: Vec<String> =
                redacted(&argv).iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
            assert_eq!(words.join(" "), shown);
        }
    }
}
