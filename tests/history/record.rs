//! The view of clients of several servers: every call and return, numbered by one counter.
//!
//! All servers have one manual clock, and transactions see one time; an operation may have seen any time
//! between its call and its return. A client that gives up continues under another name, because the result
//! of its last call is unknown.

use super::generate::{Group, Line, Step};
use super::model::{Answer, Op, placed, values};
use super::search::{Event, NEVER};
use super::witness::{Trace, Witness, end_mark, mark, mark_bytes};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tern::commands::registry::table;
use tern::dispatch::Call;
use tern::env::Timeline;
use tern::exec::{Executor, Unit, Wait, Watched};
use tern::server::ClientState;
use tern::server::reply::Reply;

/// The counter of calls and returns.
#[derive(Clone, Default)]
pub struct Ticks(Arc<AtomicU64>);

impl Ticks {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, SeqCst) + 1
    }
}

/// A history: what clients saw, and, if units were marked, what the store did.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub events: Vec<Event>,
    pub trace: Option<Trace>,
    /// Pipelines' units whose clients left before they were told how many of the calls ran.
    pub left: BTreeSet<usize>,
}

/// The units of WATCH and of the EXEC after it are numbered from here: even ones and the next odd ones.
pub const WATCHING: usize = 1 << 32;
/// How long a client waits where time is real.
const PATIENCE: Duration = Duration::from_millis(4);
/// Marks that one command prepares: of many reads one always meets a fault, and all of it runs again.
const MARKS: usize = 50;

pub struct Record {
    pub ticks: Ticks,
    names: AtomicUsize,
    units: AtomicUsize,
    watching: AtomicUsize,
    /// One past the last unit whose mark is a key.
    marked: AtomicUsize,
    timeline: Arc<Timeline>,
    /// The time that transactions saw at some ticks, in order.
    shown: Mutex<Vec<(u64, u64)>>,
    events: Mutex<Vec<Event>>,
    left: Mutex<BTreeSet<usize>>,
    /// How long a client waits, in virtual time. Whoever has waited so long has been called, if there was something:
    /// then the second half of that time had a moment at which there was nothing.
    pub patience: Option<Duration>,
    /// If units are marked.
    pub witness: Option<Arc<Witness>>,
}

/// When a call is given up.
pub type Until = BoxFuture<'static, ()>;

/// A unit's commands.
struct Sent {
    /// The selected database.
    db: u8,
    lines: Vec<Line>,
    how: How,
    unit: usize,
    watches: Vec<Watched>,
}

/// How a unit's commands are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Pipeline,
    Exec,
    Script,
}

/// Calls the commands among its arguments, each after the number of its words.
const SCRIPT: &str = "local replies, at = {}, 1
    while at <= #ARGV do
        local last = at + ARGV[at]
        replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, last))
        at = last + 1
    end
    return replies";

impl Record {
    /// `clients` are named.
    pub fn new(clients: usize, timeline: Arc<Timeline>, marked: bool) -> Self {
        let ticks = Ticks::default();
        let shown = Mutex::new(vec![(0, timeline.now())]);
        let witness = marked.then(|| Arc::new(Witness::new(ticks.clone())));
        let (names, units) = (AtomicUsize::new(clients), AtomicUsize::new(0));
        let (watching, marked) = (AtomicUsize::new(WATCHING), AtomicUsize::new(WATCHING));
        let (events, left) = (Mutex::default(), Mutex::default());
        let patience = None;
        Record { ticks, names, units, watching, marked, timeline, shown, events, left, patience, witness }
    }

    /// Prepares the library of [`script`], and the marks of about `steps` steps with WATCH: a watched mark must be a key, or it would get a
    /// ghost, and jobs that handle ghosts would look like the unit. Call this before the store is observed.
    pub async fn prepare(&self, exec: &Executor, steps: usize, groups: &[Group]) {
        let share = groups.iter().filter(|group| group.watches()).count();
        let steps = 50 + steps * share / groups.len();
        let all: Vec<usize> = (WATCHING..WATCHING + 2 * steps).collect();
        for units in all.chunks(MARKS).filter(|_| self.witness.is_some()) {
            let pairs = units.iter().flat_map(|unit| [mark(*unit), "mark".to_owned()]);
            let argv: Vec<String> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
            assert_eq!(alone(exec, call(&argv)).await, Some(vec![Reply::Ok]));
        }
        self.marked.store(WATCHING + 2 * steps, SeqCst);
        let library = format!(
            "#!lua name=history\nredis.register_function('called', function(KEYS, ARGV) {SCRIPT} end)"
        );
        let load = call(&["FUNCTION", "LOAD", &library].map(str::to_owned));
        assert_eq!(alone(exec, load).await, Some(vec![Reply::Bulk(Bytes::from_static(b"history"))]));
    }

