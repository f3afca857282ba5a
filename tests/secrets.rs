//! Hazard: a client learns a secret: a value through a command that only writes, a password from the slow
//! log, MONITOR or the log, a user's existence from the time of a refused login, or any of them from the
//! files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, tern, tern_command, try_start};
use tern::commands::binding::Run;
use tern::commands::registry::{run_of, table};
use tern::config::MAX_PASSWORD;
use tern::server::acl::User;
use tern::spec::KeySpec;

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

fn logged_in(server: &Server, user: &str, password: &str) -> Client {
    let mut c = server.client();
    assert_eq!(c.line(&format!("AUTH {user} {password}")), ok());
    c
}

/// Commands on keys, at least one of each row: `$A` is one of the two values that the key may hold, `$D` its
/// digest.
const LINES: &[&str] = &[
    "APPEND k x",
    "BITCOUNT k",
    "BITFIELD k GET u8 0",
    "BITFIELD k GET u8 8 SET u8 0 5",
    "BITFIELD k INCRBY u8 8 1",
    "BITFIELD k OVERFLOW FAIL INCRBY u8 8 200",
    "BITFIELD_RO k GET u8 0",
    "BITOP NOT d k",
    "BITPOS k 1 1",
    "COPY k d",
    "DECR k",
    "DECRBY k 1",
    "DEL k",
    "DELEX k",
    "DELEX k IFEQ $A",
    "DELEX k IFNE $A",
    "DELEX k IFDEQ $D",
    "DELEX k IFDNE $D",
    "DELIFEQ k $A",
    "DIGEST k",
    "DUMP k",
    "EVAL return(redis.call('get','k')) 0",
    "EVAL return(redis.pcall('get',KEYS[1])) 1 k",
    "EVAL return(redis.call('set','k','x','get')) 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 k",
    "EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 k",
    "EVAL_RO return(redis.call('sort_ro','s','by','*','get','k')) 0",
    "EXISTS k",
    "FCALL reads 0",
    "FCALL reads 1 k",
    "FCALL_RO reads 0",
    "EXPIRE k 100",
    "EXPIRE k 100 GT",
    "EXPIREAT k 9999999999",
    "EXPIRETIME k",
    "GET k",
    "GETBIT k 15",
    "GETDEL k",
    "GETEX k",
    "GETRANGE k 0 -1",
    "GETSET k 1",
    "HDEL m b",
    "HEXISTS m b",
    "HEXPIRE m 100 FIELDS 1 b",
    "HEXPIREAT m 9999999999 FIELDS 1 b",
    "HEXPIRETIME m FIELDS 1 b",
    "HGET m f",
    "HGETALL m",
    "HGETDEL m FIELDS 1 f",
    "HGETEX m FIELDS 1 f",
    "HINCRBY m f 1",
    "HINCRBYFLOAT m f 1",
    "HKEYS m",
    "HLEN m",
    "HMGET m f",
    "HMSET m b 1",
    "HPERSIST m FIELDS 1 b",
    "HPEXPIRE m 100000 FIELDS 1 b",
    "HPEXPIREAT m 9999999999999 FIELDS 1 b",
    "HPEXPIRETIME m FIELDS 1 b",
    "HPTTL m FIELDS 1 b",
    "HRANDFIELD m 5",
    "HSCAN m 0",
    "HSET m b 1",
    "HSETEX m FNX EX 100 FIELDS 1 b 1",
    "HSETNX m b 1",
    "HSTRLEN m b",
    "HTTL m FIELDS 1 b",
    "HVALS m",
    "INCR k",
    "INCRBY k 1",
    "INCRBYFLOAT k 1",
    "INCREX k",
    "INCREX k UBOUND 42 ENX",
    "LCS k k",
    "LINDEX l 0",
    "LINSERT l BEFORE b x",
    "LLEN l",
    "LMOVE l d LEFT LEFT",
    "LMPOP 1 l LEFT",
    "BLMOVE l d LEFT LEFT 0.01",
    "BLMPOP 0.01 1 l LEFT",
    "BLPOP l 0.01",
    "BRPOP l 0.01",
    "BRPOPLPUSH l d 0.01",
    "LPOP l",
    "LPOS l b",
    "LPUSH l x",
    "LPUSHX l x",
    "LRANGE l 0 -1",
    "LREM l 0 b",
    "LSET l 0 x",
    "LTRIM l 0 0",
    "MEMORY USAGE k",
    "MGET k",
    "MOVE k 1",
    "MSET k 1",
    "MSETEX 1 k 1",
    "MSETEX 1 k 1 NX",
    "MSETNX k 1",
    "OBJECT ENCODING k",
    "OBJECT FREQ k",
    "OBJECT IDLETIME k",
    "OBJECT REFCOUNT k",
    "PERSIST k",
    "PEXPIRE k 1000000",
    "PEXPIREAT k 99999999999999",
    "PEXPIRETIME k",
    "PFADD h b",
    "PFCOUNT h",
    "PFDEBUG GETREG h",
    "PFMERGE d h",
    "PSETEX k 1000000 1",
    "PTTL k",
    "RENAME k d",
    "RENAMENX k d",
    "RESTORE k 0 x REPLACE",
    "RESTORE-ASKING k 0 x",
    "RPOP l",
    "RPOPLPUSH l d",
    "RPUSH l x",
    "RPUSHX l x",
    "SADD s b",
    "SCARD s",
    "SDIFF s",
    "SDIFFCARD 1 s",
    "SDIFFSTORE d s",
    "SET k 1",
    "SET k 1 GET",
    "SET k 1 NX GET",
    "SET k 1 IFEQ $A",
    "SET k 1 IFNE $A",
    "SET k 1 IFDEQ $D",
    "SET k 1 IFDNE $D",
    "SET k 1 EX 100 IFEQ $A",
    "SETBIT k 15 1",
    "SETEX k 100 1",
    "SETNX k 1",
    "SETRANGE k 0 x",
    "SINTER s",
    "SINTERCARD 1 s",
    "SINTERSTORE d s",
    "SISMEMBER s b",
    "SMEMBERS s",
    "SMISMEMBER s b",
    "SMOVE s d b",
    "SORT s ALPHA",
    "SORT s ALPHA STORE d",
    "SORT_RO s ALPHA",
    "SPOP s",
    "SRANDMEMBER s",
    "SREM s b",
    "SSCAN s 0",
    "STRLEN k",
    "SUBSTR k 0 -1",
    "SUNION s",
    "SUNIONCARD 1 s",
    "SUNIONSTORE d s",
    "TOUCH k",
    "TTL k",
    "TYPE k",
    "UNLINK k",
    "WATCH k",
    "ZADD z 1 b",
    "ZADD z NX CH 1 b",
    "ZADD z INCR 1 a",
    "ZCARD z",
    "ZCOUNT z 41 41",
    "ZDIFF 1 z",
    "ZDIFFSTORE d 1 z",
    "ZINCRBY z 1 a",
    "ZINTER 1 z",
    "ZINTERCARD 1 z",
    "ZINTERSTORE d 1 z",
    "ZLEXCOUNT z [b [b",
    "ZMPOP 1 z MIN",
    "BZMPOP 0.01 1 z MIN",
    "GEOADD z 13.36 38.11 b",
    "GEODIST z a b",
    "GEOHASH z a b",
    "GEOPOS z a b",
    "GEORADIUS z 13 38 30000 km",
    "GEORADIUS z 13 38 30000 km STORE d",
    "GEORADIUSBYMEMBER z b 30000 km",
    "GEORADIUSBYMEMBER z b 30000 km STORE d",
    "GEORADIUSBYMEMBER_RO z b 30000 km",
    "GEORADIUS_RO z 13 38 30000 km",
    "GEOSEARCH z FROMMEMBER b BYRADIUS 30000 km",
    "GEOSEARCHSTORE d z FROMMEMBER b BYRADIUS 30000 km",
    "BZPOPMAX z 0.01",
    "BZPOPMIN z 0.01",
    "ZMSCORE z a b",
    "ZPOPMAX z",
    "ZPOPMIN z",
    "ZRANDMEMBER z 5",
    "ZRANGE z 0 -1",
    "ZRANGEBYLEX z - +",
    "ZRANGEBYSCORE z 41 41",
    "ZRANGESTORE d z 0 -1",
    "ZRANK z b",
    "ZREM z b",
    "ZREMRANGEBYLEX z [b [b",
    "ZREMRANGEBYRANK z 0 0",
    "ZREMRANGEBYSCORE z 41 41",
    "ZREVRANGE z 0 -1",
    "ZREVRANGEBYLEX z + -",
    "ZREVRANGEBYSCORE z 41 41",
    "ZREVRANK z b",
    "ZSCAN z 0",
    "ZSCORE z a",
    "ZUNION 1 z",
    "ZUNIONSTORE d 1 z",
    "XACK x g $A-1",
    "XACKDEL x g IDS 1 $A-1",
    "XADD x 99-1 f v",
    "XAUTOCLAIM x g c 0 0",
    "XCLAIM x g c 0 $A-1",
    "XDEL x $A-1",
    "XDELEX x IDS 1 $A-1",
    "XGROUP CREATE x h 0",
    "XGROUP CREATECONSUMER x g $A",
    "XGROUP DELCONSUMER x g c",
    "XGROUP DESTROY x g",
    "XGROUP SETID x g 0",
    "XINFO CONSUMERS x g",
    "XINFO GROUPS x",
    "XINFO STREAM x",
    "XINFO STREAM x FULL",
    "XLEN x",
    "XPENDING x g",
    "XPENDING x g - + 10",
    "XRANGE x - +",
    "XREAD STREAMS x 0",
    "XREAD BLOCK 1 STREAMS x 0",
    "XREADGROUP GROUP g c STREAMS x >",
    "XREADGROUP GROUP g c STREAMS x 0",
    "XREVRANGE x + -",
    "XSETID x 99-1",
    "XTRIM x MAXLEN 1",
    "XTRIM x MINID 42-1",
];

