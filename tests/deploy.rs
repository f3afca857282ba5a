//! `Dockerfile`, `conf/compose.yaml`, `conf/tern.service`, the Debian package and the tarball match this
//! build: their command lines are accepted and start a server, and each option, file, version, port and time
//! in them is right. The test builds no image or package and starts no unit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::server::{free_port, tern_on};
use support::{program, say, skipped};
use tern::config::{ConfigStore, Settings, from_args};

const BINARY: &str = env!("CARGO_BIN_EXE_tern");

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect(name)
}

/// The instructions of a Dockerfile: continued lines joined, comments removed.
fn instructions(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    joined
        .lines()
        .filter_map(|l| l.split_once(' '))
        .map(|(name, rest)| (name.into(), rest.trim().into()))
        .collect()
}

/// The only argument of the last instruction of this name.
fn last(all: &[(String, String)], name: &str) -> String {
    all.iter().rfind(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1.clone()
}

/// `["a", "b"]`
fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The values of a key anywhere in a file whose lines are `<key><separator><value>`.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(str::trim).collect()
}

fn only<'a>(text: &'a str, key: &str) -> &'a str {
    let all = values(text, key);
    assert_eq!(all.len(), 1, "{key}: {all:?}");
    all[0]
}

fn seconds(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap_or_else(|_| panic!("{text} is not seconds"))
}

fn settings(args: &[String]) -> Settings {
    from_args(args).unwrap_or_else(|e| panic!("{args:?}: {e:?}")).0
}

/// Starts a server by a command line, with `words` replaced, and asks it as `tern ping` does. A free port is
/// appended to the line, as `-p` would map it.
fn serves(args: &[String], exchange: &[(&str, &str)]) {
    let port = free_port();
    let places = |arg: &String| exchange.iter().fold(arg.clone(), |arg, (from, to)| arg.replace(from, to));
    let mut command = Command::new(BINARY);
    command.args(args.iter().map(places)).args(["--port", &port.to_string()]);
    let mut server = tern_on(&mut command, port);
    let ping = Command::new(BINARY).args(["ping", "--port", &port.to_string()]).output().unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    assert!(server.terminate(), "SIGTERM must end the server cleanly: {}", server.log());
}

