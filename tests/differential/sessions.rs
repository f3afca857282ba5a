//! CLIENT and MEMORY with several connections, line by line against a redis-server 8.6: effects of one
//! connection on another, filters, CLIENT LIST's view of each, and every error.

use crate::scenes::SCENES;
use crate::support::fdb_cluster::wanted;
use crate::support::resp::{Client, Reply, Value};
use crate::support::say;
use crate::support::server::{Server, newer_redis, tern};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Fields of CLIENT LIST that follow from the commands sent.
const FIELDS: [&str; 14] = [
    "name", "flags", "db", "sub", "psub", "ssub", "multi", "watch", "cmd", "user", "redir", "resp",
    "lib-name", "lib-ver",
];

/// On a cluster a change arrives through the log.
const LOG: Duration = Duration::from_millis(300);

/// One scene on one server.
struct Stage<'a> {
    server: &'a Server,
    /// Connections and their ids.
    clients: BTreeMap<char, (Client, i64)>,
}

impl Stage<'_> {
    fn client(&mut self, name: char) -> &mut (Client, i64) {
        self.clients.entry(name).or_insert_with(|| {
            let mut client = self.server.client();
            let id = client.line("CLIENT ID").int().unwrap();
            (client, id)
        })
    }

    fn word(&mut self, word: &str) -> String {
        match (word.strip_prefix('@'), word.strip_prefix('%')) {
            (Some(name), _) => self.client(name.chars().next().unwrap()).1.to_string(),
            (_, Some("here")) => format!("127.0.0.1:{}", self.server.port),
            (_, Some(name)) => self.client(name.chars().next().unwrap()).0.address(),
            _ => word.replace('_', " "),
        }
    }

    /// The reply to a line of a scene.
    fn line(&mut self, line: &str) -> String {
        let (who, words) = line.split_once(' ').unwrap_or((line, ""));
        let name = who.chars().next().unwrap();
        let words: Vec<String> = words.split(' ').map(|word| self.word(word)).collect();
        let client = &mut self.client(name).0;
        let answer = match &who[1..] {
            "<" => client.read().ok(),
            "~" => {
                client.send(&words).unwrap();
                return "nothing".into();
            }
            _ => client.try_run(&words).ok(),
        };
        if who.ends_with('!') && wanted() {
            std::thread::sleep(LOG);
        }
        match (answer, &who[1..]) {
            (_, "?") => "something".into(),
            (None, _) => "closed".into(),
            (Some(Reply { raw, .. }), "#") => char::from(raw[0]).into(),
            (Some(reply), _) => self.shown(&reply.value),
        }
    }

    /// A reply without the server's own parts: ids and addresses of connections, and fields that are not
    /// compared.
    fn shown(&self, value: &Value) -> String {
        let text = value.bytes().map(String::from_utf8_lossy);
        if let Some(text) = text.filter(|text| text.trim_start_matches("txt:").starts_with("id=")) {
            let lines = text.trim_start_matches("txt:").lines();
            return lines.map(|line| self.shown_line(line) + "; ").collect();
        }
        match value {
            Value::Int(n) => match self.clients.iter().find(|(_, (_, id))| id == n && *n > MOST_COUNTED) {
                Some((name, _)) => format!("@{name}"),
                None => format!(":{n}"),
            },
            Value::Array(all) | Value::Set(all) | Value::Push(all) | Value::Map(all) => {
                let all: Vec<String> = all.iter().map(|one| self.shown(one)).collect();
                format!("{:?}[{}]", std::mem::discriminant(value), all.join(", "))
            }
            other => format!("{other:?}"),
        }
    }

    fn shown_line(&self, line: &str) -> String {
        let fields: BTreeMap<&str, &str> =
            line.split(' ').filter_map(|field| field.split_once('=')).collect();
        let named = |id: &str| match self.clients.iter().find(|(_, (_, own))| own.to_string() == id) {
            Some((name, _)) => format!("@{name}"),
            None => id.to_owned(),
        };
        let shown = |field: &&str| match fields.get(field) {
            Some(id) if *field == "redir" => format!("redir={}", named(id)),
            Some(value) => format!("{field}={value}"),
            None => format!("no {field}"),
        };
        let own: Vec<String> = FIELDS.iter().map(shown).collect();
        format!("{} {}", named(fields["id"]), own.join(" "))
    }
}

/// Larger than any count in a reply: after this many connections a larger number is a connection's id.
const MOST_COUNTED: i64 = 40;

/// Waits until this is the server's only connection.
fn alone(server: &Server) -> Client {
    let mut client = server.client();
    let since = Instant::now();
    loop {
        let list = client.line("CLIENT LIST");
        if list.bytes().unwrap().iter().filter(|byte| **byte == b'\n').count() == 1 {
            return client;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "still {list:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn played(server: &Server, lines: &[&str]) -> Vec<String> {
    alone(server).line("FLUSHALL");
    drop(alone(server));
    let mut stage = Stage { server, clients: BTreeMap::new() };
    lines.iter().map(|line| stage.line(line)).collect()
}

#[test]
fn connections_affect_each_other_as_in_redis_8_6() {
    let Some(redis) = newer_redis("CLIENT differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    (0..MOST_COUNTED).for_each(|_| drop((alone(&redis), alone(&tern))));
    let (mut complaints, mut compared) = (Vec::new(), 0);
    for (scene, lines) in SCENES {
        let (theirs, ours) = (played(&redis, lines), played(&tern, lines));
        compared += lines.len();
        for (line, (a, b)) in lines.iter().zip(theirs.into_iter().zip(ours)).filter(|(_, (a, b))| a != b) {
            complaints.push(format!("{scene}: {line}\n  redis: {a}\n  tern:  {b}"));
        }
    }
    say(&format!("CLIENT and MEMORY on redis-server 8.6: {compared} lines compared"));
    assert!(complaints.is_empty(), "{} lines differ\n{}", complaints.len(), complaints.join("\n"));
}
