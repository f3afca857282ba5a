//! A library of functions: what its first line says, and the functions that its code registers.

use super::{Source, sha1};
use crate::error::ReplyError;
use crate::keyspace::keys::scripts::Digest;
use crate::words;
use bytes::Bytes;

/// What a function says that it needs or does, with the word for each.
pub(crate) const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
/// The most functions of a library, and of all together, and bytes of a library's descriptions.
pub(crate) const MOST_FUNCTIONS: usize = 10_000;
pub(super) const LONGEST_DESCRIPTIONS: usize = 1 << 20;
/// The longest name, in bytes: it is part of keys of the store.
const LONGEST_NAME: usize = 1_000;

/// A function of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name, as it was registered.
    pub(crate) name: String,
    pub(crate) description: Option<Bytes>,
    /// Its flags, in the order of [`FLAGS`].
    pub(crate) flags: Vec<&'static str>,
}

impl Function {
    /// Whether it does not write.
    pub(crate) fn no_writes(&self) -> bool {
        self.flags.contains(&"no-writes")
    }
}

/// A library that can be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Of its text.
    pub(crate) digest: Digest,
    /// In the order of their names.
    pub(crate) functions: Vec<Function>,
}

impl Library {
    /// Reads the first line. The functions are not known yet.
    pub(crate) fn parse(code: Bytes) -> Result<Self, ReplyError> {
        if !code.starts_with(b"#!") {
            return Err(ReplyError::new("ERR Missing library metadata"));
        }
        let Some(end) = code.iter().position(|byte| *byte == b'\n') else {
            return Err(ReplyError::new("ERR Invalid library metadata"));
        };
        let words = words::split(code.get(..end).unwrap_or_default());
        let words = words.map_err(|_| ReplyError::new("ERR Invalid library metadata"))?;
        let mut words = words.iter().map(|word| String::from_utf8_lossy(word));
        let engine = words.next().unwrap_or_default();
        let engine = engine.strip_prefix("#!").unwrap_or_default();
        let mut name = None;
        for word in words {
            let Some(value) = value_of(&word) else {
                return Err(ReplyError::of(format!("ERR Invalid metadata value given: {word}")));
            };
            if name.replace(value.to_owned()).is_some() {
                return Err(ReplyError::new(
                    "ERR Invalid metadata value, name argument was given multiple times",
                ));
            }
        }
        let name = name.ok_or(ReplyError::new("ERR Library name was not given"))?;
        if !is_name(name.as_bytes()) {
            return Err(ReplyError::new(BAD_NAME));
        }
        if !engine.eq_ignore_ascii_case("lua") {
            return Err(ReplyError::of(format!("ERR Engine '{engine}' not found")));
        }
        let digest = sha1(&code);
        Ok(Library { name, source: Source::after(code, end), digest, functions: Vec::new() })
    }
}

impl Library {
    /// The stored bytes: the number of functions (u32 LE); of each its flags (a bit for each of [`FLAGS`], and 0x80 if it has
    /// a description), its name and its description, with their lengths (u32 LE) before them; then the code.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = (self.functions.len() as u32).to_le_bytes().to_vec();
        let put = |out: &mut Vec<u8>, text: &[u8]| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        };
        for function in &self.functions {
            let bit = |(n, flag)| u8::from(function.flags.contains(flag)) << n;
            let flags = FLAGS.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            out.push(flags | u8::from(function.description.is_some()) << 7);
            put(&mut out, function.name.as_bytes());
            function.description.iter().for_each(|text| put(&mut out, text));
        }
        out.extend_from_slice(&self.source.text);
        out
    }

    /// The number of stored bytes.
    pub(crate) fn size(&self) -> usize {
        let described = |text: &Bytes| 4 + text.len();
        let one = |f: &Function| 5 + f.name.len() + f.description.as_ref().map_or(0, described);
        4 + self.functions.iter().map(one).sum::<usize>() + self.source.text.len()
    }

    /// Reads the stored bytes.
    pub(crate) fn decode(stored: Bytes) -> Option<Self> {
        let mut rest = stored;
        let number = |rest: &mut Bytes| {
            let bytes = rest.split_off(rest.len().min(4));
            let number = std::mem::replace(rest, bytes);
            Some(u32::from_le_bytes(number[..].try_into().ok()?) as usize)
        };
        let text = |rest: &mut Bytes| {
            let length = number(rest)?;
            (length <= rest.len()).then(|| rest.split_to(length))
        };
        let mut functions = Vec::new();
        for _ in 0..number(&mut rest)? {
            let flags = *rest.first()?;
            rest = rest.slice(1..);
            let name = String::from_utf8(text(&mut rest)?.into()).ok()?;
            let description = if flags & 0x80 > 0 { Some(text(&mut rest)?) } else { None };
            let has = |(n, flag): (usize, &&'static str)| (flags >> n & 1 > 0).then_some(*flag);
            functions.push(Function {
                name,
                description,
                flags: FLAGS.iter().enumerate().filter_map(has).collect(),
            });
        }
        Some(Library { functions, ..Library::parse(rest).ok()? })
    }
}

/// The value of `name=value`.
fn value_of(word: &str) -> Option<&str> {
    let (key, value) = word.split_once('=')?;
    key.eq_ignore_ascii_case("name").then_some(value)
}

/// Whether a library or a function may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    fits && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let function = |name: &str, description, flags: &[&'static str]| Function {
            name: name.into(),
            description,
            flags: flags.to_vec(),
        };
        let mut library = Library::parse(Bytes::from_static(b"#!lua name=a\ncode")).unwrap();
        for functions in [
            Vec::new(),
            vec![function("f", None, &[]), function("g", Some(Bytes::from_static(b"\xff")), &FLAGS)],
            vec![function("f", Some(Bytes::new()), &["no-writes", "no-cluster"])],
        ] {
            library.functions = functions;
            let stored = library.encode();
            assert_eq!(library.size(), stored.len());
            assert_eq!(Library::decode(stored.clone().into()), Some(library.clone()));
            for length in 0..stored.len() - "\ncode".len() {
                assert_eq!(Library::decode(stored[..length].to_vec().into()), None);
            }
        }
    }

    #[test]
    fn the_first_line_names_the_library() {
        let named = |text: &'static str| {
            let parsed = Library::parse(Bytes::from_static(text.as_bytes()));
            parsed.map(|library| library.name).map_err(|e| e.0.into_owned())
        };
        assert_eq!(named("#!LUA name=one_2\n"), Ok("one_2".into()));
        for line in ["#!lua NAME=\"foo\"\nreturn", "#!lua \"name=foo\"\n", "#!lua name='foo'\n"] {
            assert_eq!(named(line), Ok("foo".into()));
        }
        for (text, error) in [
            ("return 1", "ERR Missing library metadata"),
            ("#!lua name=a", "ERR Invalid library metadata"),
            ("#!lua name=\"a\n", "ERR Invalid library metadata"),
            ("#!lua\n", "ERR Library name was not given"),
            ("#!lua name=a name=b\n", "ERR Invalid metadata value, name argument was given multiple times"),
            ("#!lua name=a foo=bar\n", "ERR Invalid metadata value given: foo=bar"),
            ("#! name=a\n", "ERR Engine '' not found"),
            ("#!perl name=a\n", "ERR Engine 'perl' not found"),
            ("#!lua name=\n", BAD_NAME),
            ("#!lua name=a-b\n", BAD_NAME),
        ] {
            assert_eq!(named(text), Err(error.into()), "{text}");
        }
        assert!(!is_name(&[b'a'; LONGEST_NAME + 1]));
    }
}
