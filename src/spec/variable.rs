//! How a command line uses its keys, if that depends on its options (`variable_flags` in COMMAND's
//! key specifications).

use super::{KeySpec, Row};
use bytes::Bytes;

/// The arguments that decide how the keys are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// Nothing: the specification is fixed.
    Nothing,
    /// Whether an option depends on the old value or returns it (SET).
    Conditions,
    /// Whether all operations are reads (BITFIELD).
    Operations,
    /// Whether a condition is given, which reads the value (DELEX).
    Condition,
}

impl Row {
    /// The flags of `spec`, one of its own, in the command line `argv`.
    pub(crate) fn key_flags(&self, spec: &KeySpec, argv: &[Bytes]) -> &'static [&'static str] {
        match self.variable {
            Variable::Nothing => spec.flags,
            Variable::Conditions if reads_old_value(argv.get(3..).unwrap_or_default()) => {
                &["RW", "access", "update"]
            }
            Variable::Conditions => &["OW", "update"],
            Variable::Operations if only_reads(argv.get(2..).unwrap_or_default()) => &["RO", "access"],
            Variable::Operations => &["RW", "access", "update"],
            Variable::Condition if argv.len() > 2 => &["RW", "access", "delete"],
            Variable::Condition => &["RM", "delete"],
        }
    }
}

fn reads_old_value(options: &[Bytes]) -> bool {
    let words: [&[u8]; 5] = [b"get", b"ifeq", b"ifne", b"ifdeq", b"ifdne"];
    options.iter().any(|option| words.iter().any(|word| option.eq_ignore_ascii_case(word)))
}

/// An operation that cannot be parsed counts as a write.
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
        row.key_flags(&row.keys[0], &argv).join(" ")
    }

    /// Expected values are the replies of redis-server 7.0.15 to COMMAND GETKEYSANDFLAGS.
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
