//! Reads the notation of a row's `syntax` into arguments, for COMMAND DOCS and redis-cli's hints.
//!
//! ```text
//! SEQUENCE = ITEM ...                     items in this order
//! CHOICE may begin with `name:`, which names the choice
//! ITEM     = word                         lower case: a value; upper case: itself, or the token of the values behind it
//!          | [ CHOICE ]                   optional
//!          | < CHOICE >                   grouped
//! CHOICE   = SEQUENCE | SEQUENCE ...
//! ```
//! `x [x ...]` is `x`, one or more times; so is `a b [a b ...]`, and `T x [T x ...]` repeats its token.

const KEYS: &[&str] = &[
    "key",
    "source",
    "destination",
    "destkey",
    "sourcekey",
    "newkey",
    "key1",
    "key2",
    "storekey",
    "storedistkey",
];
const INTEGERS: &[&str] = &[
    "seconds",
    "milliseconds",
    "count",
    "limit",
    "numkeys",
    "numfields",
    "offset",
    "decrement",
    "index",
    "index1",
    "index2",
    "start",
    "end",
    "cursor",
    "db",
    "destination-db",
    "timeout",
    "numreplicas",
    "numlocal",
    "client-id",
    "bit",
    "bits",
    "slot",
    "start-slot",
    "end-slot",
    "startslot",
    "endslot",
    "numranges",
    "port",
    "cluster-bus-port",
    "config-epoch",
    "min-match-len",
    "stop",
    "rank",
    "num-matches",
    "len",
    "version",
    "frequency",
    "ifdeq-digest",
    "ifdne-digest",
    "maxage",
    "protover",
    "ttl",
];
const TIMES: &[&str] = &["unix-time-seconds", "unix-time-milliseconds"];

/// Whether the value with this name is a key. The notation has no types: names imply them.
pub fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

/// Whether the value with this name is an integer.
pub fn is_integer(name: &str) -> bool {
    INTEGERS.contains(&name)
}

/// Whether the value with this name is a time since the epoch.
pub fn is_time(name: &str) -> bool {
    TIMES.contains(&name)
}

/// One argument, or several that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// In lower case.
    pub name: String,
    /// The word that precedes it, or that it consists of.
    pub token: Option<String>,
    /// Its structure.
    pub kind: ArgumentKind,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Whether its token is repeated too.
    pub multiple_token: bool,
}

/// The structure of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A value.
    Value,
    /// Only the token.
    Token,
    /// All of these, in this order.
    Block(Vec<Argument>),
    /// One of these.
    OneOf(Vec<Argument>),
}

impl Argument {
    fn new(name: impl Into<String>, token: Option<String>, kind: ArgumentKind) -> Self {
        Argument { name: name.into(), token, kind, optional: false, multiple: false, multiple_token: false }
    }
}

/// The arguments that `syntax` describes. Text that does not follow the notation is parsed as far as
/// possible; a test of the table shows that every row follows it.
pub fn parse(syntax: &str) -> Vec<Argument> {
    let words: Vec<String> = split(syntax);
    let mut words = words.as_slice();
    sequence(&mut words, &[])
}

/// Words and brackets.
fn split(syntax: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(syntax.len() * 2);
    for c in syntax.chars() {
        match c {
            '[' | ']' | '<' | '>' | '|' => spaced.extend([' ', c, ' ']),
            c => spaced.push(c),
        }
    }
    spaced.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Items up to one of `ends` (not consumed) or the end.
fn sequence(words: &mut &[String], ends: &[&str]) -> Vec<Argument> {
    let mut items: Vec<Argument> = Vec::new();
    while let Some((word, rest)) = words.split_first() {
        if ends.contains(&word.as_str()) {
            break;
        }
        if let Some(repeated) = repetition(words) {
            items = repeat(items, repeated);
            *words = words.get(repeated + 3..).unwrap_or_default();
            continue;
        }
        *words = rest;
        match word.as_str() {
            "[" => items.extend(choice(words, "]").map(|a| Argument { optional: true, ..a })),
            "<" => items.extend(choice(words, ">")),
            word if is_token(word) => items.push(tokened(word, words, ends)),
            word => items.push(Argument::new(word, None, ArgumentKind::Value)),
        }
    }
    items
}

fn is_token(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_uppercase()) && !word.chars().any(|c| c.is_ascii_lowercase())
}