#[test]
fn the_dockerfile_builds_this_crate() {
    let all = instructions(&file("Dockerfile"));
    let run: Vec<&String> = all.iter().filter(|(name, _)| name == "RUN").map(|(_, rest)| rest).collect();
    let build = run.iter().find(|line| line.contains("cargo build")).expect("a build");
    let words: Vec<&str> = build.split_whitespace().collect();
    for part in ["--release", "--locked", "--features fdb", "install -D target/release/tern /out/tern"] {
        let part: Vec<&str> = part.split(' ').collect();
        assert!(words.windows(part.len()).any(|some| some == part), "{part:?}: {build}");
    }
    let manifest = file("Cargo.toml");
    assert!(manifest.contains("\nfdb = [") && manifest.contains("[[bin]]\nname = \"tern\""));
    // The context omits nothing needed, and the build copies the binary from it.
    let ignored = file(".dockerignore");
    for needed in ["Cargo.toml", "Cargo.lock", "build.rs", "src", ".cargo", "bench", "tests"] {
        assert!(ignored.lines().all(|line| line != needed), "{needed} must be in the context");
    }
    // Each example and test that Cargo.toml names must be there, or cargo refuses the manifest.
    for path in values(&manifest, "path = ") {
        let path = path.trim_matches('"');
        assert!(
            !ignored.lines().any(|line| path.starts_with(&format!("{line}/"))),
            "{path} must be in the context"
        );
    }
    let least: Vec<u32> = numbers(only(&manifest, "rust-version = "));
    let image =
        all.iter().find(|(n, rest)| n == "FROM" && rest.starts_with("rust:")).expect("an image of Rust");
    assert!(numbers(&image.1)[..2] >= least[..], "{} for {least:?}", image.1);
    // The program links the library at its path in the second stage.
    let library =
        all.iter().filter(|(n, rest)| n == "COPY" && rest.contains("libfdb_c.so /opt/fdb/lib/libfdb_c.so"));
    assert_eq!(library.count(), 2);
    assert!(file("build.rs").contains("\"/opt/fdb\""));
    // Both stages use one Debian release: the program built in one needs the C library of the other.
    let runs_on = all.iter().rfind(|(n, _)| n == "FROM").unwrap();
    assert!(image.1.contains("-bookworm") && runs_on.1.contains(":bookworm"), "{runs_on:?}");
    let copied =
        all.iter().find(|(n, rest)| n == "COPY" && rest.starts_with("--from=build")).expect("the program");
    assert_eq!(copied.1, "--from=build /out/tern /usr/local/bin/tern");
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

#[test]
fn the_image_serves_and_its_health_check_passes() {
    let all = instructions(&file("Dockerfile"));
    assert_eq!(list(&last(&all, "ENTRYPOINT")), ["tern"]);
    let args = list(&last(&all, "CMD"));
    let here = settings(&args);
    assert_eq!(
        here.port.to_string(),
        last(&all, "EXPOSE"),
        "EXPOSE must name the port that the server listens on"
    );
    let volume = last(&all, "VOLUME");
    assert_eq!((here.dir.as_str(), last(&all, "WORKDIR")), (volume.as_str(), volume.clone()));
    let user = last(&all, "USER");
    let (uid, gid) = user.split_once(':').unwrap();
    let users =
        all.iter().find(|(n, rest)| n == "RUN" && rest.contains("useradd")).expect("a user").1.clone();
    for part in [
        format!("--uid {uid}"),
        format!("groupadd --gid {gid}"),
        format!("install -d -m 0700 -o tern -g tern {volume}"),
    ] {
        assert!(users.contains(&part), "{part}: {users}");
    }
    let health = last(&all, "HEALTHCHECK");
    let (times, command) = health.split_once("CMD ").unwrap();
    assert_eq!(list(command), ["tern", "ping"]);
    // `tern ping` times out by itself, connecting and reading, before Docker takes it for hung.
    let timeout = times.split("--timeout=").nth(1).and_then(|t| t.split(' ').next()).unwrap();
    assert!(seconds(timeout) > 2, "{timeout}");
    let home = tempfile::tempdir().unwrap();
    serves(&args, &[("/data", home.path().join("data").to_str().unwrap())]);
}

#[test]
fn compose_starts_servers_of_this_image_on_one_cluster() {
    let (compose, docker) = (file("conf/compose.yaml"), instructions(&file("Dockerfile")));
    let version =
        docker.iter().find_map(|(n, rest)| (n == "ARG").then(|| rest.strip_prefix("FDB_VERSION="))?).unwrap();
    let images: BTreeSet<&str> = values(&compose, "image:").into_iter().collect();
    assert_eq!(images, [format!("foundationdb/foundationdb:{version}").as_str(), "tern"].into());
    let context = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(only(&compose, "context:"));
    assert!(context.join("Dockerfile").exists());
    let args = values(&compose, "command: [");
    assert_eq!(args.len(), 1);
    let args = list(&format!("[{}", args[0]));
    let here = settings(&args);
    let cluster = here.store.strip_prefix("fdb:").expect("a cluster");
    let (mount, name) = cluster.rsplit_once('/').unwrap();
    assert!(
        compose.contains(&format!("- cluster:{mount}\n"))
            && compose.contains(&format!("[\"cluster:{mount}\"]")),
        "{mount}"
    );
    assert_eq!(only(&compose, "file="), cluster, "{name} must be written where the servers read it");
    let user = last(&docker, "USER");
    assert!(compose.contains(&format!("chown -R {user} {mount}")), "the servers' user must own the folder");
    let ports: Vec<String> = values(&compose, "ports: ").iter().flat_map(|ports| list(ports)).collect();
    let inner = ports.iter().map(|p| p.rsplit(':').next().unwrap());
    assert_eq!(inner.collect::<Vec<_>>(), vec![here.port.to_string(); 3]);
    let outer: BTreeSet<&str> = ports.iter().map(|p| p.split(':').nth(1).unwrap()).collect();
    assert_eq!(outer.len(), 3);
    assert!(
        ports.iter().all(|p| p.starts_with("127.0.0.1:")),
        "without a password no port may be public: {ports:?}"
    );
    let addresses: Vec<&str> =
        compose.split("ipv4_address: ").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    let wanted: Vec<String> = addresses.iter().map(|ip| format!("{ip}:4500")).collect();
    assert_eq!(only(&compose, "FDB_CLUSTER_FILE_CONTENTS:"), format!("tern:tern@{}", wanted.join(",")));
    let patience = u64::from(ConfigStore::default().get().shutdown_timeout);
    assert!(seconds(only(&compose, "stop_grace_period:")) > patience);
    let home = tempfile::tempdir().unwrap();
    let (store, metrics) = (format!("local:{}", home.path().join("data").display()), free_port().to_string());
    serves(&args, &[(&here.store, &store), ("9121", &metrics)]);
}

/// The value of a key of a unit.
fn of_unit<'a>(unit: &'a str, key: &str) -> &'a str {
    only(unit, &format!("{key}="))
}

