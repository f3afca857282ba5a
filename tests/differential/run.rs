//! Runs a sequence on both servers and finds the first step whose replies differ.

use crate::chosen::{self, Element};
use crate::differences::{Comparison, DELIBERATE, PATIENCE, compare, times_differ};
use crate::generate::{Argv, Kind, Step};
use crate::late::{LAPSED, Late};
use crate::support::resp::{Client, Reply, Value, request, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Lines sent before replies are read.
pub const WINDOW: usize = 32;
/// Seconds that the servers may take to remove expired keys, so that their counts agree.
pub const COUNTED: Duration = Duration::from_secs(10);
/// Databases compared at the end of a sequence.
pub const DATABASES: [&str; 5] = ["0", "1", "2", "15", "3"];

/// The first difference between two servers.
pub struct Mismatch {
    /// The index of the step.
    pub step: usize,
    /// The line.
    pub argv: Argv,
    /// The difference in words, or Redis' reply.
    pub redis: String,
    /// The same for Tern.
    pub tern: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}\n  redis: {}\n  tern:  {}", self.step, show(&self.argv), self.redis, self.tern)
    }
}

/// A line of arguments, escaped.
pub fn show(argv: &Argv) -> String {
    argv.iter().map(|a| format!("\"{}\"", text(a))).collect::<Vec<_>>().join(" ")
}

/// A client of each server, which get the same lines.
pub struct Both {
    /// Of redis-server.
    pub redis: Client,
    /// Of Tern.
    pub tern: Client,
    /// Lines that MULTI has queued; None outside MULTI.
    pub queued: Option<Vec<Argv>>,
    /// Lines of this transaction that redis-server gets after Tern has run it; None while it gets each at
    /// once.
    pub late: Option<Vec<Late>>,
    /// When the lines under comparison were sent.
    pub began: Instant,
}

/// The counts of a run, for its report.
#[derive(Debug, Default)]
pub struct Tally {
    /// Lines whose replies were compared.
    pub lines: usize,
    /// Lines by command.
    pub commands: BTreeMap<String, usize>,
    /// Occurrences of each deliberate difference.
    pub meant: Vec<usize>,
    /// Lines of `commands` that both ran inside MULTI where the reply is a choice, or a key expires after
    /// EXEC.
    pub late: usize,
    /// The longest time that both servers took for lines sent together: no two of their clocks were read
    /// further apart.
    pub longest: Duration,
}

/// The two servers.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// redis-server.
    pub redis: u16,
    /// Tern.
    pub tern: u16,
    /// 2 or 3.
    pub protocol: u8,
}

pub type Outcome<T> = Result<T, Mismatch>;

/// Runs `steps` from an empty state on two fresh connections, then compares the complete contents of the
/// servers.
pub fn run(ports: Ports, steps: &[Step], tally: &mut Tally) -> Outcome<()> {
    tally.meant.resize(DELIBERATE.len(), 0);
    let broken = |e: io::Error| Mismatch {
        step: 0,
        argv: vec![b"(connect)".to_vec()],
        redis: "a connection".into(),
        tern: e.to_string(),
    };
    let mut conns = [Both::connect(ports).map_err(broken)?, Both::connect(ports).map_err(broken)?];
    conns[0].expect_same(0, &words("FLUSHALL"))?;
    let mut at = 0;
    while at < steps.len() {
        let both = &mut conns[steps[at].conn];
        let plain = |s: &&Step| s.kind == Kind::Plain && s.conn == steps[at].conn;
        let window = steps[at..].iter().take(WINDOW).take_while(plain).count();
        let late = both.late.is_some() || both.queued.is_some() && steps[at].kind.is_chosen();
        let done = match window {
            _ if late => both.line_late(ports, at, &steps[at], tally),
            0 => both.special(ports, at, &steps[at], tally),
            window => both.window(at, &steps[at..at + window], tally),
        };
        let window = if late { 1 } else { window };
        if let Err(mismatch) = done {
            let (before, conn) = (&steps[..mismatch.step], steps[at].conn);
            let Some(which) = parting(before, conn, &mismatch) else { return Err(mismatch) };
            tally.meant[which] += 1;
            return Ok(()); // only one ran its queue: no later reply compares
        }
        at += window.max(1);
    }
    compare_states(ports, steps.len(), tally)
}

