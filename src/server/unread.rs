//! The parts of a reply that are read from the store while the client takes it: members that are ids so far, and long strings.

use super::Server;
use crate::error::{Error, Result};
use crate::keyspace::dictionary::packed::Packed;
use crate::lifecycle::dump::Payload;
use crate::server::clients::ClientHandle;
use crate::types::set::stream::{Members, Pieces};
use crate::types::string::stream::Long;
use crate::types::string::walk::Stretch;
use bytes::BytesMut;
use std::io;
use std::time::Duration;

/// Before a store that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Bulk strings, some of which may have yet to be read.
#[derive(Debug)]
pub struct Strings {
    read: Packed,
    unread: Option<Pieces>,
}

impl From<Packed> for Strings {
    fn from(read: Packed) -> Self {
        Strings { read, unread: None }
    }
}

impl From<Members> for Strings {
    fn from(members: Members) -> Self {
        Strings { read: Packed::default(), unread: Some(Pieces::new(members)) }
    }
}

impl Strings {
    /// The next of those that were read.
    pub fn take(&mut self) -> Option<&[u8]> {
        self.read.take()
    }
    /// Whether all have been read.
    pub fn is_read(&self) -> bool {
        self.unread.as_ref().is_none_or(Pieces::is_done)
    }
}

/// One bulk string that has yet to be read.
#[derive(Debug)]
pub struct Text {
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
    /// Moves what was read into `out`, as far as that may hold it: `full` bytes. Whether that was all.
    pub fn pour(&mut self, out: &mut BytesMut, full: usize) -> bool {
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
    /// Whether all has been read.
    pub fn is_read(&self) -> bool {
        self.unread.is_none()
    }
}

/// What is to be read next.
#[derive(Debug)]
pub enum Part<'a> {
    /// More strings.
    Strings(&'a mut Strings),
    /// More of a string.
    Text(&'a mut Text),
}

impl Part<'_> {
    /// Nothing is lost where it cannot be read.
    async fn read(&mut self, server: &Server) -> Result<()> {
        match self {
            Part::Strings(Strings { read, unread: Some(pieces) }) => {
                pieces.next(&server.space.store, read).await
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

    /// Reads it for `client`. A store that cannot be reached is asked again as long as a command would be tried; then the reply cannot be
    /// ended, so the connection must be.
    pub async fn read_for(mut self, client: &ClientHandle, server: &Server) -> io::Result<()> {
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
