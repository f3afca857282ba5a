//! Delivers the messages of an embedded store to this server's subscribers, in commit order.
//!
//! A transaction that publishes commits in a turn ([`Subscribers::turn`]) that lasts until it has handed its
//! messages over; so does a unit that publishes without a commit what it has read. So whoever has seen a
//! change and publishes about it is heard after that change, and a client that subscribes then does not
//! receive it. Slow work is done before the turn ([`Publication`]) or after it, because many messages to many
//! subscribers take longer than others should wait. If nothing is being delivered, the caller begins at once,
//! and a task delivers the rest at the first pause ([`Pace`]).
//!
//! A unit is answered once its messages have reached all receivers, so a client that sends a request after
//! that answer gets the messages first. But the unit does not wait for other units' messages, even in the
//! same transaction: with few and short messages ([`FEW`], [`SHORT`]) it waits at most [`PATIENCE`]. A client
//! that unsubscribes first gets what was handed over before.
//!
//! Waiting messages are held in memory. Units that do not wait for theirs may hold about [`MOST`] bytes;
//! beyond that, each of them waits too. All units together may hold about [`FULL`]; beyond that, a unit that
//! hands over keeps its turn until there is room (backpressure).
//!
//! [`Subscribers::turn`]: super::subscribers::Subscribers::turn

use super::Server;
use super::pace::Pace;
use crate::env;
use crate::error::StoreResult;
use crate::keyspace::cluster::bus;
use crate::keyspace::cluster::messages::Message;
use crate::store::{Tx, Version};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{MutexGuard, Notify, oneshot};

/// The most messages of a unit that waits only briefly.
const FEW: usize = 64;
/// The most bytes of those messages.
const SHORT: usize = 64 << 10;
/// How long such a unit waits while others publish a lot.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bytes published by units that do not wait, beyond which they do.
const MOST: usize = 8 << 20;
/// Bytes published by all units, beyond which nothing more is handed over.
const FULL: usize = 256 << 20;
/// Overhead of a message in bytes.
const MESSAGE: usize = 128;
/// Bytes delivered after which waiting units check whether there is room.
const PIECE: usize = 1 << 20;

fn weight(message: &Message) -> usize {
    message.size() + MESSAGE
}

/// Messages to publish, sorted before the turn.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// Invalidations for caches.
    changes: Vec<Message>,
    /// Messages for subscribers.
    others: Vec<Message>,
    weight: Weight,
    /// For each of the units that publish them, in order: whether it waits only briefly.
    little: Vec<bool>,
}

impl Publication {
    /// Messages of several units: each unit has the given number of them, in order.
    pub(crate) fn new(messages: Vec<Message>, units: impl IntoIterator<Item = usize>) -> Self {
        let mut publication = Publication::default();
        if messages.is_empty() {
            return publication; // most units publish nothing
        }
        let mut messages = messages.into_iter();
        // Messages that no unit accounts for count as one more unit's; there should be none.
        for count_of_unit in units.into_iter().chain([usize::MAX]) {
            let (mut count, mut bytes) = (0, 0);
            for message in messages.by_ref().take(count_of_unit) {
                if message.is_of_tracking() {
                    publication.changes.push(message);
                    continue;
                }
                (count, bytes) = (count + 1, bytes + weight(&message));
                publication.others.push(message);
            }
            let is_little = count <= FEW && bytes <= SHORT;
            publication.little.push(is_little);
            publication.weight.all += bytes;
            publication.weight.unwaited += if is_little { bytes } else { 0 };
        }
        publication
    }

    /// The messages of one unit.
    pub(crate) fn of_one(messages: Vec<Message>) -> Self {
        let count = messages.len();
        Publication::new(messages, [count])
    }

    /// Writes them in the transaction of a shared store.
    pub(crate) fn write(&self, tx: &Tx) -> StoreResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        bus::write(tx, self.changes.iter().chain(&self.others))
    }

    /// Whether there are no messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.others.is_empty()
    }
}

