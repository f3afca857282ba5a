//! Loads users from the configuration file and from `aclfile`, and saves them. A file with one error changes
//! nothing.

use super::user::{DEFAULT, User, joined};
use super::{Acl, RuleError, Users};
use crate::config::{Settings, file};
use crate::spec::Table;
use crate::spec::words::quoted;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BOTH: &str = "users are defined in the configuration file and in aclfile: it must be one of them";
const UNCHANGED: &str =
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

impl Acl {
    /// Loads the users that the settings define, at startup. The error names what is wrong with them.
    pub fn load_configured(&self, settings: &Settings) -> Result<(), String> {
        if settings.aclfile.is_empty() {
            return self.load_lines(settings);
        }
        if !settings.users.is_empty() {
            return Err(BOTH.into());
        }
        self.replace(Self::read_file(self.table, settings)?);
        Ok(())
    }

    fn load_lines(&self, settings: &Settings) -> Result<(), String> {
        let mut new = Users::new();
        for line in &settings.users {
            let words: Vec<Bytes> = line.iter().map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
            let (name, rules) = words.split_first().ok_or("a user must have a name")?;
            let user = read_user(self.table, &new, name, rules, settings)?;
            if !user.enabled {
                tracing::info!("user '{}' is off: no rule turns it on", String::from_utf8_lossy(name));
            }
            new.insert(name.clone(), Arc::new(user));
        }
        self.defined.store(!new.is_empty(), Ordering::Release);
        self.change(|users| users.extend(new));
        Ok(())
    }

    /// Reads the users of `aclfile`. The file may be long or its disk slow: do not call this where others
    /// wait.
    pub(crate) fn read_file(table: &'static Table, settings: &Settings) -> Result<Users, String> {
        let name = &settings.aclfile;
        let text = file::read(Path::new(name), file::TEXT)
            .map_err(|e| format!("Error loading ACLs, opening file '{name}': {e}"))?;
        let (mut new, mut errors) = (BTreeMap::new(), String::new());
        for (n, line) in text.split(|b| *b == b'\n').enumerate() {
            let split = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let words: Vec<Bytes> = split.map(Bytes::copy_from_slice).collect();
            let read = match words.as_slice() {
                [] => continue,
                [first, user, rules @ ..] if first == "user" => {
                    read_user(table, &new, user, rules, settings).map(|made| (user.clone(), Arc::new(made)))
                }
                _ => Err("should start with user keyword followed by the username".into()),
            };
            match read {
                Ok((user, made)) => drop(new.insert(user, made)),
                Err(why) => errors += &format!("{name}:{}: {why}. ", n + 1),
            }
        }
        if !errors.is_empty() {
            return Err(errors + UNCHANGED);
        }
        new.entry(DEFAULT).or_insert_with(|| Arc::new(User::open(table)));
        Ok(new)
    }

    /// Replaces all users by these. Returns the names of users that no longer exist.
    pub(crate) fn replace(&self, new: Users) -> Vec<Bytes> {
        self.change(|users| {
            let old = std::mem::replace(users, new);
            old.into_keys().filter(|name| !users.contains_key(name)).collect()
        })
    }
}

/// Parses a user from its rules; fails if `known` already has the user.
fn read_user(
    table: &'static Table,
    known: &Users,
    name: &Bytes,
    rules: &[Bytes],
    settings: &Settings,
) -> Result<User, String> {
    let shown = String::from_utf8_lossy(name);
    super::selector::word(name).map_err(|_| format!("username '{shown}' contains invalid characters"))?;
    if known.contains_key(name) {
        return Err(format!("Duplicate user '{shown}'"));
    }
    let rules = joined(rules).map_err(|_| "Unmatched parenthesis in selector definition")?;
    let mut user = User::new(table, settings.acl_pubsub_default);
    for rule in &rules {
        user.apply(rule, settings.acl_pubsub_default).map_err(|why| describe(rule, why))?;
    }
    Ok(user)
}

/// The text of an error. The rule is shown only if it cannot be a password.
fn describe(rule: &[u8], why: RuleError) -> String {
    match why {
        RuleError::Unknown => {
            format!("Error in applying operation '{}': {}", quoted(rule), why.text())
        }
        _ => why.text().into(),
    }
}
