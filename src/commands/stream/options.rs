//! The options that XADD and XTRIM share.

use super::ids;
use crate::commands::args::{ArgResult, Args};
use crate::config::Settings;
use crate::error::{ReplyError, SYNTAX};
use crate::types::stream::references::Policy;
use crate::types::stream::trim::{Nodes, Threshold, Trim};

const TWO: ReplyError =
    ReplyError::new("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
const NO_LENGTH: ReplyError = ReplyError::new("ERR The MAXLEN argument must be >= 0.");
const NO_LIMIT: ReplyError = ReplyError::new("ERR The LIMIT argument must be >= 0.");
const LIMIT_ALONE: ReplyError =
    ReplyError::new("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
const LIMIT_EXACT: ReplyError =
    ReplyError::new("ERR syntax error, LIMIT cannot be used without the special ~ option");
const NO_STRATEGY: ReplyError =
    ReplyError::new("ERR syntax error, XTRIM must be called with a trimming strategy");
/// XADD of Redis 8.6 has options for what IDEMPOTENT does for every command.
const NO_PRODUCERS: ReplyError = ReplyError::new(
    "ERR IDMP and IDMPAUTO are not supported: use IDEMPOTENT id XADD key ... to add an entry once",
);
/// The most entries that are removed at once without LIMIT.
const MOST: u64 = 1_000_000;
/// The same where the options do not limit the entries of a node.
const USUAL: u64 = 10_000;

/// Which command the options belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The first word that is no option is an id.
    Add,
    /// All words are options.
    Trim,
}

/// See the module.
pub(super) struct Options {
    /// NOMKSTREAM.
    pub(super) only_existing: bool,
    /// What to remove.
    pub(super) trim: Option<Trim>,
}

/// A reference policy, if the next word names one.
pub(super) fn policy(args: &mut Args<'_>) -> Option<Policy> {
    match () {
        () if args.keyword("KEEPREF") => Some(Policy::Keep),
        () if args.keyword("DELREF") => Some(Policy::Delete),
        () if args.keyword("ACKED") => Some(Policy::Acked),
        () => None,
    }
}

impl Options {
    /// Parses options up to the id of XADD, or all.
    pub(super) fn parse(args: &mut Args<'_>, form: Form, settings: &Settings) -> ArgResult<Self> {
        let (mut only_existing, mut threshold, mut limit, mut kept) = (false, None, None, None);
        let mut roughly = false;
        while !args.is_empty() {
            let followed = args.len() > 1;
            let is_length = followed && args.keyword("MAXLEN");
            if is_length || followed && args.keyword("MINID") {
                if threshold.is_some() {
                    return Err(TWO);
                }
                roughly = args.len() > 1 && args.keyword("~");
                if !roughly && args.len() > 1 {
                    args.keyword("=");
                }
                threshold = Some(match is_length {
                    true => Threshold::Length(u64::try_from(args.int()?).map_err(|_| NO_LENGTH)?),
                    false => Threshold::From(ids::parse(args.next()?, 0)?),
                });
            } else if followed && args.keyword("LIMIT") {
                limit = Some(u64::try_from(args.int()?).map_err(|_| NO_LIMIT)?);
            } else if kept.is_none()
                && let Some(policy) = policy(args)
            {
                kept = Some(policy);
            } else if form == Form::Trim {
                return Err(SYNTAX);
            } else if args.keyword("NOMKSTREAM") {
                only_existing = true;
            } else if args.keyword("IDMP") || args.keyword("IDMPAUTO") {
                return Err(NO_PRODUCERS);
            } else {
                break;
            }
        }
        if let (Form::Add, Some(id)) = (form, args.peek()) {
            ids::wanted(id)?;
        }
        let trim = match threshold {
            None if limit.is_some_and(|limit| limit > 0) => return Err(LIMIT_ALONE),
            None if form == Form::Trim => return Err(NO_STRATEGY),
            None if limit.is_some() => return Err(LIMIT_EXACT),
            None => None,
            Some(_) if limit.is_some() && !roughly => return Err(LIMIT_EXACT),
            Some(threshold) => {
                let nodes = roughly.then(|| nodes(limit, settings));
                Some(Trim { threshold, nodes, policy: kept.unwrap_or_default() })
            }
        };
        Ok(Options { only_existing, trim })
    }
}

fn nodes(limit: Option<u64>, settings: &Settings) -> Nodes {
    let (entries, bytes) = (settings.stream_node_max_entries as u64, settings.stream_node_max_bytes as u64);
    let usual = match entries {
        0 => USUAL,
        entries => entries.saturating_mul(100).min(MOST),
    };
    Nodes { entries, bytes, limit: limit.unwrap_or(usual), behind: None }
}