/// `[ w ... ... ]` with n plain words before the dots: n.
fn repetition(words: &[String]) -> Option<usize> {
    let (first, rest) = words.split_first()?;
    let plain =
        rest.iter().take_while(|w| !matches!(w.as_str(), "[" | "]" | "<" | ">" | "|" | "...")).count();
    let dots = rest.get(plain).is_some_and(|w| w == "...") && rest.get(plain + 1).is_some_and(|w| w == "]");
    (first == "[" && dots && plain > 0).then_some(plain)
}

/// Turns the items of the last `n` words into one repeated item.
fn repeat(mut items: Vec<Argument>, n: usize) -> Vec<Argument> {
    let mut words = 0;
    let mut at = items.len();
    while words < n && at > 0 {
        at -= 1;
        words += items.get(at).map_or(1, width);
    }
    let mut tail = items.split_off(at);
    match (tail.pop(), tail.is_empty()) {
        (Some(only), true) => {
            let multiple_token = only.token.is_some() && n == width(&only);
            // Without its token it repeats the values of a token: `ID client-id [client-id ...]`.
            items.push(Argument { multiple: true, multiple_token, ..only });
        }
        (Some(last), false) => {
            tail.push(last);
            let name = tail.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join("-");
            items.push(Argument { multiple: true, ..Argument::new(name, None, ArgumentKind::Block(tail)) });
        }
        (None, _) => {}
    }
    items
}

/// The number of words of an argument.
fn width(a: &Argument) -> usize {
    let own = usize::from(a.token.is_some());
    match &a.kind {
        ArgumentKind::Value => own + 1,
        ArgumentKind::Token => 1,
        ArgumentKind::Block(items) => own + items.iter().map(width).sum::<usize>(),
        ArgumentKind::OneOf(_) => own + 1,
    }
}

/// Parses what follows a token: nothing, one value, or several.
fn tokened(token: &str, words: &mut &[String], ends: &[&str]) -> Argument {
    let mut values = Vec::new();
    while let Some((word, rest)) = words.split_first() {
        match word.as_str() {
            word if ends.contains(&word) || word == "[" || is_token(word) => break,
            "<" if values.is_empty() => {
                *words = rest;
                values.extend(choice(words, ">"));
                break;
            }
            "<" => break,
            word => values.push(Argument::new(word, None, ArgumentKind::Value)),
        }
        *words = rest;
    }
    let name = token.to_ascii_lowercase();
    match (values.pop(), values.is_empty()) {
        (None, _) => Argument::new(name, Some(token.into()), ArgumentKind::Token),
        (Some(only), true) => Argument { token: Some(token.into()), ..only },
        (Some(last), false) => {
            values.push(last);
            Argument::new(name, Some(token.into()), ArgumentKind::Block(values))
        }
    }
}

/// Alternatives up to the closing bracket, as one argument. None if there are none.
fn choice(words: &mut &[String], close: &str) -> Option<Argument> {
    let name = words.first().and_then(|word| word.strip_suffix(':')).map(str::to_owned);
    if name.is_some() {
        *words = words.get(1..).unwrap_or_default();
    }
    let mut alternatives = Vec::new();
    loop {
        let items = sequence(words, &["|", close]);
        alternatives.extend(joined(items));
        match words.split_first() {
            Some((word, rest)) => {
                *words = rest;
                if word == close {
                    break;
                }
            }
            None => break,
        }
    }
    match alternatives.len() {
        0 | 1 => alternatives.pop().map(|only| Argument { name: name.unwrap_or(only.name), ..only }),
        _ => {
            let name = name.unwrap_or_else(|| choice_name(&alternatives).into());
            Some(Argument::new(name, None, ArgumentKind::OneOf(alternatives)))
        }
    }
}

