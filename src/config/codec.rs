//! How the values of options are parsed and shown. The error texts are Redis'.

use tracing::level_filters::LevelFilter;

/// Parses and shows the values of one kind of option.
pub(super) trait Codec<T> {
    /// Parses the arguments of a directive. `old` is the current value, of which a directive may change a
    /// part.
    fn read(&self, args: &[&str], old: &T) -> Result<T, String>;
    /// The value as in CONFIG GET and in the file.
    fn show(&self, value: &T) -> String;
    /// Whether a directive may have more than one argument.
    fn is_list(&self) -> bool {
        false
    }
}

/// `appendfsync`: when an OK means that a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppendFsync {
    /// Every acknowledged write is on disk.
    #[default]
    Always,
    /// Synced once a second.
    EverySec,
    /// Left to the operating system.
    No,
}

/// `loglevel`, most verbose first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Connections and other frequent events.
    Verbose,
    /// Events that an operator wants to know about.
    #[default]
    Notice,
    /// Only problems.
    Warning,
    /// Nothing.
    Nothing,
}

/// The clients that may use a harmful command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Allowed {
    /// Nobody.
    #[default]
    No,
    /// Everybody.
    Yes,
    /// Clients on this machine.
    Local,
}

/// Whether a client must present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// Required.
    #[default]
    Yes,
    /// Not requested.
    No,
    /// Not required, but a certificate that is presented must be valid.
    Optional,
}

impl LogLevel {
    /// The least severe events that are logged.
    pub fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Debug => LevelFilter::TRACE,
            LogLevel::Verbose => LevelFilter::DEBUG,
            LogLevel::Notice => LevelFilter::INFO,
            LogLevel::Warning => LevelFilter::WARN,
            LogLevel::Nothing => LevelFilter::OFF,
        }
    }
}

/// The limits of one class of clients in `client-output-buffer-limit`. 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes waiting that close the connection at once.
    pub hard: usize,
    /// Bytes waiting that close it after `seconds`.
    pub(crate) soft: usize,
    /// Seconds.
    pub seconds: u32,
}

/// `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Normal clients.
    pub normal: OutputLimit,
    /// Replicas: accepted for compatibility; Tern has none.
    pub replica: OutputLimit,
    /// Subscribed clients.
    pub pubsub: OutputLimit,
}

/// An integer between the bounds, inclusive.
pub(super) struct Int(pub i64, pub i64);
/// Bytes between the bounds, with an optional unit: `64mb`.
pub(super) struct Memory(pub u64, pub u64);
/// The longest password in bytes, because each login hashes the given password, whoever the user is.
pub const MAX_PASSWORD: usize = 16 << 10;
/// Any text.
pub(super) struct Text;
/// A text of at most [`MAX_PASSWORD`] bytes.
pub(super) struct Password;
/// Several words.
pub(super) struct Words;
/// Names of TLS versions.
pub(super) struct TlsVersions;
/// `yes` or `no`.
pub(super) struct YesNo;
/// One of these words.
pub(super) struct Choice<T: 'static>(pub &'static [(&'static str, T)]);
/// `class hard soft seconds`, any number of times.
pub(super) struct Limits;

fn one<'a>(args: &[&'a str]) -> Result<&'a str, String> {
    match args {
        [one] => Ok(one),
        _ => Err("wrong number of arguments".into()),
    }
}

impl<T: TryFrom<i64> + Copy + ToString> Codec<T> for Int {
    fn read(&self, args: &[&str], _: &T) -> Result<T, String> {
        let text = one(args)?;
        // As everywhere in Redis: no plus, no leading zeros.
        let n = text.parse::<i64>().ok().filter(|n| n.to_string() == text);
        let n = n.ok_or("argument couldn't be parsed into an integer")?;
        let outside = || format!("argument must be between {} and {} inclusive", self.0, self.1);
        Some(n)
            .filter(|n| (self.0..=self.1).contains(n))
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(outside)
    }
    fn show(&self, value: &T) -> String {
        value.to_string()
    }
}

impl Codec<usize> for Memory {
    fn read(&self, args: &[&str], _: &usize) -> Result<usize, String> {
        let n = memory(one(args)?).ok_or("argument must be a memory value")?;
        let outside = || format!("argument must be between {} and {} inclusive", self.0, self.1);
        let n = Some(n).filter(|n| (self.0..=self.1).contains(n)).ok_or_else(outside)?;
        usize::try_from(n).map_err(|_| outside())
    }
    fn show(&self, value: &usize) -> String {
        value.to_string()
    }
}

