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
    Score(i64),
    /// Members with their scores, in their order.
    Scored(Vec<(String, i64)>),
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
            // An empty array is an answer.
            Answer::All(answers) => !answers.is_empty() && answers.iter().all(Answer::is_refusal),
            answer => answer.is_refusal(),
        }
    }

    /// The reply for a string.
    pub fn text(text: &Text) -> Self {
        Answer::Text(text.shown())
    }

    /// The reply for members with their scores: without any it looks as an array of anything.
    pub fn scored(pairs: Vec<(String, i64)>) -> Self {
        if pairs.is_empty() { Answer::All(Vec::new()) } else { Answer::Scored(pairs) }
    }

    pub fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Ok => Answer::Ok,
            // A script hands it on so.
            Reply::Simple(line) if line == "OK" => Answer::Ok,
            Reply::Nil => Answer::Nil,
            Reply::NilArray => Answer::Aborted,
            Reply::Int(n) => Answer::Int(*n),
            Reply::Bulk(b) => Answer::text(&Text::of(b)),
            Reply::Error(e) => Answer::Error(e.0.to_string()),
            Reply::Set(items) => Answer::Members(members(items)),
            Reply::Map(pairs) => {
                Answer::Fields(pairs.iter().map(|(field, value)| (name(field), name(value))).collect())
            }
            Reply::Double(score) => Answer::Score(whole(*score)),
            Reply::Pairs(pairs) => Answer::scored(pairs.iter().map(scored).collect()),
            Reply::Keyed(pairs) => {
                let pair =
                    |(key, read): &(Reply, Reply)| Answer::All(vec![Answer::of(key), Answer::of(read)]);
                Answer::All(pairs.iter().map(pair).collect())
            }
            Reply::Array(items) => Answer::All(items.iter().map(Answer::of).collect()),
            Reply::Packed(shape, strings) => Answer::of(&Reply::unpacked(*shape, strings)),
            // More members than any set has that is listed completely.
            Reply::Members(_) => Answer::Text("a stream of members".into()),
            other => panic!("a reply that the model does not know: {other:?}"),
        }
    }
}

fn name(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn scored((member, score): &(Reply, Reply)) -> (String, i64) {
    match score {
        Reply::Double(score) => (name(member), whole(*score)),
        other => panic!("{other:?}"),
    }
}

/// The clients' scores are integers.
fn whole(score: f64) -> i64 {
    assert_eq!(score.fract(), 0.0, "a score that no client sets: {score}");
    score as i64
}

fn members(items: &[Reply]) -> Members {
    let names: Vec<String> = items.iter().map(name).collect();
    Members::of(names.iter().map(String::as_str))
}
