//! Rows of scripts and of libraries of functions.

use crate::store::prefix_end;
use bytes::Bytes;

/// The name of a script: the SHA-1 of its text.
pub type Digest = [u8; 20];

/// A row of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptRow {
    /// The epoch.
    Epoch,
    /// How many scripts are stored, and how many bytes of text.
    Total,
    /// A script.
    Script(Digest),
    /// A piece of its text.
    Piece(Digest, u16),
}

/// A row of libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryRow {
    /// What changes with every change of a library.
    Epoch,
    /// A library, by its name.
    Library(Bytes),
    /// A piece of its functions and its code.
    Piece(Bytes, u16),
}

impl LibraryRow {
    /// The key of the row.
    pub fn key(&self) -> Vec<u8> {
        match self {
            LibraryRow::Epoch => vec![b's', 4],
            LibraryRow::Library(name) => [&[b's', 5], &name[..]].concat(),
            LibraryRow::Piece(name, n) => [&[b's', 6], &name[..], &[0], &n.to_be_bytes()].concat(),
        }
    }

    /// Parses a key.
    pub fn decode(key: &Bytes) -> Option<Self> {
        let (kind, rest) = (*key.get(1)?, key.slice(2..));
        match kind {
            4 if rest.is_empty() => Some(LibraryRow::Epoch),
            5 => Some(LibraryRow::Library(rest)),
            6 => {
                let at = rest.len().checked_sub(3)?;
                let n = rest.get(at..)?.strip_prefix(&[0])?;
                Some(LibraryRow::Piece(rest.slice(..at), u16::from_be_bytes(n.try_into().ok()?)))
            }
            _ => None,
        }
    }

    /// The range of all libraries.
    pub(crate) fn libraries() -> ([u8; 2], [u8; 2]) {
        ([b's', 5], [b's', 6])
    }

    /// The range of the pieces of a library, or of all.
    pub(crate) fn pieces(of: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
        let name = of.map(|name| [name, &[0]].concat()).unwrap_or_default();
        let begin = [&[b's', 6][..], &name].concat();
        let end = prefix_end(&begin);
        (begin, end)
    }
}

impl ScriptRow {
    /// The key of the row.
    pub fn key(&self) -> Vec<u8> {
        match self {
            ScriptRow::Epoch => vec![b's', 0],
            ScriptRow::Total => vec![b's', 1],
            ScriptRow::Script(digest) => [&[b's', 2], &digest[..]].concat(),
            ScriptRow::Piece(digest, n) => [&[b's', 3], &digest[..], &n.to_be_bytes()].concat(),
        }
    }

    /// Parses a key.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let [b's', kind, rest @ ..] = key else { return None };
        match (kind, rest) {
            (0, []) => Some(ScriptRow::Epoch),
            (1, []) => Some(ScriptRow::Total),
            (2, digest) => Some(ScriptRow::Script(digest.try_into().ok()?)),
            (3, rest) => {
                let (digest, n) = rest.split_first_chunk()?;
                Some(ScriptRow::Piece(*digest, u16::from_be_bytes(n.try_into().ok()?)))
            }
            _ => None,
        }
    }

    /// The range of all scripts.
    pub(crate) fn scripts() -> ([u8; 2], [u8; 2]) {
        ([b's', 2], [b's', 3])
    }

    /// The range of the pieces of a script, or of all.
    pub(crate) fn pieces(of: Option<&Digest>) -> (Vec<u8>, Vec<u8>) {
        let begin = [&[b's', 3][..], of.map_or(&[][..], |digest| &digest[..])].concat();
        let end = prefix_end(&begin);
        (begin, end)
    }

    /// The script that a row belongs to.
    pub(crate) fn digest_of(key: &Bytes) -> Option<Digest> {
        match ScriptRow::decode(key)? {
            ScriptRow::Script(digest) | ScriptRow::Piece(digest, _) => Some(digest),
            ScriptRow::Epoch | ScriptRow::Total => None,
        }
    }
}
