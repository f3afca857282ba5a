//! The table of options: each is one entry, from which the typed field, its default, CONFIG GET, SET and REWRITE, the
//! reading of files and arguments, and the test of `conf/tern.conf` are derived.

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
    /// As `Start`, of what Redis can change while it runs, or has not: CONFIG SET may state the value in force, as tools do that set
    /// all they got.
    Restart,
    /// Never: a fact that clients ask for. A file or a client may state it, but not contradict it.
    Fixed,
    /// As `Fixed`, but not for CONFIG SET, as in Redis.
    Given,
}

/// One option.
pub struct Opt {
    /// Its name, lower case.
    pub name: &'static str,
    /// The value where nothing is said.
    pub default: &'static str,
    /// When it can be changed.
    pub change: Change,
    /// What it does.
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
            return Err(format!("this server has no other value than '{}'", self.default));
        }
        Ok(())
    }
    /// Sets the value from one text, as CONFIG SET gets it.
    pub(super) fn set_text(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        self.set(settings, &[text])
    }
    /// Whether several words are its value.
    pub fn is_list(&self) -> bool {
        (self.is_list)()
    }
}

/// The option of a name in any case.
pub fn lookup(name: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|o| o.name.eq_ignore_ascii_case(name))
}

/// Whether the value of the option of this name, in any case, is a secret. Also of names that there are not: who mistypes one has
/// written a password all the same.
pub fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(b"pass") || [&b"masterauth"[..], b"masteruser"].contains(&name.as_slice())
}

macro_rules! options {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal $default:literal $change:ident $codec:expr;)+) => {
        /// The values in force.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: $type,)+
            /// What the file says about users: `user` directives, the name and the rules. Commands change and show them (ACL).
            pub users: Vec<Vec<String>>,
        }

        /// All options.
        pub const OPTIONS: &[Opt] = &[$(Opt {
            name: $name,
            default: $default,
            change: Change::$change,
            doc: concat!($($doc, "\n"),+),
            read: |s, args| Codec::<$type>::read(&$codec, args, &s.$field).map(|v| s.$field = v),
            show: |s| Codec::<$type>::show(&$codec, &s.$field),
            is_list: || Codec::<$type>::is_list(&$codec),
        },)+];

        impl Default for Settings {
            /// The table's defaults. `tests/config_table.rs` shows that every one of them is a valid value.
            fn default() -> Self {
                Settings { $($field: Codec::<$type>::read(&$codec, &[$default], &Default::default()).unwrap_or_default(),)+ users: Vec::new() }
            }
        }
    };
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
/// Redis' largest signed int.
const INT: i64 = i32::MAX as i64;
const MIB: u64 = 1 << 20;
/// Largest bulk string: design's limit of a string.
const MAX_BULK: u64 = 512 * MIB;

