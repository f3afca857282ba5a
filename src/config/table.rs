//! The table of options. From each entry follow the typed field, its default, CONFIG GET, SET and REWRITE,
//! the parsing of files and arguments, and its text in `conf/tern.conf` (`tests/config_table.rs`).

use super::codec::{
    Allowed, AppendFsync, Choice, ClientAuth, Codec, Int, Limits, LogLevel, Memory, OutputLimits, Password,
    Text, TlsVersions, Words, YesNo,
};
use super::events::{Events, Letters};

/// When an option can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// In the file, as an argument, and with CONFIG SET.
    Runtime,
    /// In the file and as an argument.
    Start,
    /// Like `Start`, for an option that Redis can change at runtime, or does not have: CONFIG SET may state
    /// the current value, because some tools set everything that they read.
    Restart,
    /// Never: a fact that clients ask for. A file or a client may state it, but not another value.
    Fixed,
    /// Like `Fixed`, but CONFIG SET fails, as in Redis.
    Given,
}

/// One option.
pub struct Opt {
    /// Its name in lower case.
    pub name: &'static str,
    /// The default value.
    pub default: &'static str,
    /// When it can be changed.
    pub change: Change,
    /// Its description.
    pub doc: &'static str,
    read: fn(&mut Settings, &[&str]) -> Result<(), String>,
    show: fn(&Settings) -> String,
    is_list: fn() -> bool,
}

impl Opt {
    /// The value in `settings`, as CONFIG GET shows it.
    pub fn show(&self, settings: &Settings) -> String {
        (self.show)(settings)
    }
    /// Sets the value from the arguments of a directive. The error says what is wrong with them.
    pub fn set(&self, settings: &mut Settings, args: &[&str]) -> Result<(), String> {
        if args.is_empty() || (args.len() > 1 && !self.is_list()) {
            return Err("wrong number of arguments".into());
        }
        (self.read)(settings, args)?;
        if matches!(self.change, Change::Fixed | Change::Given) && self.show(settings) != self.default {
            return Err(format!("the only value that this server supports is '{}'", self.default));
        }
        Ok(())
    }
    /// Sets the value from a single text, as CONFIG SET receives it.
    pub(super) fn set_text(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        self.set(settings, &[text])
    }
    /// Whether its value consists of several words.
    pub(crate) fn is_list(&self) -> bool {
        (self.is_list)()
    }
}

/// Older names of options, which Redis also still accepts and shows.
const OLDER_NAMES: &[(&str, &str)] = &[
    ("lua-time-limit", "busy-reply-threshold"),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// All options by name: those in the order of the file, then older names.
pub(crate) fn named() -> impl Iterator<Item = (&'static str, &'static Opt)> {
    let older = |(older, name): &(&'static str, &str)| Some((*older, options().find(|o| o.name == *name)?));
    options().map(|o| (o.name, o)).chain(OLDER_NAMES.iter().filter_map(older))
}

/// The option with this name, in any case; the name may be an older one.
pub fn lookup(name: &str) -> Option<&'static Opt> {
    named().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, opt)| opt)
}

/// Whether the option with this name, in any case, holds a secret. Unknown names count too, because a
/// mistyped option may still come with a password.
pub fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(b"pass") || [&b"masterauth"[..], b"masteruser"].contains(&name.as_slice())
}

/// Options under one heading of `conf/tern.conf`.
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// A note that applies to all of its options; may be empty.
    pub about: &'static str,
    /// The options, in the order of the file.
    pub options: &'static [Opt],
}

macro_rules! options {
    ($(section $title:literal $about:literal;
       $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal $default:literal $change:ident $codec:expr;)+)+) => {
        /// The current values.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($($(#[doc = $doc])+ pub $field: $type,)+)+
            /// Users in the file: `user` directives, each with the name and the rules. The ACL commands
            /// change and show them.
            pub users: Vec<Vec<String>>,
        }

        /// All options, by section.
        pub const SECTIONS: &[Section] = &[$(Section {
            title: $title,
            about: $about,
            options: &[$(Opt {
                name: $name,
                default: $default,
                change: Change::$change,
                doc: concat!($($doc, "\n"),+),
                read: |s, args| Codec::<$type>::read(&$codec, args, &s.$field).map(|v| s.$field = v),
                show: |s| Codec::<$type>::show(&$codec, &s.$field),
                is_list: || Codec::<$type>::is_list(&$codec),
            },)+],
        },)+];

        impl Default for Settings {
            /// The table's defaults. `tests/config_table.rs` checks that each of them is a valid value.
            fn default() -> Self {
                Settings {
                    $($($field: Codec::<$type>::read(&$codec, &[$default], &Default::default()).unwrap_or_default(),)+)+
                    users: Vec::new(),
                }
            }
        }
    };
}

