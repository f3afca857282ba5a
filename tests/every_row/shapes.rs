//! The requests that follow from a row's own syntax, with the worst value in each place.

use crate::script::{Arg, Call, Script, call, long, times, words};
use crate::world::{MIB, Scale, VALUES};
use tern::commands::binding::Run;
use tern::commands::registry::run_of;
use tern::commands::server::syntax::{self, Argument, ArgumentKind};
use tern::spec::Entry;

/// Extreme numbers.
const EXTREMES: &[&str] = &["0", "-1", "9223372036854775807", "-9223372036854775808", "1e308"];
/// Further words whose values are read as numbers.
const NUMBERS: &[&str] = &[
    "increment",
    "bit",
    "bits",
    "float",
    "integer",
    "lowerbound",
    "upperbound",
    "version",
    "min-match-len",
    "slot",
    "frequency",
];
/// Values that make more of a command run than any word would.
const GOOD: &[(&str, &str)] = &[
    ("encoding", "u8"),
    ("command", "get"),
    ("command-name", "get"),
    ("category", "read"),
    ("username", "somebody"),
    ("parameter", "slowlog-max-len"),
    ("rule", "+get"),
    ("type", "set"),
    ("section", "everything"),
    ("id", "0123456789abcdef"),
    ("protover", "3"),
    ("cursor", "0"),
    ("bit", "1"),
    ("pattern", "k*"),
];

/// The values for the places of the syntax.
#[derive(Clone, Copy)]
struct Fill<'a> {
    /// For a value that is read.
    key: &'a str,
    number: &'a str,
    /// For all other words; None: a typical one.
    text: Option<&'a str>,
    /// For a repeatable word, with its number of repetitions.
    many: Option<(&'a str, usize)>,
}

const PLAIN: Fill<'_> = Fill { key: "counter", number: "7", text: None, many: None };

fn is_number(name: &str) -> bool {
    syntax::is_integer(name) || syntax::is_time(name) || NUMBERS.contains(&name)
}

fn is_key(name: &str) -> bool {
    syntax::is_key(name) && !is_made(name)
}

fn is_made(name: &str) -> bool {
    matches!(name, "destination" | "destkey" | "newkey")
}

impl Fill<'_> {
    fn value(&self, name: &str) -> String {
        let good = GOOD.iter().find(|(word, _)| *word == name).map(|(_, good)| *good);
        match name {
            name if is_key(name) => self.key.into(),
            name if is_made(name) => "made".into(),
            "numkeys" => self.many.map_or(1, |(_, n)| n).to_string(),
            name if is_number(name) && self.number != PLAIN.number => self.number.into(),
            name if is_number(name) => good.unwrap_or(self.number).into(),
            _ => self.text.or(good).unwrap_or("x").into(),
        }
    }

    /// The words of an argument, its token first.
    fn words(&self, a: &Argument) -> Vec<String> {
        let mut words: Vec<String> = a.token.iter().cloned().collect();
        match &a.kind {
            ArgumentKind::Value => words.push(self.value(&a.name)),
            ArgumentKind::Token => {}
            ArgumentKind::Block(items) => {
                words.extend(items.iter().filter(|i| !i.optional).flat_map(|i| self.words(i)))
            }
            ArgumentKind::OneOf(items) => {
                words.extend(items.first().map(|i| self.words(i)).unwrap_or_default())
            }
        }
        words
    }

    fn args(&self, a: &Argument) -> Call {
        match self.many {
            Some((word, n)) if a.multiple => {
                let one = Fill { key: word, text: Some(word), ..*self };
                let mut all = one.words(a);
                let token = if a.token.is_some() && !a.multiple_token { Some(all.remove(0)) } else { None };
                token.map(Arg::Word).into_iter().chain([Arg::Times(0, n, all)]).collect()
            }
            _ => self.words(a).into_iter().map(Arg::Word).collect(),
        }
    }
}

/// A row to drive: its name as clients send it, and its arguments.
pub struct Shape {
    name: String,
    arguments: Vec<Argument>,
    scale: Scale,
}

impl Shape {
    /// The shape of the row labelled `label`.
    pub fn new(label: &str, row: &Entry, scale: Scale) -> Shape {
        Shape { name: label.replace('|', " "), arguments: syntax::parse(row.syntax), scale }
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        fn within(a: &Argument, is: &dyn Fn(&str) -> bool) -> bool {
            match &a.kind {
                ArgumentKind::Value => is(&a.name),
                ArgumentKind::Token => false,
                ArgumentKind::Block(items) | ArgumentKind::OneOf(items) => {
                    items.iter().any(|i| within(i, is))
                }
            }
        }
        self.arguments.iter().any(|a| within(a, &is))
    }

