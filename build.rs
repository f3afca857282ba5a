//! Finds FoundationDB's client library for the feature `fdb`: in `$FDB_HOME/lib`, `/opt/fdb/lib`, or where the linker looks
//! by itself. The first two are written into the binaries, so that they run without LD_LIBRARY_PATH.

use std::path::PathBuf;

const LIBRARY: &str = "libfdb_c.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FDB_HOME");
    if std::env::var_os("CARGO_FEATURE_FDB").is_none() {
        return;
    }
    let named = std::env::var_os("FDB_HOME").map(PathBuf::from);
    let homes = named.into_iter().chain([PathBuf::from("/opt/fdb")]);
    let Some(lib) = homes.map(|home| home.join("lib")).find(|lib| lib.join(LIBRARY).exists()) else { return };
    println!("cargo::rustc-link-search=native={}", lib.display());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
