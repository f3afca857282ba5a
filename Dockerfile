# Tern with FoundationDB, about 130 MB. Build from the checkout: docker build -t tern .
#
# FoundationDB's client library and servers must be of one minor version: this one, and conf/compose.yaml.
ARG FDB_VERSION=7.3.79

FROM foundationdb/foundationdb:${FDB_VERSION} AS fdb

FROM rust:1.95-bookworm AS build
# For the bindings of RocksDB, made while it is compiled.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libclang-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=fdb /usr/lib/libfdb_c.so /opt/fdb/lib/libfdb_c.so
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --features fdb \
 && install -D target/release/tern /out/tern

FROM debian:bookworm-slim
COPY --from=fdb /usr/lib/libfdb_c.so /opt/fdb/lib/libfdb_c.so
COPY --from=build /out/tern /usr/local/bin/tern
RUN groupadd --gid 10001 tern \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin tern \
 && install -d -m 0700 -o tern -g tern /data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 6379
# PING answers as soon as the store is open; without a password set, protected mode keeps other machines out.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["tern", "ping"]
ENTRYPOINT ["tern"]
CMD ["--bind", "*", "--dir", "/data"]
