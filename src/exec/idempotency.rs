//! Calls and EXECs under a client's id (IDEMPOTENT). If the id is known, the kept reply is returned;
//! otherwise the command runs, and its reply is kept in the same transaction.
//!
//! There is no separate path. Such a call rides in a batch like any other; a second call with the same id in
//! the same batch reads the batch's own write; a call on another connection or server conflicts on the id's
//! row; the attempt loop resolves an unknown commit. Errors of the store are not kept: either they end the
//! attempt, or the call fails without any effect and may run on the next request.

use super::batch::{Batch, Halt, ends_attempt};
use super::prebuild::Prebuilds;
use super::unit::{Done, Forced, Unit, runs_script};
use crate::commands::binding::Run;
use crate::commands::registry::run_of;
use crate::commands::transactions::idempotent::{IdempotentRequest, KeptAnswer};
use crate::dispatch::{Call, Noted};
use crate::error::{Error, Result, StoreError};
use crate::script;
use crate::server::ClientState;
use crate::server::reply::Reply;
use crate::server::reply_codec::{encode, encode_array};
use crate::types::prebuilt::Prebuilt;
use bytes::Bytes;

impl Batch<'_> {
    /// The reply of a call that does not run: its script, if it is one, has called nothing.
    pub(super) fn without_running(&mut self, call: &Call, reply: Reply) -> Reply {
        if runs_script(call) {
            self.runner.noted.push(Noted::default());
        }
        reply
    }

    /// Runs a call or its script, ignoring its id.
    async fn run_call(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        prebuilt: &[Prebuilt],
    ) -> Option<Result<Reply>> {
        match run_of(call.row) {
            Run::Script(op) => script::run(&mut self.runner, op, call, client).await,
            _ => self.runner.call(call, client, prebuilt).await,
        }
    }

    /// Runs a call, once if it has an id. None if the handler panicked: then nothing is kept.
    pub(super) async fn call_once(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        prebuilt: &[Prebuilt],
    ) -> Option<Result<Reply>> {
        let Some(id) = &call.id else { return self.run_call(call, client, prebuilt).await };
        let secret = match self.runner.server.space.secret().await {
            Ok(secret) => secret,
            Err(e) => return Some(Err(e.into())),
        };
        let request = IdempotentRequest::command(&secret, &client.user, id, client.db, &call.argv).await;
        let settings = self.runner.server.config.get().clone();
        match request.recall(self.runner.tx, &settings).await {
            Ok(None) => {}
            Ok(Some(known)) => {
                let reply = self.repeat(known, client);
                return Some(Ok(self.without_running(call, reply)));
            }
            Err(e) => return Some(Err(e)),
        }
        let reply = match self.run_call(call, client, prebuilt).await? {
            Ok(reply) => reply,
            Err(Error::Reply(e)) => Reply::Error(e),
            failed => return Some(failed),
        };
        Some(request.keep(self.runner.tx, self.runner.lives.now, client.db, encode(&reply)).map(|()| reply))
    }

    /// Runs an EXEC under its id, once. A failed call is part of the outcome, as in Redis; if a watched key
    /// has changed, nothing runs and nothing is kept.
    pub(super) async fn exec_once(
        &mut self,
        id: &Bytes,
        unit: &Unit,
        forced: &mut Forced,
        prebuilds: &Prebuilds,
    ) -> std::result::Result<Done, Halt> {
        let refused = |e: Error| Done::refused(unit.client.clone(), unit.calls.len(), e);
        if let Some(e) = &forced.unit {
            return Ok(refused(e.clone().into()));
        }
        let mut client = unit.client.clone();
        let secret = match self.runner.server.space.secret().await {
            Ok(secret) => secret,
            Err(e) if ends_attempt(&e) => return Err(e.into()),
            Err(e) => return Ok(refused(e.into())),
        };
        let queue = unit.calls.iter().map(|c| c.argv.as_slice());
        let request = IdempotentRequest::exec(&secret, &client.user, id, client.db, queue).await;
        let settings = self.runner.server.config.get().clone();
        match request.recall(self.runner.tx, &settings).await {
            Ok(None) => {}
            Ok(Some(known)) => {
                let replies = items(self.repeat(known, &mut client));
                return Ok(Done::new(client, Some(replies), self.take_lookups()));
            }
            Err(Error::Store(e)) if ends_attempt(&e) => return Err(e.into()),
            Err(e) => return Ok(refused(e)),
        }
        let replies = self.run_unit(unit, &mut client, forced, prebuilds).await?;
        let kept = match &replies {
            Some(replies) => {
                request.keep(self.runner.tx, self.runner.lives.now, client.db, encode_array(replies))
            }
            None => Ok(()),
        };
        match kept {
            Ok(()) => Ok(Done::new(client, replies, self.take_lookups()).noting(self.take_noted())),
            // It may fit into a transaction of its own.
            Err(Error::Store(e @ StoreError::TooLarge)) => Err(e.into()),
            Err(e) => {
                forced.unit = Some(e.into_reply());
                Err(Halt::Rerun)
            }
        }
    }

    /// The reply of a command that ran before, and its effect on this connection.
    fn repeat(&self, known: KeptAnswer, client: &mut ClientState) -> Reply {
        self.runner.server.telemetry.on_repeat();
        if client.db != known.db {
            client.db = known.db;
            client.publish();
        }
        known.reply
    }
}

/// The replies in an EXEC's array.
fn items(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(items) => items,
        other => vec![other],
    }
}