/// Redis' memory units: k, m, g are powers of ten, kb, mb, gb powers of two.
pub(super) fn memory(raw: &str) -> Option<u64> {
    let digits = raw.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = raw.split_at_checked(digits)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

impl Codec<String> for Text {
    fn read(&self, args: &[&str], _: &String) -> Result<String, String> {
        one(args).map(str::to_owned)
    }
    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

impl Codec<String> for Password {
    fn read(&self, args: &[&str], _: &String) -> Result<String, String> {
        let text = one(args)?;
        if text.len() > MAX_PASSWORD {
            return Err(format!("a password can have at most {MAX_PASSWORD} bytes"));
        }
        Ok(text.to_owned())
    }
    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

impl Codec<Vec<String>> for Words {
    fn read(&self, args: &[&str], _: &Vec<String>) -> Result<Vec<String>, String> {
        let words = args.iter().flat_map(|a| a.split_ascii_whitespace());
        Ok(words.map(str::to_owned).collect())
    }
    fn show(&self, value: &Vec<String>) -> String {
        value.join(" ")
    }
    fn is_list(&self) -> bool {
        true
    }
}

impl Codec<Vec<String>> for TlsVersions {
    fn read(&self, args: &[&str], old: &Vec<String>) -> Result<Vec<String>, String> {
        let words = Words.read(args, old)?;
        let known = |w: &String| ["TLSv1.2", "TLSv1.3"].iter().any(|name| name.eq_ignore_ascii_case(w));
        match words.iter().find(|w| !known(w)) {
            Some(word) => Err(format!("unknown protocol '{word}': use TLSv1.2 or TLSv1.3")),
            None => Ok(words),
        }
    }
    fn show(&self, value: &Vec<String>) -> String {
        Words.show(value)
    }
    fn is_list(&self) -> bool {
        true
    }
}

impl Codec<bool> for YesNo {
    fn read(&self, args: &[&str], _: &bool) -> Result<bool, String> {
        match one(args)?.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err("argument must be 'yes' or 'no'".into()),
        }
    }
    fn show(&self, value: &bool) -> String {
        if *value { "yes" } else { "no" }.into()
    }
}

impl<T: Copy + PartialEq> Codec<T> for Choice<T> {
    fn read(&self, args: &[&str], _: &T) -> Result<T, String> {
        let word = one(args)?;
        let hit = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        hit.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
            format!("argument(s) must be one of the following: {}", words.join(", "))
        })
    }
    fn show(&self, value: &T) -> String {
        self.0.iter().find(|(_, v)| v == value).map_or_else(String::new, |(name, _)| (*name).into())
    }
}

impl Codec<OutputLimits> for Limits {
    fn read(&self, args: &[&str], old: &OutputLimits) -> Result<OutputLimits, String> {
        let words: Vec<&str> = args.iter().flat_map(|a| a.split_ascii_whitespace()).collect();
        let mut limits = *old;
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for class in words.chunks_exact(4) {
            let [name, hard, soft, seconds] = class else { continue };
            let limit = match name.to_ascii_lowercase().as_str() {
                "normal" => &mut limits.normal,
                "slave" | "replica" => &mut limits.replica,
                "pubsub" => &mut limits.pubsub,
                _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
            };
            *limit = limit_of(hard, soft, seconds)
                .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
        }
        Ok(limits)
    }
    fn show(&self, value: &OutputLimits) -> String {
        let class = |name: &str, l: OutputLimit| format!("{name} {} {} {}", l.hard, l.soft, l.seconds);
        let OutputLimits { normal, replica, pubsub } = *value;
        [class("normal", normal), class("slave", replica), class("pubsub", pubsub)].join(" ")
    }
    fn is_list(&self) -> bool {
        true
    }
}

fn limit_of(hard: &str, soft: &str, seconds: &str) -> Option<OutputLimit> {
    let bytes = |raw| usize::try_from(memory(raw)?).ok();
    Some(OutputLimit { hard: bytes(hard)?, soft: bytes(soft)?, seconds: seconds.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_units() {
        for (raw, n) in [
            ("0", 0),
            ("12", 12),
            ("3b", 3),
            ("1k", 1000),
            ("1Kb", 1024),
            ("2MB", 2 << 20),
            ("1g", 1_000_000_000),
        ] {
            assert_eq!(memory(raw), Some(n), "{raw}");
        }
        for raw in ["", "kb", "-1", "1x", "1 kb", "99999999999999999999", "99999999999gb"] {
            assert_eq!(memory(raw), None, "{raw}");
        }
    }

    #[test]
    fn limits_keep_the_classes_that_are_not_named() {
        let old = Limits.read(&["normal", "4", "5", "6"], &OutputLimits::default()).unwrap();
        let limits = Limits.read(&["pubsub 1mb 2 3 replica 7 8 9"], &old).unwrap();
        assert_eq!(Limits.show(&limits), "normal 4 5 6 slave 7 8 9 pubsub 1048576 2 3");
        for wrong in ["", "pubsub 1 2", "nobody 1 2 3", "normal 1 2 x", "normal -1 2 3"] {
            assert!(Limits.read(&[wrong], &old).is_err(), "{wrong}");
        }
    }
}