/// All options, in the order of the file.
pub fn options() -> impl Iterator<Item = &'static Opt> {
    SECTIONS.iter().flat_map(|section| section.options)
}

const FSYNC: Choice<AppendFsync> =
    Choice(&[("everysec", AppendFsync::EverySec), ("always", AppendFsync::Always), ("no", AppendFsync::No)]);
const LEVEL: Choice<LogLevel> = Choice(&[
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Verbose),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("nothing", LogLevel::Nothing),
]);
const ALLOWED: Choice<Allowed> =
    Choice(&[("no", Allowed::No), ("yes", Allowed::Yes), ("local", Allowed::Local)]);
const CHANNELS: Choice<bool> = Choice(&[("allchannels", true), ("resetchannels", false)]);
const CLIENT_AUTH: Choice<ClientAuth> =
    Choice(&[("yes", ClientAuth::Yes), ("no", ClientAuth::No), ("optional", ClientAuth::Optional)]);
/// The largest signed int of Redis.
const INT: i64 = i32::MAX as i64;
const MIB: u64 = 1 << 20;
/// The longest bulk string: Tern's limit for a string.
const MAX_BULK: u64 = 512 * MIB;

options! {
section "Network" "";
    /// The TCP port to listen on. With 0, only a `tls-port` listens; without a `tls-port` either, the system
    /// picks a free port and the log says which.
    port: u16 = "port" "6379" Restart Int(0, 65535);
    /// The addresses to listen on. A leading `-` makes an address optional: it is skipped if the machine lacks
    /// it. `*` is every IPv4 address, `::*` every IPv6 address.
    bind: Vec<String> = "bind" "127.0.0.1 -::1" Restart Words;
    /// Refuse connections from other machines as long as no password is set.
    protected_mode: bool = "protected-mode" "yes" Runtime YesNo;
    /// The length of the kernel's queue of connections that the server has not accepted yet.
    tcp_backlog: u32 = "tcp-backlog" "511" Start Int(0, INT);
    /// Seconds between TCP keepalive probes on an idle connection; 0 sends none.
    tcp_keepalive: u32 = "tcp-keepalive" "300" Runtime Int(0, INT);
    /// Close a connection after this many seconds of silence; 0 never does.
    timeout: u32 = "timeout" "0" Runtime Int(0, INT);
    /// If a password is set, close a connection that has not logged in after this many seconds; 0 never does.
    /// Until it logs in, a connection may send only small requests and uses little memory.
    login_timeout: u32 = "login-timeout" "60" Runtime Int(0, INT);
    /// The largest number of clients connected at once; further ones get an error and are closed. The server
    /// raises its limit of open files to match when it starts. If the system forbids that (`ulimit -n`), fewer
    /// clients fit, and the log says how many.
    maxclients: u32 = "maxclients" "10000" Runtime Int(1, 4294967295);
    /// The password of the default user; empty asks for none. An attacker can try many passwords a second, so
    /// choose a long one.
    requirepass: String = "requirepass" "" Runtime Password;
    /// A file with one user per line, which ACL LOAD reads and ACL SAVE writes. If empty, `user` lines in this
    /// file define the users. Users belong to one server: other servers on the same store have their own.
    /// Example: `user alice on >secret ~app:* &news.* +@read +@write -@dangerous`
    aclfile: String = "aclfile" "" Start Text;
    /// Whether a new user may use every channel (`allchannels`) or none (`resetchannels`).
    acl_pubsub_default: bool = "acl-pubsub-default" "resetchannels" Runtime CHANNELS;
    /// The number of refusals that ACL LOG keeps.
    acllog_max_len: usize = "acllog-max-len" "128" Runtime Int(0, INT);
    /// The number of worker threads; 0 uses one fewer than the machine has cores.
    io_threads: usize = "io-threads" "0" Start Int(0, 256);

section "TLS" "With `port 0` and a tls-port the server speaks nothing but TLS. CONFIG SET of any of these options, even to its current value, rereads all files, so that a renewed certificate takes effect. If the new files cannot be used, CONFIG SET fails and the old certificate stays in use.";
    /// The port for clients that speak TLS, on the addresses of `bind`; 0 for none.
    tls_port: u16 = "tls-port" "0" Restart Int(0, 65535);
    /// The file with the server's certificate and the intermediate certificates up to its authority (PEM).
    tls_cert_file: String = "tls-cert-file" "" Runtime Text;
    /// The file with the certificate's private key (PEM).
    tls_key_file: String = "tls-key-file" "" Runtime Text;
    /// Private keys protected by a password are not supported. `openssl pkey -in locked.key -out open.key`
    /// removes the password; make sure that only this server can read the file.
    tls_key_file_pass: String = "tls-key-file-pass" "" Fixed Text;
    /// The file with the authorities that sign clients' certificates (PEM).
    tls_ca_cert_file: String = "tls-ca-cert-file" "" Runtime Text;
    /// A directory of such files.
    tls_ca_cert_dir: String = "tls-ca-cert-dir" "" Runtime Text;
    /// Whether clients must present a certificate: `yes`, `no`, or `optional`, which accepts clients without one
    /// but refuses a certificate that is not valid.
    tls_auth_clients: ClientAuth = "tls-auth-clients" "yes" Runtime CLIENT_AUTH;
    /// The TLS versions to offer, `TLSv1.2` and `TLSv1.3`; empty offers both.
    tls_protocols: Vec<String> = "tls-protocols" "" Runtime TlsVersions;

section "Limits of one client" "";
    /// The longest bulk string that a client may send, in bytes. No value can be longer than 512 MB.
    proto_max_bulk_len: usize = "proto-max-bulk-len" "536870912" Runtime Memory(MIB, MAX_BULK);
    /// The most bytes of unparsed requests that a client may have waiting; beyond that its connection is closed.
    client_query_buffer_limit: usize = "client-query-buffer-limit" "1073741824" Runtime Memory(MIB, i64::MAX as u64);
    /// The most bytes of replies that may wait for a slow reader, for each class of client: a hard limit, a soft
    /// limit, and the seconds that a client may stay above the soft limit.
    client_output_buffer_limit: OutputLimits = "client-output-buffer-limit" "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60" Runtime Limits;

section "Data" "";
    /// The data directory, created if it does not exist. Only one server at a time can use it.
    dir: String = "dir" "./data" Start Text;
    /// The storage engine. `local` keeps its files in `dir`, `local:<path>` keeps them in another directory, and
    /// `fdb:<cluster file>` is a FoundationDB cluster, which any number of servers can share. FoundationDB needs
    /// a build with the feature `fdb`.
    store: String = "store" "local" Restart Text;
    /// FoundationDB: the name of the directory (`tern`, then this name) that holds the data. Servers with the same
    /// namespace share their data; other servers do not see it.
    store_namespace: String = "store-namespace" "default" Restart Text;
    /// Milliseconds to keep trying a command while the store cannot be reached or other transactions keep
    /// conflicting with it. Then the client gets an error. On FoundationDB, a transaction that has had no answer
    /// for this long is given up.
    store_timeout: u32 = "store-timeout" "10000" Restart Int(100, INT);
    /// FoundationDB: the file with the certificate chain for TLS to the cluster (PEM); empty for none. TLS is used
    /// for the addresses in the cluster file that end in :tls.
    store_tls_cert_file: String = "store-tls-cert-file" "" Restart Text;
    /// FoundationDB: the file with the private key (PEM).
    store_tls_key_file: String = "store-tls-key-file" "" Restart Text;
    /// FoundationDB: the password of the private key.
    store_tls_key_file_pass: String = "store-tls-key-file-pass" "" Restart Text;
    /// FoundationDB: the file with the trusted certificates (PEM).
    store_tls_ca_cert_file: String = "store-tls-ca-cert-file" "" Restart Text;
    /// FoundationDB: conditions on the cluster's certificates, such as `Check.Valid=1,S.O=Example`.
    store_tls_verify_peers: String = "store-tls-verify-peers" "" Restart Text;
    /// When to acknowledge a write: `always` once it is on disk; `everysec` at once, with a sync every second, so
    /// that a crash of the machine can lose one second of acknowledged writes; `no` at once, leaving syncs to the
    /// operating system, so that a crash of the machine can lose more. A crash of the server alone loses nothing
    /// in any of the three.
    appendfsync: AppendFsync = "appendfsync" "always" Runtime FSYNC;
    /// The number of databases.
    databases: u8 = "databases" "16" Start Int(1, 255);
    /// The least number of seconds to keep the reply of a command that was sent under an id (IDEMPOTENT). Older
    /// replies are forgotten, oldest first.
    idempotency_min_age: u32 = "idempotency-min-age" "86400" Runtime Int(0, INT);
    /// The most bytes that one user's ids and their replies may take in the store; 0 for no limit. A command under
    /// a new id is refused beyond it and does not run; one that has run is answered again. An id takes
    /// about 100 bytes, twice its own length, and its reply. Commands that are running at the moment are not
    /// counted yet.
    idempotency_max_size_per_user: usize = "idempotency-max-size-per-user" "4294967296" Runtime Memory(0, i64::MAX as u64);
    /// The same limit for all users together; 0 for no limit.
    idempotency_max_size: usize = "idempotency-max-size" "17179869184" Runtime Memory(0, i64::MAX as u64);
    /// Seconds between two collections of the dictionary, which remove the members that are in no set any more;
    /// 0 collects only when DEBUG DICTIONARY-GC asks. A collection reads every set twice. If not 0, a collection
    /// also starts once as many ids have been handed out since the last one as had a member then, and at
    /// least `dictionary-gc-backlog`.
    dictionary_gc_interval: u32 = "dictionary-gc-interval" "86400" Runtime Int(0, INT);
    /// The percentage of the time that a collection works; it rests in between. It rests less while there is more
    /// to remove than to keep.
    dictionary_gc_share: u32 = "dictionary-gc-share" "25" Runtime Int(1, 100);
    /// The number of unused members that may wait to be removed. While a collection has more to remove
    /// than this, and more than there are members in use, it removes two for each new member, and commands that
    /// add new members wait for it, up to a second each.
    dictionary_gc_backlog: u32 = "dictionary-gc-backlog" "1000000" Runtime Int(1, INT);
    /// The number of lanes, which combine writes into transactions and have one transaction in flight each. Fewer
    /// lanes make larger batches, more lanes use more cores. 0 uses one lane for every two cores.
    lanes: usize = "lanes" "0" Restart Int(0, 1024);
    /// Bytes of memory to cache blocks of the store.
    store_cache_size: usize = "store-cache-size" "167772160" Restart Memory(MIB, 1 << 46);
    /// Bytes of memory to cache single values that were read or written recently, in front of the blocks; 0 for
    /// none.
    store_value_cache_size: usize = "store-value-cache-size" "167772160" Restart Memory(0, 1 << 46);
    /// Bytes of recent writes that the store keeps in memory before it moves them to a table file. Three times as
    /// many may be in memory, and their log may take four times as many bytes on disk.
    store_write_buffer_size: usize = "store-write-buffer-size" "33554432" Restart Memory(64 << 10, 1 << 40);
    /// The most fields of a hash that is called a listpack, and stored inside its record as long as it has at most
    /// 4096 bytes. `hash-max-ziplist-entries` is the older name.
    hash_max_listpack_entries: usize = "hash-max-listpack-entries" "512" Runtime Int(0, i64::MAX);
    /// The longest field or value of such a hash, in bytes. `hash-max-ziplist-value` is the older name.
    hash_max_listpack_value: usize = "hash-max-listpack-value" "64" Runtime Int(0, i64::MAX);
    /// The most members of a sorted set that is called a listpack, and stored inside its record as long as it has at
    /// most 4096 bytes. `zset-max-ziplist-entries` is the older name.
    zset_max_listpack_entries: usize = "zset-max-listpack-entries" "128" Runtime Int(0, i64::MAX);
    /// The longest member of such a sorted set, in bytes. `zset-max-ziplist-value` is the older name.
    zset_max_listpack_value: usize = "zset-max-listpack-value" "64" Runtime Int(0, i64::MAX);
    /// The largest list that is called a listpack, and stored inside its record as long as it has at most 4096 bytes:
    /// -1 to -5 for 4 to 64 KiB, or a number of elements. `list-max-ziplist-size` is the older name.
    list_max_listpack_size: i64 = "list-max-listpack-size" "-2" Runtime Int(i32::MIN as i64, INT);
    /// Accepted, without effect: lists are not compressed node by node.
    list_compress_depth: i64 = "list-compress-depth" "0" Runtime Int(0, INT);
    /// XTRIM and XADD with `~` remove entries of a stream this many at a time, as many as a node of Redis has; 0 for no
    /// limit.
    stream_node_max_entries: usize = "stream-node-max-entries" "100" Runtime Int(0, i64::MAX);
    /// The bytes of such a node, which make it smaller where entries are large; 0 for no limit.
    stream_node_max_bytes: usize = "stream-node-max-bytes" "4096" Runtime Memory(0, i64::MAX as u64);
    /// The longest HyperLogLog in Redis' sparse form, in bytes; a longer one becomes dense.
    hll_sparse_max_bytes: usize = "hll-sparse-max-bytes" "3000" Runtime Memory(0, i64::MAX as u64);

section "Scripts" "";
    /// Milliseconds after which a script is ended and its writes are undone; 0 for no limit. Redis would answer all others
    /// with BUSY from then on. `lua-time-limit` is the older name.
    busy_reply_threshold: u64 = "busy-reply-threshold" "5000" Runtime Int(0, i64::MAX);

section "Monitoring" "";
    /// The log level: `debug`, `verbose`, `notice`, `warning` or `nothing`.
    loglevel: LogLevel = "loglevel" "notice" Runtime LEVEL;
    /// The log file; empty logs to standard output. If the file is renamed, the next line starts a new one.
    logfile: String = "logfile" "" Start Text;
    /// The keyspace notifications to send, in Redis' letters; empty for none. K: channels `__keyspace@<db>__:<key>`,
    /// E: channels `__keyevent@<db>__:<event>`; g: commands for any type, $: strings, l: lists, s: sets, h: hashes, x:
    /// expired keys, n: new keys, m: lookups of missing keys; A: all but n and m. On a cluster the server that makes
    /// a change decides, so give all servers the same letters.
    notify_keyspace_events: Events = "notify-keyspace-events" "" Runtime Letters;
    /// The number of key names to remember for clients that cache them (CLIENT TRACKING); 0 for no limit. When a
    /// name is dropped, its clients are told that it is stale. Memory is bounded too, at 512 bytes a name on
    /// average.
    tracking_table_max_keys: usize = "tracking-table-max-keys" "1000000" Runtime Int(0, i64::MAX);
    /// Measure the latency of each command for INFO latencystats and the metrics.
    latency_tracking: bool = "latency-tracking" "yes" Runtime YesNo;
    /// Log commands that take at least this many microseconds, commit included, to the slow log; 0 logs every
    /// command, -1 none.
    slowlog_log_slower_than: i64 = "slowlog-log-slower-than" "10000" Runtime Int(-1, i64::MAX);
    /// The number of commands that the slow log keeps, up to 4 KB of each.
    slowlog_max_len: usize = "slowlog-max-len" "128" Runtime Int(0, INT);
    /// Keep events that take at least this many milliseconds for LATENCY; 0 keeps none.
    latency_monitor_threshold: u64 = "latency-monitor-threshold" "0" Runtime Int(0, i64::MAX);
    /// Whether clients may send DEBUG, which can stall and break things on purpose: `no`, `yes`, or `local` for
    /// clients on this machine.
    enable_debug_command: Allowed = "enable-debug-command" "no" Start ALLOWED;
    /// The port of the Prometheus metrics, on the addresses of `bind`; 0 for none. Prometheus reads
    /// `http://<address>:<port>/metrics`. The port serves a few connections at a time, each for some seconds, and
    /// `protected-mode` applies to it.
    metrics_port: u16 = "metrics-port" "0" Restart Int(0, 65535);

section "Shutdown" "";
    /// Seconds that a shutdown waits for running commands.
    shutdown_timeout: u32 = "shutdown-timeout" "10" Runtime Int(0, INT);

section "Facts" "Clients and tools ask for these with CONFIG GET. They may be stated here, but only with the value shown.";
    /// The largest set of integers stored inside its record, in members. Part of the stored format.
    set_max_intset_entries: usize = "set-max-intset-entries" "512" Fixed Int(0, 1024);
    /// The largest set of other members stored inside its record, in members. Part of the stored format.
    set_max_listpack_entries: usize = "set-max-listpack-entries" "128" Fixed Int(0, 1024);
    /// The longest member of such a set, in bytes. Part of the stored format.
    set_max_listpack_value: usize = "set-max-listpack-value" "64" Fixed Int(0, 64);
    /// Data is always durable: see `appendfsync`.
    appendonly: String = "appendonly" "yes" Fixed Text;
    /// There are no snapshot files, so there is no schedule for them.
    save: String = "save" "" Fixed Text;
    /// Memory holds only caches, which have limits of their own.
    maxmemory: String = "maxmemory" "0" Fixed Text;
    /// Keys are never evicted.
    maxmemory_policy: String = "maxmemory-policy" "noeviction" Fixed Text;
    /// A master accepts writes; clients ask for this when they connect.
    replica_read_only: String = "replica-read-only" "yes" Fixed Text;
    /// Servers have no replicas: all servers on one store are equal.
    replicaof: String = "replicaof" "" Given Text;
    /// The older name of `replicaof`.
    slaveof: String = "slaveof" "" Given Text;
    /// There is no cluster mode: any server answers for any key.
    cluster_enabled: String = "cluster-enabled" "no" Given Text;
    /// Running in the background is the service manager's job.
    daemonize: String = "daemonize" "no" Given Text;
    /// Background work paces itself, not by a frequency; tools ask for it.
    hz: String = "hz" "10" Fixed Text;
}
