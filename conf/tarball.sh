#!/bin/sh
# Builds target/tern-<version>-<machine>.tar.gz: the program, its configuration, the unit, the licence and the guides.
# The program needs the C library of the building machine or a newer one, and libstdc++, which every Debian has.
set -eu
cd "$(dirname "$0")/.."

cargo build --release --locked
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=tern-$version-$(uname -m)
stage=$(mktemp -d)
trap 'rm -r "$stage"' EXIT

mkdir -p "$stage/$name/conf" "$stage/$name/docs"
strip -o "$stage/$name/tern" "$target/release/tern"
cp LICENSE README.md CHANGELOG.md "$stage/$name"
cp conf/tern.conf conf/tern.service "$stage/$name/conf"
cp docs/* "$stage/$name/docs"
tar --create --gzip --file "$target/$name.tar.gz" --directory "$stage" \
    --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" "$name"
echo "$target/$name.tar.gz"
