//! The server's own commands: INFO's counters, CONFIG, the parts of COMMAND derived from the rows, the
//! metrics.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use support::resp::{Client, Value};
use support::server::{free_port, tern};

fn string(value: &Value) -> String {
    String::from_utf8(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}")).to_vec()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.items().unwrap_or_else(|| panic!("not an array: {value:?}")).iter().map(string).collect()
}

/// A reply of names and numbers.
fn strings_of_pairs(value: &Value) -> HashMap<String, i64> {
    let items = value.items().unwrap_or_else(|| panic!("no pairs: {value:?}"));
    items.chunks(2).map(|pair| (string(&pair[0]), pair[1].int().unwrap())).collect()
}

/// A field of INFO.
fn info(c: &mut Client, section: &str, field: &str) -> String {
    let text = string(&c.line(&format!("INFO {section}")));
    let value = text.lines().find_map(|l| l.strip_prefix(&format!("{field}:")).map(str::to_owned));
    value.unwrap_or_else(|| panic!("no {field} in {text}"))
}

#[test]
fn info_counts_calls_errors_and_lookups() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("CONFIG RESETSTAT");
    for line in [
        "SET k v EX 1000",
        "SET n 1",
        "GET k",
        "GET k",
        "INCR k",
        "GET",
        "nosuch",
        "vAdd k 1-1 f v",
        "READONLY",
        "SADD k x",
    ] {
        c.line(line);
    }
    let stat = |line: &str, name: &str| {
        let value = line.split(',').find_map(|f| f.strip_prefix(&format!("{name}=")));
        value.unwrap_or_else(|| panic!("no {name} in {line}")).parse::<f64>().unwrap()
    };
    let get = info(&mut c, "commandstats", "cmdstat_get");
    assert_eq!(
        (stat(&get, "calls"), stat(&get, "rejected_calls"), stat(&get, "failed_calls")),
        (2.0, 1.0, 0.0),
        "{get}"
    );
    assert!(stat(&get, "usec_per_call") > 0.0, "{get}");
    let incr = info(&mut c, "commandstats", "cmdstat_incr");
    assert_eq!((stat(&incr, "calls"), stat(&incr, "failed_calls")), (1.0, 1.0), "{incr}");
    let vadd = info(&mut c, "commandstats", "cmdstat_vadd");
    assert_eq!((stat(&vadd, "calls"), stat(&vadd, "rejected_calls")), (0.0, 1.0), "{vadd}");
    assert_eq!(info(&mut c, "errorstats", "errorstat_ERR"), "count=5");
    assert_eq!(info(&mut c, "errorstats", "errorstat_WRONGTYPE"), "count=1");
    assert!(stat(&info(&mut c, "latencystats", "latency_percentiles_usec_set"), "p50") > 0.0);
    assert_eq!(info(&mut c, "keyspace", "db0"), "keys=2,expires=1,avg_ttl=0");
    assert_eq!(info(&mut c, "clients", "connected_clients"), "1");
    assert!(info(&mut c, "stats", "total_commands_processed").parse::<u64>().unwrap() >= 7);
    assert!(info(&mut c, "stats", "total_net_input_bytes").parse::<u64>().unwrap() > 100);
    assert!(info(&mut c, "memory", "used_memory_rss").parse::<u64>().unwrap() > 1 << 20);
    assert!(info(&mut c, "tern", "store_commits").parse::<u64>().unwrap() >= 2);
    for (section, field, want) in [
        ("server", "redis_mode", "standalone"),
        ("server", "arch_bits", "64"),
        ("server", "tcp_port", &server.port.to_string()),
        ("server", "process_id", &server.pid().to_string()),
        ("persistence", "loading", "0"),
        ("replication", "role", "master"),
        ("cluster", "cluster_enabled", "0"),
    ] {
        assert_eq!(info(&mut c, section, field), want);
    }
    c.line("CONFIG RESETSTAT");
    let stats = string(&c.line("INFO commandstats"));
    assert!(!stats.contains("cmdstat_get") && !stats.contains("cmdstat_vadd"), "{stats}");
}