/// The deliberate difference after which the two states differ: the EXEC ran on one side, and a key that it
/// watches was in a BITFIELD that may have failed, or in an XSETID.
fn parting(before: &[Step], conn: usize, mismatch: &Mismatch) -> Option<usize> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let (mut watched, mut in_multi, mut made) = (BTreeSet::new(), [false; 2], false);
    for step in before {
        let (name, rest) = step.argv.split_first()?;
        // Of XSETID, redis-server tells nobody who watches.
        if is(name, "XSETID") && !rest.is_empty() {
            made |= watched.contains(&rest[0]) || in_multi[step.conn];
        }
        if is(name, "BITFIELD") && rest.iter().any(|word| is(word, "FAIL")) {
            // A queued one runs later.
            made |= watched.contains(&rest[0]) || in_multi[step.conn];
        }
        let alone = rest.is_empty();
        if is(name, "WATCH") && step.conn == conn && !in_multi[conn] {
            watched.extend(rest);
        }
        let ends = ["EXEC", "DISCARD"].iter().any(|end| is(name, end)) && alone && in_multi[step.conn];
        if ends || is(name, "RESET") || is(name, "QUIT") || is(name, "UNWATCH") && !in_multi[step.conn] {
            in_multi[step.conn] = false;
            if step.conn == conn {
                watched.clear();
                made = false;
            }
        }
        in_multi[step.conn] |= is(name, "MULTI") && alone;
    }
    let nothing_ran = ["_\\r\\n", "*-1\\r\\n"].contains(&mismatch.tern.as_str());
    let met = is(&mismatch.argv[0], "EXEC") && nothing_ran && made;
    met.then(|| DELIBERATE.iter().position(|d| d.name.starts_with("WATCH sees")))?
}

/// A line of words.
pub fn words(line: &str) -> Argv {
    line.split(' ').map(|w| w.as_bytes().to_vec()).collect()
}

impl Both {
    fn connect(ports: Ports) -> io::Result<Both> {
        let (redis, tern) = (Client::connect(ports.redis)?, Client::connect(ports.tern)?);
        let mut both = Both { redis, tern, queued: None, late: None, began: Instant::now() };
        if ports.protocol == 3 {
            let hello = words("HELLO 3");
            both.redis.try_run(&hello)?;
            both.tern.try_run(&hello)?;
        }
        Ok(both)
    }

    /// Sends the lines of all steps, then compares all replies.
    pub fn window(&mut self, at: usize, steps: &[Step], tally: &mut Tally) -> Outcome<()> {
        let bytes: Vec<u8> = steps.iter().flat_map(|s| request(&s.argv)).collect();
        self.began = Instant::now();
        self.redis.send_raw(&bytes).expect("redis-server reads");
        let sent = self.tern.send_raw(&bytes).map_err(|e| e.to_string());
        for (i, step) in steps.iter().enumerate() {
            let redis = self.redis.read();
            let redis = redis.unwrap_or_else(|e| panic!("redis-server, {}: {e}", show(&step.argv)));
            let tern = sent.clone().and_then(|()| self.tern.read().map_err(|e| e.to_string()));
            let tern = tern.map_err(|e| mismatch(at + i, &step.argv, &redis, &e))?;
            if let Err(differs) = self.compare_line(at + i, &step.argv, &redis, &tern, tally) {
                // The remaining lines must not run into the next sequence.
                let rest = steps.len() - i - 1;
                let _ = (0..rest).try_for_each(|_| self.tern.read().map(drop));
                return Err(differs);
            }
        }
        tally.took(self.began.elapsed());
        Ok(())
    }

    /// Compares the replies to a line.
    pub fn compare_line(
        &mut self,
        at: usize,
        argv: &Argv,
        redis: &Reply,
        tern: &Reply,
        tally: &mut Tally,
    ) -> Outcome<()> {
        tally.count(argv);
        tally.took(self.began.elapsed());
        let queued = self.queued.clone().unwrap_or_default();
        let comparison = if redis.raw == tern.raw {
            Comparison::Same
        } else {
            compare(argv, &queued, &redis.value, &tern.value, tally.apart())
        };
        self.follow(argv, &redis.value);
        match comparison {
            Comparison::Same => Ok(()),
            Comparison::Meant(which) => {
                tally.meant[which] += 1;
                Ok(())
            }
            Comparison::Differ => Err(mismatch(at, argv, redis, &text(&tern.raw))),
        }
    }

    /// Follows MULTI's state by Redis' reply.
    fn follow(&mut self, argv: &Argv, redis: &Value) {
        let name = argv[0].to_ascii_uppercase();
        match (name.as_slice(), redis) {
            (_, Value::Simple(word)) if word == b"QUEUED" => {
                self.queued.get_or_insert_default().push(argv.clone())
            }
            (b"MULTI", Value::Simple(_)) => self.queued = Some(Vec::new()),
            (b"EXEC", _) | (b"DISCARD" | b"RESET" | b"QUIT", Value::Simple(_)) => self.queued = None,
            _ => {}
        }
    }

