//! What a client is sent without having asked: messages of channels, invalidations, lines of MONITOR.
//!
//! * Any task may post, at any time, without waiting ([`Server::post`](super::Server::post)). The client's connection is woken
//!   and writes what was posted, in that order, between its replies and never inside one.
//! * What is posted while the client's own commands run comes behind their replies (as in Redis since 7.2). So a reply that was
//!   read before a change is never sent behind the news of that change.
//! * What was posted before they run comes in front of their replies. So who asks after another client has had its answer is told
//!   first what this server's clients have changed before that.
//! * Bounded: a client that does not read is closed once `client-output-buffer-limit pubsub` is exceeded, whatever its
//!   class, because nobody can be asked to wait for it. Its mail is dropped at once.
//! * What another client has sent there (CLIENT TRACKING ... REDIRECT) counts apart, with the same bounds, and against that one: what
//!   would exceed them is not taken, and who asked for it is to be closed.

use super::reply::Reply;
use crate::config::OutputLimit;
use crate::server::clients::ClientHandle;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a message costs beside its own.
const ITEM: usize = 64;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It waits for the connection.
    Waits,
    /// The client has left, or is about to.
    Gone,
    /// It was too much: the client is being closed. So many bytes waited.
    Excess(usize),
}

/// On whose account a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The client's own.
    Own,
    /// That of others, who redirect to it.
    Others,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Monotonic time since which it is above the soft limit.
    above: Option<Duration>,
}

#[derive(Debug, Default)]
struct Mail {
    waiting: VecDeque<(Reply, Account)>,
    own: Held,
    others: Held,
    closed: bool,
}

/// One client's mail.
#[derive(Debug)]
pub struct Mailbox {
    handle: Arc<ClientHandle>,
    mail: Mutex<Mail>,
}

impl Mailbox {
    /// Of the client that `handle` stands for.
    pub fn new(handle: Arc<ClientHandle>) -> Self {
        Mailbox { handle, mail: Mutex::default() }
    }

    /// Whose it is.
    pub fn client(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// Leaves a message at monotonic time `now`. Where it is too much on the client's own account, the client is closed.
    pub fn post(&self, message: Reply, on: Account, limit: &OutputLimit, now: Duration) -> Posted {
        let mut mail = self.mail.lock();
        if mail.closed {
            return Posted::Gone;
        }
        let size = size(&message);
        let held = mail.held(on);
        held.bytes += size;
        let bytes = held.bytes;
        if held.exceeds(limit, now) {
            if on == Account::Others {
                held.bytes -= size;
                return Posted::Excess(bytes);
            }
            *mail = Mail { closed: true, ..Mail::default() };
            drop(mail);
            self.handle.set_mail(0, 0);
            self.handle.kill();
            return Posted::Excess(bytes);
        }
        mail.waiting.push_back((message, on));
        let (count, bytes) = mail.total();
        drop(mail);
        self.handle.set_mail(count, bytes);
        self.handle.ring();
        Posted::Waits
    }

    /// Takes messages of about `most` bytes, the oldest first. Rings again for those that stay.
    pub fn take(&self, most: usize) -> Vec<Reply> {
        let mut mail = self.mail.lock();
        let (mut taken, mut messages) = (0, Vec::new());
        while taken < most
            && let Some((message, on)) = mail.waiting.pop_front()
        {
            let size = size(&message);
            taken += size;
            let held = mail.held(on);
            held.bytes = held.bytes.saturating_sub(size);
            messages.push(message);
        }
        let (count, bytes) = mail.total();
        drop(mail);
        self.handle.set_mail(count, bytes);
        if count > 0 {
            self.handle.ring();
        }
        messages
    }

    /// Nothing is taken any more: the connection has ended.
    pub fn close(&self) {
        *self.mail.lock() = Mail { closed: true, ..Mail::default() };
        self.handle.set_mail(0, 0);
    }
}

impl Mail {
    fn held(&mut self, on: Account) -> &mut Held {
        match on {
            Account::Own => &mut self.own,
            Account::Others => &mut self.others,
        }
    }

