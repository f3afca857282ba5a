//! SUBSCRIBE and its family: what this client listens to.
//!
//! * Each name has an answer of its own, in RESP3 a push: also with CLIENT REPLY OFF, as in Redis.
//! * A confirmation comes before the first message of what it confirms, and no message comes behind the confirmation that ends
//!   it: so what waits in the mailbox is answered first.
//! * Inside MULTI they take effect once the transaction has committed.

use super::Session;
use crate::commands::reply::Reply;
use crate::commands::subscribers::Kind;
use crate::error::Error;
use crate::keyspace::messages::LISTENS;
use bytes::Bytes;
use std::collections::BTreeSet;

/// The names that a client listens to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    shards: BTreeSet<Bytes>,
}

impl Subscriptions {
    fn of(&mut self, kind: Kind) -> &mut BTreeSet<Bytes> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    fn counts(&self) -> [usize; 3] {
        [self.channels.len(), self.patterns.len(), self.shards.len()]
    }

    /// The number in a confirmation: shard channels are counted apart.
    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.shards.len(),
            _ => self.channels.len() + self.patterns.len(),
        }
    }
}

fn confirmation(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk_static(word), name, Reply::Int(count as i64)])
}

impl Session {
    /// Confirmations, behind the mail so far where this is not inside an EXEC.
    pub(super) async fn subscribe(&mut self, kind: Kind, names: &[Bytes], mail: bool) -> Reply {
        let server = self.executor.server().clone();
        let log = &server.space.messages;
        let (_interest, missed) = (log.interest(), log.missed());
        let since = match log.listen(LISTENS).await {
            Ok(since) => since,
            Err(e) => return Reply::Error(Error::from(e).into_reply()),
        };
        let mut replies = if mail { self.client.mailbox.take(usize::MAX) } else { Vec::new() };
        let word = match kind {
            Kind::Channel => "subscribe",
            Kind::Pattern => "psubscribe",
            Kind::Shard => "ssubscribe",
        };
        for name in names {
            let name = Bytes::copy_from_slice(name);
            if self.subscriptions.of(kind).insert(name.clone()) {
                server.subscribers.enter(kind, &name, &self.client.mailbox, since);
            }
            replies.push(confirmation(word, Reply::Bulk(name), self.subscriptions.count(kind)));
        }
        self.client.handle.set_subscriptions(self.subscriptions.counts());
        if log.missed() != missed {
            self.closing = true;
        }
        Reply::Several(replies)
    }

    /// From `names`, or from all of a kind where there are none.
    pub(super) fn unsubscribe(&mut self, kind: Kind, names: &[Bytes], mail: bool) -> Reply {
        let word = match kind {
            Kind::Channel => "unsubscribe",
            Kind::Pattern => "punsubscribe",
            Kind::Shard => "sunsubscribe",
        };
        let all: Vec<Bytes> = match names {
            [] => self.subscriptions.of(kind).iter().cloned().collect(),
            names => names.to_vec(),
        };
        let mut confirmations = Vec::with_capacity(all.len().max(1));
        for name in all {
            if self.subscriptions.of(kind).remove(&name) {
                self.executor.server().subscribers.leave(kind, &name, self.client.id);
            }
            confirmations.push(confirmation(word, Reply::Bulk(name), self.subscriptions.count(kind)));
        }
        if confirmations.is_empty() {
            confirmations.push(confirmation(word, Reply::Nil, self.subscriptions.count(kind)));
        }
        self.client.handle.set_subscriptions(self.subscriptions.counts());
        let mut replies = if mail { self.client.mailbox.take(usize::MAX) } else { Vec::new() };
        replies.extend(confirmations);
        Reply::Several(replies)
    }

    /// From everything, without a word.
    pub(super) fn forget_subscriptions(&mut self) {
        let subscribers = &self.executor.server().subscribers;
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in std::mem::take(self.subscriptions.of(kind)) {
                subscribers.leave(kind, &name, self.client.id);
            }
        }
        self.client.handle.set_subscriptions([0; 3]);
    }
}
