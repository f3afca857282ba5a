//! Files, arguments and CONFIG SET: accepted forms, precedence, and refusals.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use tern::config::{AppendFsync, ConfigStore, LogLevel, SetError, Settings, from_args, from_text};

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn text(text: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    from_text(&mut settings, "test.conf", text).map(|()| settings).map_err(|e| e.to_string())
}

#[test]
fn a_file_like_redis_conf() {
    let settings = text(
        "# comment\n\n  PORT 7000\nrequirepass \"a b\\x41\"\nappendfsync EverySec\nbind 10.0.0.1 ::1\n\
         client-query-buffer-limit 64mb\ntimeout 1\ntimeout 2\nsave \"\"\n\
         client-output-buffer-limit normal 1k 2 3\nclient-output-buffer-limit pubsub 4 5 6\n",
    )
    .unwrap();
    assert_eq!((settings.port, settings.timeout), (7000, 2));
    assert_eq!(settings.requirepass, "a bA");
    assert_eq!(settings.appendfsync, AppendFsync::EverySec);
    assert_eq!(settings.bind, ["10.0.0.1", "::1"]);
    assert_eq!(settings.client_query_buffer_limit, 64 << 20);
    assert_eq!(settings.client_output_buffer_limit.normal.hard, 1000);
    assert_eq!(settings.client_output_buffer_limit.pubsub.seconds, 6);
    assert_eq!(settings.client_output_buffer_limit.replica.seconds, 60);
}

#[test]
fn a_wrong_line_is_refused_with_file_number_and_text() {
    for (line, why) in [
        ("foo bar", "Bad directive or wrong number of arguments"),
        ("timeout", "wrong number of arguments"),
        ("timeout 1 2", "wrong number of arguments"),
        ("timeout abc", "argument couldn't be parsed into an integer"),
        ("port 65536", "argument must be between 0 and 65535 inclusive"),
        ("proto-max-bulk-len 1x", "argument must be a memory value"),
        ("protected-mode maybe", "argument must be 'yes' or 'no'"),
        ("appendfsync x", "argument(s) must be one of the following: everysec, always, no"),
        ("requirepass \"abc", "Unbalanced quotes in configuration line"),
        ("appendonly no", "the only value that this server supports is 'yes'"),
    ] {
        let error = text(&format!("# first\n{line}\n")).unwrap_err();
        assert_eq!(error, format!("Reading test.conf, at line 2\n>>> '{line}'\n{why}"));
    }
}

#[test]
fn arguments_win_over_the_file_and_later_over_earlier() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tern.conf");
    let more = dir.path().join("more.conf");
    std::fs::write(&file, format!("port 1\ntimeout 1\ninclude {}\nlogfile a\n", more.display())).unwrap();
    std::fs::write(&more, "port 2\nlogfile b\n").unwrap();
    let file = file.to_str().unwrap();

    let (settings, read) = from_args(&args(&[file])).unwrap();
    assert_eq!((settings.port, settings.timeout, settings.logfile.as_str()), (2, 1, "a"));
    assert_eq!(read.unwrap().to_str().unwrap(), file);

    let (settings, _) =
        from_args(&args(&[file, "--port", "3", "--port=4", "--bind", "::1", "127.0.0.1", "--save", ""]))
            .unwrap();
    assert_eq!((settings.port, settings.timeout), (4, 1));
    assert_eq!(settings.bind, ["::1", "127.0.0.1"]);

    let (settings, read) = from_args(&args(&["--requirepass=a=b", "--loglevel", "warning"])).unwrap();
    assert_eq!((settings.requirepass.as_str(), settings.loglevel), ("a=b", LogLevel::Warning));
    assert_eq!(read, None);
}

#[test]
fn wrong_arguments_and_files_are_refused() {
    let error = |words: &[&str]| from_args(&args(words)).unwrap_err().to_string();
    assert_eq!(
        error(&["--nosuch", "1"]),
        "Reading the arguments\n>>> 'nosuch 1'\nBad directive or wrong number of arguments"
    );
    assert!(error(&["--port"]).contains("wrong number of arguments"));
    assert!(error(&["/no/such/file.conf"]).contains("Can't open the file"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("loop.conf");
    std::fs::write(&file, format!("include {}\n", file.display())).unwrap();
    assert!(error(&[file.to_str().unwrap()]).contains("too deeply"));
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn config_set_changes_all_or_none() {
    let config = ConfigStore::default();
    let set = |list: &[(&str, &str)]| {
        config.set(&pairs(list)).map(|named| named.iter().map(|o| o.name).collect::<Vec<_>>())
    };
    assert_eq!(set(&[("Timeout", "5"), ("tcp-keepalive", "60")]), Ok(vec!["timeout", "tcp-keepalive"]));
    assert_eq!((config.get().timeout, config.get().tcp_keepalive), (5, 60));

    let invalid = |name: &str, why: &str| Err(SetError::Invalid(name.into(), why.into()));
    assert_eq!(set(&[("timeout", "6"), ("nosuch", "1")]), Err(SetError::Unknown("nosuch".into())));
    assert_eq!(set(&[("timeout", "6"), ("port", "1")]), invalid("port", "can't set immutable config"));
    assert_eq!(set(&[("timeout", "6"), ("TIMEOUT", "7")]), invalid("TIMEOUT", "duplicate parameter"));
    let outside = "argument must be between 0 and 2147483647 inclusive";
    assert_eq!(set(&[("tcp-keepalive", "1"), ("timeout", "-1")]), invalid("timeout", outside));
    assert_eq!((config.get().timeout, config.get().tcp_keepalive), (5, 60));

    assert_eq!(set(&[("appendonly", "yes"), ("save", "")]), Ok(vec!["appendonly", "save"]));
    assert_eq!(set(&[("save", "900 1")]), invalid("save", "the only value that this server supports is ''"));
}

#[test]
fn config_rewrite_keeps_the_file_and_writes_the_current_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tern.conf");
    let old = "# mine\nport 7000\n\n# how long\ntimeout 10\n";
    std::fs::write(&file, old).unwrap();
    let (settings, read) = from_args(&args(&[file.to_str().unwrap()])).unwrap();
    let config = ConfigStore::from_file(settings, read);

    config.rewrite(None).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), old);

    config.set(&pairs(&[("timeout", "20"), ("requirepass", "two words")])).unwrap();
    config.rewrite(None).unwrap();
    let new = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        new,
        "# mine\nport 7000\n\n# how long\ntimeout 20\n# Generated by CONFIG REWRITE\nrequirepass \"two words\"\n"
    );
    let (again, _) = from_args(&args(&[file.to_str().unwrap()])).unwrap();
    assert_eq!(again, *config.get().as_ref());

    assert_eq!(
        ConfigStore::default().rewrite(None),
        Err("The server is running without a config file".to_owned())
    );
}