/// The fields read by redis_exporter that have a meaning here.
const EXPORTED: &str = "
    acl_access_denied_auth acl_access_denied_channel acl_access_denied_cmd acl_access_denied_key
    aof_current_rewrite_time_sec aof_current_size aof_enabled aof_last_bgrewrite_status aof_last_rewrite_time_sec
    aof_last_write_status aof_rewrite_in_progress aof_rewrite_scheduled async_loading blocked_clients
    client_output_buffer_limit_disconnections client_query_buffer_limit_disconnections connected_clients connected_slaves
    current_eviction_exceeded_time evicted_clients evicted_keys evicted_scripts expired_keys expired_subkeys keyspace_hits keyspace_misses
    latest_fork_usec loading master_repl_offset maxclients maxmemory mem_clients_normal mem_clients_slaves
    mem_fragmentation_ratio migrate_cached_sockets number_of_cached_scripts number_of_functions number_of_libraries
    process_id pubsub_channels pubsub_clients pubsub_patterns pubsubshard_channels rdb_bgsave_in_progress
    rdb_changes_since_last_save rdb_current_bgsave_time_sec rdb_last_bgsave_status rdb_last_bgsave_time_sec
    rdb_last_save_time rdb_saves rejected_connections repl_backlog_active repl_backlog_first_byte_offset
    repl_backlog_histlen repl_backlog_size second_repl_offset sync_full sync_partial_err sync_partial_ok
    total_blocking_keys total_blocking_keys_on_nokey total_commands_processed total_connections_received
    total_error_replies total_eviction_exceeded_time total_net_input_bytes total_net_output_bytes
    total_net_repl_input_bytes total_net_repl_output_bytes tracking_clients tracking_total_items tracking_total_keys
    tracking_total_prefixes unexpected_error_replies uptime_in_seconds used_cpu_sys used_cpu_sys_children used_cpu_user
    used_cpu_user_children used_memory used_memory_lua used_memory_peak used_memory_rss used_memory_scripts
    used_memory_vm_total watching_clients
";

