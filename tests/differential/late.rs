//! MULTI with lines whose replies are chosen (see `chosen.rs`), or whose keys expire after EXEC.
//!
//! From the first such line on, redis-server gets the rest of the transaction only after Tern has run it:
//! both have begun the transaction and watch the same keys, and a server's reply to a line that it queues
//! depends on nothing that changes. Once Tern has answered EXEC, redis-server gets the lines, and those that
//! check Tern's choice.

use crate::chosen;
use crate::generate::{Argv, Kind, Step};
use crate::run::{Both, COUNTED, DATABASES, Mismatch, Outcome, Ports, Tally, members};
use crate::support::resp::{Client, Reply, Value};
use std::time::{Duration, Instant};

/// The time after which keys made by [`Kind::Lapse`] have expired.
pub const LAPSED: Duration = Duration::from_millis(25);

/// A line that Tern has answered in a transaction and redis-server has not seen.
pub struct Late {
    at: usize,
    argv: Argv,
    kind: Kind,
    tern: Reply,
}

impl Late {
    fn is_queued(&self) -> bool {
        self.tern.value == Value::Simple(b"QUEUED".to_vec())
    }
}

impl Both {
    /// Handles a line after the first that redis-server gets late, or that first line.
    pub fn line_late(&mut self, ports: Ports, at: usize, step: &Step, tally: &mut Tally) -> Outcome<()> {
        let name = step.argv[0].to_ascii_uppercase();
        let ends = match name.as_slice() {
            // With arguments it ends the transaction too.
            b"EXEC" => true,
            b"DISCARD" | b"RESET" => step.argv.len() == 1,
            b"QUIT" => true,
            _ => false,
        };
        if matches!(step.kind, Kind::Silent | Kind::Made) {
            return Ok(());
        }
        if name == b"EXEC" && step.argv.len() == 1 {
            return self.exec_late(ports, at, &step.argv, tally);
        }
        if ends {
            let late = self.late.take().unwrap_or_default();
            late.iter().try_for_each(|line| self.catch_up(line, &line.argv, tally))?;
            if step.kind == Kind::Quit {
                return self.special(ports, at, step, tally);
            }
            return self.window(at, std::slice::from_ref(step), tally);
        }
        let tern = self.tern.try_run(&step.argv);
        let tern = tern.map_err(|e| Mismatch {
            step: at,
            argv: step.argv.clone(),
            redis: "(not asked yet)".into(),
            tern: e.to_string(),
        })?;
        let late = Late { at, argv: step.argv.clone(), kind: step.kind, tern };
        self.late.get_or_insert_default().push(late);
        Ok(())
    }

    /// Sends `sent` to redis-server for a line that Tern has answered, and compares the replies.
    fn catch_up(&mut self, line: &Late, sent: &Argv, tally: &mut Tally) -> Outcome<()> {
        let redis = self.redis.try_run(sent).expect("redis-server answers");
        self.compare_line(line.at, &line.argv, &redis, &line.tern, tally)
    }

    fn exec_late(&mut self, ports: Ports, at: usize, exec: &Argv, tally: &mut Tally) -> Outcome<()> {
        let late = self.late.take().unwrap_or_default();
        if late.iter().any(|line| line.kind == Kind::Count) {
            settle(ports);
        }
        let before = self.queued.as_ref().map_or(0, Vec::len);
        self.began = Instant::now();
        let tern = self.tern.try_run(exec).map_err(|e| Mismatch {
            step: at,
            argv: exec.clone(),
            redis: "(not asked yet)".into(),
            tern: e.to_string(),
        })?;
        let answers = if let Value::Array(answers) = &tern.value { answers.as_slice() } else { &[] };
        let mut answers = answers.iter().skip(before);
        // For each line of the queue, the number of lines that redis-server got for it.
        let mut twins = vec![(Kind::Plain, 1); before];
        for line in &late {
            let answer = if line.is_queued() { answers.next() } else { None };
            let sent = answer.map_or(vec![line.argv.clone()], |a| chosen::lines(line.kind, &line.argv, a));
            self.catch_up(line, &sent[0], tally)?;
            sent[1..].iter().for_each(|more| drop(self.redis.run(more)));
            twins.extend(line.is_queued().then_some((line.kind, sent.len())));
        }
        let redis = self.redis.try_run(exec).expect("redis-server answers");
        tally.took(self.began.elapsed());
        tally.late += late.iter().filter(|line| line.is_queued() && line.kind.is_chosen()).count();
        self.compare_chosen_exec(at, exec, &twins, (&redis, &tern), tally)?;
        if let Some(lapsing) = late.iter().rfind(|line| line.kind == Kind::Lapse && line.argv.len() > 1) {
            std::thread::sleep(LAPSED);
            self.expect_same(at, &vec![b"EXISTS".to_vec(), lapsing.argv[1].clone()])?;
        }
        Ok(())
    }

    /// Compares EXECs; redis-server's has more replies.
    fn compare_chosen_exec(
        &mut self,
        at: usize,
        exec: &Argv,
        twins: &[(Kind, usize)],
        (redis, tern): (&Reply, &Reply),
        tally: &mut Tally,
    ) -> Outcome<()> {
        let queued = self.queued.clone().unwrap_or_default();
        let (Value::Array(theirs), Value::Array(ours)) = (&redis.value, &tern.value) else {
            return self.compare_line(at, exec, redis, tern, tally);
        };
        let typed = !queued.iter().any(|argv| argv[0].eq_ignore_ascii_case(b"HELLO"));
        let (mut rest, mut folded) = (theirs.as_slice(), Vec::new());
        for (((kind, lines), argv), answer) in twins.iter().zip(&queued).zip(ours) {
            let Some((said, more)) = rest.split_at_checked(*lines) else { break };
            rest = more;
            let fits = chosen::is_valid(*kind, argv, said, answer, typed);
            if fits == Some(false) {
                let (redis, tern) = (format!("{said:?}"), format!("{answer:?} in MULTI"));
                return Err(Mismatch { step: at, argv: argv.clone(), redis, tern });
            }
            folded.push(if fits.is_some() { answer.clone() } else { said[0].clone() });
        }
        folded.extend_from_slice(rest);
        let folded = Reply { raw: redis.raw.clone(), value: Value::Array(folded) };
        self.compare_line(at, exec, &folded, tern, tally)
    }
}

/// Waits until neither server counts expired keys: each removes them at its own pace.
fn settle(ports: Ports) {
    let since = Instant::now();
    let clean = |port: u16| {
        let mut client = Client::connect(port).expect("a connection");
        DATABASES.iter().all(|db| {
            client.run(&["SELECT", db]);
            let live = members(&client.run(&["KEYS", "*"]).value).map_or(0, |all| all.len() as i64);
            client.run(&["DBSIZE"]).value.int() == Some(live)
        })
    };
    while since.elapsed() < COUNTED && !(clean(ports.redis) && clean(ports.tern)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
