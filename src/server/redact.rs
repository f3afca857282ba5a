//! Hides secrets in command lines for the slow log and MONITOR: passwords, and which user has which. A
//! command line that is an argument of another (ACL DRYRUN, COMMAND GETKEYS, IDEMPOTENT) is redacted as it
//! would be on its own.

use crate::config::is_secret;
use crate::spec::{Secrets, Table};
use bytes::Bytes;
use std::borrow::Cow;

const HIDDEN: Bytes = Bytes::from_static(b"(redacted)");

/// `argv` with its secrets replaced.
pub(crate) fn redacted<'a>(table: &Table, argv: &'a [Bytes]) -> Cow<'a, [Bytes]> {
    let is = |n: usize, word: &str| argv.get(n).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()));
    match secrets(table, argv) {
        Secrets::None => Cow::Borrowed(argv),
        Secrets::From(first) => hide(argv, |n| n >= first),
        Secrets::Login => hide(argv, |n| n > 2 && (is(n - 1, "auth") || n > 3 && is(n - 2, "auth"))),
        Secrets::Options => {
            hide(argv, |n| n > 2 && n % 2 == 1 && argv.get(n - 1).is_some_and(|name| is_secret(name)))
        }
        Secrets::Line(first) => behind(table, argv, first),
    }
}

fn secrets(table: &Table, argv: &[Bytes]) -> Secrets {
    let found = table.resolve(argv).and_then(Result::ok);
    found.map_or(Secrets::None, |(row, _)| row.secrets)
}

/// Redacts the command line after `names` arguments. That command line may not contain another one, because a
/// client could nest them arbitrarily: its arguments are hidden.
fn behind<'a>(table: &Table, argv: &'a [Bytes], names: usize) -> Cow<'a, [Bytes]> {
    let Some((outer, inner)) = argv.split_at_checked(names) else { return Cow::Borrowed(argv) };
    if matches!(secrets(table, inner), Secrets::Line(_)) {
        return hide(argv, |n| n > outer.len());
    }
    match redacted(table, inner) {
        Cow::Owned(inner) => Cow::Owned([outer, &inner].concat()),
        Cow::Borrowed(_) => Cow::Borrowed(argv),
    }
}

fn hide(argv: &[Bytes], secret: impl Fn(usize) -> bool) -> Cow<'_, [Bytes]> {
    let shown = argv.iter().enumerate().map(|(n, arg)| if secret(n) { HIDDEN } else { arg.clone() });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

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
            ("config set store-tls-key-file-pass x", "config set store-tls-key-file-pass (redacted)"),
            ("config set any-other-pass x", "config set any-other-pass (redacted)"),
            ("acl dryrun bob auth x", "acl dryrun bob auth (redacted)"),
            ("acl dryrun bob get x", "acl dryrun bob get x"),
            ("acl dryrun bob", "acl dryrun bob"),
            ("acl dryrun bob acl setuser eve >x", "acl dryrun bob acl setuser (redacted) (redacted)"),
            ("COMMAND GETKEYS config set requirepass x", "COMMAND GETKEYS config set requirepass (redacted)"),
            ("idempotent 0123456789abcdef auth x", "idempotent 0123456789abcdef auth (redacted)"),
            ("set auth x", "set auth x"),
        ] {
            let argv: Vec<Bytes> = line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
            let words: Vec<String> =
                redacted(table(), &argv).iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
            assert_eq!(words.join(" "), shown);
        }
    }
}