/// What Redis also reveals with write permission only: whether a set has a member, a hash a field, a list an element, or
/// a stream an entry; scores, by changing them; and entries, by claiming them.
const REVEALED_BY_REDIS: &[&str] = &[
    "HDEL m b",
    "HEXISTS m b",
    "HEXPIRE m 100 FIELDS 1 b",
    "HEXPIREAT m 9999999999 FIELDS 1 b",
    "HPERSIST m FIELDS 1 b",
    "HPEXPIRE m 100000 FIELDS 1 b",
    "HPEXPIREAT m 9999999999999 FIELDS 1 b",
    "HSET m b 1",
    "HSETEX m FNX EX 100 FIELDS 1 b 1",
    "HSETNX m b 1",
    "HSTRLEN m b",
    "LINSERT l BEFORE b x",
    "LREM l 0 b",
    "PFADD h b",
    "SADD s b",
    "SISMEMBER s b",
    "SREM s b",
    "ZADD z 1 b",
    "ZADD z NX CH 1 b",
    "ZADD z INCR 1 a",
    "GEOADD z 13.36 38.11 b",
    "ZREM z b",
    "ZREMRANGEBYLEX z [b [b",
    "ZREMRANGEBYSCORE z 41 41",
    "XACK x g $A-1",
    "XACKDEL x g IDS 1 $A-1",
    "XAUTOCLAIM x g c 0 0",
    "XCLAIM x g c 0 $A-1",
    "XDEL x $A-1",
    "XDELEX x IDS 1 $A-1",
    "XTRIM x MINID 42-1",
];

