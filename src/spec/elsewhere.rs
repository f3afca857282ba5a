//! Redis commands that this server does not implement. ACL rules may name them, so that user files written
//! for Redis load unchanged. Such a rule is kept and shown, but has nothing to allow or forbid. A client that
//! sends one gets an error that says so, and the command is counted by name: so an operator sees which
//! commands an application would need.
//!
//! The list covers Redis 8.10's own commands, without those of its modules. A command that enters the table
//! must leave this list: a test enforces it.

/// Names in lower case. Subcommands come after a bar, if this server lacks the container or the subcommand.
const NAMES: &str = "
    arcount ardel ardelrange arget argetrange argrep arinfo arinsert arlastitems arlen armget armset arnext arop arring arscan
    arseek arset blmovem himport lmovem
    sentinel vadd vcard vdim vemb vgetattr vinfo vismember vlinks
    vrandmember vrem vsetattr vsim xcfgset xidmprecord xnack
";

/// The name of a command or subcommand that Redis has and this server lacks.
pub(crate) fn find(name: &[u8]) -> Option<&'static str> {
    NAMES.split_ascii_whitespace().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether Redis has this command or subcommand and this server lacks it.
pub(crate) fn has(name: &[u8]) -> bool {
    find(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

    #[test]
    fn what_is_here_is_not_elsewhere() {
        let here: Vec<String> =
            table().all().map(|row| row.label.clone()).filter(|label| has(label.as_bytes())).collect();
        assert!(here.is_empty(), "{here:?}");
    }

    #[test]
    fn names_are_told_apart() {
        assert!(has(b"vAdd") && has(b"BLMOVEM"));
        assert!(!has(b"get") && !has(b"nosuch") && !has(b"vadd|x") && !has(b""));
    }
}
