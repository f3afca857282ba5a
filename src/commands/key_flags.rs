//! What a command line does with its keys, where that depends on its options (`variable_flags` in COMMAND's key specifications).

use crate::spec::KeySpec;
use bytes::Bytes;

/// The flags of `spec` in the command line `argv`.
pub fn key_flags(spec: &KeySpec, argv: &[Bytes]) -> &'static [&'static str] {
    let (Some(name), true) = (argv.first(), spec.flags.contains(&"variable_flags")) else {
        return spec.flags;
    };
    match name.to_ascii_lowercase().as_slice() {
        // The conditions tell something about the old value.
        b"set" if has(argv.get(3..), &[b"get", b"ifeq", b"ifne", b"ifdeq", b"ifdne"]) => {
            &["RW", "access", "update"]
        }
        b"set" => &["OW", "update"],
        b"bitfield" if only_reads(argv.get(2..).unwrap_or_default()) => &["RO", "access"],
        b"bitfield" => &["RW", "access", "update"],
        // Whether the key goes tells what it holds.
        b"delex" if argv.len() > 2 => &["RW", "access", "delete"],
        b"delex" => &["RM", "delete"],
        _ => spec.flags,
    }
}

fn has(options: Option<&[Bytes]>, words: &[&[u8]]) -> bool {
    let named = |option: &Bytes| words.iter().any(|word| option.eq_ignore_ascii_case(word));
    options.unwrap_or_default().iter().any(named)
}

/// What cannot be understood might write.
fn only_reads(mut operations: &[Bytes]) -> bool {
    while let Some((name, rest)) = operations.split_first() {
        let arguments = match name.to_ascii_lowercase().as_slice() {
            b"get" => 2,
            b"overflow" => 1,
            _ => return false,
        };
        let Some(rest) = rest.get(arguments..) else { return false };
        operations = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

    fn of(line: &str) -> String {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let row = table().lookup(&argv[0]).unwrap();
        key_flags(&row.keys[0], &argv).join(" ")
    }

    /// As redis-server 7.0.15 answers COMMAND GETKEYSANDFLAGS.
    #[test]
    fn options_decide() {
        for (line, flags) in [
            ("set a b", "OW update"),
            ("set get get", "OW update"),
            ("set a b GET", "RW access update"),
            ("set a b xx get", "RW access update"),
            ("set a b ifeq c", "RW access update"),
            ("bitfield a get u8 0", "RO access"),
            ("bitfield a overflow wrap", "RO access"),
            ("bitfield a get u8 0 incrby u8 0 1", "RW access update"),
            ("bitfield a get u8", "RW access update"),
            ("delex a", "RM delete"),
            ("delex a ifeq b", "RW access delete"),
            ("get a", "RO access"),
        ] {
            assert_eq!(of(line), flags, "{line}");
        }
    }
}
