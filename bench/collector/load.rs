//! Members that come and go on a server that runs already: one client adds new members of 70 bytes, 50 000 to a key in commands of 1000, and
//! removes each key when the next is full. A second asks for one key every two milliseconds. What was made and collected, how much is on
//! disk and how long the second waited is printed every ten seconds. 0 members a second: as fast as they are taken.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEY: usize = 50_000;
const COMMAND: usize = 1000;
/// Commands on their way at once.
const AHEAD: usize = 4;
const EVERY: Duration = Duration::from_secs(10);
const ASK: Duration = Duration::from_millis(2);

struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
}

impl Client {
    fn new(port: u16) -> Self {
        let to = TcpStream::connect(("127.0.0.1", port)).unwrap();
        to.set_nodelay(true).unwrap();
        Client { from: BufReader::new(to.try_clone().unwrap()), to }
    }

    fn send(&mut self, words: &[impl AsRef<[u8]>]) {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.to.write_all(&out).unwrap();
    }

    /// The text of a reply of one line, or of one bulk.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert!(!line.starts_with('-') && !line.is_empty(), "{line}");
        let Some(len) = line.trim_end().strip_prefix('$').map(|len| len.parse::<i64>().unwrap()) else {
            return line.trim_end().into();
        };
        let mut bulk = vec![0; len.max(-2) as usize + 2];
        self.from.read_exact(&mut bulk).unwrap();
        String::from_utf8_lossy(&bulk).into_owned()
    }

    fn field(&mut self, name: &str) -> String {
        self.send(&["INFO", "tern"]);
        let all = self.reply();
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }
}

/// How long the key's readers waited, in us, since they were last asked.
fn ask(port: u16, waited: &parking_lot::Mutex<Vec<u64>>, stop: &AtomicBool) {
    let mut client = Client::new(port);
    client.send(&["SET", "asked", "value"]);
    client.reply();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        client.send(&["GET", "asked"]);
        client.reply();
        waited.lock().push(start.elapsed().as_micros() as u64);
        thread::sleep(ASK);
    }
}

fn report(control: &mut Client, start: Instant, made: usize, waited: &parking_lot::Mutex<Vec<u64>>) {
    let mut waited = std::mem::take(&mut *waited.lock());
    waited.sort_unstable();
    let at = |share: f64| waited.get((waited.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!(
        "{:.0} s: {made} made, {} collected, {} cycles, {}, {} MB on disk; GET p50 {} us, p99 {} us, worst {} us",
        start.elapsed().as_secs_f64(),
        control.field("dictionary_ids_collected"),
        control.field("dictionary_gc_cycles"),
        control.field("dictionary_gc_phase"),
        control.field("store_disk_bytes").parse::<u64>().unwrap_or_default() / 1_000_000,
        at(0.5),
        at(0.99),
        waited.last().copied().unwrap_or_default(),
    );
}

pub fn run(port: u16, seconds: usize, speed: usize) {
    let (waited, stop) = (Arc::new(parking_lot::Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let asker = thread::spawn({
        let (waited, stop) = (waited.clone(), stop.clone());
        move || ask(port, &waited, &stop)
    });
    let (mut client, mut control) = (Client::new(port), Client::new(port));
    let name = std::process::id();
    let (start, mut made, mut ahead, mut next) = (Instant::now(), 0, 0, EVERY);
    while start.elapsed() < Duration::from_secs(seconds as u64) {
        let mut words = vec!["SADD".to_owned(), format!("short:{}", made / KEY)];
        words.extend((made..made + COMMAND).map(|n| format!("at://did:plc:{name:024}/{n:032}")));
        client.send(&words);
        (made, ahead) = (made + COMMAND, ahead + 1);
        if made.is_multiple_of(KEY) {
            client.send(&["DEL".to_owned(), format!("short:{}", made / KEY - 1)]);
            ahead += 1;
        }
        while ahead > AHEAD {
            client.reply();
            ahead -= 1;
        }
        if speed > 0 {
            thread::sleep(
                Duration::from_secs_f64(made as f64 / speed as f64).saturating_sub(start.elapsed()),
            );
        }
        if start.elapsed() >= next {
            report(&mut control, start, made, &waited);
            next += EVERY;
        }
    }
    (0..ahead).for_each(|_| drop(client.reply()));
    report(&mut control, start, made, &waited);
    stop.store(true, Ordering::Relaxed);
    asker.join().unwrap();
}
