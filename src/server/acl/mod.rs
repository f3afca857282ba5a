//! Access control: users, their permissions, and the log of refusals. Users belong to this server: its
//! configuration file or `aclfile` defines them, and other servers on the same store have their own.
//!
//! Every connection checks its user's rights before every command ([`Rights`]). One load and one comparison
//! show that nothing has changed, and an unrestricted user has no rights to check. A change of any user makes
//! every connection look its user up again, so the change applies to the next command that is read.

mod file;
pub(crate) mod log;
pub(crate) mod selector;
pub(crate) mod user;

pub use log::{AclLog, Context, Reason, Refusal, kept};
pub use selector::{Denied, RuleError};
pub use user::{DEFAULT, User};

use crate::env::aside;
use crate::spec::Table;
use crate::spec::words::quoted;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Users by name.
pub(crate) type Users = BTreeMap<Bytes, Arc<User>>;

/// The users of a server.
#[derive(Debug)]
pub struct Acl {
    table: &'static Table,
    users: RwLock<Users>,
    /// Held by whoever changes users. Separate from the lock on the users, which everybody needs, because
    /// rules take time.
    turn: Mutex<()>,
    generation: AtomicU64,
    /// Whether the default user needs no password.
    open: AtomicBool,
    /// Whether users were defined, so that CONFIG REWRITE writes them.
    defined: AtomicBool,
    /// The refusals.
    pub log: AclLog,
}

/// The rights of its user that a connection caches.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    generation: u64,
    user: Option<Arc<User>>,
}

impl Rights {
    /// Changes with every change of any user.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The user whose rights to check; None: everything is allowed.
    pub(crate) fn restricted(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }
}

/// Why ACL SETUSER failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUserError {
    /// A rule, as it was given, and what is wrong with it.
    Rule(Bytes, RuleError),
    /// A selector without its closing parenthesis.
    Open(Bytes),
    /// More than `MOST_RULES` rules.
    TooMany,
}

/// The most rules in one change.
const MOST_RULES: usize = 20_000;

impl SetUserError {
    /// The text for the client, without an error code.
    pub(crate) fn text(&self) -> String {
        match self {
            SetUserError::Rule(rule, why) => {
                format!("Error in ACL SETUSER modifier '{}': {}", quoted(rule), why.text())
            }
            SetUserError::Open(first) => {
                let first = quoted(first);
                format!("Unmatched parenthesis in acl selector starting at '{first}'.")
            }
            SetUserError::TooMany => format!("A user can be given at most {MOST_RULES} rules at once"),
        }
    }
}

impl Acl {
    /// Only the default user, with this password; if empty, without one.
    pub fn new(table: &'static Table, requirepass: &str) -> Self {
        let acl = Acl {
            table,
            users: RwLock::new(BTreeMap::from([(DEFAULT, Arc::new(User::open(table)))])),
            turn: Mutex::default(),
            generation: AtomicU64::new(1),
            open: AtomicBool::new(true),
            defined: AtomicBool::new(false),
            log: AclLog::default(),
        };
        acl.set_default_password(requirepass);
        acl
    }

    /// Applies a change of `requirepass`.
    pub(crate) fn set_default_password(&self, password: &str) {
        self.change(|users| {
            let mut user =
                users.get(&DEFAULT).map_or_else(|| User::open(self.table), |user| User::clone(user));
            let rule = if password.is_empty() { "nopass".to_owned() } else { format!(">{password}") };
            for rule in ["resetpass", &rule] {
                let _ = user.apply(rule.as_bytes(), true);
            }
            users.insert(DEFAULT, Arc::new(user));
        });
    }

    /// Locks out other changes of users. Waiting for this does not block a worker thread.
    fn turn(&self) -> MutexGuard<'_, ()> {
        aside(|| self.turn.lock())
    }

    fn change<T>(&self, with: impl FnOnce(&mut Users) -> T) -> T {
        let _turn = self.turn();
        self.changed(with)
    }

    /// Like [`Acl::change`], for a caller that has the turn.
    fn changed<T>(&self, with: impl FnOnce(&mut Users) -> T) -> T {
        let mut users = self.users.write();
        let out = with(&mut users);
        let open = users.get(&DEFAULT).is_some_and(|user| user.nopass && user.enabled);
        self.open.store(open, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
        out
    }

    /// Whether new connections need not log in.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether the default user has no password, even if it is disabled.
    pub(crate) fn default_has_no_password(&self) -> bool {
        self.get(&DEFAULT).is_none_or(|user| user.nopass)
    }

    /// The user with this name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// All users by name.
    pub(crate) fn all(&self) -> Vec<(Bytes, Arc<User>)> {
        self.users.read().iter().map(|(name, user)| (name.clone(), user.clone())).collect()
    }

    /// All users as lines of a configuration file.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        let line = |(name, user): (Bytes, Arc<User>)| [b"user ", &*name, b" ", &user.show()].concat();
        self.all().into_iter().map(line).collect()
    }

    /// The lines, if users were defined by anything other than `requirepass`.
    pub(crate) fn defined(&self) -> Option<Vec<Vec<u8>>> {
        self.defined.load(Ordering::Acquire).then(|| self.lines())
    }

    /// Applies all rules to the user with this name, or none of them. Creates the user if it does not exist.
    pub fn set_user(&self, name: &Bytes, rules: &[Bytes], all_channels: bool) -> Result<(), SetUserError> {
        let rules = user::joined(rules).map_err(SetUserError::Open)?;
        let words = |rule: &Bytes| rule.split(u8::is_ascii_whitespace).take(MOST_RULES + 1).count();
        if rules.iter().map(words).sum::<usize>() > MOST_RULES {
            return Err(SetUserError::TooMany);
        }
        let _turn = self.turn();
        let mut user =
            self.get(name).map_or_else(|| User::new(self.table, all_channels), |user| User::clone(&user));
        for rule in &rules {
            user.apply(rule, all_channels).map_err(|e| SetUserError::Rule(rule.clone(), e))?;
        }
        self.changed(|users| users.insert(name.clone(), Arc::new(user)));
        self.defined.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes users. Returns the names of those that existed.
    pub(crate) fn remove(&self, names: &[Bytes]) -> Vec<Bytes> {
        self.defined.store(true, Ordering::Release);
        self.change(|users| names.iter().filter(|name| users.remove(*name).is_some()).cloned().collect())
    }

    /// Refreshes a connection's cached rights of the user `name`. Cheap if nothing has changed.
    pub(crate) fn refresh(&self, rights: &mut Rights, name: &[u8]) {
        let generation = self.generation.load(Ordering::Acquire);
        if rights.generation != generation {
            // A removed user may do nothing until the connection has ended.
            let user = self.get(name).unwrap_or_else(|| Arc::new(User::new(self.table, false)));
            *rights = Rights { generation, user: Some(user).filter(|user| !user.is_unrestricted()) };
        }
    }
}