/// A library with a function that reads.
const READS: &str = "#!lua name=reads
    redis.register_function{ function_name = 'reads', flags = { 'no-writes' },
        callback = function() return redis.call('get', 'k') end }";

#[test]
fn a_write_only_user_learns_no_value() {
    let server = tern(&["--appendfsync", "no", "--enable-debug-command", "yes"]);
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on >pw %W~* +@all");
    admin.run(&["FUNCTION", "LOAD", READS]);
    admin.line("SET k 41");
    let digest = text(&admin.line("DIGEST k"));
    let mut revealed = Vec::new();
    for line in LINES {
        let sent = line.replace("$A", "41").replace("$D", &digest);
        let answers = [("41", "b"), ("42", "c")].map(|(value, member)| {
            for made in [
                "FLUSHALL",
                &format!("SET k {value}"),
                &format!("SADD s a {member}"),
                &format!("PFADD h a {member}"),
                &format!("HSET m f {value} {member} x"),
                &format!("RPUSH l {value} {member}"),
                &format!("ZADD z {value} a 50 {member}"),
                &format!("XADD x {value}-1 f {member}"),
                "XGROUP CREATE x g 0",
                "XREADGROUP GROUP g c STREAMS x >",
                "XADD x 50-1 f v",
            ] {
                assert!(!admin.line(made).is_error());
            }
            let mut bob = logged_in(&server, "bob", "pw");
            bob.line(&sent)
        });
        if answers[0] != answers[1] {
            revealed.push(*line);
        }
    }
    assert_eq!(revealed, REVEALED_BY_REDIS, "no other command may reveal the value");
    let words = |line: &&str| line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    let lines: Vec<Vec<Bytes>> = LINES.iter().map(words).collect();
    let mut missing = Vec::new();
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        let sent = |argv: &Vec<Bytes>| {
            table().resolve(argv).and_then(Result::ok).is_some_and(|(r, _)| std::ptr::eq(r, row))
        };
        let has_keys = row.keys.iter().any(KeySpec::is_keys);
        let runs = !matches!(run_of(row), Run::Refuse(_));
        if has_keys && runs && !lines.iter().any(sent) {
            missing.push(label);
        }
    }
    assert!(missing.is_empty(), "not tried: {missing:?}");
}

