# ./dev bench. Sourced by ./dev.
# shellcheck shell=bash

cmd_bench() {
    need_rust
    local what=engine
    case ${1:-} in engine | grpc | observe | s3 | peers) what=$1 && shift ;; esac
    install_needs "${build_needs[@]}"
    case $what in
        engine | observe) install_needs "${bench_needs[@]}" ;;
        s3) install_needs "${demo_needs[@]}" "ip:iproute2" ;;
        peers) install_needs "${demo_needs[@]}" "${bench_needs[@]}" && install_peers ;;
    esac
    say "building (release)"
    cargo build --locked --release --bin lumpscope
    case $what in
        engine | peers) of_peer build --release ;;
    esac
    say "built after $(elapsed); measuring"
    case $what in
        s3) bench_s3 "$@" ;;
        peers)
            as_root env PATH="$PATH:$tools/bin:/usr/sbin:/sbin" "$target/release/lumpscope" \
                bench peers "$@"
            ;;
        *) "$target/release/lumpscope" bench "$what" "$@" ;;
    esac
    say "./dev bench took $(elapsed)"
}

# Both servers in a network of their own that paces nobody: our service never paces what it sends on this machine, and
# where the system does (bbr), that alone would be a part of the difference. Reno is what every network may choose.
bench_s3() {
    local size depth
    PATH="$PATH:$tools/bin" command -v minio >/dev/null || install_once minio "$minio_version" -- install_minio ||
        die "MinIO cannot be built (it needs a newer Go than this machine's): put its server in PATH"
    for size in 1M 4M; do
        for depth in 1 8; do
            say "$size, $depth in flight"
            # shellcheck disable=SC2016
            as_root env PATH="$PATH:$tools/bin:/usr/sbin:/sbin" unshare --net bash -c \
                'ip link set lo up && echo reno >/proc/sys/net/ipv4/tcp_congestion_control && exec "$@"' bench \
                "$target/release/lumpscope" bench peers \
                --only service-s3,service-s3-auto,minio --size "$size" --depth "$depth" --capacity 1G "$@"
        done
    done
}
