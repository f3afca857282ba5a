//! Runs a sequence on both servers and finds the first step whose replies differ.

use crate::differences::{DELIBERATE, PATIENCE, Verdict, compare};
use crate::generate::{Argv, Kind, Step};
use crate::support::resp::{Client, Reply, Value, request, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Lines that are sent before replies are read.
pub const WINDOW: usize = 32;
/// How long the servers may take to remove what has expired, so that their counts agree.
const COUNTED: Duration = Duration::from_secs(10);
/// Databases that the end of a sequence compares.
const DATABASES: [&str; 5] = ["0", "1", "2", "15", "3"];

/// Where two servers parted.
pub struct Mismatch {
    /// Index of the step.
    pub step: usize,
    /// The line.
    pub argv: Argv,
    /// What differed, in words, or the reply.
    pub redis: String,
    /// The same of Tern.
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

/// A client of each server. What is sent to one is sent to the other.
struct Both {
    redis: Client,
    tern: Client,
    /// Lines that MULTI has queued; None outside.
    queued: Option<Vec<Argv>>,
}

/// Counts of a run, for its report.
#[derive(Debug, Default)]
pub struct Tally {
    /// Lines whose replies were compared.
    pub lines: usize,
    /// Lines by command.
    pub commands: BTreeMap<String, usize>,
    /// How often each deliberate difference was met.
    pub meant: Vec<usize>,
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

type Outcome<T> = Result<T, Mismatch>;

/// Runs `steps` from an empty state on two fresh connections, then compares all that the servers hold.
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
        let done = if window > 0 {
            both.window(at, &steps[at..at + window], tally)
        } else {
            both.special(ports, at, &steps[at], tally)
        };
        if let Err(mismatch) = done {
            let (before, conn) = (&steps[..mismatch.step], steps[at].conn);
            let Some(which) = parting(before, conn, &mismatch) else { return Err(mismatch) };
            tally.meant[which] += 1;
            return Ok(()); // one ran its queue and the other did not: nothing behind it compares
        }
        at += window.max(1);
    }
    compare_states(ports, steps.len())
}

/// The deliberate difference after which the two states are no longer the same: the EXEC ran on one side, and a key that it watches was in
/// a BITFIELD that may have failed.
fn parting(before: &[Step], conn: usize, mismatch: &Mismatch) -> Option<usize> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let (mut watched, mut in_multi, mut made) = (BTreeSet::new(), [false; 2], false);
    for step in before {
        let (name, rest) = step.argv.split_first()?;
        if is(name, "BITFIELD") && rest.iter().any(|word| is(word, "FAIL")) {
            // One that is queued runs later.
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

fn words(line: &str) -> Argv {
    line.split(' ').map(|w| w.as_bytes().to_vec()).collect()
}

impl Both {
    fn connect(ports: Ports) -> io::Result<Both> {
        let mut both =
            Both { redis: Client::connect(ports.redis)?, tern: Client::connect(ports.tern)?, queued: None };
        if ports.protocol == 3 {
            let hello = words("HELLO 3");
            both.redis.try_run(&hello)?;
            both.tern.try_run(&hello)?;
        }
        Ok(both)
    }

    /// Sends the lines of all steps, then compares all replies.
    fn window(&mut self, at: usize, steps: &[Step], tally: &mut Tally) -> Outcome<()> {
        let bytes: Vec<u8> = steps.iter().flat_map(|s| request(&s.argv)).collect();
        self.redis.send_raw(&bytes).expect("redis-server reads");
        let sent = self.tern.send_raw(&bytes).map_err(|e| e.to_string());
        for (i, step) in steps.iter().enumerate() {
            let redis = self.redis.read();
            let redis = redis.unwrap_or_else(|e| panic!("redis-server, {}: {e}", show(&step.argv)));
            let tern = sent.clone().and_then(|()| self.tern.read().map_err(|e| e.to_string()));
            let tern = tern.map_err(|e| mismatch(at + i, &step.argv, &redis, &e))?;
            if let Err(differs) = self.judge(at + i, &step.argv, &redis, &tern, tally) {
                // The lines behind it must not run into the next sequence.
                let rest = steps.len() - i - 1;
                let _ = (0..rest).try_for_each(|_| self.tern.read().map(drop));
                return Err(differs);
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        at: usize,
        argv: &Argv,
        redis: &Reply,
        tern: &Reply,
        tally: &mut Tally,
    ) -> Outcome<()> {
        tally.count(argv);
        let queued = self.queued.clone().unwrap_or_default();
        let verdict = if redis.raw == tern.raw {
            Verdict::Same
        } else {
            compare(argv, &queued, &redis.value, &tern.value)
        };
        self.follow(argv, &redis.value);
        match verdict {
            Verdict::Same => Ok(()),
            Verdict::Meant(which) => {
                tally.meant[which] += 1;
                Ok(())
            }
            Verdict::Differ => Err(mismatch(at, argv, redis, &text(&tern.raw))),
        }
    }

    /// Follows MULTI's state from Redis' reply.
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
        let redis = self.redis.try_run(argv).expect("redis-server answers");
        let tern = self.tern.try_run(argv).map_err(|e| mismatch(at, argv, &redis, &e.to_string()))?;
        Ok((redis, tern))
    }

    /// Both must answer the same bytes.
    fn expect_same(&mut self, at: usize, argv: &Argv) -> Outcome<Reply> {
        let (redis, tern) = self.ask(at, argv)?;
        if redis.raw != tern.raw {
            return Err(mismatch(at, argv, &redis, &text(&tern.raw)));
        }
        Ok(redis)
    }

    fn special(&mut self, ports: Ports, at: usize, step: &Step, tally: &mut Tally) -> Outcome<()> {
        if self.queued.is_some() && step.kind != Kind::Quit {
            return Ok(());
        }
        let argv = &step.argv;
        match step.kind {
            Kind::Plain => self.window(at, std::slice::from_ref(step), tally),
            Kind::Lapse => {
                self.window(at, std::slice::from_ref(step), tally)?;
                std::thread::sleep(Duration::from_millis(25));
                self.expect_same(at, &vec![b"EXISTS".to_vec(), argv[1].clone()]).map(drop)
            }
            Kind::Silent => self.silent(at, argv),
            Kind::Quit => {
                self.window(at, std::slice::from_ref(step), tally)?;
                self.quit(ports, at, argv)
            }
            Kind::Scan => self.scan(at, argv, tally),
            Kind::Pop => self.pop(at, argv, tally),
            Kind::Sample => self.sample(at, argv, tally),
            Kind::RandomKey => self.random_key(at, argv, tally),
            Kind::Count => self.count(at, argv, tally),
        }
    }

    /// Nothing may come for `argv`: the replies to what surrounds it follow each other.
    fn silent(&mut self, at: usize, argv: &Argv) -> Outcome<()> {
        let lines =
            [words("CLIENT REPLY OFF"), argv.clone(), words("CLIENT REPLY ON"), words("CLIENT REPLY SKIP")];
        let mut bytes: Vec<u8> = lines.iter().flat_map(|l| request(l)).collect();
        bytes.extend(request(argv));
        bytes.extend(request(&words("ECHO end")));
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

    /// Follows the cursor on both sides. What is found must be the same set.
    fn scan(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let place = if argv[0].eq_ignore_ascii_case(b"SCAN") { 1 } else { 2 };
        let (redis, tern) = self.ask(at, argv)?;
        if redis.value.is_error() || tern.value.is_error() || argv.get(place).is_none_or(|c| c != b"0") {
            let (shape_r, shape_t) =
                (redis.value.items().map(<[Value]>::len), tern.value.items().map(<[Value]>::len));
            if shape_r.is_some() && shape_r == shape_t {
                return Ok(());
            }
            return self.judge(at, argv, &redis, &tern, tally);
        }
        tally.count(argv);
        let (redis, tern) = (scan_all(&mut self.redis, argv, place), scan_all(&mut self.tern, argv, place));
        let all = |found: &Result<Vec<Vec<u8>>, String>| found.clone().map(BTreeSet::from_iter);
        // Redis may say a thing twice; here nothing is, where nothing changes meanwhile.
        let once = tern.as_ref().is_ok_and(|found| found.len() == all(&tern).map_or(0, |all| all.len()));
        if redis.is_ok() && all(&redis) == all(&tern) && once {
            return Ok(());
        }
        Err(Mismatch { step: at, argv: argv.clone(), redis: format!("{redis:?}"), tern: format!("{tern:?}") })
    }

    /// What was popped differs from side to side: each side then loses what the other one popped, and must have had it.
    fn pop(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        let (Some(popped_r), Some(popped_t)) = (members(&redis.value), members(&tern.value)) else {
            return self.judge(at, argv, &redis, &tern, tally);
        };
        tally.count(argv);
        let same_kind = std::mem::discriminant(&redis.value) == std::mem::discriminant(&tern.value);
        let (had_r, had_t) =
            (self.remove(false, &argv[1], &popped_t), self.remove(true, &argv[1], &popped_r));
        let unique = |v: &Vec<Vec<u8>>| v.iter().collect::<BTreeSet<_>>().len() == v.len();
        if same_kind && popped_r.len() == popped_t.len() && unique(&popped_t) && had_r == had_t && {
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
        let (Some(sample_r), Some(sample_t)) = (members(&redis.value), members(&tern.value)) else {
            return self.judge(at, argv, &redis, &tern, tally);
        };
        tally.count(argv);
        let unique: BTreeSet<&Vec<u8>> = sample_t.iter().collect();
        let may_repeat = argv.get(2).is_some_and(|n| n.starts_with(b"-"));
        let same_kind = std::mem::discriminant(&redis.value) == std::mem::discriminant(&tern.value);
        let fits =
            same_kind && sample_r.len() == sample_t.len() && (may_repeat || unique.len() == sample_t.len());
        if !fits || !self.all_members(&argv[1], &sample_t) {
            return Err(mismatch(at, argv, &redis, &format!("{tern:?}")));
        }
        Ok(())
    }

    fn all_members(&mut self, key: &[u8], members: &[Vec<u8>]) -> bool {
        if members.is_empty() {
            return true;
        }
        let mut argv = vec![b"SMISMEMBER".to_vec(), key.to_vec()];
        argv.extend_from_slice(members);
        let reply = self.redis.run(&argv).value;
        reply.items().is_some_and(|items| items.iter().all(|i| *i == Value::Int(1)))
    }

    fn random_key(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let (redis, tern) = self.ask(at, argv)?;
        let (Value::Bulk(_), Value::Bulk(key)) = (&redis.value, &tern.value) else {
            return self.judge(at, argv, &redis, &tern, tally);
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
                return self.judge(at, argv, &redis, &tern, tally);
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
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Tally) {
        self.lines += other.lines;
        for (name, count) in &other.commands {
            *self.commands.entry(name.clone()).or_default() += count;
        }
        self.meant.resize(DELIBERATE.len(), 0);
        self.meant.iter_mut().zip(&other.meant).for_each(|(sum, n)| *sum += n);
    }
}

fn mismatch(step: usize, argv: &Argv, redis: &Reply, tern: &str) -> Mismatch {
    Mismatch { step, argv: argv.clone(), redis: text(&redis.raw), tern: tern.to_owned() }
}

/// Strings of a reply that is one string or a collection of them.
fn members(value: &Value) -> Option<Vec<Vec<u8>>> {
    if let Value::Bulk(member) = value {
        return Some(vec![member.clone()]);
    }
    value.items()?.iter().map(|v| v.bytes().map(<[u8]>::to_vec)).collect()
}

fn scan_all(client: &mut Client, argv: &Argv, place: usize) -> Result<Vec<Vec<u8>>, String> {
    let (mut found, mut argv) = (Vec::new(), argv.clone());
    for _ in 0..100_000 {
        let reply = client.try_run(&argv).map_err(|e| e.to_string())?.value;
        let Some([cursor, items]) = reply.items() else { return Err(format!("{reply:?}")) };
        found.extend(members(items).ok_or_else(|| format!("{items:?}"))?);
        argv[place] = cursor.bytes().unwrap_or_default().to_vec();
        if argv[place] == b"0" {
            return Ok(found);
        }
    }
    Err("the cursor never came back to 0".into())
}

/// Every key of a few databases: type, life, content.
fn compare_states(ports: Ports, at: usize) -> Outcome<()> {
    let states =
        [ports.redis, ports.tern].map(|port| state(port).unwrap_or_else(|e| vec![(e.to_string(), 0)]));
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

fn far(a: i64, b: i64) -> bool {
    a.signum() != b.signum() || a.abs_diff(b) > PATIENCE * 1000
}

/// Lines "database, key, type, content" with the time to live.
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
            let life = ask(&mut client, b"PTTL")?.int().unwrap_or(i64::MIN);
            let content = match kind.bytes() {
                Some(b"set") => {
                    let mut all = members(&ask(&mut client, b"SMEMBERS")?).unwrap_or_default();
                    all.sort();
                    format!("{}: {}", all.len(), show(&all))
                }
                _ => format!("{:?}", ask(&mut client, b"GET")?),
            };
            lines.push((format!("db {db} {} {kind:?} {content}", text(&key)), life));
        }
    }
    Ok(lines)
}
