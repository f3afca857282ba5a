//! Messages to a client that are not replies: channel messages, invalidations, lines of MONITOR.
//!
//! * Any task may post at any time without waiting ([`Server::post`](super::Server::post)). This wakes the
//!   client's connection, which writes the messages in order, between replies and never inside one.
//! * Messages posted while the client's own commands run come after their replies (as in Redis since 7.2). So
//!   a reply read before a change is never sent after the invalidation for that change.
//! * Messages posted before the client's commands run come before their replies. So a client that sends a
//!   request after another client has had its answer first gets the messages about what this server's clients
//!   changed before that.
//! * Mailboxes are bounded: a client that does not read is closed once `client-output-buffer-limit pubsub` is
//!   exceeded, whatever its class, because no publisher can be made to wait for it. Its messages are dropped
//!   at once.
//! * Messages redirected from another client (CLIENT TRACKING ... REDIRECT) are accounted to that client,
//!   with the same bounds: a message beyond them is not accepted, and the client that asked for it is closed.

use super::reply::Reply;
use crate::config::OutputLimit;
use crate::server::clients::ClientHandle;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Overhead of a message in bytes.
const ITEM: usize = 64;

/// The result of posting a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It waits for the connection.
    Waits,
    /// The client has left, or is leaving.
    Gone,
    /// It exceeded the limit, with this many bytes waiting: the client is being closed.
    Excess(usize),
}

/// The account on which a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// The client's own account.
    Own,
    /// The account of other clients that redirect to it.
    Others,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Monotonic time since which the account has been above the soft limit.
    above: Option<Duration>,
}

#[derive(Debug, Default)]
struct Mail {
    waiting: VecDeque<(Reply, Account)>,
    own: Held,
    others: Held,
    closed: bool,
}

/// The mailbox of one client.
#[derive(Debug)]
pub struct Mailbox {
    handle: Arc<ClientHandle>,
    mail: Mutex<Mail>,
}

impl Mailbox {
    /// The mailbox of the client of `handle`.
    pub(crate) fn new(handle: Arc<ClientHandle>) -> Self {
        Mailbox { handle, mail: Mutex::default() }
    }

    /// The client.
    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// Posts a message at monotonic time `now`. If the client's own account exceeds its limit, the client is
    /// closed.
    pub(crate) fn post(&self, message: Reply, on: Account, limit: &OutputLimit, now: Duration) -> Posted {
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

    /// Takes about `most` bytes of messages, the oldest first. Rings again if some remain.
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

    /// Rejects all further messages: the connection has ended.
    pub(crate) fn close(&self) {
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

    /// The number of messages and their bytes.
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

/// Bytes of memory that a message takes while it waits.
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
