# The service as an image. `docker compose up` builds it; by hand:
#
#   docker build --target service -t lumpscope .    the program and the libraries it needs, nothing else
#   docker build --target demo -t lumpscope-demo .  also mkfs, for `lumpscope lab` and `lumpscope compare`
#
# The image runs as `lumpscope` (10001), who can serve stores in files but neither open a disk nor load probes. For these
# start it as root with the capabilities that docker-compose.yml lists and explains, and with `serve --user lumpscope`:
# the service then switches to that user before it answers requests, and drops every capability in all its threads.
#
# Builds with BuildKit and without (DOCKER_BUILDKIT=0). The base images can be replaced, by a mirror's for example.
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

# --- The dependencies -----------------------------------------------------------------------------------------------
# Manifests and empty sources do not change with the code, so everything built from them stays cached.
FROM ${BUILD_IMAGE} AS manifests
WORKDIR /src
COPY . .
RUN find . -type f ! -name Cargo.toml ! -name Cargo.lock ! -path '*/src/lib.rs' ! -path '*/src/main.rs' \
        ! -path '*/src/bin/*.rs' ! -path '*/benches/*.rs' -delete \
    && find . -name '*.rs' -exec truncate --size 0 {} + \
    && find . -name main.rs -exec sh -c 'echo "fn main() { }" >"$1"' - {} ';' \
    && find . -type d -empty -delete

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libblkid-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY --from=manifests /src .
RUN cargo fetch --locked
# Debug information would be stripped anyway. The notes of the static probes, for bpftrace, stay.
ENV CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
RUN cargo build --locked --offline --release --quiet --bin lumpscope

# --- The program ----------------------------------------------------------------------------------------------------
COPY . .
# Files keep the time of their last change, which may be before that of the empty ones.
RUN find . -name '*.rs' -not -path './target/*' -exec touch {} + \
    && cargo build --locked --offline --release --bin lumpscope \
    && install -D target/release/lumpscope /out/lumpscope

# --- Additional tools of the demo -----------------------------------------------------------------------------------
# mkfs.xfs alone: its package would bring Python and ICU along.
FROM ${RUN_IMAGE} AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends xfsprogs \
    && rm -rf /var/lib/apt/lists/*

# --- The images -----------------------------------------------------------------------------------------------------
FROM ${RUN_IMAGE} AS service
LABEL org.opencontainers.image.title="lumpscope" \
      org.opencontainers.image.description="Lump store on raw disks that shows what the disk did for every request" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --system --gid 10001 lumpscope \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin lumpscope \
    && install -d -o lumpscope -g lumpscope -m 0750 /var/lib/lumpscope
COPY LICENSE /usr/share/doc/lumpscope/copyright
COPY --from=build /out/lumpscope /usr/bin/lumpscope
# libblkid1 and libgcc-s1 are in Debian's images already; without them this fails.
RUN lumpscope --version
USER lumpscope
EXPOSE 50051 9464
# The standard health check of gRPC, which needs no token. LUMPSCOPE_SERVER and LUMPSCOPE_CA where TLS is on.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["lumpscope", "health", "--timeout", "4", "--retries", "0"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["lumpscope"]
CMD ["--help"]

FROM service AS demo
USER root
# Beside e2fsprogs: mkfs.xfs is linked with libinih1 and liburcu8, which the image lacks.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends e2fsprogs libinih1 liburcu8 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && install -d -m 0700 /var/lib/lumpscope-lab
COPY --from=tools /sbin/mkfs.xfs /sbin/mkfs.xfs
RUN mkfs.xfs -V && mkfs.ext4 -V
USER lumpscope