#[test]
fn the_unit_starts_this_program_and_gives_it_time() {
    let unit = file("conf/tern.service");
    let line: Vec<String> = of_unit(&unit, "ExecStart").split(' ').map(str::to_owned).collect();
    assert_eq!(line[..2], ["tern", "/etc/tern/tern.conf"]);
    let state = format!("/var/lib/{}", of_unit(&unit, "StateDirectory"));
    assert_eq!(of_unit(&unit, "WorkingDirectory"), state);
    let home = tempfile::tempdir().unwrap();
    let conf = home.path().join("tern.conf");
    std::fs::write(&conf, file("conf/tern.conf")).unwrap();
    let data = home.path().join("data");
    let exchange = [(line[1].as_str(), conf.to_str().unwrap()), (state.as_str(), data.to_str().unwrap())];
    let args: Vec<String> = line[1..].iter().map(|a| a.replace(exchange[0].0, exchange[0].1)).collect();
    let here = settings(&args);
    assert_eq!(here.dir, state);
    assert!(seconds(of_unit(&unit, "TimeoutStopSec")) > u64::from(here.shutdown_timeout));
    assert!(
        of_unit(&unit, "LimitNOFILE").parse::<u32>().unwrap() > here.maxclients,
        "descriptors for all clients"
    );
    // TCP, the store's name service, the log.
    let families: BTreeSet<&str> = of_unit(&unit, "RestrictAddressFamilies").split(' ').collect();
    assert!(families.is_superset(&["AF_INET", "AF_INET6"].into()), "{families:?}");
    serves(&line[1..], &exchange);
}

#[test]
fn systemd_knows_each_line_of_the_unit() {
    if program("systemd-analyze").is_none() {
        return skipped(
            "conf/tern.service as systemd reads it: no systemd-analyze",
            "apt-get install systemd",
        );
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tern.service");
    let unit = file("conf/tern.service").replace("ExecStart=tern", &format!("ExecStart={BINARY}"));
    let verify = |unit: &str| {
        std::fs::write(&path, unit).unwrap();
        let mut command = Command::new("systemd-analyze");
        let out = command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path).output().unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    };
    let said = verify(&unit);
    assert!(!said.contains("tern.service"), "{said}");
    for (line, wrong) in [
        ("ProtectClock=yes", "ProtectClocks=yes"),
        ("Type=exec", "Type=executed"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@services"),
        ("LimitNOFILE=65536", "LimitNOFILE=many"),
        (BINARY, "/usr/local/bin/none"),
    ] {
        assert!(unit.contains(line), "{line}");
        assert!(verify(&unit.replace(line, wrong)).contains("tern.service"), "{wrong} must be reported");
    }
    say("systemd-analyze verify: conf/tern.service, and five mistakes in it");
}

/// The files that the Debian package installs, with their sources.
fn assets(manifest: &str) -> BTreeMap<String, String> {
    let body = manifest.split("\nassets = [\n").nth(1).and_then(|rest| rest.split("\n]").next()).unwrap();
    let assets = body.lines().map(|line| list(line.trim().trim_end_matches(',')));
    assets
        .map(|asset| {
            let name = asset[0].rsplit('/').next().unwrap();
            (format!("/{}{name}", asset[1]), asset[0].clone())
        })
        .collect()
}

fn accepts(shell_script: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(shell_script);
    Command::new("sh").arg("-n").arg(path).status().unwrap().success()
}

#[test]
fn the_debian_packages_files_exist_and_match_the_unit() {
    let (manifest, unit) = (file("Cargo.toml"), file("conf/tern.service"));
    let assets = assets(&manifest);
    for source in assets.values() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(source.trim_end_matches('*'));
        assert!(source == "target/release/tern" || place.exists(), "{source}");
    }
    let line: Vec<&str> = of_unit(&unit, "ExecStart").split(' ').collect();
    assert_eq!(assets.get("/usr/bin/tern").map(String::as_str), Some("target/release/tern"));
    assert_eq!(assets.get(line[1]).map(String::as_str), Some("conf/tern.conf"));
    assert_eq!(list(only(&manifest, "conf-files = ")), [line[1]]);
    let units = only(&manifest, "systemd-units = ");
    assert!(units.contains("unit-name = \"tern\"") && units.contains("unit-scripts = \"conf\""), "{units}");
    let license = only(&manifest, "license-file = [").split('"').nth(1).unwrap().to_owned();
    assert!(!file(&license).is_empty());
}

