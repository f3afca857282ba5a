//! Messages of an embedded store on their way to this server's subscribers, who hear them in the order of commits.
//!
//! Whoever has committed hands over what it tells, in its turn ([`Subscribers::turn`]), and then lets others commit: many messages to
//! many subscribers take longer than anybody else should wait. Whoever finds nobody telling begins at once, and a task does
//! what is left at the first pause ([`Pace`]).
//!
//! A unit is answered once its messages are with all receivers, so who asks after that answer is told first. But it does not wait for
//! what others tell: with few messages ([`FEW`]) it waits for [`PATIENCE`] at most, unless more than [`MOST`] wait in memory.
//!
//! [`Subscribers::turn`]: super::subscribers::Subscribers::turn

use super::cx::Server;
use super::pace::Pace;
use crate::keyspace::messages::Message;
use crate::store::Version;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages of a unit that does not wait for long.
const FEW: usize = 64;
/// How long it waits, where others tell much.
const PATIENCE: Duration = Duration::from_millis(20);
/// Messages beyond which everybody waits for his own.
const MOST: usize = 1 << 16;

/// What one commit tells.
#[derive(Debug)]
struct Handed {
    /// Its place in the order; the first is 1.
    number: Version,
    messages: Vec<Message>,
    told: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Handed>,
    /// Messages in `waiting`, and of what is being told.
    messages: usize,
    /// The number given last.
    last: Version,
    /// Somebody tells, and will look here again.
    telling: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Telling(Mutex<Queue>);

impl Telling {
    /// The number of what was handed over last.
    pub(super) fn last(&self) -> Version {
        self.0.lock().last
    }

    /// Returns also whether the caller is the one who has to tell it.
    fn hand_over(&self, messages: Vec<Message>, units: usize) -> (Delivery, bool) {
        let (told, receiver) = oneshot::channel();
        let mut queue = self.0.lock();
        queue.last += 1;
        let few = messages.len() <= FEW.saturating_mul(units) && queue.messages < MOST;
        queue.messages += messages.len();
        let number = queue.last;
        queue.waiting.push_back(Handed { number, messages, told });
        let begins = !std::mem::replace(&mut queue.telling, true);
        (Delivery { receiver: Some(receiver), patience: few.then_some(PATIENCE) }, begins)
    }

    /// What is to be told next, by whoever has told `before` messages; None where that was all.
    fn next(&self, before: usize) -> Option<Handed> {
        let mut queue = self.0.lock();
        queue.messages -= before;
        let next = queue.waiting.pop_front();
        queue.telling = next.is_some();
        next
    }
}

/// The way of messages to their receivers.
#[derive(Debug, Default)]
pub struct Delivery {
    /// None: there was nothing to be told.
    receiver: Option<oneshot::Receiver<()>>,
    /// For how long it is worth waiting; None: to the end.
    patience: Option<Duration>,
}

impl Delivery {
    /// Whether [`Delivery::wait`] would return at once.
    pub fn is_over(&mut self) -> bool {
        use oneshot::error::TryRecvError::Empty;
        self.receiver.as_mut().is_none_or(|r| !matches!(r.try_recv(), Err(Empty)))
    }

    /// Waits as long as a unit waits for its messages.
    pub async fn wait(mut self) {
        if self.is_over() {
            return;
        }
        let Some(receiver) = self.receiver else { return };
        match self.patience {
            Some(patience) => drop(tokio::time::timeout(patience, receiver).await),
            None => drop(receiver.await),
        }
    }
}

impl Server {
    /// What `units` told together has been committed: it is on its way to all servers, or handed over here. To be called in the turn.
    pub async fn told(self: &Arc<Self>, messages: Vec<Message>, units: usize) -> Delivery {
        if messages.is_empty() {
            return Delivery::default();
        }
        if self.space.messages.is_shared() {
            self.space.messages.ring();
            return Delivery::default();
        }
        let (changes, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(Message::is_of_tracking);
        // First: many subscribers take a while, and a cache is stale meanwhile.
        self.invalidate(&changes.iter().map(|change| (0, change)).collect::<Vec<_>>()).await;
        if others.is_empty() || self.subscribers.is_empty() {
            return Delivery::default();
        }
        let (told, begins) = self.subscribers.telling.hand_over(others, units);
        if begins {
            let mut telling = Box::pin(tell(self.clone()));
            if poll_fn(|cx| Poll::Ready(telling.as_mut().poll(cx))).await.is_pending() {
                tokio::spawn(telling);
            }
        }
        told
    }
}

/// Tells what is there, and what comes meanwhile.
async fn tell(server: Arc<Server>) {
    let (mut pace, mut before) = (Pace::default(), 0);
    while let Some(handed) = server.subscribers.telling.next(before) {
        for message in &handed.messages {
            server.deliver_one(handed.number, message, &mut pace).await;
        }
        before = handed.messages.len();
        let _ = handed.told.send(()); // nobody waits any more
    }
}
