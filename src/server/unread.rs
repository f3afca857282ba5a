//! The parts of a reply that are read from the store while the client receives it: members known only by id,
//! what large hashes, lists and sorted sets hold, and long strings.

use super::Server;
use crate::error::{Error, Result};
use crate::keyspace::packed::Packed;
use crate::lifecycle::dump::Payload;
use crate::server::clients::ClientHandle;
use crate::types::items::Items;
use crate::types::set::stream::{Members, Pieces};
use crate::types::string::stream::Long;
use crate::types::string::walk::Stretch;
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The pause before retrying a store that did not answer.
const PAUSE: Duration = Duration::from_millis(20);

/// Bulk strings, some of which have yet to be read.
#[derive(Debug)]
pub(crate) struct Strings {
    /// Shared only if nothing is unread.
    read: Arc<Packed>,
    /// The number of those that were taken.
    taken: usize,
    unread: Option<Source>,
}

/// Where the next strings are read.
#[derive(Debug)]
enum Source {
    Members(Pieces),
    Items(Items),
}

impl From<Arc<Packed>> for Strings {
    fn from(read: Arc<Packed>) -> Self {
        Strings { read, taken: 0, unread: None }
    }
}

impl From<Members> for Strings {
    fn from(members: Members) -> Self {
        Strings::later(Source::Members(Pieces::new(members)))
    }
}

impl From<Items> for Strings {
    fn from(items: Items) -> Self {
        Strings::later(Source::Items(items))
    }
}

impl Strings {
    fn later(source: Source) -> Self {
        Strings { read: Arc::default(), taken: 0, unread: Some(source) }
    }
    /// Takes the next string that has been read.
    pub(crate) fn take(&mut self) -> Option<&[u8]> {
        let next = self.read.get(self.taken)?;
        self.taken += 1;
        Some(next)
    }
    /// Whether all have been read.
    pub(crate) fn is_read(&self) -> bool {
        match &self.unread {
            Some(Source::Members(pieces)) => pieces.is_done(),
            Some(Source::Items(_)) => false,
            None => true,
        }
    }
}

/// A bulk string that has yet to be read.
#[derive(Debug)]
pub(crate) struct Text {
    read: Option<Stretch>,
    unread: Option<Box<Unread>>,
}

#[derive(Debug)]
enum Unread {
    Long(Long),
    Dumped(Payload),
}

impl From<Long> for Text {
    fn from(long: Long) -> Self {
        Text { read: None, unread: Some(Box::new(Unread::Long(long))) }
    }
}

impl From<Payload> for Text {
    fn from(payload: Payload) -> Self {
        Text { read: None, unread: Some(Box::new(Unread::Dumped(payload))) }
    }
}

impl Text {
    /// Moves what has been read into `out`, up to `full` bytes in it. Returns whether that was everything.
    pub(crate) fn pour(&mut self, out: &mut BytesMut, full: usize) -> bool {
        let room = full.saturating_sub(out.len()).max(1);
        match &mut self.read {
            Some(Stretch::Bytes(bytes)) => out.extend_from_slice(&bytes.split_to(room.min(bytes.len()))),
            Some(Stretch::Zeroes(n)) => {
                let some = (*n).min(room as u64);
                out.resize(out.len() + some as usize, 0);
                *n -= some;
            }
            None => {}
        }
        self.read.take_if(|rest| rest.is_empty());
        self.read.is_none()
    }
    /// Whether everything has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.unread.is_none()
    }
}

/// The part to read next.
#[derive(Debug)]
pub enum Part<'a> {
    /// More strings.
    Strings(&'a mut Strings),
    /// More of a string.
    Text(&'a mut Text),
}

impl Part<'_> {
    /// If reading fails, nothing is lost.
    async fn read(&mut self, server: &Server) -> Result<()> {
        match self {
            Part::Strings(Strings { read, taken, unread: unread @ Some(_) }) => {
                *taken = 0;
                let read = Arc::make_mut(read);
                match unread {
                    Some(Source::Members(pieces)) => pieces.next(&server.space.store, read).await?,
                    Some(Source::Items(items)) => {
                        items.next(read).await?;
                        unread.take_if(|_| read.is_empty());
                    }
                    None => {}
                }
                Ok(())
            }
            Part::Text(Text { read, unread: unread @ Some(_) }) => {
                *read = match unread.as_deref_mut() {
                    Some(Unread::Long(long)) => long.next().await?,
                    Some(Unread::Dumped(payload)) => payload.next().await?,
                    None => None,
                };
                unread.take_if(|_| read.is_none());
                Ok(())
            }
            Part::Strings(Strings { unread: None, .. }) | Part::Text(Text { unread: None, .. }) => Ok(()),
        }
    }

    /// Reads the part for `client`. An unreachable store is retried as long as for a command; after that the
    /// reply cannot be completed, so the connection must be closed.
    pub(crate) async fn read_for(mut self, client: &ClientHandle, server: &Server) -> io::Result<()> {
        let clock = &server.env.clock;
        if client.is_killed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let began = clock.monotonic();
        client.touch(began);
        loop {
            match self.read(server).await {
                Ok(()) => return Ok(()),
                Err(e) if may_pass(&e) && clock.monotonic() < began + server.config.get().store_timeout() => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(e) => {
                    let why = e.into_reply().0;
                    tracing::warn!(client = client.id, %why, "connection closed: the rest of a reply cannot be read");
                    return Err(io::Error::other("the rest of a reply cannot be read"));
                }
            }
        }
    }
}

fn may_pass(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.is_retryable() || e.is_away())
}
