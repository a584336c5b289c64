# Searches for crashes: simulation, fuzzing, attacks, suites that others wrote for S3. Sourced by ./dev.
# shellcheck shell=bash

cmd_soak() {
    need_rust
    local tests=(cargo test --locked --package)
    case ${1:-} in
        s3) say "the tests of S3 in their long form" && tests+=(lumpscope-tests --test e2e s3::) ;;
        power) say "power cuts under the real service, 50,000 of them" && tests+=(lumpscope-tests --test e2e power::) ;;
        rot)
            say "every bit of a store's metadata, flipped one by one"
            tests+=(lumpscope-engine --release --test it rot::one_rotted)
            ;;
        starts)
            say "20 starts of the observer on a busy ext4, xfs and raw disk"
            tests+=(lumpscope-observer --test real a_start_on_a_busy)
            ;;
        fuzz)
            shift
            soak_fuzz "$@"
            return
            ;;
        *)
            say "building (release)"
            cargo build --locked --release --package lumpscope-engine --example soak
            exec "$target/release/examples/soak" "$@"
            ;;
    esac
    LUMPSCOPE_SOAK=1 exec "${tests[@]}" -- --nocapture
}

# The short forms run in ./dev test.
cmd_attack() {
    need_rust
    say "programs that attack the service: ${1:-all}"
    cargo test --locked --package lumpscope-server --test it "attacks::${1:-}" -- --nocapture
    [ $# -eq 0 ] || return 0
    cargo test --locked --package lumpscope-server --test it abuse:: -- --nocapture
    say "files of tokens and access keys, cut and forged"
    cargo test --locked --package lumpscope-server --lib -- door::logins:: door::keys:: --nocapture
    say "requests of S3: any, signed wrongly, too slow"
    LUMPSCOPE_S3_REQUESTS=100000 cargo test --locked --package lumpscope-s3 --test it -- \
        a_request_never signatures:: slow:: --nocapture
    say "wrong places: other names of a store's bytes, disks that are not empty, memory, names exchanged"
    cargo test --locked --package lumpscope-engine --test it -- aliases:: contents:: media:: names:: --nocapture
    cargo test --locked --package lumpscope-server --test it places:: -- --nocapture
    cargo test --locked --package lumpscope-tests --test e2e misplaced:: -- --nocapture
}

# Packages go to folders beside the other tools.
cmd_s3_suites() {
    need_rust
    local suite=${1:-} binary=${TESTED_BINARY:-}
    case $suite in
        clients | minio-go | versitygw) ;;
        *) [ -d "$suite/s3tests/functional" ] ||
            die "usage: ./dev s3-suites FOLDER [pytest's options], with the source of https://github.com/ceph/s3-tests in
    FOLDER; or ./dev s3-suites clients [NAME...]|minio-go|versitygw" ;;
    esac
    shift
    install_once s3-suites "$(sha256sum <tests/s3/requirements.txt)" -- install_s3_suites ||
        die "the packages of the suite cannot be installed"
    case $suite in
        clients)
            (install_needs "${s3_clients_needs[@]}") || say "some clients cannot be installed"
            install_once s3-clients "$(sha256sum <tests/s3/clients.txt)" -- install_s3_clients ||
                say "some clients cannot be installed"
            install_once docker-registry "of this distribution" -- install_docker_registry ||
                say "docker-registry cannot be installed"
            ;;&
        clients | minio-go | versitygw)
            install_once s3-go "$s3_go_versions $(sha256sum <tests/s3/clients.go)" -- install_s3_go ||
                { [ "$suite" = clients ] || die "$suite cannot be built"; say "the clients of Go cannot be built"; }
            ;;
    esac
    if [ -z "$binary" ]; then
        install_needs "${build_needs[@]}"
        say "building"
        cargo build --locked --bin lumpscope
        binary=$target/debug/lumpscope
    fi
    PATH="$PATH:$tools/bin" S3_NODE="$tools/s3-node" \
        "$tools/s3-suites/bin/python" tests/s3/suites.py "$(realpath "$binary")" "$suite" "$@"
}

