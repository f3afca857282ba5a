//! Messages of an embedded store on their way to this server's subscribers, who hear them in the order of commits.
//!
//! Whoever has committed hands over what it tells, in its turn ([`Subscribers::turn`]), and then lets others commit: many messages to
//! many subscribers take longer than anybody else should wait. Whoever finds nobody telling begins at once, and a task does
//! what is left at the first pause ([`Pace`]).
//!
//! A unit is answered once its messages are with all receivers, so who asks after that answer is told first. But it does not wait for
//! what others tell, be it in the same transaction: with few messages ([`FEW`]) it waits for [`PATIENCE`] at most.
//!
//! What waits is held in memory. Of units that do not wait for it that is about [`MOST`] bytes: beyond, each of them waits for its own
//! messages too. Of all units together it is about [`FULL`]: beyond, who commits what it tells keeps its turn until there is room.
//!
//! [`Subscribers::turn`]: super::subscribers::Subscribers::turn

use super::cx::Server;
use super::pace::Pace;
use crate::keyspace::messages::Message;
use crate::store::Version;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Messages of a unit that does not wait for long.
const FEW: usize = 64;
/// How long it waits, where others tell much.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bytes told by units that do not wait, beyond which they do.
const MOST: usize = 8 << 20;
/// Bytes told by all, beyond which nobody hands over more. One transaction tells about twice its own size.
const FULL: usize = 256 << 20;
/// What a message takes beside its own bytes.
const MESSAGE: usize = 128;

/// What one commit tells.
#[derive(Debug)]
struct Handed {
    /// Its place in the order; the first is 1.
    number: Version,
    messages: Vec<Message>,
    weight: Weight,
    told: oneshot::Sender<()>,
}

/// What messages take in memory, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Weight {
    all: usize,
    /// Those told by units that do not wait for them.
    unwaited: usize,
}

impl Weight {
    /// Of what units tell, each so many messages of them, in order.
    fn of(mut messages: &[Message], units: impl IntoIterator<Item = usize>) -> Self {
        let mut weight = Weight::default();
        for told in units {
            let (own, others) = messages.split_at(told.min(messages.len()));
            messages = others;
            let own = own.iter().filter(|message| !message.is_of_tracking());
            let bytes: usize = own.map(|message| message.size() + MESSAGE).sum();
            weight.all += bytes;
            weight.unwaited += if Delivery::is_little(told) { bytes } else { 0 };
        }
        weight
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Handed>,
    /// Of what waits, and of what is being told.
    weight: Weight,
    /// The number given last.
    last: Version,
    /// Somebody tells, and will look here again.
    telling: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Telling {
    queue: Mutex<Queue>,
    /// Something has been told.
    went: Notify,
}

impl Telling {
    /// The number of what was handed over last.
    pub(super) fn last(&self) -> Version {
        self.queue.lock().last
    }

    /// Returns also whether the caller is the one who has to tell it.
    fn hand_over(&self, messages: Vec<Message>, weight: Weight) -> (Delivery, bool) {
        let (told, receiver) = oneshot::channel();
        let count = messages.len();
        let mut queue = self.queue.lock();
        queue.last += 1;
        let is_short = queue.weight.unwaited < MOST;
        queue.weight.all += weight.all;
        queue.weight.unwaited += weight.unwaited;
        let number = queue.last;
        queue.waiting.push_back(Handed { number, messages, weight, told });
        let begins = !std::mem::replace(&mut queue.telling, true);
        (Delivery { receiver: Some(receiver), count, is_short }, begins)
    }

    /// What is to be told next, by whoever has told messages of that weight; None where that was all.
    fn next(&self, before: Weight) -> Option<Handed> {
        let mut queue = self.queue.lock();
        queue.weight.all = queue.weight.all.saturating_sub(before.all);
        queue.weight.unwaited = queue.weight.unwaited.saturating_sub(before.unwaited);
        let next = queue.waiting.pop_front();
        queue.telling = next.is_some();
        drop(queue);
        self.went.notify_waiters();
        next
    }

    /// Waits until others may hand over what they tell.
    async fn room(&self) {
        loop {
            let mut went = pin!(self.went.notified());
            went.as_mut().enable();
            if self.queue.lock().weight.all < FULL {
                return;
            }
            went.await;
        }
    }
}

/// The way of messages to their receivers.
#[derive(Debug, Default)]
pub struct Delivery {
    /// None: there was nothing to be told.
    receiver: Option<oneshot::Receiver<()>>,
    count: usize,
    /// Little waited in front of them.
    is_short: bool,
}

impl Delivery {
    /// Whether they have arrived.
    pub fn is_over(&mut self) -> bool {
        use oneshot::error::TryRecvError::Empty;
        self.receiver.take_if(|r| !matches!(r.try_recv(), Err(Empty)));
        self.receiver.is_none()
    }

    /// Whether who tells so many messages of them waits for a moment only.
    pub fn is_little(count: usize) -> bool {
        count <= FEW
    }

    /// Waits as long as one does who tells little.
    pub async fn a_moment(&mut self) {
        if !self.is_short {
            self.arrival().await;
        } else if !self.is_over() {
            let _ = tokio::time::timeout(PATIENCE, self.arrival()).await;
        }
    }

    /// Waits until they have arrived.
    pub async fn arrival(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            let _ = receiver.await;
            self.receiver = None;
        }
    }

    /// Waits as long as a unit does that tells them all.
    pub async fn wait(mut self) {
        if Self::is_little(self.count) { self.a_moment().await } else { self.arrival().await }
    }
}

impl Server {
    /// What one unit tells has been committed: it is on its way to all servers, or handed over here. To be called in the turn.
    pub async fn told(self: &Arc<Self>, messages: Vec<Message>) -> Delivery {
        let count = messages.len();
        self.told_by(messages, [count]).await
    }

