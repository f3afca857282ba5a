//! A script's text: its digest, and the first line that may say what it needs.

use crate::error::ReplyError;
use crate::keyspace::keys::scripts::Digest;
use crate::words;
use bytes::Bytes;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// What a script says about itself in its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScriptFlags {
    /// It has no such line: what it may do is seen while it runs.
    pub(crate) is_silent: bool,
    /// It does not write.
    pub(crate) no_writes: bool,
    /// It may run when memory is short.
    pub(crate) allow_oom: bool,
}

/// A script that can be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// As the client sent it.
    pub(crate) text: Bytes,
    /// The bytes of the first line to leave out.
    skipped: usize,
    pub(crate) flags: ScriptFlags,
}

/// The SHA-1 of a text.
pub(crate) fn sha1(text: &[u8]) -> Digest {
    let mut sum = [0; 20];
    sum.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref());
    sum
}

/// A digest in lower-case letters.
pub(crate) fn hex(sum: &Digest) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest that a client names. None: none has that name.
pub(crate) fn parse_hex(name: &[u8]) -> Option<Digest> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut sum = [0; 20];
    let (pairs, []) = name.as_chunks::<2>() else { return None };
    if pairs.len() != sum.len() {
        return None;
    }
    for (byte, [high, low]) in sum.iter_mut().zip(pairs) {
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    }
    Some(sum)
}

impl Source {
    /// Reads the first line.
    pub(crate) fn parse(text: Bytes) -> Result<Self, ReplyError> {
        if !text.starts_with(b"#!") {
            let flags = ScriptFlags { is_silent: true, ..ScriptFlags::default() };
            return Ok(Source { text, skipped: 0, flags });
        }
        let end = text.iter().position(|byte| *byte == b'\n');
        let Some(skipped) = end else { return Err(ReplyError::new("ERR Invalid script shebang")) };
        let line = text.get(..skipped).unwrap_or_default();
        let words =
            words::split(line).map_err(|_| ReplyError::new("ERR Invalid engine in script shebang"))?;
        let mut words = words.iter().map(|word| String::from_utf8_lossy(word));
        let engine = words.next().unwrap_or_default();
        if engine != "#!lua" {
            return Err(ReplyError::of(format!("ERR Unexpected engine in script shebang: {engine}")));
        }
        let mut flags = ScriptFlags::default();
        for word in words {
            let Some(list) = word.strip_prefix("flags=") else {
                return Err(ReplyError::of(format!("ERR Unknown lua shebang option: {word}")));
            };
            if !list.is_empty() {
                list.split(',').try_for_each(|flag| flags.set(flag))?;
            }
        }
        Ok(Source { text, skipped, flags })
    }

    /// The code behind a first line of this length.
    pub(super) fn after(text: Bytes, skipped: usize) -> Self {
        Source { text, skipped, flags: ScriptFlags::default() }
    }

    /// What is compiled: line numbers stay the client's.
    pub(crate) fn code(&self) -> &[u8] {
        self.text.get(self.skipped..).unwrap_or_default()
    }
}

impl ScriptFlags {
    fn set(&mut self, flag: &str) -> Result<(), ReplyError> {
        match flag {
            "no-writes" => self.no_writes = true,
            "allow-oom" => self.allow_oom = true,
            "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
            other => return Err(ReplyError::of(format!("ERR Unexpected flag in script shebang: {other}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> Result<(String, ScriptFlags), String> {
        let parsed = Source::parse(Bytes::from_static(text.as_bytes()));
        parsed
            .map(|s| (String::from_utf8_lossy(s.code()).into_owned(), s.flags))
            .map_err(|e| e.0.into_owned())
    }

    #[test]
    fn the_first_line_may_have_flags() {
        let silent = ScriptFlags { is_silent: true, ..ScriptFlags::default() };
        assert_eq!(parsed("return 1"), Ok(("return 1".into(), silent)));
        assert_eq!(parsed("#!lua\nreturn 1"), Ok(("\nreturn 1".into(), ScriptFlags::default())));
        let flags = ScriptFlags { no_writes: true, allow_oom: true, ..ScriptFlags::default() };
        assert_eq!(parsed("#!lua flags=no-writes,allow-oom\n"), Ok(("\n".into(), flags)));
        assert_eq!(parsed("#!lua flags=\"no-writes,allow-oom\"\n"), Ok(("\n".into(), flags)));
        assert_eq!(parsed("#!lua flags=\nx"), Ok(("\nx".into(), ScriptFlags::default())));
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!not-lua\n", "ERR Unexpected engine in script shebang: #!not-lua"),
            ("#!lua badger=data\n", "ERR Unknown lua shebang option: badger=data"),
            ("#!lua flags=allow-oom,what?\n", "ERR Unexpected flag in script shebang: what?"),
            ("#!lua flags=allow-oom,\n", "ERR Unexpected flag in script shebang: "),
            ("#!lua flags=\"allow-oom\n", "ERR Invalid engine in script shebang"),
        ] {
            assert_eq!(parsed(text), Err(error.into()));
        }
    }

    #[test]
    fn digests_have_names() {
        let sum = sha1(b"return 1+1");
        assert_eq!(hex(&sum), "a27e7e8a43702b7046d4f6a7ccf5b60cef6b9bd9");
        assert_eq!(parse_hex(b"A27E7E8A43702b7046d4f6a7ccf5b60cef6b9bd9"), Some(sum));
        assert_eq!(parse_hex(b"a27e"), None);
        assert_eq!(parse_hex(b"x27e7e8a43702b7046d4f6a7ccf5b60cef6b9bd9"), None);
    }
}
