//! Replies, without what the checkers do not ask for: sets have no order, long strings are runs.

use super::values::{Members, Text};
use tern::server::reply::Reply;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Ok,
    Nil,
    /// EXEC that WATCH aborted.
    Aborted,
    Int(i64),
    Text(String),
    Members(Members),
    All(Vec<Answer>),
    Error(String),
}

impl Answer {
    /// A command that the store refused: it did nothing.
    pub fn is_refusal(&self) -> bool {
        let refusals =
            ["transaction too old", "the store is unavailable", "conflict with another transaction"];
        matches!(self, Answer::Error(line) if refusals.iter().any(|refusal| line.contains(refusal)))
    }

    /// An operation that the store refused.
    pub fn is_refused(&self) -> bool {
        match self {
            Answer::All(answers) => answers.iter().all(Answer::is_refusal),
            answer => answer.is_refusal(),
        }
    }

    /// Of a string.
    pub fn text(text: &Text) -> Self {
        Answer::Text(text.shown())
    }

    pub fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Ok => Answer::Ok,
            Reply::Nil => Answer::Nil,
            Reply::NilArray => Answer::Aborted,
            Reply::Int(n) => Answer::Int(*n),
            Reply::Bulk(b) => Answer::text(&Text::of(b)),
            Reply::Error(e) => Answer::Error(e.0.to_string()),
            Reply::Set(items) => Answer::Members(members(items)),
            Reply::Array(items) => Answer::All(items.iter().map(Answer::of).collect()),
            // More than any set has of which all members are asked for.
            Reply::Members(_) => Answer::Text("a stream of members".into()),
            other => panic!("a reply that the model does not know: {other:?}"),
        }
    }
}

fn members(items: &[Reply]) -> Members {
    let name = |item: &Reply| match item {
        Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
        other => panic!("{other:?}"),
    };
    let names: Vec<String> = items.iter().map(name).collect();
    Members::of(names.iter().map(String::as_str))
}