    /// The next tick, which has the current time.
    fn tick(&self) -> u64 {
        let mut shown = self.shown.lock().unwrap();
        let tick = self.ticks.next();
        shown.push((tick, self.timeline.now()));
        tick
    }

    /// A client's next step on a server. Returns its name afterwards: another one if it gave up.
    pub async fn step(&self, name: usize, exec: &Executor, step: Step, until: Until) -> usize {
        let answered = match step {
            Step::Send(db, lines) => self.send(name, exec, self.sent(db, lines, How::Pipeline), until).await,
            Step::Exec(db, lines) => self.send(name, exec, self.sent(db, lines, How::Exec), until).await,
            Step::Script(db, lines) => self.send(name, exec, self.sent(db, lines, How::Script), until).await,
            Step::Wait(line) => self.wait(name, exec, line, until).await,
            Step::Watched { read, pause, calls } => {
                self.watched(name, exec, (read, pause, calls), until).await
            }
        };
        if answered { name } else { self.names.fetch_add(1, SeqCst) }
    }

    fn sent(&self, db: u8, lines: Vec<Line>, how: How) -> Sent {
        Sent { db, lines, how, unit: self.units.fetch_add(1, SeqCst), watches: Vec::new() }
    }

    async fn watched(
        &self,
        name: usize,
        exec: &Executor,
        (read, pause, lines): (Line, Duration, Vec<Line>),
        mut until: Until,
    ) -> bool {
        let key = read[1].clone();
        let read = self.sent(0, vec![read], How::Pipeline);
        let own = self.watching.fetch_add(2, SeqCst);
        let mut sent = Sent { db: 0, lines, how: How::Exec, unit: own + 1, watches: Vec::new() };
        assert!(
            self.witness.is_none() || sent.unit < self.marked.load(SeqCst),
            "more marks must be prepared"
        );
        let watch = async {
            self.watch(name, exec, &key, own, &mut sent).await;
            let answered = self.send(name, exec, read, Box::pin(std::future::pending())).await;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            answered
        };
        tokio::select! {
            biased;
            answered = watch => if !answered { return false },
            () = &mut until => return false,
        }
        self.send(name, exec, sent, until).await
    }

    /// The mark of WATCH's own transaction precedes the key; that of the EXEC is compared first.
    async fn watch(&self, name: usize, exec: &Executor, key: &str, own: usize, sent: &mut Sent) {
        let mut keys = vec![Bytes::copy_from_slice(key.as_bytes())];
        if let Some(witness) = &self.witness {
            witness.is_watch(own);
            keys.splice(0..0, [mark_bytes(own), mark_bytes(sent.unit)]);
        }
        let called = self.tick();
        let Ok(mut watched) = exec.watch(0, &keys).await else { return };
        sent.watches = watched.split_off(keys.len().saturating_sub(2).min(1));
        let (returned, op) = (self.tick(), Op::Watch(key.to_owned()));
        let answer = Some(Answer::Ok);
        self.note(Event {
            client: name,
            op,
            answer,
            called,
            returned,
            after: None,
            unit: own,
            clocks: 0..=0,
        });
    }

