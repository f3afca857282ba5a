//! SUBSCRIBE and its family: a client's subscriptions.
//!
//! * Each name has a confirmation of its own, in RESP3 a push; as in Redis, CLIENT REPLY OFF does not
//!   suppress it.
//! * A confirmation comes before the first message of its subscription, and no message follows the
//!   confirmation that ends it: so messages waiting in the mailbox are sent first.
//! * Inside MULTI they take effect once the transaction has committed.

use super::Session;
use crate::commands::pubsub::read_pattern;
use crate::error::Error;
use crate::exec::Executor;
use crate::keyspace::cluster::messages::LISTENS;
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::server::subscribers::SubscriptionKind;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Steps of work ([`Pace`]) per name.
const NAME: usize = 1 << 9;
/// The number of names to unsubscribe at once.
const FEW: usize = 256;

/// The names that a client is subscribed to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    shards: BTreeSet<Bytes>,
}

impl Subscriptions {
    fn of(&mut self, kind: SubscriptionKind) -> &mut BTreeSet<Bytes> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    fn all(self) -> impl Iterator<Item = (SubscriptionKind, Bytes)> + Send {
        let of = |kind, names: BTreeSet<Bytes>| names.into_iter().map(move |name| (kind, name));
        of(SubscriptionKind::Channel, self.channels)
            .chain(of(SubscriptionKind::Pattern, self.patterns))
            .chain(of(SubscriptionKind::Shard, self.shards))
    }

    fn counts(&self) -> [usize; 3] {
        [self.channels.len(), self.patterns.len(), self.shards.len()]
    }

    /// The number in a confirmation: shard channels are counted separately.
    fn count(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Shard => self.shards.len(),
            _ => self.channels.len() + self.patterns.len(),
        }
    }
}

/// Removes all subscriptions of a client.
async fn leave_all(executor: &Executor, client: u64, names: Subscriptions) {
    let mut pace = Pace::default();
    for (kind, name) in names.all() {
        executor.server().subscribers.leave(kind, &name, client);
        pace.spend(NAME).await;
    }
}

fn confirmation(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk_static(word), name, Reply::Int(count as i64)])
}

impl Session {
    /// Subscribes and confirms; unless inside an EXEC, the mail so far comes first.
    pub(super) async fn subscribe(&mut self, kind: SubscriptionKind, names: &[Bytes], mail: bool) -> Reply {
        let server = self.executor.server().clone();
        let mut pace = Pace::default();
        let mut globs = Vec::new();
        for name in names.iter().filter(|_| kind == SubscriptionKind::Pattern) {
            match read_pattern(name, &mut pace).await {
                Ok(glob) => globs.push(Arc::new(glob)),
                Err(e) => return Reply::Error(e),
            }
        }
        let mut globs = globs.into_iter();
        let log = &server.space.bus;
        let (_interest, missed) = (log.interest(), log.missed());
        let since = match log.listen(LISTENS).await {
            Ok(since) => since,
            Err(e) => return Reply::Error(Error::from(e).into_reply()),
        };
        if !log.is_shared() {
            // Everything readable by now has been delivered: this subscriber does not get it.
            drop(server.subscribers.turn().await);
        }
        let mut replies = if mail { self.client.mailbox.take(usize::MAX) } else { Vec::new() };
        let word = match kind {
            SubscriptionKind::Channel => "subscribe",
            SubscriptionKind::Pattern => "psubscribe",
            SubscriptionKind::Shard => "ssubscribe",
        };
        for name in names {
            let (name, glob) = (Bytes::copy_from_slice(name), globs.next());
            pace.spend(NAME).await;
            if self.subscriptions.of(kind).insert(name.clone()) {
                server.subscribers.enter(kind, &name, glob, &self.client.mailbox, since);
            }
            replies.push(confirmation(word, Reply::Bulk(name), self.subscriptions.count(kind)));
        }
        self.client.handle.set_subscriptions(self.subscriptions.counts());
        if log.missed() != missed {
            self.closing = true;
        }
        Reply::Several(replies)
    }

    /// Unsubscribes from `names`, or from all names of a kind if `names` is empty.
    pub(super) async fn unsubscribe(&mut self, kind: SubscriptionKind, names: &[Bytes], mail: bool) -> Reply {
        let word = match kind {
            SubscriptionKind::Channel => "unsubscribe",
            SubscriptionKind::Pattern => "punsubscribe",
            SubscriptionKind::Shard => "sunsubscribe",
        };
        let all: Vec<Bytes> = match names {
            [] => self.subscriptions.of(kind).iter().cloned().collect(),
            names => names.to_vec(),
        };
        let mut confirmations = Vec::with_capacity(all.len().max(1));
        let mut pace = Pace::default();
        // Messages of changes that other clients already saw confirmed come first. Messages through a shared
        // log come after such confirmations anyway.
        if !all.is_empty() {
            self.executor.server().subscribers.caught_up().await;
        }
        for name in all {
            pace.spend(NAME).await;
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

    /// Removes all subscriptions without confirmations.
    pub(super) async fn forget_subscriptions(&mut self) {
        let names = std::mem::take(&mut self.subscriptions);
        leave_all(&self.executor, self.client.id, names).await;
        self.client.handle.set_subscriptions([0; 3]);
    }

    /// Like [`Session::forget_subscriptions`], for a client that has left. Many names are removed in the
    /// background.
    pub(super) fn drop_subscriptions(&mut self) {
        let names = std::mem::take(&mut self.subscriptions);
        self.client.handle.set_subscriptions([0; 3]);
        let few = names.counts().iter().sum::<usize>() <= FEW;
        match Handle::try_current() {
            Ok(runtime) if !few => {
                let (executor, id) = (self.executor.clone(), self.client.id);
                runtime.spawn(async move { leave_all(&executor, id, names).await });
            }
            _ => names.all().for_each(|(kind, name)| {
                self.executor.server().subscribers.leave(kind, &name, self.client.id);
            }),
        }
    }
}