/// The messages of one commit.
#[derive(Debug)]
struct Handed {
    /// Its place in the order; the first is 1.
    number: Version,
    messages: Vec<Message>,
    weight: Weight,
    published: oneshot::Sender<()>,
}

/// Memory of messages, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Weight {
    all: usize,
    /// Those published by units that do not wait for them.
    unwaited: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Handed>,
    /// Memory of messages that wait or are being delivered.
    weight: Weight,
    /// The number given last, and the number delivered last.
    last: Version,
    done: Version,
    /// A task is delivering and will check here again.
    publishing: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    queue: Mutex<Queue>,
    /// Signals that messages were delivered.
    went: Notify,
}

impl Publisher {
    /// The number of the last hand-over.
    pub(super) fn last(&self) -> Version {
        self.queue.lock().last
    }

    /// Hands messages over; also returns whether the caller has to deliver them.
    fn hand_over(&self, publication: Publication) -> (Delivery, bool) {
        let (published, receiver) = oneshot::channel();
        let Publication { others: messages, weight, little, .. } = publication;
        let mut queue = self.queue.lock();
        queue.last += 1;
        let is_short = queue.weight.unwaited < MOST;
        queue.weight.all += weight.all;
        queue.weight.unwaited += weight.unwaited;
        let number = queue.last;
        queue.waiting.push_back(Handed { number, messages, weight, published });
        let begins = !std::mem::replace(&mut queue.publishing, true);
        (Delivery { receiver: Some(receiver), little, is_short }, begins)
    }

    /// The next messages to deliver; None if none are left.
    fn next(&self) -> Option<Handed> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front();
        queue.publishing = next.is_some();
        next
    }

    /// Records that messages of this weight were delivered; with a number, that the whole hand-over was.
    fn passed(&self, weight: Weight, number: Option<Version>) {
        let mut queue = self.queue.lock();
        queue.weight.all = queue.weight.all.saturating_sub(weight.all);
        queue.weight.unwaited = queue.weight.unwaited.saturating_sub(weight.unwaited);
        queue.done = number.unwrap_or(queue.done);
        drop(queue);
        self.went.notify_waiters();
    }

    async fn until(&self, is_true: impl Fn(&Queue) -> bool) {
        env::until(&self.went, || is_true(&self.queue.lock())).await;
    }

    /// Waits until other units may hand over.
    async fn room(&self) {
        self.until(|queue| queue.weight.all < FULL).await;
    }

    /// Waits until everything handed over so far has been delivered.
    pub(super) async fn caught_up(&self) {
        let last = self.last();
        self.until(|queue| queue.done >= last).await;
    }
}

/// Messages on their way to their receivers.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// None if nothing had to be delivered.
    receiver: Option<oneshot::Receiver<()>>,
    /// See [`Publication::little`].
    little: Vec<bool>,
    /// Little was waiting ahead of them.
    is_short: bool,
}

impl Delivery {
    /// Whether they have arrived.
    pub(crate) fn is_over(&mut self) -> bool {
        use oneshot::error::TryRecvError::Empty;
        self.receiver.take_if(|r| !matches!(r.try_recv(), Err(Empty)));
        self.receiver.is_none()
    }

    /// Whether unit `n` of those that published them waits only briefly.
    pub(crate) fn is_little(&self, n: usize) -> bool {
        self.little.get(n).copied().unwrap_or(true)
    }

    /// Waits as long as a unit with few messages does.
    pub(crate) async fn a_moment(&mut self) {
        if !self.is_short {
            self.arrival().await;
        } else if !self.is_over() {
            let _ = tokio::time::timeout(PATIENCE, self.arrival()).await;
        }
    }

    /// Waits until they have arrived.
    pub(crate) async fn arrival(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            let _ = receiver.await;
            self.receiver = None;
        }
    }

    /// Waits as long as their single unit does.
    pub(crate) async fn wait(mut self) {
        if self.is_little(0) { self.a_moment().await } else { self.arrival().await }
    }
}

