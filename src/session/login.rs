//! AUTH, HELLO, RESET.

use super::Session;
use crate::commands::connection::client::printable;
use crate::dispatch::Call;
use crate::error::{ReplyError, SYNTAX};
use crate::server::acl::{DEFAULT, Rights, User};
use crate::server::reply::Reply;
use crate::server::{Protocol, ReplyMode};
use crate::spec::words::{parse_i64, quoted};
use crate::telemetry::offences::Offence;
use bytes::Bytes;

const WRONGPASS: ReplyError =
    ReplyError::new("WRONGPASS invalid username-password pair or user is disabled.");
const NO_PASSWORD: ReplyError = ReplyError::new(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
);
const NOT_A_VERSION: ReplyError = ReplyError::new("ERR Protocol version is not an integer or out of range");
const NOPROTO: ReplyError = ReplyError::new("NOPROTO unsupported protocol version");
const HELLO_NOAUTH: ReplyError = ReplyError::new(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// HELLO's options.
#[derive(Default)]
struct Greeting<'a> {
    protocol: Option<Protocol>,
    login: Option<(&'a Bytes, &'a Bytes)>,
    name: Option<Bytes>,
}

impl Session {
    pub(super) fn auth(&mut self, call: &Call) -> Reply {
        let acl = &self.executor.server().acl;
        let result = match call.argv.get(call.names..).unwrap_or_default() {
            [_] if acl.default_has_no_password() => Err(NO_PASSWORD),
            [password] => self.log_in(&DEFAULT, password, call),
            [user, password] => self.log_in(user, password, call),
            _ => Err(SYNTAX),
        };
        result.map_or_else(Reply::Error, |()| Reply::Ok)
    }

    /// Logs a user in; a failed login leaves the client unchanged. `call` is AUTH or HELLO.
    fn log_in(&mut self, user: &Bytes, password: &Bytes, call: &Call) -> Result<(), ReplyError> {
        let server = self.executor.server();
        let known = server.acl.get(user);
        if !User::accepts(known.as_deref(), password) {
            let what = || "AUTH with a wrong user or password".to_owned();
            server.complain(&self.client.handle, Offence::Password, what);
            server.refused(&self.client, user, None, call.argv.first().unwrap_or(user));
            return Err(WRONGPASS);
        }
        self.client.authenticated = true;
        self.client.handle.set_stranger(false);
        self.client.user = Bytes::copy_from_slice(user);
        self.rights = Rights::default();
        self.client.publish();
        Ok(())
    }

    pub(super) fn hello(&mut self, call: &Call) -> Reply {
        let args = call.argv.get(call.names..).unwrap_or_default();
        match greeting(args).and_then(|g| self.greet(&g, call)) {
            Ok(()) => self.about_us(),
            Err(e) => Reply::Error(e),
        }
    }

    fn greet(&mut self, g: &Greeting<'_>, call: &Call) -> Result<(), ReplyError> {
        if let Some((user, password)) = g.login {
            self.log_in(user, password, call)?;
        }
        if !self.is_authenticated() {
            return Err(HELLO_NOAUTH);
        }
        if let Some(name) = &g.name {
            self.client.name = name.clone();
        }
        self.client.protocol = g.protocol.unwrap_or(self.client.protocol);
        self.client.publish();
        Ok(())
    }

    fn about_us(&self) -> Reply {
        let proto = if self.client.protocol == Protocol::Resp3 { 3 } else { 2 };
        let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
        let facts = [
            ("server", Reply::bulk_static("redis")),
            ("version", Reply::bulk_static(crate::commands::REDIS_VERSION)),
            ("proto", Reply::Int(proto)),
            ("id", Reply::Int(id)),
            ("mode", Reply::bulk_static("standalone")),
            ("role", Reply::bulk_static("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        Reply::Map(facts.into_iter().map(|(name, fact)| (Reply::bulk_static(name), fact)).collect())
    }

    pub(super) async fn reset(&mut self) -> Reply {
        self.forget_transaction();
        self.forget_subscriptions().await;
        self.forget_tracking();
        let c = &mut self.client;
        self.executor.server().monitors.remove(&c.mailbox);
        c.db = 0;
        c.protocol = Protocol::Resp2;
        c.reply = ReplyMode::On;
        c.authenticated = self.executor.server().acl.is_open();
        c.handle.set_stranger(!c.authenticated);
        c.user = DEFAULT;
        self.rights = Rights::default();
        c.name = Bytes::new();
        c.no_evict = false;
        c.no_touch = false;
        c.publish();
        Reply::Simple("RESET".into())
    }
}

fn greeting(args: &[Bytes]) -> Result<Greeting<'_>, ReplyError> {
    let mut g = Greeting::default();
    let Some((version, mut rest)) = args.split_first() else { return Ok(g) };
    g.protocol = Some(match parse_i64(version).ok_or(NOT_A_VERSION)? {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(NOPROTO),
    });
    loop {
        rest = match rest {
            [] => return Ok(g),
            [word, user, password, rest @ ..] if word.eq_ignore_ascii_case(b"auth") => {
                g.login = Some((user, password));
                rest
            }
            [word, name, rest @ ..] if word.eq_ignore_ascii_case(b"setname") => {
                g.name = Some(printable(name, "Client names")?);
                rest
            }
            [word, ..] => {
                let word = quoted(word);
                return Err(ReplyError::of(format!("ERR Syntax error in HELLO option '{word}'")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let args: Vec<Bytes> =
            line.split_whitespace().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        match greeting(&args) {
            Ok(g) => {
                let login =
                    g.login.map(|(user, password)| [user, password].map(|b| b.escape_ascii().to_string()));
                format!("{:?} {:?} {:?}", g.protocol, login.map(|l| l.join("/")), g.name)
            }
            Err(e) => e.0.into_owned(),
        }
    }

    #[test]
    fn a_greeting_is_read_as_redis_reads_it() {
        assert_eq!(read(""), "None None None");
        assert_eq!(read("2"), "Some(Resp2) None None");
        assert_eq!(read("3 setname n AUTH u p"), "Some(Resp3) Some(\"u/p\") Some(b\"n\")");
        assert_eq!(read("3 AUTH a b AUTH u p"), "Some(Resp3) Some(\"u/p\") None", "the last one counts");
        assert_eq!(read("x"), NOT_A_VERSION.0);
        for version in ["1", "4", "-2"] {
            assert_eq!(read(version), NOPROTO.0);
        }
        for line in ["3 AUTH u", "3 SETNAME", "3 more", "2 AUTH u p more"] {
            let word = line.split(' ').filter(|w| *w != "u" && *w != "p").nth(1).unwrap();
            let word = if line.ends_with("more") { "more" } else { word };
            assert_eq!(read(line), format!("ERR Syntax error in HELLO option '{word}'"));
        }
        assert!(read("3 SETNAME a\u{1}b").starts_with("ERR Client names cannot contain"));
    }
}
