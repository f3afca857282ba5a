//! Replies reduced to what the checkers compare: sets have no order, long strings are runs.

use super::Fields;
use super::values::{Members, Text};
use tern::server::reply::Reply;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Ok,
    Nil,
    /// An EXEC that WATCH aborted.
    Aborted,
    Int(i64),
    Text(String),
    Members(Members),
    Fields(Fields),
    All(Vec<Answer>),
    Error(String),
}

impl Answer {
    /// Whether the store refused the command: then it did nothing.
    pub fn is_refusal(&self) -> bool {
        let refusals =
            ["transaction too old", "the store is unavailable", "conflict with another transaction"];
        matches!(self, Answer::Error(line) if refusals.iter().any(|refusal| line.contains(refusal)))
    }

    /// Whether the store refused the operation.
    pub fn is_refused(&self) -> bool {
        match self {
            Answer::All(answers) => answers.iter().all(Answer::is_refusal),
            answer => answer.is_refusal(),
        }
    }

    /// The reply for a string.
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
            Reply::Map(pairs) => {
                let text = |reply: &Reply| match reply {
                    Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
                    other => panic!("{other:?}"),
                };
                Answer::Fields(pairs.iter().map(|(field, value)| (text(field), text(value))).collect())
            }
            Reply::Array(items) => Answer::All(items.iter().map(Answer::of).collect()),
            // More members than any set has that is listed completely.
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