    fn ask(&mut self, at: usize, argv: &Argv) -> Outcome<(Reply, Reply)> {
        self.began = Instant::now();
        let redis = self.redis.try_run(argv).expect("redis-server answers");
        let tern = self.tern.try_run(argv).map_err(|e| mismatch(at, argv, &redis, &e.to_string()))?;
        Ok((redis, tern))
    }

    /// Fails unless both reply with the same bytes.
    pub fn expect_same(&mut self, at: usize, argv: &Argv) -> Outcome<Reply> {
        let (redis, tern) = self.ask(at, argv)?;
        if redis.raw != tern.raw {
            return Err(mismatch(at, argv, &redis, &text(&tern.raw)));
        }
        Ok(redis)
    }

    /// Handles a line that has more effects than its reply, or that cannot share a window.
    pub fn special(&mut self, ports: Ports, at: usize, step: &Step, tally: &mut Tally) -> Outcome<()> {
        if self.queued.is_some() && step.kind != Kind::Quit {
            return Ok(());
        }
        let argv = &step.argv;
        match step.kind {
            Kind::Plain => self.window(at, std::slice::from_ref(step), tally),
            Kind::Lapse => {
                self.window(at, std::slice::from_ref(step), tally)?;
                std::thread::sleep(LAPSED);
                self.expect_same(at, &vec![b"EXISTS".to_vec(), argv[1].clone()]).map(drop)
            }
            Kind::Silent => self.silent(at, argv, tally),
            Kind::Quit => {
                self.window(at, std::slice::from_ref(step), tally)?;
                self.quit(ports, at, argv)
            }
            Kind::Scan => self.scan(at, argv, tally),
            Kind::Pop => self.pop(at, argv, tally),
            Kind::Sample => self.sample(at, argv, tally),
            Kind::RandomKey => self.random_key(at, argv, tally),
            Kind::Count => self.count(at, argv, tally),
            Kind::Made => self.made(at, argv, tally),
        }
    }

    /// Checks that `argv` gets no reply: the replies to its neighbours are adjacent.
    fn silent(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let lines =
            [words("CLIENT REPLY OFF"), argv.clone(), words("CLIENT REPLY ON"), words("CLIENT REPLY SKIP")];
        let mut bytes: Vec<u8> = lines.iter().flat_map(|l| request(l)).collect();
        bytes.extend(request(argv));
        bytes.extend(request(&words("ECHO end")));
        let began = Instant::now();
        for client in [&mut self.redis, &mut self.tern] {
            let _ = client.send_raw(&bytes);
        }
        for _ in 0..2 {
            let redis = self.redis.read().expect("redis-server answers");
            let tern = self.tern.read().map_err(|e| mismatch(at, argv, &redis, &e.to_string()))?;
            if redis.raw != tern.raw {
                return Err(mismatch(at, argv, &redis, &text(&tern.raw)));
            }
        }
        tally.took(began.elapsed());
        Ok(())
    }

    fn quit(&mut self, ports: Ports, at: usize, argv: &Argv) -> Outcome<()> {
        let ended = |client: &mut Client| {
            client.set_timeout(Duration::from_secs(PATIENCE));
            client.drain()
        };
        let (redis, tern) = (ended(&mut self.redis), ended(&mut self.tern));
        if redis != tern {
            let (redis, tern) = (format!("rest, closed: {redis:?}"), format!("{tern:?}"));
            return Err(Mismatch { step: at, argv: argv.clone(), redis, tern });
        }
        *self = Both::connect(ports).map_err(|e| Mismatch {
            step: at,
            argv: argv.clone(),
            redis: "accepts the next connection".into(),
            tern: e.to_string(),
        })?;
        Ok(())
    }

    /// Follows the cursor on both sides. Both must find the same set.
    fn scan(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        if redis.value.is_error() || tern.value.is_error() || !chosen::starts(argv) {
            if chosen::is_valid(Kind::Scan, argv, std::slice::from_ref(&redis.value), &tern.value, true)
                == Some(true)
            {
                return Ok(());
            }
            return self.compare_line(at, argv, &redis, &tern, tally);
        }
        tally.count(argv);
        let (redis, tern) = (walk(&mut self.redis, argv, |_, _| true), {
            let fits = |cursor: &[u8], length: usize| chosen::page_fits(argv, cursor, length);
            walk(&mut self.tern, argv, fits)
        });
        let all = |found: &Result<Vec<Element>, String>| found.clone().map(BTreeSet::from_iter);
        // Redis may return a name twice; here it does not, because nothing changes meanwhile.
        let once = tern.as_ref().is_ok_and(|found| chosen::unique(found));
        if redis.is_ok() && all(&redis) == all(&tern) && once {
            return Ok(());
        }
        Err(Mismatch { step: at, argv: argv.clone(), redis: format!("{redis:?}"), tern: format!("{tern:?}") })
    }