    /// Waits. A client that leaves before its call may run has done nothing; once it may, it waits for the answer.
    async fn wait(&self, name: usize, exec: &Executor, line: Line, until: Until) -> bool {
        let mut client = ClientState::new(Arc::default(), true);
        let mut wait = Wait::new(exec.server(), &client, call(&line), None);
        let mut called = self.tick();
        let half = self.patience.unwrap_or(PATIENCE) / 2;
        let mut halves = [tokio::time::sleep(half), tokio::time::sleep(2 * half)].map(Box::pin);
        tokio::pin!(until);
        let mut is_late = false;
        let reply = loop {
            if let Some(reply) = wait.go_on(exec, &mut client, false).await {
                break reply;
            }
            let end = &mut halves[usize::from(is_late)];
            tokio::select! {
                biased;
                () = wait.called(exec.server(), || None) => {}
                () = &mut until => return false,
                () = end => match (is_late, self.patience) {
                    (true, None) => return true,
                    (true, Some(_)) => break Reply::Nil,
                    (false, Some(_)) => (is_late, called) = (true, self.tick()),
                    (false, None) => is_late = true,
                },
            }
        };
        let returned = self.tick();
        let answer = answers(Some(vec![reply]), 0, 1, How::Pipeline).and_then(|mut all| all.pop());
        let known = answer.is_some();
        let returned = if known { returned } else { NEVER };
        let (op, unit) = (Op::One(line), self.units.fetch_add(1, SeqCst));
        self.note(Event { client: name, op, answer, called, returned, after: None, unit, clocks: 0..=0 });
        known
    }

    fn note(&self, event: Event) -> usize {
        let mut events = self.events.lock().unwrap();
        events.push(event);
        events.len() - 1
    }

    /// Sends calls and records their answers; false if those are unknown. Calls that a pipeline's unit leaves
    /// undone are sent as another unit.
    async fn send(&self, name: usize, exec: &Executor, sent: Sent, mut until: Until) -> bool {
        let Sent { mut db, mut lines, how, mut unit, mut watches } = sent;
        let multi = how != How::Pipeline;
        loop {
            let is_marked = self.witness.is_some();
            let marks = usize::from(is_marked);
            let mark = is_marked.then(|| call(&["EXISTS".to_owned(), mark(unit)]));
            let end = (is_marked && !multi).then(|| call(&["EXISTS".to_owned(), end_mark(unit)]));
            let own = match how {
                How::Script => vec![script(unit, &lines)],
                How::Pipeline | How::Exec => lines.iter().map(|argv| call(argv)).collect(),
            };
            let calls = mark.into_iter().chain(own).chain(end).collect();
            let client = ClientState { db, ..ClientState::new(Arc::default(), true) };
            let watches = std::mem::take(&mut watches);
            let called = self.tick();
            let run = exec.run(Unit { calls, client: Box::new(client), watches, exec: multi, id: None });
            let done = tokio::select! {
                biased;
                done = run => Some(done),
                () = &mut until => None,
            };
            let returned = self.tick();
            let ran = done.as_ref().map_or(usize::MAX, |done| done.ran.len()).saturating_sub(marks);
            let ran = if how == How::Script { usize::MAX } else { ran };
            let rest = lines.split_off(ran.min(lines.len()));
            if done.is_none() && !multi {
                self.left.lock().unwrap().insert(unit);
            }
            let selected = done.as_ref().map(|done| done.client.db);
            let answers = done.and_then(|done| answers(done.replies, marks, lines.len(), how));
            let known = answers.is_some();
            let (ran, last) = in_their_databases(&lines, db);
            assert!(
                !is_done(&answers) || selected == Some(last),
                "database {selected:?} is selected after {ran:?}"
            );
            db = selected.unwrap_or(db);
            let ops = if multi { vec![Op::Exec(ran)] } else { ran.into_iter().map(Op::One).collect() };
            let answers: Vec<Option<Answer>> = match answers {
                None => vec![None; ops.len()],
                Some(answers) if multi && answers != [Answer::Aborted] => vec![Some(Answer::All(answers))],
                Some(answers) => answers.into_iter().map(Some).collect(),
            };
            let returned = if known { returned } else { NEVER };
            let mut after = None;
            for (op, answer) in ops.into_iter().zip(answers) {
                let event = Event { client: name, op, answer, called, returned, after, unit, clocks: 0..=0 };
                after = Some(self.note(event));
            }
            if rest.is_empty() || !known {
                return known;
            }
            (lines, unit) = (rest, self.units.fetch_add(1, SeqCst));
        }
    }