/// The least time of AUTH for each of `users`, who take turns.
fn least<const N: usize>(server: &Server, users: [&str; N], password: &str) -> [Duration; N] {
    let mut client = server.client();
    let mut least = [Duration::MAX; N];
    for _ in 0..25 {
        for (user, least) in users.iter().zip(&mut least) {
            let since = Instant::now();
            assert!(client.run(&["AUTH", user, password]).value.is_error());
            *least = since.elapsed().min(*least);
        }
    }
    least
}

#[test]
fn the_time_of_a_refused_login_reveals_no_user() {
    let server = tern(&[]);
    server.client().line("ACL SETUSER ann on >secret +@all");
    server.client().line("ACL SETUSER off off >secret +@all");
    server.client().line("ACL SETUSER none on +@all");
    let long = "x".repeat(8 << 20);
    // Hashing 8 MB takes longer than sending it. Other work disturbs single measurements, but a real
    // difference shows each time.
    let is_even = |_| {
        let times = least(&server, ["ann", "off", "none", "eve"], &long);
        support::say(&format!("secrets: refused logins take {times:?}"));
        *times.iter().max().unwrap() < *times.iter().min().unwrap() * 3 / 2
    };
    assert!((0..4).any(is_even));
}

#[test]
fn an_unknown_user_costs_as_many_hashes_as_a_known_one() {
    let made = |rules: &[&str]| {
        let mut user = User::new(table(), false);
        rules.iter().for_each(|rule| user.apply(rule.as_bytes(), false).unwrap());
        user
    };
    let long = vec![b'x'; MAX_PASSWORD];
    let right = [b">", &long[..]].concat();
    let mut known = made(&["on", ">other"]);
    known.apply(&right, false).unwrap();
    let users =
        [Some(known.clone()), Some(made(&["on", "nopass"])), Some(made(&["on"])), Some(made(&[">x"])), None];
    let wrong = vec![b'y'; MAX_PASSWORD];
    let time = |user: &Option<User>, password: &[u8]| {
        let one = |_| {
            let since = Instant::now();
            let open = user.as_ref().is_some_and(|user| user.nopass);
            assert_eq!(User::accepts(user.as_ref(), password), open && password.len() <= MAX_PASSWORD);
            since.elapsed()
        };
        (0..500).map(one).min().unwrap()
    };
    let times = users.each_ref().map(|user| time(user, &wrong));
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*most < *least * 2, "{times:?}");
    let too_long = [&wrong[..], b"y"].concat();
    let not_hashed = users.each_ref().map(|user| time(user, &too_long));
    assert!(
        not_hashed.iter().all(|time| *time < *least / 2),
        "the measurement must detect a missing hash: {not_hashed:?}"
    );
    assert!(User::accepts(Some(&known), &long));
    assert!(!User::accepts(Some(&known), &[&long[..], b"x"].concat()));
    let refused = known.apply(&[&right[..], b"x"].concat(), false).unwrap_err();
    assert_eq!(refused.text(), "A password can have at most 16384 bytes");
}

#[test]
fn an_overlong_password_is_refused() {
    let server = tern(&[]);
    let mut c = server.client();
    let long = "x".repeat(MAX_PASSWORD + 1);
    assert!(text(&c.run(&["CONFIG", "SET", "requirepass", &long]).value).contains("at most 16384 bytes"));
    assert!(
        text(&c.run(&["ACL", "SETUSER", "ann", &format!(">{long}")]).value).contains("at most 16384 bytes")
    );
    assert_eq!(c.run(&["CONFIG", "SET", "requirepass", &long[1..]]).value, ok());
    assert_eq!(server.client().run(&["AUTH", &long[1..]]).value, ok());
    assert!(server.client().run(&["AUTH", &long]).value.is_error());
    assert!(text(&server.client().line("PING")).starts_with("NOAUTH"));
}