    /// The two sides pop different members: each side then removes what the other one popped, and must have
    /// had it.
    fn pop(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        let (Some(popped_r), Some(popped_t)) = (members(&redis.value), members(&tern.value)) else {
            return self.compare_line(at, argv, &redis, &tern, tally);
        };
        tally.count(argv);
        let same_kind = std::mem::discriminant(&redis.value) == std::mem::discriminant(&tern.value);
        let (had_r, had_t) =
            (self.remove(false, &argv[1], &popped_t), self.remove(true, &argv[1], &popped_r));
        if same_kind && popped_r.len() == popped_t.len() && chosen::unique(&popped_t) && had_r == had_t && {
            let common = popped_r.iter().filter(|m| popped_t.contains(m)).count();
            had_r as usize + common == popped_t.len()
        } {
            return Ok(());
        }
        Err(mismatch(
            at,
            argv,
            &redis,
            &format!("{tern:?}; redis had {had_r} of those, tern {had_t} of redis'"),
        ))
    }

    /// SREM on one side.
    fn remove(&mut self, tern: bool, key: &[u8], members: &[Vec<u8>]) -> i64 {
        if members.is_empty() {
            return 0;
        }
        let mut argv = vec![b"SREM".to_vec(), key.to_vec()];
        argv.extend_from_slice(members);
        let client = if tern { &mut self.tern } else { &mut self.redis };
        client.try_run(&argv).ok().and_then(|r| r.value.int()).unwrap_or(-1)
    }

    fn sample(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        let elements = |value: &Value| chosen::elements(argv, value);
        let (Some(sample_r), Some(sample_t)) = (elements(&redis.value), elements(&tern.value)) else {
            return self.compare_line(at, argv, &redis, &tern, tally);
        };
        tally.count(argv);
        let same_kind = std::mem::discriminant(&redis.value) == std::mem::discriminant(&tern.value);
        let distinct = chosen::may_repeat(argv) || chosen::unique(&sample_t);
        let fits = same_kind && sample_r.len() == sample_t.len() && distinct;
        if !fits || !self.are_there(argv, &sample_t) {
            return Err(mismatch(at, argv, &redis, &format!("{tern:?}")));
        }
        Ok(())
    }

    fn are_there(&mut self, argv: &Argv, elements: &[Element]) -> bool {
        if elements.is_empty() {
            return true;
        }
        let mut check = vec![chosen::checked_by(argv).as_bytes().to_vec(), argv[1].clone()];
        check.extend(chosen::names(elements));
        chosen::are_there(elements, &self.redis.run(&check).value)
    }

    fn random_key(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        let (Value::Bulk(_), Value::Bulk(key)) = (&redis.value, &tern.value) else {
            return self.compare_line(at, argv, &redis, &tern, tally);
        };
        tally.count(argv);
        let found = self.redis.run(&[b"EXISTS", key.as_slice()]).value == Value::Int(1);
        if found { Ok(()) } else { Err(mismatch(at, argv, &redis, &format!("{tern:?}, no such key"))) }
    }