impl Server {
    /// The turn in which they are committed and handed over; None if none is needed, because no subscriber is
    /// concerned or because the store delivers them.
    pub(crate) async fn turn(&self, publication: &Publication) -> Option<MutexGuard<'_, ()>> {
        if publication.others.is_empty() || self.space.bus.is_shared() {
            return None;
        }
        Some(self.subscribers.turn().await)
    }

    /// Prepares to publish before a commit: on a shared store the messages are written in the transaction; on
    /// an embedded store the transaction waits for its turn, which it holds until it has handed them over.
    pub(crate) async fn take_turn(
        &self,
        tx: &Tx,
        publication: &Publication,
    ) -> StoreResult<Option<MutexGuard<'_, ()>>> {
        if self.space.bus.is_shared() {
            return publication.write(tx).map(|()| None);
        }
        Ok(self.turn(publication).await)
    }

    /// Publishes what was committed in a turn, and ends the turn: the messages are on their way to all
    /// servers, or handed over here.
    pub(crate) async fn publish_in(
        self: &Arc<Self>,
        publication: Publication,
        turn: Option<MutexGuard<'_, ()>>,
    ) -> Delivery {
        if self.space.bus.is_shared() {
            if !publication.is_empty() {
                self.space.bus.ring();
            }
            return Delivery::default();
        }
        // Invalidations first: many subscribers take a while, and caches are stale meanwhile.
        if !publication.changes.is_empty() {
            self.invalidate(&publication.changes.iter().map(|change| (0, change)).collect::<Vec<_>>()).await;
        }
        if publication.others.is_empty() || self.subscribers.is_empty() {
            return Delivery::default();
        }
        let (published, begins) = self.subscribers.publisher.hand_over(publication);
        if !begins {
            self.subscribers.publisher.room().await;
        }
        drop(turn);
        if begins {
            let mut publisher = Box::pin(publish_waiting(self.clone()));
            if poll_fn(|cx| Poll::Ready(publisher.as_mut().poll(cx))).await.is_pending() {
                tokio::spawn(publisher);
            }
        }
        published
    }

    /// Like [`Server::published`], for a unit that commits nothing on an embedded store.
    pub(crate) async fn publish(self: &Arc<Self>, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let publication = Publication::of_one(messages);
        let turn = self.turn(&publication).await;
        self.publish_in(publication, turn).await.wait().await;
    }
}

