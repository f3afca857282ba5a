//! `tern`: the server binary. `tern [file.conf] [--directive value ...]`, as redis-server.

mod cli;

fn main() -> std::process::ExitCode {
    // By its feature `override` it is the program's `malloc`: RocksDB's, where blocks come and go with every read of a table, and
    // by way of the standard allocator Rust's, too. As Rust's own allocator it would take a slow path for many sizes: it would be
    // asked for every block's alignment, even where that is 1. Asking for its version links it, whatever the linker.
    std::hint::black_box(mimalloc::MiMalloc.version());
    cli::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
