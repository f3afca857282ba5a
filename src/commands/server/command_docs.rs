//! COMMAND DOCS: the documentation of a row.

use crate::commands::server::command_info::flag_words;
use crate::commands::server::syntax::{self, Argument, ArgumentKind};
use crate::server::reply::Reply;
use crate::spec::{Entry, FindKeys, Group, Row};

/// The map that documents a row, including its subcommands.
pub(super) fn docs_of(row: &Entry) -> Reply {
    let mut pairs = vec![
        ("summary", Reply::bulk_static(row.summary)),
        ("since", Reply::bulk_static(row.since)),
        ("group", Reply::bulk_static(group(row.group))),
    ];
    if let Some((since, by)) = row.deprecated {
        pairs.push(("doc_flags", flag_words(["deprecated"].into_iter())));
        pairs.push(("deprecated_since", Reply::bulk_static(since)));
        pairs.push(("replaced_by", Reply::bulk_static(by)));
    }
    if row.for_systems {
        pairs.push(("doc_flags", flag_words(["syscmd"].into_iter())));
    }
    let arguments = syntax::parse(row.syntax);
    if !arguments.is_empty() {
        let mut keys = KeyIndex { next: 0, last: row.keys.len().checked_sub(1) };
        pairs.push(("arguments", Reply::Array(arguments.iter().map(|a| keys.argument(row, a)).collect())));
    }
    if !row.subs.is_empty() {
        let subs = row.subs.iter().map(|sub| (Reply::text(sub.label.clone()), docs_of(sub)));
        pairs.push(("subcommands", Reply::Map(subs.collect())));
    }
    map(pairs)
}

fn map(pairs: Vec<(&'static str, Reply)>) -> Reply {
    Reply::Map(pairs.into_iter().map(|(key, value)| (Reply::bulk_static(key), value)).collect())
}

fn group(group: Group) -> &'static str {
    match group {
        Group::String => "string",
        Group::Bitmap => "bitmap",
        Group::HyperLogLog => "hyperloglog",
        Group::Set => "set",
        Group::Hash => "hash",
        Group::List => "list",
        Group::SortedSet => "sorted-set",
        Group::Geo => "geo",
        Group::Stream => "stream",
        Group::Generic => "generic",
        Group::Connection => "connection",
        Group::Transactions => "transactions",
        Group::Server => "server",
        Group::Pubsub => "pubsub",
        Group::Scripting => "scripting",
        Group::Cluster => "cluster",
    }
}

/// Numbers a row's key arguments: the first belongs to its first key specification, and so on.
struct KeyIndex {
    next: usize,
    last: Option<usize>,
}

impl KeyIndex {
    fn argument(&mut self, row: &Row, a: &Argument) -> Reply {
        let kind = self.kind(row, a);
        let mut pairs = vec![("name", Reply::text(a.name.clone()))];
        if !matches!(a.kind, ArgumentKind::Block(_) | ArgumentKind::OneOf(_)) {
            let shown = if kind == "pattern" { "pattern" } else { a.name.as_str() };
            pairs.push(("display_text", Reply::text(shown.to_owned())));
        }
        pairs.push(("type", Reply::bulk_static(kind)));
        let found_by_pattern = row.keys.iter().position(|spec| spec.find == FindKeys::Unknown);
        if let (Some(n), "pattern") = (found_by_pattern, kind) {
            pairs.push(("key_spec_index", Reply::Int(n as i64)));
            self.next = n + 1;
        }
        if kind == "key" {
            pairs.push(("key_spec_index", Reply::Int(self.next.min(self.last.unwrap_or_default()) as i64)));
            self.next += 1;
        }
        pairs.extend(a.token.as_ref().map(|t| ("token", Reply::text(t.clone()))));
        let flags =
            [(a.optional, "optional"), (a.multiple, "multiple"), (a.multiple_token, "multiple_token")];
        if flags.iter().any(|(on, _)| *on) {
            pairs.push(("flags", flag_words(flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word))));
        }
        if let ArgumentKind::Block(items) | ArgumentKind::OneOf(items) = &a.kind {
            pairs.push((
                "arguments",
                Reply::Array(items.iter().map(|item| self.argument(row, item)).collect()),
            ));
        }
        map(pairs)
    }

    fn kind(&self, row: &Row, a: &Argument) -> &'static str {
        let name = a.name.as_str();
        if let Some((_, kind)) = row.types.iter().find(|(known, _)| *known == name) {
            return kind;
        }
        match a.kind {
            ArgumentKind::Token => "pure-token",
            ArgumentKind::Block(_) => "block",
            ArgumentKind::OneOf(_) => "oneof",
            ArgumentKind::Value if self.last.is_some() && syntax::is_key(name) => "key",
            ArgumentKind::Value if name == "increment" || syntax::is_integer(name) => "integer",
            ArgumentKind::Value if syntax::is_time(name) => "unix-time",
            ArgumentKind::Value if matches!(name, "pattern" | "by-pattern" | "get-pattern") => "pattern",
            ArgumentKind::Value => "string",
        }
    }
}