/// Delivers the waiting messages, and those that arrive meanwhile.
async fn publish_waiting(server: Arc<Server>) {
    let (publisher, mut pace) = (&server.subscribers.publisher, Pace::default());
    while let Some(Handed { number, messages, mut weight, published }) = publisher.next() {
        let mut piece = 0;
        for message in messages {
            server.deliver_one(number, &message, &mut pace).await;
            piece += self::weight(&message);
            if piece >= PIECE {
                weight.all = weight.all.saturating_sub(piece);
                publisher.passed(Weight { all: std::mem::take(&mut piece), unwaited: 0 }, None);
            }
        }
        publisher.passed(weight, Some(number));
        let _ = published.send(()); // the receiver may have given up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(bytes: usize) -> Message {
        Message::Channel(Bytes::from_static(b"c"), Bytes::from(vec![b'x'; bytes]))
    }

    impl Publisher {
        /// Hands over the messages of one unit.
        fn hand(&self, messages: Vec<Message>) -> (Delivery, bool) {
            self.hand_over(Publication::of_one(messages))
        }

        /// Delivers the next messages. Returns their number.
        fn publish_next(&self) -> Option<(Version, usize)> {
            let Handed { number, messages, weight, published } = self.next()?;
            self.passed(weight, Some(number));
            let _ = published.send(());
            Some((number, messages.len()))
        }
    }

    #[test]
    fn one_caller_publishes_for_all_in_order() {
        let publisher = Publisher::default();
        let begin = [(); 3].map(|()| publisher.hand(vec![message(1)]).1);
        assert_eq!(
            (begin, publisher.last()),
            ([true, false, false], 3),
            "the first caller publishes for all"
        );
        for number in 1..=3 {
            assert_eq!(publisher.publish_next(), Some((number, 1)));
        }
        assert_eq!(publisher.publish_next(), None);
        assert_eq!(publisher.queue.lock().weight, Weight::default());
        assert!(publisher.hand(vec![message(1)]).1, "nobody publishes any more");
    }

    /// How long a caller waits for a delivery that never arrives; None: forever.
    async fn waited(delivery: Delivery) -> Option<Duration> {
        let since = tokio::time::Instant::now();
        tokio::time::timeout(PATIENCE * 50, delivery.wait()).await.ok().map(|()| since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn few_messages_are_awaited_briefly_unless_the_queue_is_long() {
        let publisher = Publisher::default();
        let handed = |messages| waited(publisher.hand(messages).0);
        let moment = handed(vec![message(1); FEW]).await.unwrap();
        assert!((PATIENCE..PATIENCE * 2).contains(&moment), "{moment:?}");
        assert_eq!(handed(vec![message(1); FEW + 1]).await, None, "many messages");
        assert_eq!(handed(vec![message(2 * MOST)]).await, None, "a long message");
        assert!(handed(vec![message(1)]).await.is_some(), "what others wait for does not count");
        let short = SHORT - MESSAGE - 1;
        for _ in 0..MOST / SHORT {
            assert!(handed(vec![message(short)]).await.is_some(), "the queue is short");
        }
        assert_eq!(handed(vec![message(1)]).await, None, "the queue is long");
    }

    #[tokio::test]
    async fn a_delivery_ends_when_all_messages_are_published() {
        let publisher = Publisher::default();
        let [(mut first, _), (mut second, _)] = [(); 2].map(|()| publisher.hand(vec![message(1); FEW + 1]));
        assert!(!first.is_over() && !second.is_over());
        publisher.publish_next();
        assert!(first.is_over() && !second.is_over());
        first.wait().await;
        drop(publisher.next());
        assert!(second.is_over(), "the server stops");
        second.wait().await;
        assert!(Delivery::default().is_over());
    }

    #[test]
    fn each_unit_counts_by_itself() {
        let one = weight(&message(1));
        let weigh = |units: &[usize]| {
            let Publication { weight, little, .. } =
                Publication::new(vec![message(1); FEW + 3], units.iter().copied());
            (weight.all / one, weight.unwaited / one, little)
        };
        assert_eq!(weigh(&[1, FEW + 1, 1]), (FEW + 3, 2, vec![true, false, true, true]));
        assert_eq!(weigh(&[FEW, 0, 3]), (FEW + 3, FEW + 3, vec![true; 4]));
        assert_eq!(weigh(&[FEW + 3]), (FEW + 3, 0, vec![false, true]));
        assert_eq!(weigh(&[]), (FEW + 3, 0, vec![false]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_takes_no_more_messages() {
        let publisher = Publisher::default();
        let has_room = || async { tokio::time::timeout(PATIENCE, publisher.room()).await.is_ok() };
        publisher.hand(vec![message(FULL / FEW / 2); FEW]);
        assert!(has_room().await);
        publisher.hand(vec![message(FULL / FEW); FEW]);
        assert!(!has_room().await);
        publisher.publish_next();
        assert!(!has_room().await);
        let (room, ()) = tokio::join!(has_room(), async {
            // Even while it is being delivered.
            publisher.passed(Weight { all: FULL / 4, unwaited: 0 }, None);
        });
        assert!(room);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_handed_over_before_are_waited_for() {
        let publisher = Publisher::default();
        let is_over = || async { tokio::time::timeout(PATIENCE, publisher.caught_up()).await.is_ok() };
        assert!(is_over().await, "there was nothing");
        publisher.hand(vec![message(1)]);
        publisher.hand(vec![message(1)]);
        publisher.publish_next();
        assert!(!is_over().await);
        let (over, ()) = tokio::join!(is_over(), async {
            publisher.publish_next();
            publisher.hand(vec![message(1)]);
        });
        assert!(over, "what comes later is not waited for");
    }
}