    fn count(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let since = Instant::now();
        loop {
            let (redis, tern) = self.ask(at, argv)?;
            if redis.raw == tern.raw || since.elapsed() > COUNTED {
                return self.compare_line(at, argv, &redis, &tern, tally);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Tally {
    fn count(&mut self, argv: &Argv) {
        self.lines += 1;
        let name = String::from_utf8_lossy(&argv[0]).to_uppercase();
        *self.commands.entry(name).or_default() += 1;
    }
    /// The time that lines sent together took.
    pub fn took(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
    }
    /// Milliseconds by which two equally long expiries may differ: each was set and is read by another clock.
    pub fn apart(&self) -> u64 {
        2 * self.longest.as_millis() as u64 + 2
    }
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        self.lines += other.lines;
        self.late += other.late;
        self.longest = self.longest.max(other.longest);
        for (name, count) in &other.commands {
            *self.commands.entry(name.clone()).or_default() += count;
        }
        self.meant.resize(DELIBERATE.len(), 0);
        self.meant.iter_mut().zip(&other.meant).for_each(|(sum, n)| *sum += n);
    }
}

/// A mismatch of replies.
pub fn mismatch(step: usize, argv: &Argv, redis: &Reply, tern: &str) -> Mismatch {
    Mismatch { step, argv: argv.clone(), redis: text(&redis.raw), tern: tern.to_owned() }
}

/// The strings of a reply that is one string or a collection of them.
pub fn members(value: &Value) -> Option<Vec<Vec<u8>>> {
    if let Value::Bulk(member) = value {
        return Some(vec![member.clone()]);
    }
    value.items()?.iter().map(|v| v.bytes().map(<[u8]>::to_vec)).collect()
}

/// Everything that a walk finds. `fits`: whether a page may have this length, by the cursor after it.
fn walk(
    client: &mut Client,
    argv: &Argv,
    fits: impl Fn(&[u8], usize) -> bool,
) -> Result<Vec<Element>, String> {
    let (mut found, mut line) = (Vec::new(), argv.clone());
    for _ in 0..100_000 {
        let reply = client.try_run(&line).map_err(|e| e.to_string())?.value;
        let (cursor, names) = chosen::page(argv, &reply).ok_or_else(|| format!("{reply:?}"))?;
        if !fits(&cursor, names.len()) {
            return Err(format!("a page of {} before cursor {}", names.len(), text(&cursor)));
        }
        found.extend(names);
        if cursor == b"0" {
            return Ok(found);
        }
        line[chosen::place(argv)] = cursor;
    }
    Err("the cursor never came back to 0".into())
}

/// Compares every key of a few databases: type, expiry, content.
fn compare_states(ports: Ports, at: usize, tally: &Tally) -> Outcome<()> {
    let states =
        [ports.redis, ports.tern].map(|port| state(port).unwrap_or_else(|e| vec![(e.to_string(), 0)]));
    let far = |a, b| a != b && times_differ(a, b, tally.apart());
    let differing =
        states[0].iter().zip(&states[1]).find(|(redis, tern)| redis.0 != tern.0 || far(redis.1, tern.1));
    let last = |i: usize| states[i].get(states[1 - i].len()).cloned();
    let differing = differing
        .map(|(r, t)| (Some(r.clone()), Some(t.clone())))
        .or_else(|| (states[0].len() != states[1].len()).then(|| (last(0), last(1))));
    match differing {
        None => Ok(()),
        Some((redis, tern)) => Err(Mismatch {
            step: at,
            argv: vec![b"(all that is stored)".to_vec()],
            redis: format!("{redis:?}"),
            tern: format!("{tern:?}"),
        }),
    }
}

/// Lines "database, key, type, content" with the expiry time.
fn state(port: u16) -> io::Result<Vec<(String, i64)>> {
    let mut client = Client::connect(port)?;
    let mut lines = Vec::new();
    for db in DATABASES {
        client.try_run(&["SELECT", db])?;
        let keys = client.try_run(&["KEYS", "*"])?.value;
        let mut keys = members(&keys).unwrap_or_default();
        keys.sort();
        for key in keys {
            let ask =
                |client: &mut Client, name: &[u8]| client.try_run(&[name, key.as_slice()]).map(|r| r.value);
            let kind = ask(&mut client, b"TYPE")?;
            let life = ask(&mut client, b"PEXPIRETIME")?.int().unwrap_or(i64::MIN);
            let content = match kind.bytes() {
                Some(b"set") => {
                    let mut all = members(&ask(&mut client, b"SMEMBERS")?).unwrap_or_default();
                    all.sort();
                    format!("{}: {}", all.len(), show(&all))
                }
                Some(b"list") => {
                    let all = client.try_run(&[b"LRANGE".as_slice(), key.as_slice(), b"0", b"-1"])?.value;
                    let all = members(&all).unwrap_or_default();
                    format!("{}: {}", all.len(), show(&all))
                }
                Some(b"hash") => {
                    let all = members(&ask(&mut client, b"HGETALL")?).unwrap_or_default();
                    let mut all: Vec<Argv> = all.chunks(2).map(<[Vec<u8>]>::to_vec).collect();
                    all.sort();
                    format!("{}: {}", all.len(), show(&all.concat()))
                }
                Some(b"stream") => crate::streams::content(&mut client, &key)?,
                _ => format!("{:?}", ask(&mut client, b"GET")?),
            };
            lines.push((format!("db {db} {} {kind:?} {content}", text(&key)), life));
        }
    }
    Ok(lines)
}