options! {
    /// TCP port to listen on; 0 with a `tls-port` listens there only, and without lets the system choose one, the log says which.
    port: u16 = "port" "6379" Restart Int(0, 65535);
    /// Addresses to listen on. A leading `-` makes an address optional: it is skipped where it does not exist.
    bind: Vec<String> = "bind" "127.0.0.1 -::1" Restart Words;
    /// Refuse connections from other machines while there is no password.
    protected_mode: bool = "protected-mode" "yes" Runtime YesNo;
    /// Length of the queue of connections that the kernel has accepted and the server has not.
    tcp_backlog: u32 = "tcp-backlog" "511" Start Int(0, INT);
    /// Seconds between TCP keepalive probes on an idle connection; 0 sends none.
    tcp_keepalive: u32 = "tcp-keepalive" "300" Runtime Int(0, INT);
    /// Close a connection after it was idle for so many seconds; 0 never does.
    timeout: u32 = "timeout" "0" Runtime Int(0, INT);
    /// Close a connection that has not logged in after so many seconds, where a password is asked for; 0 never does.
    login_timeout: u32 = "login-timeout" "60" Runtime Int(0, INT);
    /// Most clients connected at once; more are told so and closed.
    maxclients: u32 = "maxclients" "10000" Runtime Int(1, 4294967295);
    /// Password of the default user; empty asks for none.
    requirepass: String = "requirepass" "" Runtime Password;
    /// File of the users, a line each, which ACL LOAD reads and ACL SAVE writes; empty: `user` lines in this file say who there is.
    aclfile: String = "aclfile" "" Start Text;
    /// Whether a new user may use any channel: `allchannels`, or `resetchannels` for none.
    acl_pubsub_default: bool = "acl-pubsub-default" "resetchannels" Runtime CHANNELS;
    /// Refusals that ACL LOG keeps.
    acllog_max_len: usize = "acllog-max-len" "128" Runtime Int(0, INT);
    /// Worker threads; 0 takes one less than there are cores.
    io_threads: usize = "io-threads" "0" Start Int(0, 256);
    /// Longest bulk string that a client may send, in bytes.
    proto_max_bulk_len: usize = "proto-max-bulk-len" "536870912" Runtime Memory(MIB, MAX_BULK);
    /// Bytes of one client's requests that may wait unparsed; more close its connection.
    client_query_buffer_limit: usize = "client-query-buffer-limit" "1073741824" Runtime Memory(MIB, i64::MAX as u64);
    /// Bytes of replies that may wait for a slow reader, by class of client: hard limit, soft limit, seconds above the soft one.
    client_output_buffer_limit: OutputLimits = "client-output-buffer-limit" "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60" Runtime Limits;
    /// Port of the Prometheus metrics, on the addresses of `bind`; 0 serves none.
    metrics_port: u16 = "metrics-port" "0" Restart Int(0, 65535);

    /// Port to listen on for clients that speak TLS, on the addresses of `bind`; 0: none.
    tls_port: u16 = "tls-port" "0" Restart Int(0, 65535);
    /// File of the server's certificate, with those that lead to its authority (PEM).
    tls_cert_file: String = "tls-cert-file" "" Runtime Text;
    /// File of the certificate's private key (PEM).
    tls_key_file: String = "tls-key-file" "" Runtime Text;
    /// A private key with a password is refused, so there is none to say.
    tls_key_file_pass: String = "tls-key-file-pass" "" Fixed Text;
    /// File of the authorities whose certificates clients may show (PEM).
    tls_ca_cert_file: String = "tls-ca-cert-file" "" Runtime Text;
    /// Directory of such files.
    tls_ca_cert_dir: String = "tls-ca-cert-dir" "" Runtime Text;
    /// Whether a client must show a certificate: `yes`, `no`, or `optional` where it need not, but one that it shows must be good.
    tls_auth_clients: ClientAuth = "tls-auth-clients" "yes" Runtime CLIENT_AUTH;
    /// Versions of TLS that are spoken, of `TLSv1.2` and `TLSv1.3`; empty: both.
    tls_protocols: Vec<String> = "tls-protocols" "" Runtime TlsVersions;

    /// Data directory, created where it is missing.
    dir: String = "dir" "./data" Start Text;
    /// The engine: `local` keeps its files in `dir`, `local:<path>` elsewhere, `fdb:<cluster file>` is a FoundationDB cluster.
    store: String = "store" "local" Restart Text;
    /// FoundationDB: the directory ("tern", `namespace`) of the cluster that holds the data.
    store_namespace: String = "store-namespace" "default" Restart Text;
    /// Milliseconds that a command is tried while the store cannot be reached, or others are always in its way.
    store_timeout: u32 = "store-timeout" "10000" Restart Int(100, INT);
    /// FoundationDB: file of the certificate chain for TLS to the cluster (PEM); empty for none.
    store_tls_cert_file: String = "store-tls-cert-file" "" Restart Text;
    /// FoundationDB: file of the private key (PEM).
    store_tls_key_file: String = "store-tls-key-file" "" Restart Text;
    /// FoundationDB: password of the private key.
    store_tls_key_file_pass: String = "store-tls-key-file-pass" "" Restart Text;
    /// FoundationDB: file of the certificates that are trusted (PEM).
    store_tls_ca_cert_file: String = "store-tls-ca-cert-file" "" Restart Text;
    /// FoundationDB: conditions on the cluster's certificates, such as `Check.Valid=1,S.O=Example`.
    store_tls_verify_peers: String = "store-tls-verify-peers" "" Restart Text;
    /// When a write is acknowledged: `always` once it is on disk, `everysec` with a sync once a second, `no` when the operating system likes.
    appendfsync: AppendFsync = "appendfsync" "always" Runtime FSYNC;
    /// Number of databases.
    databases: u8 = "databases" "16" Start Int(1, 255);
    /// Seconds that the reply of a command under an id (IDEMPOTENT) is kept at least; then the oldest ones are forgotten.
    idempotency_min_age: u32 = "idempotency-min-age" "86400" Runtime Int(0, INT);
    /// Bytes that the replies kept for one user's ids may take in the store, with the ids; a new id is refused beyond it. 0 is no bound.
    idempotency_max_size_per_user: usize = "idempotency-max-size-per-user" "4294967296" Runtime Memory(0, i64::MAX as u64);
    /// Bytes that the replies kept for all users' ids may take in the store; a new id is refused beyond it. 0 is no bound.
    idempotency_max_size: usize = "idempotency-max-size" "17179869184" Runtime Memory(0, i64::MAX as u64);
    /// Seconds between two collections of the dictionary, which remove the members that no set holds any more; 0: only when DEBUG DICTIONARY-GC asks.
    dictionary_gc_interval: u32 = "dictionary-gc-interval" "86400" Runtime Int(0, INT);
    /// Percent of the time that a collection works; it rests in between, less where more is dead than lives.
    dictionary_gc_share: u32 = "dictionary-gc-share" "25" Runtime Int(1, 100);
    /// Members that no set holds, of which so many may wait for the next collection.
    dictionary_gc_backlog: u32 = "dictionary-gc-backlog" "1000000" Runtime Int(1, INT);
    /// Lanes that combine writes into transactions; each has one transaction in flight. 0: one for two processor cores.
    lanes: usize = "lanes" "0" Restart Int(0, 1024);
    /// Bytes of memory for blocks that the engine has read.
    store_cache_size: usize = "store-cache-size" "268435456" Restart Memory(MIB, 1 << 46);
    /// Bytes of memory for single values lately written or read, in front of those blocks; 0: none.
    store_value_cache_size: usize = "store-value-cache-size" "67108864" Restart Memory(0, 1 << 46);
    /// Bytes that the engine collects in memory before it writes a table file.
    store_write_buffer_size: usize = "store-write-buffer-size" "16777216" Restart Memory(64 << 10, 1 << 40);

    /// Largest set of integers that is kept in its record, in members. Part of the stored format.
    set_max_intset_entries: usize = "set-max-intset-entries" "512" Fixed Int(0, 1024);
    /// Largest set of other members that is kept in its record, in members. Part of the stored format.
    set_max_listpack_entries: usize = "set-max-listpack-entries" "128" Fixed Int(0, 1024);
    /// Longest member in such a set, in bytes. Part of the stored format.
    set_max_listpack_value: usize = "set-max-listpack-value" "64" Fixed Int(0, 64);
    /// Longest string of a HyperLogLog that keeps runs of registers, in bytes; what would be longer gets bits for each of them.
    hll_sparse_max_bytes: usize = "hll-sparse-max-bytes" "3000" Runtime Memory(0, i64::MAX as u64);

    /// What is logged: `debug`, `verbose`, `notice`, `warning` or `nothing`.
    loglevel: LogLevel = "loglevel" "notice" Runtime LEVEL;
    /// File of the log; empty logs to the standard output.
    logfile: String = "logfile" "" Start Text;
    /// Which changes of keys are told on channels, in Redis' letters; empty: none.
    notify_keyspace_events: Events = "notify-keyspace-events" "" Runtime Letters;
    /// Names of keys that are remembered for clients that cache them (CLIENT TRACKING); 0 is no limit. A client is told that a name which is
    /// forgotten is stale.
    tracking_table_max_keys: usize = "tracking-table-max-keys" "1000000" Runtime Int(0, i64::MAX);
    /// Measure each command's latency for INFO latencystats and the metrics.
    latency_tracking: bool = "latency-tracking" "yes" Runtime YesNo;
    /// Microseconds that a command takes at least to be kept in the slow log, commit included; 0 keeps all, -1 none.
    slowlog_log_slower_than: i64 = "slowlog-log-slower-than" "10000" Runtime Int(-1, i64::MAX);
    /// Commands that the slow log keeps, each of at most 4 KB.
    slowlog_max_len: usize = "slowlog-max-len" "128" Runtime Int(0, INT);
    /// Milliseconds that an event takes at least to be kept for LATENCY; 0 keeps none.
    latency_monitor_threshold: u64 = "latency-monitor-threshold" "0" Runtime Int(0, i64::MAX);
    /// Who may send DEBUG, which can stall and break things on purpose: `no`, `yes`, or `local` for clients on this machine.
    enable_debug_command: Allowed = "enable-debug-command" "no" Start ALLOWED;
    /// Seconds that a shutdown waits for commands that are still running.
    shutdown_timeout: u32 = "shutdown-timeout" "10" Runtime Int(0, INT);

    /// Data is always durable: see `appendfsync`.
    appendonly: String = "appendonly" "yes" Fixed Text;
    /// There are no snapshot files, so no schedule of them.
    save: String = "save" "" Fixed Text;
    /// Memory holds caches only, so it has no limit of its own.
    maxmemory: String = "maxmemory" "0" Fixed Text;
    /// No key is ever evicted.
    maxmemory_policy: String = "maxmemory-policy" "noeviction" Fixed Text;
    /// A master accepts writes; clients ask for this in their handshake.
    replica_read_only: String = "replica-read-only" "yes" Fixed Text;
    /// A server is nobody's replica: all servers on one store are equal.
    replicaof: String = "replicaof" "" Given Text;
    /// The older name of `replicaof`.
    slaveof: String = "slaveof" "" Given Text;
    /// Cluster mode does not exist: any server can answer for any key.
    cluster_enabled: String = "cluster-enabled" "no" Given Text;
    /// Running in the background is the service manager's work.
    daemonize: String = "daemonize" "no" Given Text;
    /// Background work is paced by itself, not by a frequency; tools ask for it.
    hz: String = "hz" "10" Fixed Text;
}