#[test]
fn secrets_are_never_shown() {
    let server = tern(&["--slowlog-log-slower-than", "0"]);
    let mut monitor = server.client();
    monitor.line("MONITOR");
    let mut c = server.client();
    for line in [
        "CONFIG SET store-tls-key-file-pass hunter2",
        "CONFIG SET tls-key-file-pass hunter2",
        "CONFIG SET nosuch-file-pass hunter2 store-tls-key-file-pass hunter2",
        "CONFIG SET timeout 0 masterauth hunter2",
        "ACL SETUSER ann on >hunter2 nosuchrule",
        "ACL SETUSER ann on >hunter2 +@all ~*",
        "ACL DRYRUN ann CONFIG SET requirepass hunter2",
        "ACL DRYRUN ann AUTH ann hunter2",
        "COMMAND GETKEYS AUTH hunter2",
        "IDEMPOTENT 0123456789abcdef AUTH hunter2",
        "IDEMPOTENT 0123456789abcdef CONFIG SET requirepass hunter2",
        "AUTH ann hunter2",
        "AUTH hunter2",
        "HELLO 3 AUTH ann hunter2 SETNAME x",
        "MIGRATE 127.0.0.1 1 k 0 1 AUTH2 ann hunter2",
        "MULTI",
        "CONFIG SET store-tls-key-file-pass hunter2",
        "AUTH ann hunter2",
        "EXEC",
        "CONFIG SET requirepass hunter2",
        "SET the end",
    ] {
        c.line(line);
    }
    let mut seen = String::new();
    while !seen.contains("\"the\" \"end\"") {
        seen += &format!("{}\n", text(&monitor.read().unwrap().value));
    }
    for line in ["SLOWLOG GET -1", "ACL LOG", "CLIENT LIST", "ACL LIST", "INFO everything", "COMMAND LIST"] {
        seen += &format!("{:?}\n", c.run(&line.split(' ').collect::<Vec<_>>()).value);
    }
    seen += &server.whole_log();
    let revealed: Vec<&str> = seen.lines().filter(|line| line.contains("hunter2")).collect();
    assert!(revealed.is_empty(), "{revealed:#?}");
    assert!(seen.contains("(redacted)") && seen.contains("auth"));
}

/// The modes of a directory and of its contents.
fn modes(dir: &Path) -> Vec<(String, u32)> {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let inside = files.map(|file| (file.file_name().unwrap().to_string_lossy().into_owned(), mode(&file)));
    std::iter::once((".".to_owned(), mode(dir))).chain(inside).collect()
}

#[test]
fn stored_files_are_private_to_the_servers_user() {
    if support::fdb_cluster::wanted() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (outer, dir) = (home.path().join("new"), home.path().join("new/data"));
    let users = home.path().join("users.acl");
    let start = |umask: &str, dir: &Path, more: &str| {
        let tern = tern_command(dir, &["--logfile", &home.path().join("tern.log").to_string_lossy()]);
        let args: Vec<String> = tern.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let program = tern.get_program().to_string_lossy().into_owned();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\" {more}")).arg(program).args(args);
        try_start(command, &home.path().join("out")).unwrap_or_else(|e| panic!("{e:?}"))
    };
    let aclfile = format!("--aclfile {}", users.display());
    std::fs::write(&users, "").unwrap();
    std::fs::remove_file(home.path().join("tern.log")).ok();
    let mut server = start("000", &dir, &aclfile);
    let mut c = server.client();
    for n in 0..100 {
        c.run(&["SET", &format!("k{n}"), &"v".repeat(100_000)]);
    }
    assert!(server.terminate());
    for (name, mode) in modes(&dir) {
        assert_eq!(mode, if name == "." { 0o700 } else { 0o600 }, "{name}");
    }
    assert_eq!(modes(&outer)[0].1, 0o700, "its parent directories must be private too");
    assert_eq!(modes(home.path()).iter().find(|(name, _)| name == "tern.log").unwrap().1, 0o600);
    // A directory that the administrator has created stays unchanged.
    let own = home.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = start("022", &own, "");
    server.client().line("SET k v");
    assert!(server.terminate());
    for (name, mode) in modes(&own) {
        assert_eq!(mode, if name == "." { 0o755 } else { 0o600 }, "{name}");
    }
    let log = std::fs::read_to_string(home.path().join("tern.log")).unwrap();
    assert!(log.contains("other users can read the data directory"), "{log}");
}