/// The syntax as HELP shows it: without the names inside brackets, and without brackets that only serve a
/// name.
pub(crate) fn without_names(syntax: &str) -> String {
    let unnamed = |piece: &'_ str| match piece.split_once(": ") {
        Some((name, rest)) if !name.contains([' ', '|', ']', '>']) => (true, rest.to_owned()),
        _ => (false, piece.to_owned()),
    };
    let mut pieces = syntax.split('<');
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for (named, piece) in pieces.map(unnamed) {
        match piece.split_once('>') {
            Some((inside, after)) if named && !inside.contains('|') => shown.extend([inside, after]),
            _ => shown.extend(["<", piece.as_str()]),
        }
    }
    let mut pieces = shown.split('[');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |shown, piece| shown + "[" + &unnamed(piece).1)
}

/// Several items as one block.
fn joined(mut items: Vec<Argument>) -> Option<Argument> {
    if items.len() < 2 {
        return items.pop();
    }
    let name = items.first().map(|a| a.name.clone()).unwrap_or_default();
    Some(Argument::new(name, None, ArgumentKind::Block(items)))
}

/// Names in the style of Redis' own names for choices.
fn choice_name(alternatives: &[Argument]) -> &'static str {
    let has = |name: &str| alternatives.iter().any(|a| a.name == name);
    match () {
        () if has("seconds") || has("milliseconds") => "expiration",
        () if alternatives.iter().all(|a| a.kind == ArgumentKind::Token) => "condition",
        () => "option",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(a: &Argument) -> String {
        let list = |items: &[Argument], by: &str| items.iter().map(show).collect::<Vec<_>>().join(by);
        let inner = match &a.kind {
            ArgumentKind::Value => a.name.clone(),
            ArgumentKind::Token => String::new(),
            ArgumentKind::Block(items) => format!("({})", list(items, " ")),
            ArgumentKind::OneOf(items) => format!("<{}>", list(items, "|")),
        };
        let token = a.token.as_ref().map(|t| if inner.is_empty() { t.clone() } else { format!("{t}:") });
        let marks = [(a.optional, "?"), (a.multiple, "*"), (a.multiple_token, "+")];
        let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, m)| *m).collect();
        token.unwrap_or_default() + &inner + &marks
    }

    #[test]
    fn brackets_may_have_names() {
        let named = "<data: key value> [key value ...] [order: ASC | DESC] [sorting: ALPHA] [TYPE <kind: A | B>] [range: start [unit: X | Y]]";
        let arguments = parse(named);
        let names: Vec<&str> = arguments.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["data", "order", "sorting", "kind", "range"]);
        assert_eq!(read(named), "(key value)* <ASC|DESC>? ALPHA? TYPE:<A|B>? (start <X|Y>?)?");
        let plain = "key value [key value ...] [ASC | DESC] [ALPHA] [TYPE <A | B>] [start [X | Y]]";
        assert_eq!(without_names(named), plain);
    }

    fn read(syntax: &str) -> String {
        parse(syntax).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_notation() {
        for (syntax, want) in [
            ("", ""),
            ("key", "key"),
            ("key [key ...]", "key*"),
            ("key value [key value ...]", "(key value)*"),
            ("[message]", "message?"),
            ("[command-name [command-name ...]]", "command-name?*"),
            ("key [EX seconds | PERSIST]", "key <EX:seconds|PERSIST>?"),
            ("<ON | OFF> [REDIRECT client-id]", "<ON|OFF> REDIRECT:client-id?"),
            ("[PREFIX prefix [PREFIX prefix ...]] [BCAST]", "PREFIX:prefix?*+ BCAST?"),
            ("[ID client-id [client-id ...]]", "ID:client-id?*"),
            ("[LIMIT offset count] [ASC | DESC]", "LIMIT:(offset count)? <ASC|DESC>?"),
            ("[TYPE <NORMAL | MASTER>] [COUNT n]", "TYPE:<NORMAL|MASTER>? COUNT:n?"),
            ("numkeys key [key ...] [LIMIT limit]", "numkeys key* LIMIT:limit?"),
            ("<host port | NO ONE>", "<(host port)|(NO ONE)>"),
            ("<LIB-NAME libname | LIB-VER libver>", "<LIB-NAME:libname|LIB-VER:libver>"),
        ] {
            assert_eq!(read(syntax), want, "{syntax}");
        }
    }
}
