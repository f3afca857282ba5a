//! Checks scripts: each has its text, whose digest is its name, and all are counted. Libraries have their code, and its
//! digest beside it.

use super::PAGE;
use crate::error::StoreResult;
use crate::keyspace::keys::scripts::{Digest, LibraryRow, ScriptRow};
use crate::keyspace::scripts::{Header, Total};
use crate::lua::{Library, sha1};
use crate::store::{RangeOptions, Rest};
use crate::types::audit::AuditView;
use bytes::Bytes;

/// The damage to a row that begins with `s`, if any.
pub(super) async fn row(view: &AuditView, key: &Bytes, value: &Bytes) -> StoreResult<Option<String>> {
    Ok(match ScriptRow::decode(key) {
        Some(ScriptRow::Epoch) => (value.len() != 8).then(|| "the epoch of scripts does not decode".into()),
        Some(ScriptRow::Total) => total(view, value).await?,
        Some(ScriptRow::Script(digest)) => script(view, &digest, value).await?,
        Some(ScriptRow::Piece(digest, _)) => {
            let script = view.get(&ScriptRow::Script(digest).key()).await?;
            script.is_none().then(|| "a piece of a script that does not exist".into())
        }
        None => match LibraryRow::decode(key) {
            Some(row) => library(view, &row, value).await?,
            None => Some("the row of a script has an invalid key".into()),
        },
    })
}

async fn library(view: &AuditView, row: &LibraryRow, value: &[u8]) -> StoreResult<Option<String>> {
    Ok(match row {
        LibraryRow::Epoch => (value.len() != 8).then(|| "the epoch of libraries does not decode".into()),
        LibraryRow::Library(name) => {
            let (begin, end) = LibraryRow::pieces(Some(name));
            let pieces = view.page(&begin, &end, RangeOptions::default()).await?.pairs;
            let stored: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
            let is_right =
                value == sha1(&stored) && Library::decode(stored.into()).is_some_and(|l| l.name == *name);
            if !is_right {
                return Ok(Some("a library is not the one that was stored".into()));
            }
            let epoch = view.get(&LibraryRow::Epoch.key()).await?;
            epoch.is_none().then(|| "the epoch of libraries is missing".into())
        }
        LibraryRow::Piece(name, _) => {
            let library = view.get(&LibraryRow::Library(name.clone()).key()).await?;
            library.is_none().then(|| "a piece of a library that does not exist".into())
        }
    })
}

async fn script(view: &AuditView, digest: &Digest, value: &[u8]) -> StoreResult<Option<String>> {
    let Some(header) = Header::decode(value) else {
        return Ok(Some("the row of a script does not decode".into()));
    };
    let (begin, end) = ScriptRow::pieces(Some(digest));
    let pieces = view.page(&begin, &end, RangeOptions::default()).await?.pairs;
    let text: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
    if text.len() != header.len as usize || sha1(&text) != *digest {
        return Ok(Some("the text of a script is not the one that its name stands for".into()));
    }
    let total = view.get(&ScriptRow::Total.key()).await?;
    Ok(total.is_none().then(|| "the total of scripts is missing".into()))
}

async fn total(view: &AuditView, value: &[u8]) -> StoreResult<Option<String>> {
    let (begin, end) = ScriptRow::scripts();
    let (mut rest, mut found) = (Rest::of((begin.to_vec(), end.to_vec())), Total::default());
    while let Some(page) = view.next(&mut rest, PAGE).await? {
        for header in page.iter().filter_map(|(_, row)| Header::decode(row)) {
            found.scripts += 1;
            found.bytes += u64::from(header.len);
        }
    }
    let wrong = Total::decode(value) != Some(found);
    Ok(wrong.then(|| {
        format!("the total of scripts is wrong: there are {} of {} bytes", found.scripts, found.bytes)
    }))
}