#[test]
fn info_has_the_fields_that_exporters_read() {
    let server = tern(&[]);
    let (mut c, mut watching) = (server.client(), server.client());
    watching.line("WATCH k l");
    let text = string(&c.line("INFO ALL"));
    let fields: Vec<&str> = text.lines().filter_map(|line| line.split(':').next()).collect();
    let missing: Vec<&str> = EXPORTED.split_whitespace().filter(|name| !fields.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let twice: Vec<&&str> =
        fields.iter().filter(|f| !f.is_empty() && fields.iter().filter(|g| g == f).count() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(info(&mut c, "clients", "watching_clients"), "1");
    watching.line("UNWATCH");
    assert_eq!(info(&mut c, "clients", "watching_clients"), "0");
    c.line("CONFIG SET client-query-buffer-limit 1048576");
    watching
        .send_raw(&[b"*2\r\n$4\r\nECHO\r\n$3000000\r\n".as_slice(), &vec![b'x'; 2_000_000]].concat())
        .unwrap();
    assert!(watching.drain().1, "closed");
    assert_eq!(info(&mut c, "stats", "client_query_buffer_limit_disconnections"), "1");
    assert_eq!(info(&mut c, "stats", "client_output_buffer_limit_disconnections"), "0");
}

#[test]
fn info_shows_the_sections_asked_for() {
    let server = tern(&[]);
    let mut c = server.client();
    let mut titles = |args: &str| {
        let text = string(&c.line(&format!("INFO{args}")));
        text.lines().filter_map(|l| l.strip_prefix("# ").map(str::to_lowercase)).collect::<Vec<_>>()
    };
    assert_eq!(titles(" CPU nosuch server"), ["server", "cpu"]);
    assert!(titles(" nosuch").is_empty());
    let default = titles("");
    assert!(default.contains(&"keyspace".into()) && !default.contains(&"commandstats".into()), "{default:?}");
    assert_eq!(titles(" default"), default);
    assert!(titles(" everything").contains(&"latencystats".into()));
    c.line("HELLO 3");
    assert!(matches!(c.line("INFO cluster"), Value::Verbatim(_)), "text in RESP3");
}

#[test]
fn config_set_changes_the_named_options_or_none() {
    let server = tern(&["--timeout", "77"]);
    let mut c = server.client();
    assert_eq!(strings(&c.line("CONFIG GET timeout")), ["timeout", "77"]);
    assert_eq!(strings(&c.line("CONFIG GET databases TIMEOUT data*")), ["timeout", "77", "databases", "16"]);
    assert_eq!(strings(&c.line("CONFIG GET nosuch")), [""; 0]);
    for (line, want) in [
        (
            "CONFIG SET timeout 5 nosuch 6",
            "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        ("CONFIG SET timeout 5 x", "ERR syntax error"),
        (
            "CONFIG SET timeout 5 timeout 6",
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        (
            "CONFIG SET timeout 5 databases 3",
            "ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
        (
            "CONFIG SET timeout abc",
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        ),
        ("CONFIG REWRITE", "ERR The server is running without a config file"),
        ("CONFIG SET timeout", "ERR wrong number of arguments for 'config|set' command"),
    ] {
        assert_eq!(string(&c.line(line)), want, "{line}");
    }
    assert_eq!(strings(&c.line("CONFIG GET timeout")), ["timeout", "77"]);
    for line in ["CONFIG SET timeout 5 appendfsync everysec", "CONFIG SET loglevel debug", "SET k v"] {
        assert_eq!(c.line(line), Value::Simple(b"OK".to_vec()), "{line}");
    }
    assert_eq!(strings(&c.line("CONFIG GET appendfsync")), ["appendfsync", "everysec"]);
    c.line("HELLO 3");
    assert!(matches!(c.line("CONFIG GET timeout"), Value::Map(_)), "a map in RESP3");
}

#[test]
fn a_password_can_be_set_while_clients_are_connected() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("CONFIG SET requirepass secret");
    assert_eq!(string(&server.client().line("GET k")), "NOAUTH Authentication required.");
    let mut other = server.client();
    assert_eq!(string(&other.line("AUTH secret")), "OK");
    assert_eq!(other.line("GET k"), Value::Nil(b'$'));
}

#[test]
fn a_changed_log_level_is_in_force_at_once() {
    let log_after = |level: &str| {
        let server = tern(&["--loglevel", "warning"]);
        let mut c = server.client();
        c.line(&format!("CONFIG SET loglevel {level}"));
        c.send(&["SHUTDOWN"]).unwrap();
        assert!(c.drain().1);
        server.log()
    };
    assert!(log_after("notice").contains("shutdown requested"));
    assert!(!log_after("warning").contains("shutdown requested"));
}

#[test]
fn shutdown_answers_by_ending() {
    let mut server = tern(&[]);
    let mut c = server.client();
    assert_eq!(string(&c.line("SHUTDOWN ABORT")), "ERR No shutdown in progress.");
    assert_eq!(string(&c.line("SHUTDOWN SAVE NOSAVE")), "ERR syntax error");
    c.line("SET k v");
    c.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert_eq!(c.drain(), (Vec::new(), true));
    for _ in 0..1000 {
        if !server.is_running() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the server must stop:\n{}", server.log());
}

#[test]
fn getkeys_reads_the_row() {
    let server = tern(&[]);
    let mut c = server.client();
    for (line, want) in [
        ("COMMAND GETKEYS GET k", &["k"][..]),
        ("COMMAND GETKEYS mset a 1 b 2", &["a", "b"]),
        ("COMMAND GETKEYS sintercard 2 a b limit 3", &["a", "b"]),
        ("COMMAND GETKEYS sintercard +1 a b", &["a"]),
        ("COMMAND GETKEYS sintercard 01x a b", &["a"]),
        ("COMMAND GETKEYS object encoding k", &["k"]),
        ("COMMAND GETKEYS xreadgroup noack group g c streams a b > >", &["a", "b"]),
        ("COMMAND GETKEYS xreadgroup count 1 group noack streams streams a b > >", &["a", "b"]),
    ] {
        assert_eq!(strings(&c.line(line)), want, "{line}");
    }
    for (line, want) in [
        ("COMMAND GETKEYS nosuch x", "ERR Invalid command specified"),
        ("COMMAND GETKEYS ping x", "ERR The command has no key arguments"),
        ("COMMAND GETKEYS get a b", "ERR Invalid number of arguments specified for command"),
        ("COMMAND GETKEYS sintercard x a", "ERR Invalid arguments specified for command"),
        ("COMMAND LIST FILTERBY foo bar", "ERR syntax error"),
        ("COMMAND foo", "ERR unknown subcommand 'foo'. Try COMMAND HELP."),
    ] {
        assert_eq!(string(&c.line(line)), want, "{line}");
    }
    let flags = c.line("COMMAND GETKEYSANDFLAGS rename a b");
    let first = flags.items().unwrap()[0].items().unwrap().to_vec();
    assert_eq!(
        (string(&first[0]), strings(&first[1])),
        ("a".into(), vec!["RW".into(), "access".into(), "delete".into()])
    );
}

#[test]
fn command_lists_and_documents_every_row() {
    let server = tern(&[]);
    let mut c = server.client();
    let listed = strings(&c.line("COMMAND LIST"));
    assert!(listed.contains(&"client|list".into()));
    let all: Vec<_> = listed.into_iter().filter(|name| !name.contains('|')).collect();
    assert_eq!(c.line("COMMAND COUNT").int(), Some(all.len() as i64));
    assert_eq!(c.line("COMMAND").items().unwrap().len(), all.len());
    assert_eq!(c.line("COMMAND DOCS").items().unwrap().len(), all.len() * 2);
    assert_eq!(strings(&c.line("COMMAND LIST FILTERBY PATTERN sm*")).len(), 3);
    let writes = strings(&c.line("COMMAND LIST FILTERBY ACLCAT write"));
    assert!(writes.contains(&"set".into()) && !writes.contains(&"get".into()), "{writes:?}");
    assert_eq!(c.line("COMMAND INFO nosuch").items().unwrap(), [Value::Nil(b'$')]);
    assert_eq!(c.line("COMMAND DOCS nosuch").items().unwrap().len(), 0);
    let help = strings(&c.line("CONFIG HELP"));
    assert_eq!(help[0], "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    assert!(help.contains(&"SET parameter value [parameter value ...]".into()), "{help:?}");
}

/// The value of `name` in a map shown as a flat array.
fn entry<'a>(map: &'a Value, name: &str) -> &'a Value {
    let items = map.items().unwrap();
    let at = items.iter().step_by(2).position(|k| string(k) == name);
    &items[at.unwrap_or_else(|| panic!("no {name} in {map:?}")) * 2 + 1]
}

#[test]
fn docs_have_the_shape_that_redis_cli_reads() {
    let server = tern(&[]);
    let mut c = server.client();
    let docs = c.line("COMMAND DOCS set config");
    let set = entry(&docs, "set");
    assert_eq!((string(entry(set, "group")), string(entry(set, "since"))), ("string".into(), "1.0.0".into()));
    let arguments = entry(set, "arguments").items().unwrap();
    assert_eq!(
        (string(entry(&arguments[0], "type")), entry(&arguments[0], "key_spec_index").int()),
        ("key".into(), Some(0))
    );
    assert_eq!(string(entry(&arguments[1], "name")), "value");
    let expiry = arguments.last().unwrap();
    assert_eq!(
        (string(entry(expiry, "type")), strings(entry(expiry, "flags"))),
        ("oneof".into(), vec!["optional".into()])
    );
    let ex = &entry(expiry, "arguments").items().unwrap()[0];
    let words = ["name", "type", "token"].map(|n| string(entry(ex, n)));
    assert_eq!(words, ["seconds", "integer", "EX"]);
    let sub = entry(entry(entry(&docs, "config"), "subcommands"), "config|set");
    let pair = &entry(sub, "arguments").items().unwrap()[0];
    assert_eq!(
        (string(entry(pair, "type")), strings(entry(pair, "flags"))),
        ("block".into(), vec!["multiple".into()])
    );
}

#[test]
fn command_info_in_resp3_has_sets_and_maps() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("HELLO 3");
    let info = c.line("COMMAND INFO mset");
    let row = info.items().unwrap()[0].items().unwrap().to_vec();
    assert_eq!(row.len(), 10);
    let numbers: Vec<i64> = [1, 3, 4, 5].iter().map(|n| row[*n].int().unwrap()).collect();
    assert_eq!(numbers, [-3, 1, -1, 2]);
    for (n, words) in [(2, &["write", "denyoom"][..]), (6, &["@write", "@string", "@slow"])] {
        assert!(matches!(&row[n], Value::Set(_)), "{:?}", row[n]);
        assert_eq!(strings(&row[n]), words);
    }
    let Value::Set(specs) = &row[8] else { panic!("{:?}", row[8]) };
    assert!(matches!(specs[0], Value::Map(_)));
    assert_eq!(entry(entry(entry(&specs[0], "find_keys"), "spec"), "keystep").int(), Some(2));
}

#[test]
fn inapplicable_commands_say_so() {
    let server = tern(&[]);
    let mut c = server.client();
    for line in ["CLUSTER INFO", "CLUSTER NODES", "CLUSTER HELP", "READONLY", "READWRITE", "ASKING"] {
        assert_eq!(string(&c.line(line)), "ERR This instance has cluster support disabled", "{line}");
    }
    for (line, error) in [
        ("CLUSTER", "ERR wrong number of arguments for 'cluster' command"),
        ("CLUSTER INFO x", "ERR wrong number of arguments for 'cluster|info' command"),
        ("CLUSTER MEET host", "ERR wrong number of arguments for 'cluster|meet' command"),
        ("CLUSTER foo", "ERR unknown subcommand 'foo'. Try CLUSTER HELP."),
    ] {
        assert_eq!(string(&c.line(line)), error, "{line}");
    }
    for line in ["SAVE", "BGSAVE", "BGREWRITEAOF", "REPLICAOF host 1", "SLAVEOF host 1", "SENTINEL MASTERS"] {
        assert!(c.line(line).is_error(), "{line}");
    }
    assert_eq!(string(&c.line("FUNCTION FLUSH")), "OK");
    assert_eq!(string(&c.line("FUNCTION FLUSH x")), "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    assert_eq!(c.line("WAIT 1 1000").int(), Some(0));
    let acknowledged: Vec<_> = c.line("WAITAOF 1 0 1000").items().unwrap().iter().map(|n| n.int()).collect();
    assert_eq!(acknowledged, [Some(1), Some(0)]);
    assert!(c.line("WAITAOF 2 0 0").is_error() && c.line("WAITAOF 1 0 -1").is_error());
    assert!(string(&c.line("LOLWUT")).contains("Redis ver. "));
    assert_eq!(string(&c.line("REPLICAOF no one")), "OK", "REPLICAOF NO ONE must succeed");
    assert_eq!(string(&c.line("SLAVEOF NO ONE")), "OK");
    assert_eq!(c.line("MEMORY USAGE nosuch"), Value::Nil(b'$'));
    c.line("SET k 0123456789");
    assert!((10..100).contains(&c.line("MEMORY USAGE k SAMPLES 0").int().unwrap()));
    assert_eq!(string(&c.line("MEMORY PURGE")), "OK");
    let stats = strings_of_pairs(&c.line("MEMORY STATS"));
    assert!(stats["peak.allocated"] >= stats["total.allocated"] && stats["clients.normal"] > 0, "{stats:?}");
    let time = strings(&c.line("TIME"));
    assert!(time[0].parse::<i64>().unwrap() > 1_700_000_000 && time[1].parse::<u32>().unwrap() < 1_000_000);
}

/// An alarm "no backup for a day" reads one of these fields, and must ring if there was no backup.
#[test]
fn a_missing_backup_is_not_reported_as_recent() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("SET k v");
    assert_eq!(c.line("LASTSAVE").int(), Some(0));
    let info = string(&c.line("INFO persistence"));
    assert!(info.contains("\r\nrdb_last_save_time:0\r\n"), "{info}");
    for refused in ["SAVE", "BGSAVE", "BGSAVE SCHEDULE"] {
        assert!(c.line(refused).is_error(), "{refused}: no file is written, so no backup may be reported");
    }
    assert_eq!(c.line("LASTSAVE").int(), Some(0));
}

#[test]
fn metrics_are_served_over_http() {
    let port = free_port();
    let server = tern(&["--metrics-port", &port.to_string()]);
    let mut c = server.client();
    c.line("SET k v");
    c.line("GET k");
    let get = |request: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("openmetrics-text"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in [
        "tern_connected_clients 1.0",
        "tern_command_seconds_count{command=\"get\"} 1",
        "tern_batch_seconds_count 1",
    ] {
        assert!(body.lines().any(|l| l == line), "expected {line} in\n{body}");
    }
    assert!(body.ends_with("# EOF\n"));
    assert!(get("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get("PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
}
