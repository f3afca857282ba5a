//! An attacker's script: command lines whose arguments are only expanded when they are sent, because some of
//! them are a million words or many MiB long.

/// The maximum length of a script's description.
const SHOWN: usize = 110;

/// One argument, or many.
#[derive(Debug, Clone)]
pub enum Arg {
    /// A literal.
    Word(String),
    /// Arbitrary bytes.
    Bytes(Vec<u8>),
    /// A prefix, then the word repeated up to this many bytes in all.
    Long(&'static str, String, usize),
    /// These words, repeated; `{}` in them is the number of the repetition, counted from the first number.
    Times(usize, usize, Vec<String>),
}

/// A command line.
pub type Call = Vec<Arg>;

/// Command lines sent as one pipeline, each with its number of repetitions.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub calls: Vec<(usize, Call)>,
}

/// The words of a line.
pub fn words(line: &str) -> Call {
    line.split_ascii_whitespace().map(|word| Arg::Word(word.into())).collect()
}

/// A line followed by more arguments.
pub fn call(line: &str, more: impl IntoIterator<Item = Arg>) -> Call {
    words(line).into_iter().chain(more).collect()
}

/// The words of `line`, `n` times.
pub fn times(n: usize, line: &str) -> Arg {
    times_from(0, n, line)
}

/// The words of `line`, `n` times, numbered from `first`.
pub fn times_from(first: usize, n: usize, line: &str) -> Arg {
    Arg::Times(first, n, line.split_ascii_whitespace().map(str::to_owned).collect())
}

/// `word` repeated up to `bytes`.
pub fn long(word: &str, bytes: usize) -> Arg {
    Arg::Long("", word.into(), bytes)
}

impl Arg {
    fn count(&self) -> usize {
        match self {
            Arg::Times(_, n, words) => n * words.len(),
            _ => 1,
        }
    }

    fn write(&self, number: usize, out: &mut Vec<u8>) {
        match self {
            Arg::Word(word) => bulk(word.replace("{}", &number.to_string()).as_bytes(), out),
            Arg::Bytes(bytes) => bulk(bytes, out),
            Arg::Long(before, word, bytes) => {
                let times = bytes.div_ceil(word.len().max(1));
                bulk(&[before, word.repeat(times).as_str()].concat().as_bytes()[..*bytes], out);
            }
            Arg::Times(first, n, words) => {
                for number in *first..first + n {
                    let number = number.to_string();
                    words.iter().for_each(|word| bulk(word.replace("{}", &number).as_bytes(), out));
                }
            }
        }
    }

    fn show(&self) -> String {
        match self {
            Arg::Word(word) if word.len() > 40 => format!("{}..({})", &word[..20], word.len()),
            Arg::Word(word) => word.clone(),
            Arg::Bytes(bytes) => format!("<{} bytes>", bytes.len()),
            Arg::Long(before, word, bytes) => {
                format!("{before}<{} KiB of {}>", bytes >> 10, word.get(..8).unwrap_or(word))
            }
            Arg::Times(_, n, words) => format!("({})x{n}", words.join(" ")),
        }
    }
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(bytes.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

impl Script {
    /// A script of one call.
    pub fn one(call: Call) -> Script {
        Script { calls: vec![(1, call)] }
    }

    /// Appends another call.
    pub fn then(self, call: Call) -> Script {
        self.repeat(1, call)
    }

    /// Appends another call `n` times; `{}` in its words is the repetition.
    pub fn repeat(mut self, n: usize, call: Call) -> Script {
        self.calls.push((n, call));
        self
    }

    /// The bytes to send.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, call) in &self.calls {
            let count: usize = call.iter().map(Arg::count).sum();
            for number in 0..*n {
                out.extend_from_slice(format!("*{count}\r\n").as_bytes());
                call.iter().for_each(|arg| arg.write(number, &mut out));
            }
        }
        out
    }

    /// The number of arguments in all.
    pub fn arguments(&self) -> usize {
        self.calls.iter().map(|(n, call)| n * call.iter().map(Arg::count).sum::<usize>()).sum()
    }

    /// A short description.
    pub fn show(&self) -> String {
        let one = |(n, call): &(usize, Call)| {
            let line = call.iter().map(Arg::show).collect::<Vec<_>>().join(" ");
            if *n == 1 { line } else { format!("{n} times {line}") }
        };
        let mut shown: String = self.calls.iter().take(4).map(one).collect::<Vec<_>>().join("; ");
        if self.calls.len() > 4 {
            shown += &format!("; ... {} calls", self.calls.len());
        }
        match shown.char_indices().nth(SHOWN) {
            Some((at, _)) => format!("{}...", &shown[..at]),
            None => shown,
        }
    }
}
