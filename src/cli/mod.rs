//! The command line: one file per subcommand, and [`serve`] without one.

mod check;
mod copy;
mod descriptors;
mod directory;
mod open;
mod ping;
mod serve;
mod waiting;

use anyhow::Result;
use std::process::ExitCode;
use tern::commands::REDIS_VERSION;

const HELP: &str = "\
Usage: tern [file.conf] [--directive value ...]
       tern copy --from <store> --to <store> [--directive value ...]
       tern check [file.conf] [--store <store>] [--dir <path>]
       tern ping [file.conf] [--port n]
       tern --version | --help

A Redis server that keeps its data in an ordered transactional key-value store.
Directives have the names and syntax of redis.conf; arguments override the file:

       tern --port 7000 --dir /var/lib/tern
       tern /etc/tern.conf --loglevel verbose
       tern --store local:/fast/disk --appendfsync everysec

copy moves a whole store to another engine or place: it refuses a source that is in use and a target that is not
empty, and compares both at the end. If interrupted, run it again: it resumes. A store is named as for --store.
check reads a whole store and verifies that its rows are consistent. The exit status is 0 if the store is sound, 1 if
it is damaged and 2 if it could not be read. An embedded store must not be in use; a cluster may be.
ping checks that the server with this configuration answers: the exit status is 0 if it does.
";

/// Runs the command line; `args` excludes the program's name.
pub fn run(args: &[String]) -> ExitCode {
    directory::keep_files_private();
    match args.first().map(String::as_str) {
        Some("--help" | "-h") => print!("{HELP}"),
        Some("--version" | "-v") => println!("{}", version()),
        Some("check") => return check::start(args.get(1..).unwrap_or_default()),
        Some("copy") => return exit(copy::start(args.get(1..).unwrap_or_default())),
        Some("ping") => return exit(ping::start(args.get(1..).unwrap_or_default())),
        _ => return exit(serve::start(args)),
    }
    ExitCode::SUCCESS
}

fn exit(result: Result<()>) -> ExitCode {
    #[cfg(feature = "fdb")]
    tern::store::fdb::stop();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tern: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn version() -> String {
    format!("tern {} (answers as Redis {REDIS_VERSION})", env!("CARGO_PKG_VERSION"))
}