    /// The call with no option but `option`.
    fn filled(&self, option: Option<usize>, fill: Fill<'_>) -> Call {
        let wanted = |(n, a): &(usize, &Argument)| !a.optional || option == Some(*n);
        let args = self.arguments.iter().enumerate().filter(wanted);
        call(&self.name, args.flat_map(|(_, a)| fill.args(a)))
    }

    /// The plain call, and one with each of the options.
    fn variants(&self, fill: Fill<'_>) -> Vec<(usize, Call)> {
        let options = self.arguments.iter().enumerate().filter(|(_, a)| a.optional).map(|(n, _)| Some(n));
        std::iter::once(None).chain(options).map(|option| (1, self.filled(option, fill))).collect()
    }

    /// Each value that the row can be applied to, with plain numbers and with extreme ones.
    fn on_values(&self, out: &mut Vec<Script>) {
        let (keys, numbers) = (self.any(is_key), self.any(is_number));
        for key in VALUES.iter().take(if keys { VALUES.len() } else { 1 }) {
            out.push(Script { calls: self.variants(Fill { key, ..PLAIN }) });
            if numbers {
                let all = EXTREMES.iter().flat_map(|number| self.variants(Fill { key, number, ..PLAIN }));
                out.push(Script { calls: all.collect() });
            }
        }
    }

    /// Arguments of maximum length: slow patterns, long keys and numbers.
    fn long(&self, out: &mut Vec<Script>) {
        let text = |name: &str| !is_key(name) && !is_made(name) && !is_number(name);
        let mut replace = |is: &dyn Fn(&str) -> bool, with: Arg| {
            if self.any(is) {
                // A placeholder for a long word.
                let fill = Fill {
                    key: if is("key") { "\0" } else { "counter" },
                    number: if is("count") { "\0" } else { "7" },
                    text: is("value").then_some("\0"),
                    many: None,
                };
                let calls = self.variants(fill).into_iter().map(|(n, call)| (n, replaced(call, &with)));
                out.extend(calls.filter(|(_, call)| has(call)).map(|one| Script { calls: vec![one] }));
            }
        };
        let bytes = self.scale.long;
        replace(&text, long("x", bytes));
        replace(&text, long("*a", MIB.min(bytes)));
        replace(&text, long("[a-y]", bytes));
        replace(&is_key, long("key:", bytes));
        replace(&is_number, long("9", bytes));
    }

    /// As many arguments as a request may have.
    fn many(&self, out: &mut Vec<Script>) {
        let n = self.scale.many;
        if !self.arguments.iter().any(|a| a.multiple) {
            out.push(Script::one(call(&self.name, [times(n / 4, "x{}")])));
            return;
        }
        let keys = self.arguments.iter().any(|a| a.multiple && is_key(&a.name));
        let names: &[&str] =
            if keys { &["none:{}", "key:{}", "set", "hll", "counter"] } else { &["x{}", "7{}", "*a{}*"] };
        for (at, a) in self.arguments.iter().enumerate().filter(|(_, a)| a.multiple) {
            let option = a.optional.then_some(at);
            let good = GOOD.iter().find(|(word, _)| *word == a.name).map(|(_, good)| *good);
            for name in names.iter().copied().chain(good) {
                let key = if keys { name } else { "set" };
                out.push(Script::one(self.filled(option, Fill { key, many: Some((name, n)), ..PLAIN })));
            }
        }
    }

    /// All scripts of a row.
    pub fn scripts(&self, row: &Entry) -> Vec<Script> {
        let mut out = vec![Script::default().repeat(300, words(&self.name))];
        if matches!(run_of(row), Run::Refuse(_)) {
            out.push(Script::one(call(&self.name, [times(self.scale.many, "x{}")])));
            return out;
        }
        self.on_values(&mut out);
        self.long(&mut out);
        self.many(&mut out);
        out
    }
}

const PLACE: &str = "\0";

fn replaced(call: Call, with: &Arg) -> Call {
    let one = |arg| match arg {
        Arg::Word(word) if word == PLACE => with.clone(),
        arg => arg,
    };
    call.into_iter().map(one).collect()
}

fn has(call: &Call) -> bool {
    call.iter().any(|arg| matches!(arg, Arg::Long(..)))
}