    /// The history, with the times that each operation may have seen. Call this once nothing is under way.
    pub fn finish(&self) -> History {
        let shown = self.shown.lock().unwrap();
        let clocks = |from: u64, to: u64| {
            let first = shown.partition_point(|(tick, _)| *tick <= from).saturating_sub(1);
            let last = shown.partition_point(|(tick, _)| *tick < to).min(shown.len() - 1);
            shown[first].1..=shown[last].1
        };
        let mut events = std::mem::take(&mut *self.events.lock().unwrap());
        let seen = self.witness.as_ref().map(|w| w.last_seen());
        for event in &mut events {
            let end = match &seen {
                // It did not run after the last transaction that held it.
                Some(seen) if event.returned == NEVER => {
                    seen.get(&event.unit).map_or(event.called, |at| at + 1)
                }
                _ => event.returned,
            };
            event.clocks = clocks(event.called, end.max(event.called + 1));
        }
        let answered: BTreeSet<usize> = events
            .iter()
            .filter(|e| e.answer.as_ref().is_some_and(|a| !a.is_refused()))
            .map(|e| e.unit)
            .collect();
        let trace = self.witness.as_ref().map(|w| w.trace(&answered));
        History { events, trace, left: self.left.lock().unwrap().clone() }
    }
}

/// The answers to a unit's `calls`, which follow those to `marks`; None: unknown.
fn answers(replies: Option<Vec<Reply>>, marks: usize, calls: usize, how: How) -> Option<Vec<Answer>> {
    let Some(mut replies) = replies else { return Some(vec![Answer::Aborted]) };
    if how == How::Script {
        replies = match replies.remove(marks) {
            Reply::Array(replies) => replies,
            refused => vec![refused; calls],
        };
        replies.splice(0..0, vec![Reply::Nil; marks]);
    }
    let answers: Vec<Answer> = replies.iter().skip(marks).take(calls).map(Answer::of).collect();
    let in_doubt = |a: &Answer| matches!(a, Answer::Error(line) if line.contains("commit result unknown"));
    (!answers.iter().any(in_doubt)).then_some(answers)
}

/// Whether all of a unit ran.
fn is_done(answers: &Option<Vec<Answer>>) -> bool {
    answers.as_ref().is_some_and(|all| !all.iter().any(|a| *a == Answer::Aborted || a.is_refused()))
}

/// The lines as the model has them, for a client that has `db` selected, and the selected database
/// afterwards.
fn in_their_databases(lines: &[Line], mut db: u8) -> (Vec<Line>, u8) {
    let one = |argv: &Line| {
        if argv[0] == "SELECT" {
            db = argv[1].parse().unwrap();
        }
        placed(argv, db)
    };
    (lines.iter().map(one).collect(), db)
}

fn call(line: &[String]) -> Call {
    let (id, line) = match line[0].as_str() {
        "ONCE" => (Some(Bytes::copy_from_slice(line[1].as_bytes())), line[2..].to_vec()),
        "RESULT" | "FORGET" => (None, [&["IDEMPOTENT".to_owned()], line].concat()),
        _ => (None, line.to_vec()),
    };
    let argv: Vec<Bytes> = line.iter().flat_map(|word| values::sent(word)).map(Bytes::from).collect();
    let (row, names) = table().resolve(&argv).and_then(Result::ok).unwrap();
    Call { row, argv, names, id }
}

/// The replies to a call that is no part of the history.
async fn alone(exec: &Executor, call: Call) -> Option<Vec<Reply>> {
    let client = ClientState::new(Arc::default(), true);
    let unit =
        Unit { calls: vec![call], client: Box::new(client), watches: Vec::new(), exec: false, id: None };
    exec.run(unit).await.replies
}

/// One call of a script that calls these, or of a library's function.
fn script(unit: usize, lines: &[Line]) -> Call {
    let called = lines.iter().flat_map(|line| {
        let argv = call(line).argv;
        std::iter::once(Bytes::from(argv.len().to_string())).chain(argv)
    });
    let first = if unit.is_multiple_of(2) { ["EVAL", SCRIPT, "0"] } else { ["FCALL", "called", "0"] };
    let first = first.map(|word| Bytes::from_static(word.as_bytes()));
    let argv: Vec<Bytes> = first.into_iter().chain(called).collect();
    let (row, names) = table().resolve(&argv).and_then(Result::ok).unwrap();
    Call { row, argv, names, id: None }
}

/// Each unit's events, in order.
pub fn units(events: &[Event]) -> BTreeMap<usize, Vec<usize>> {
    let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, event) in events.iter().enumerate() {
        units.entry(event.unit).or_default().push(n);
    }
    units
}
