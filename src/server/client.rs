//! The state of one client, as commands see it.

use super::mailbox::Mailbox;
use super::protocol::Protocol;
use super::tracking::Mode;
use crate::server::clients::{ClientHandle, Identity};
use bytes::Bytes;
use std::sync::Arc;

/// The mode set by CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// Every reply is sent.
    #[default]
    On,
    /// No reply is sent.
    Off,
    /// The next reply is not sent.
    SkipNext,
    /// This reply is not sent.
    Skip,
}

/// The fate of a connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterReply {
    /// It takes the next request.
    #[default]
    GoOn,
    /// It is closed (SHUTDOWN, CLIENT KILL on itself).
    Close,
    /// Its EXEC produced this many bytes of replies, more than `client-output-buffer-limit` allows; they were
    /// dropped.
    Excess(usize),
    /// Its task panics (DEBUG PANIC CONNECTION).
    Panic,
}

/// The part of a client's state that commands read and change. Cloned for every attempt of a transaction.
#[derive(Debug, Clone)]
pub struct ClientState {
    /// CLIENT ID.
    pub id: u64,
    /// The selected database.
    pub db: u8,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// True after AUTH, or if no password is set.
    pub authenticated: bool,
    /// The ACL user.
    pub user: Bytes,
    /// CLIENT SETNAME.
    pub name: Bytes,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Bytes,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: Bytes,
    /// CLIENT REPLY.
    pub reply: ReplyMode,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// CLIENT TRACKING.
    pub tracking: Mode,
    /// True while a transaction runs under EXEC.
    pub in_exec: bool,
    /// True for what a script calls.
    pub in_script: bool,
    /// The fate of the connection after this unit is answered.
    pub after_reply: AfterReply,
    /// The client's entry in the registry (CLIENT LIST, KILL).
    pub handle: Arc<ClientHandle>,
    /// Receives messages that the client did not request.
    pub mailbox: Arc<Mailbox>,
}

impl ClientState {
    /// The state of a client that has just connected.
    pub fn new(handle: Arc<ClientHandle>, authenticated: bool) -> Self {
        handle.set_stranger(!authenticated);
        ClientState {
            id: handle.id,
            db: 0,
            protocol: Protocol::default(),
            authenticated,
            user: Bytes::from_static(b"default"),
            name: Bytes::new(),
            lib_name: Bytes::new(),
            lib_ver: Bytes::new(),
            reply: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            tracking: Mode::default(),
            in_exec: false,
            in_script: false,
            after_reply: AfterReply::GoOn,
            mailbox: Arc::new(Mailbox::new(handle.clone())),
            handle,
        }
    }

    /// Copies names, database, protocol and switches into the registry. Call it after each change of them; it
    /// may run again if a command is retried.
    pub(crate) fn publish(&self) {
        // What a script selects is its own.
        if self.in_script {
            return;
        }
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        self.handle.set_identity(Identity {
            name: text(&self.name),
            user: self.user.clone(),
            lib_name: text(&self.lib_name),
            lib_ver: text(&self.lib_ver),
            db: self.db,
            resp: if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            no_evict: self.no_evict,
            no_touch: self.no_touch,
        });
    }
}
