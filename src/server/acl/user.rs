//! A user: passwords, whether it may log in, and its selectors. A user is replaced as a whole, never changed
//! in place.

use super::selector::{Denied, MOST, RuleError, Selector};
use crate::config::MAX_PASSWORD;
use crate::spec::{Entry, Table};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq};

/// The user that connections start with.
pub const DEFAULT: Bytes = Bytes::from_static(b"default");

/// As long as the hash of a password, but matches none, because it is not hexadecimal.
const NOBODYS: &str = "----------------------------------------------------------------";

/// One user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    table: &'static Table,
    /// Whether the user may log in.
    pub(crate) enabled: bool,
    /// Any password is accepted.
    pub nopass: bool,
    /// `sanitize-payload`: kept and shown. RESTORE checks every payload regardless.
    sanitize: Option<bool>,
    /// SHA-256 of each password, as 64 hexadecimal digits.
    pub(crate) passwords: Vec<String>,
    /// The first one is the root selector.
    selectors: Vec<Selector>,
}

impl User {
    /// A user without permissions, except for any channel if `all_channels`.
    pub fn new(table: &'static Table, all_channels: bool) -> Self {
        let selectors = vec![Selector::new(table, all_channels)];
        User { table, enabled: false, nopass: false, sanitize: None, passwords: Vec::new(), selectors }
    }

    /// The default user without a password: may do everything.
    pub(crate) fn open(table: &'static Table) -> Self {
        let mut user = User::new(table, true);
        for rule in ["+@all", "~*"] {
            let _ = user.apply(rule.as_bytes(), true);
        }
        User { enabled: true, nopass: true, ..user }
    }

    /// Whether no check is needed.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.selectors.first().is_some_and(Selector::is_unrestricted)
    }

    /// Applies one rule. `all_channels`: the setting that `reset` and new selectors start with, see
    /// `acl-pubsub-default`.
    pub fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.enabled = true,
            b"off" => self.enabled = false,
            b"skip-sanitize-payload" => self.sanitize = Some(false),
            b"sanitize-payload" => self.sanitize = Some(true),
            b"nopass" => (self.nopass, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.nopass, self.passwords) = (false, Vec::new()),
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = User { sanitize: Some(true), ..User::new(self.table, all_channels) },
            _ => return self.apply_other(rule, all_channels),
        }
        Ok(())
    }

    fn apply_other(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match rule {
            [b'>', password @ ..] if password.len() > MAX_PASSWORD => return Err(RuleError::LongPassword),
            [b'>', password @ ..] => return self.add_password(hash(password)),
            [b'#', hash @ ..] => return self.add_password(checked(hash)?),
            [b'<', password @ ..] if password.len() > MAX_PASSWORD => return Err(RuleError::NoSuchPassword),
            [b'<', password @ ..] => return self.remove_password(&hash(password)),
            [b'!', hash @ ..] => return self.remove_password(&checked(hash)?),
            [b'(', rules @ .., b')'] => {
                if self.selectors.len() > MOST {
                    return Err(RuleError::TooMany);
                }
                let mut selector = Selector::new(self.table, all_channels);
                for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    // When shown, it would end the selector early: Redis then writes a file of users that it
                    // refuses to load.
                    if rule.ends_with(b")") {
                        return Err(RuleError::Syntax);
                    }
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            rule => return self.selectors.first_mut().map_or(Ok(()), |own| own.apply(rule)),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) -> Result<(), RuleError> {
        let known = self.passwords.contains(&hash);
        if !known && self.passwords.len() >= MOST {
            return Err(RuleError::TooMany);
        }
        self.nopass = false;
        self.passwords.extend(Some(hash).filter(|_| !known));
        Ok(())
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), RuleError> {
        let before = self.passwords.len();
        self.passwords.retain(|p| p != hash);
        if self.passwords.len() < before { Ok(()) } else { Err(RuleError::NoSuchPassword) }
    }

    /// Whether somebody with this password may log in as `user`; never if the user does not exist. The time
    /// does not depend on whether the user exists, may log in, or has this password: each password is hashed
    /// once, unless it is too long to be one.
    pub fn accepts(user: Option<&User>, password: &[u8]) -> bool {
        if password.len() > MAX_PASSWORD {
            return false;
        }
        let (hash, nobody) = (hash(password), [NOBODYS.to_owned()]);
        let passwords = user.map(|user| user.passwords.as_slice()).filter(|known| !known.is_empty());
        let mut found = Choice::from(0);
        for known in passwords.unwrap_or(&nobody) {
            found |= known.as_bytes().ct_eq(hash.as_bytes());
        }
        user.is_some_and(|user| user.enabled && (user.nopass || bool::from(found)))
    }

    /// Which part of a call is forbidden; `names` of its arguments are names. With several selectors, the one
    /// that came furthest decides.
    pub fn check(&self, row: &Entry, argv: &[Bytes], names: usize) -> Result<(), Denied> {
        let mut worst = (0, 0, Denied::Command);
        for selector in &self.selectors {
            let Err((place, denied)) = selector.check(row, argv, names) else { return Ok(()) };
            let rank = match denied {
                Denied::Command => 0,
                Denied::Key(_) => 1,
                Denied::Channel(_) => 2,
            };
            if (rank, place) > (worst.0, worst.1) {
                worst = (rank, place, denied);
            }
        }
        Err(worst.2)
    }

    /// Whether the row may run and every key may be read.
    pub(crate) fn reads_all_keys(&self, row: &Entry, names: usize) -> bool {
        self.selectors.iter().any(|s| s.reads_all_keys(row, names))
    }

    /// Whether a channel may be used.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|s| s.allows_channel(channel, is_pattern))
    }

    /// The selectors, the root selector first.
    pub(crate) fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// The user's flags, in display order.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        flags.extend(self.nopass.then_some("nopass"));
        flags.extend(self.sanitize.map(|yes| if yes { "sanitize-payload" } else { "skip-sanitize-payload" }));
        flags
    }

    /// The rules that produce this user.
    pub fn show(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords.iter().map(|p| format!("#{p}").into_bytes()));
        let selectors = self.selectors.iter().enumerate();
        words.extend(
            selectors.map(|(n, s)| if n == 0 { s.show() } else { [b"(", &*s.show(), b")"].concat() }),
        );
        words.join(&b' ')
    }
}

fn hash(password: &[u8]) -> String {
    digest(&SHA256, password).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn checked(hash: &[u8]) -> Result<String, RuleError> {
    let digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if hash.len() != 64 || !hash.iter().all(digit) {
        return Err(RuleError::NoHash);
    }
    Ok(String::from_utf8_lossy(hash).into_owned())
}

/// Joins the words of selectors that are spread over several arguments: `(~k`, `+get)`. Err: the beginning of
/// an unclosed selector.
pub(crate) fn joined(words: &[Bytes]) -> Result<Vec<Bytes>, Bytes> {
    let mut out: Vec<Bytes> = Vec::with_capacity(words.len());
    let mut open: Option<(Bytes, Vec<u8>)> = None;
    for word in words {
        open = match open {
            // As in Redis, a selector that begins inside another one replaces it.
            _ if word.starts_with(b"(") && !word.ends_with(b")") => Some((word.clone(), word.to_vec())),
            None => {
                out.push(word.clone());
                None
            }
            Some((first, mut text)) => {
                text.extend_from_slice(b" ");
                text.extend_from_slice(word);
                if word.ends_with(b")") {
                    out.push(text.into());
                    None
                } else {
                    Some((first, text))
                }
            }
        };
    }
    open.map_or(Ok(out), |(first, _)| Err(first))
}