    /// As [`Server::told`], of a transaction of several units: how many of the messages each of them tells, in order.
    pub async fn told_by(
        self: &Arc<Self>,
        messages: Vec<Message>,
        units: impl IntoIterator<Item = usize>,
    ) -> Delivery {
        if messages.is_empty() {
            return Delivery::default();
        }
        if self.space.messages.is_shared() {
            self.space.messages.ring();
            return Delivery::default();
        }
        let weight = Weight::of(&messages, units);
        let (changes, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(Message::is_of_tracking);
        // First: many subscribers take a while, and a cache is stale meanwhile.
        self.invalidate(&changes.iter().map(|change| (0, change)).collect::<Vec<_>>()).await;
        if others.is_empty() || self.subscribers.is_empty() {
            return Delivery::default();
        }
        let (told, begins) = self.subscribers.telling.hand_over(others, weight);
        if begins {
            let mut telling = Box::pin(tell(self.clone()));
            if poll_fn(|cx| Poll::Ready(telling.as_mut().poll(cx))).await.is_pending() {
                tokio::spawn(telling);
            }
        }
        self.subscribers.telling.room().await;
        told
    }
}

/// Tells what is there, and what comes meanwhile.
async fn tell(server: Arc<Server>) {
    let (mut pace, mut before) = (Pace::default(), Weight::default());
    while let Some(handed) = server.subscribers.telling.next(before) {
        for message in &handed.messages {
            server.deliver_one(handed.number, message, &mut pace).await;
        }
        before = handed.weight;
        let _ = handed.told.send(()); // nobody waits any more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(bytes: usize) -> Message {
        Message::Channel(Bytes::from_static(b"c"), Bytes::from(vec![b'x'; bytes]))
    }

    impl Telling {
        /// Hands over what one unit tells.
        fn hand(&self, messages: Vec<Message>) -> (Delivery, bool) {
            let weight = Weight::of(&messages, [messages.len()]);
            self.hand_over(messages, weight)
        }
    }

    #[test]
    fn one_tells_and_all_in_their_order() {
        let telling = Telling::default();
        let begin = [(); 3].map(|()| telling.hand(vec![message(1)]).1);
        assert_eq!((begin, telling.last()), ([true, false, false], 3), "who comes first tells for all");
        let mut before = Weight::default();
        for number in 1..=3 {
            let handed = telling.next(before).unwrap();
            assert_eq!((handed.number, handed.messages.len()), (number, 1));
            before = handed.weight;
        }
        assert!(telling.next(before).is_none());
        assert_eq!(telling.queue.lock().weight, Weight::default());
        assert!(telling.hand(vec![message(1)]).1, "nobody tells any more");
    }

    /// How long somebody waits for a delivery that never arrives; None: for ever.
    async fn waited(delivery: Delivery) -> Option<Duration> {
        let since = tokio::time::Instant::now();
        tokio::time::timeout(PATIENCE * 50, delivery.wait()).await.ok().map(|()| since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_tells_little_waits_for_a_moment_unless_much_waits() {
        let telling = Telling::default();
        let handed = |messages| waited(telling.hand(messages).0);
        let moment = handed(vec![message(1); FEW]).await.unwrap();
        assert!((PATIENCE..PATIENCE * 2).contains(&moment), "{moment:?}");
        assert_eq!(handed(vec![message(1); FEW + 1]).await, None, "it tells much");
        assert_eq!(handed(vec![message(MOST / FEW); FEW + 1]).await, None);
        assert!(handed(vec![message(1)]).await.is_some(), "what others wait for does not count");
        assert!(handed(vec![message(MOST)]).await.is_some(), "it finds the queue short");
        assert_eq!(handed(vec![message(1)]).await, None, "the queue is long");
    }

    #[tokio::test]
    async fn a_delivery_ends_when_all_has_been_told() {
        let telling = Telling::default();
        let [(mut first, _), (mut second, _)] = [(); 2].map(|()| telling.hand(vec![message(1); FEW + 1]));
        assert!(!first.is_over() && !second.is_over());
        let _ = telling.next(Weight::default()).unwrap().told.send(());
        assert!(first.is_over() && !second.is_over());
        first.wait().await;
        drop(telling.next(Weight::default()));
        assert!(second.is_over(), "the server stops");
        second.wait().await;
        assert!(Delivery::default().is_over());
    }

    #[test]
    fn each_unit_counts_by_itself() {
        let much = vec![message(1); FEW + 3];
        let one = message(1).size() + MESSAGE;
        let weight = |all, unwaited| Weight { all: all * one, unwaited: unwaited * one };
        assert_eq!(Weight::of(&much, [1, FEW + 1, 1]), weight(FEW + 3, 2));
        assert_eq!(Weight::of(&much, [FEW, 3]), weight(FEW + 3, FEW + 3));
        assert_eq!(Weight::of(&much, [FEW + 3]), weight(FEW + 3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn where_too_much_waits_nobody_hands_over_more() {
        let telling = Telling::default();
        telling.hand(vec![message(FULL / FEW / 2); FEW]);
        telling.room().await;
        telling.hand(vec![message(FULL / FEW); 2 * FEW]);
        let (first, room) = tokio::join!(
            async { telling.next(Weight::default()).unwrap().weight },
            tokio::time::timeout(PATIENCE, telling.room()),
        );
        assert!(room.is_err(), "too much waits");
        let second = telling.next(first).unwrap().weight;
        assert!(tokio::time::timeout(PATIENCE, telling.room()).await.is_err());
        let went = async { telling.next(second).is_none() };
        assert_eq!(
            tokio::join!(biased; tokio::time::timeout(PATIENCE, telling.room()), went),
            (Ok(()), true)
        );
    }
}