    /// Messages and bytes.
    fn total(&self) -> (usize, usize) {
        (self.waiting.len(), self.own.bytes + self.others.bytes)
    }
}

impl Held {
    fn exceeds(&mut self, limit: &OutputLimit, now: Duration) -> bool {
        if limit.soft == 0 || self.bytes <= limit.soft {
            self.above = None;
        }
        let above = limit.soft > 0 && self.bytes > limit.soft;
        let since = above.then(|| *self.above.get_or_insert(now));
        let too_long =
            since.is_some_and(|t| now.saturating_sub(t) > Duration::from_secs(limit.seconds.into()));
        too_long || (limit.hard > 0 && self.bytes > limit.hard)
    }
}

/// Bytes that a message holds while it waits.
fn size(message: &Reply) -> usize {
    message.weight() + ITEM
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Reply {
        Reply::text("x".repeat(len))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn mail_is_taken_in_order_and_in_pieces() {
        let mailbox = Mailbox::new(Arc::default());
        let none = OutputLimit::default();
        let all: Vec<Reply> = (0..10).map(Reply::Int).collect();
        for message in &all {
            assert_eq!(mailbox.post(message.clone(), Account::Own, &none, at(0)), Posted::Waits);
        }
        assert!(mailbox.client().take_ring());
        let mut taken = mailbox.take(200);
        assert!((1..10).contains(&taken.len()), "{}", taken.len());
        assert!(mailbox.client().take_ring(), "there is more");
        taken.extend(mailbox.take(usize::MAX));
        assert_eq!(taken, all);
        assert!(!mailbox.client().take_ring());
    }

    #[test]
    fn who_exceeds_the_hard_limit_is_closed_at_once() {
        let mailbox = Mailbox::new(Arc::default());
        let limit = OutputLimit { hard: 1000, soft: 0, seconds: 0 };
        assert_eq!(mailbox.post(message(500), Account::Own, &limit, at(0)), Posted::Waits);
        assert!(matches!(mailbox.post(message(500), Account::Own, &limit, at(0)), Posted::Excess(1000..)));
        assert!(mailbox.client().is_killed());
        assert_eq!(mailbox.post(message(1), Account::Own, &limit, at(0)), Posted::Gone);
        assert!(mailbox.take(usize::MAX).is_empty());
    }

    #[test]
    fn who_stays_above_the_soft_limit_is_closed_after_its_time() {
        let mailbox = Mailbox::new(Arc::default());
        let limit = OutputLimit { hard: 0, soft: 1000, seconds: 10 };
        let post = |now| mailbox.post(message(600), Account::Own, &limit, at(now));
        assert_eq!([0, 5, 15].map(post), [Posted::Waits; 3]);
        assert_eq!(mailbox.take(usize::MAX).len(), 3);
        assert_eq!([16, 17, 26].map(post), [Posted::Waits; 3], "counted anew");
        assert!(matches!(post(28), Posted::Excess(_)));
    }

    #[test]
    fn what_others_redirect_counts_apart() {
        let mailbox = Mailbox::new(Arc::default());
        let limit = OutputLimit { hard: 1000, soft: 0, seconds: 0 };
        let post = |on| mailbox.post(message(500), on, &limit, at(0));
        assert_eq!(post(Account::Others), Posted::Waits);
        assert!(matches!(post(Account::Others), Posted::Excess(1000..)));
        assert!(!mailbox.client().is_killed(), "it has not asked for that");
        assert_eq!(post(Account::Own), Posted::Waits, "its own messages have their own room");
        assert_eq!(mailbox.take(usize::MAX).len(), 2);
        assert_eq!(post(Account::Others), Posted::Waits, "room again");
    }
}