# Builds the libFuzzer targets of a crate and prints the program's path. The instrumentation is an LLVM pass, which the
# stable compiler has; `--target` keeps it out of build scripts.
build_fuzzer() {
    local crate=$1 program=fuzz host out=$target/fuzz
    [ "$crate" = engine ] || program=fuzz-$crate
    install_needs "${build_needs[@]}" "c++:g++" >&2
    host=$(rustc -vV | sed -n 's/^host: //p')
    say "building with coverage"
    RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1" \
        cargo build --locked --release --target "$host" --target-dir "$out" \
        --config profile.release.lto=false --package "lumpscope-$crate-fuzz" --features libfuzzer --bin "$program" >&2
    echo "$out/$host/release/$program"
}

# What is found new goes to a folder beside the build, never into the committed corpus.
run_fuzzer() {
    local program=$1 crate=$2 target=$3 found=$target/fuzz/found/$3
    shift 3
    mkdir -p "$found"
    LUMPSCOPE_FUZZ_TARGET=$target exec "$program" -max_len=4096 -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=10 \
        -artifact_prefix="$found-" -print_final_stats=1 "$@" "$found" "service/$crate/fuzz/corpus/$target"
}

cmd_fuzz() {
    need_rust
    local targets target=${1:-} seconds=${2:-0} crate corpus program
    targets=$(ls service/engine/fuzz/corpus service/server/fuzz/corpus | grep -v ':$')
    for crate in engine server none; do
        corpus=service/$crate/fuzz/corpus/$target
        [ -n "$target" ] && [ -d "$corpus" ] && break
    done
    [ "$crate" != none ] ||
        die "usage: ./dev fuzz TARGET [SECONDS] [libFuzzer options]; targets: $(echo $targets)"
    shift $(($# < 2 ? $# : 2))
    program=$(build_fuzzer "$crate")
    say "fuzzing $target; what fails is written to $target/fuzz/found/$target-*"
    run_fuzzer "$program" "$crate" "$target" -max_total_time="$seconds" "$@"
}

# Each target of the service runs its share, AT_ONCE of them at a time; a panic, a difference, or memory or time out of
# proportion is an artifact, and fails.
soak_fuzz() {
    local runs=${1:-100000000} at_once=${2:-2} targets share program found target failed= executed total=0
    [[ $runs =~ ^[1-9][0-9]*$ && $at_once =~ ^[1-9]$ ]] || die "usage: ./dev soak fuzz [RUNS] [AT_ONCE], two numbers"
    read -ra targets <<<"$(cd service/server/fuzz/corpus && echo *)"
    share=$(((runs + ${#targets[@]} - 1) / ${#targets[@]}))
    program=$(build_fuzzer server)
    found=$target/fuzz/found
    mkdir -p "$found"
    say "fuzzing ${#targets[@]} targets, $share executions each, $at_once at a time"
    local begin=$SECONDS
    for target in "${targets[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge "$at_once" ]; do wait -n || true; done
        rm -f "$found/$target.end"
        (run_fuzzer "$program" server "$target" -runs="$share" >"$found/$target.log" 2>&1) &&
            touch "$found/$target.end" &
    done
    wait
    for target in "${targets[@]}"; do
        executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/$target.log")
        total=$((total + ${executed:-0}))
        printf '%-16s %12s executions\n' "$target" "${executed:-0}"
        [ -e "$found/$target.end" ] || failed+=" $target"
    done
    local seconds=$((SECONDS - begin))
    printf '%-16s %12s executions in %s s, %s a second\n' all "$total" "$seconds" $((total / (seconds > 0 ? seconds : 1)))
    [ -z "$failed" ] || die "failed:$failed; see $found/TARGET.log and the bytes in $found/TARGET-*"
}
