//! `tern`: the server binary. `tern [file.conf] [--directive value ...]`, as redis-server.

mod cli;

/// RocksDB's too, by the feature `override`: blocks come and go with every read of a table.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