#[test]
fn the_maintainer_scripts_make_the_units_user_and_directory() {
    let (manifest, unit) = (file("Cargo.toml"), file("conf/tern.service"));
    let scripts = only(&manifest, "maintainer-scripts = ").trim_matches('"').to_owned();
    for name in ["postinst", "postrm"] {
        let path = format!("{scripts}/{name}");
        assert!(accepts(&path), "sh -n {path}");
        // cargo-deb inserts the part about the unit there.
        assert!(file(&path).contains("\n#DEBHELPER#\n"), "{path}");
    }
    let (user, state) = (of_unit(&unit, "User"), of_unit(&unit, "WorkingDirectory"));
    assert_eq!(of_unit(&unit, "Group"), user);
    let mode = of_unit(&unit, "StateDirectoryMode");
    let postinst = file(&format!("{scripts}/postinst"));
    for part in [
        format!("getent passwd {user} >"),
        format!("adduser --quiet --system --group --no-create-home --home {state} {user}\n"),
        format!("install -d -m {mode} -o {user} -g {user} {state}\n"),
        // The file may hold passwords, and the package gives it to root.
        format!("chgrp {user} {}\n", of_unit(&unit, "ExecStart").split(' ').nth(1).unwrap()),
    ] {
        assert!(postinst.contains(&part), "{part}");
    }
    assert!(only(&manifest, "depends = ").contains("adduser"));
    assert!(manifest.contains("[\"conf/tern.conf\", \"etc/tern/\", \"640\"],"));
}

/// Runs the script with stand-ins for cargo and strip that build nothing.
#[test]
fn the_tarball_holds_the_files_its_script_lists() {
    let home = tempfile::tempdir().unwrap();
    let (tools, release) = (home.path().join("tools"), home.path().join("release"));
    for dir in [&tools, &release] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(release.join("tern"), "the program").unwrap();
    for (name, does) in [("cargo", "[ \"$*\" = 'build --release --locked' ]"), ("strip", "cp \"$3\" \"$2\"")]
    {
        let path = tools.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = "conf/tarball.sh";
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script)).env("PATH", path);
    let made = command.env("CARGO_TARGET_DIR", home.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let tarball = String::from_utf8(made.stdout).unwrap();
    let listed = Command::new("tar").arg("-tzf").arg(tarball.trim()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let names: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split_once('/')).map(|(_, n)| n).collect();
    assert!(listed.lines().all(|line| line.starts_with(&format!("tern-{version}-"))), "{listed}");
    for name in ["tern", "LICENSE", "README.md", "CHANGELOG.md", "conf/tern.conf", "conf/tern.service"] {
        assert!(names.contains(name), "{name}: {listed}");
    }
    assert!(names.contains("docs/operating.md"), "{listed}");
}
