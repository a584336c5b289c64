# ./dev test and ./dev setup: what runs when. Sourced by ./dev.
# shellcheck shell=bash

# The second tier: what needs the tools of others, or hours. Each but kernels is a module of tests/tests/e2e.
groups=(kernels pages stacks clients bench)
# Of these, what a run in CI takes by turns.
turns=(kernels pages stacks "clients bench")

# The groups of a run in CI: those whose turn it is, by the number of commits.
groups_in_ci() {
    local turn
    turn=$(($(git rev-list --count HEAD) % ${#turns[@]}))
    tr ' ' '\n' <<<"${turns[turn]}"
}

# Sets `chosen`, the groups that the words of a command mean, and `first`: whether the first tier runs, too.
choose_groups() {
    local word
    chosen=() first=yes
    case ${1:-} in
        '') [ "${CI:-}" != true ] || mapfile -t chosen < <(groups_in_ci) ;;
        all) chosen=("${groups[@]}") ;;
        *) chosen=("$@") first= ;;
    esac
    for word in "${chosen[@]}"; do
        case " ${groups[*]} " in
            *" $word "*) ;;
            *) die "there is no group '$word': all, or some of ${groups[*]}" ;;
        esac
    done
}

is_chosen() { case " ${chosen[*]} " in *" $1 "*) ;; *) return 1 ;; esac; }

setup_kernels() {
    install_needs "${kernels_needs[@]}"
    install_probe_toolchain || lacking "the eBPF toolchain"
}

setup_pages() {
    install_prometheus
    install_browser
    install_dashboard_tools
}

setup_stacks() {
    install_once juicefs "$juicefs_version $juicefs_without" -- install_juicefs ||
        lacking "juicefs (it is built with Go 1.21 or newer)"
    install_swift_once || lacking "swift"
}

setup_clients() {
    install_needs "${deb_needs[@]}"
    install_foreign_tools
    install_package_tools || lacking "what makes and checks the packages"
}

setup_bench() {
    install_needs "${ceph_needs[@]}"
    say "building the published engine"
    of_peer build
    ln -sf ../../debug/lumpscope-cannyls-peer "$tools/bin/"
}

# Not --locked: its list of versions follows what the lab depends on.
of_peer() {
    local command=$1
    shift
    (cd tests/cannyls-peer && cargo "$command" --target-dir "$target" "$@")
}

cmd_setup() {
    local chosen first group
    choose_groups "$@"
    need_rust
    install_needs "${build_needs[@]}" "${demo_needs[@]}" "${test_needs[@]}"
    command -v cargo-nextest >/dev/null || install_once nextest "$nextest_version" -- install_nextest ||
        die "cargo-nextest cannot be installed: https://nexte.st"
    install_once s3-python "$(sha256sum <tests/s3/requirements.txt)" -- install_s3_python || lacking "boto3"
    for group in "${chosen[@]}"; do "setup_$group"; done
}

# Tests run to the end, also when one fails: a run names everything that is wrong. Kernels run beside everything else.
cmd_test() {
    local chosen first group failed=''
    # A clean checkout builds once: what only the next build needs would take half of the disk.
    [ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0
    choose_groups "$@"
    cmd_setup "$@"
    [ -z "$first" ] || check_format
    ! is_chosen kernels || use_rebuilt_probes
    say "tests: building"
    nextest --no-run
    trap end_all_beside EXIT
    ! is_chosen kernels || begin_kernels
    ! is_chosen bench || of_peer clippy -- -D warnings || failed=yes
    if [ -n "$first" ]; then
        check_lints || failed=yes
        check_documentation || failed=yes
        say "tests in documentation"
        cargo test --locked --workspace --no-fail-fast --doc || failed=yes
    fi
    if [ -n "$first" ] || [ "${chosen[*]}" != kernels ]; then
        say "tests"
        # Waiting is what many of them do most.
        nextest --test-threads $((2 * $(nproc))) --filterset "$(chosen_tests)" || failed=yes
        show_times
    fi
    ! is_chosen kernels || end_kernels || failed=yes
    say "./dev test took $(elapsed); not run: $(left_out)"
    [ -z "$failed" ] || die "something failed: see above"
}

nextest() {
    PATH="$PATH:$tools/bin" TESTED_BINARY="$target/debug/lumpscope" \
        cargo nextest run --locked --workspace --tests --target-dir "$target" "$@"
}

# The tests of a group, as nextest says it.
tests_of() {
    printf '(binary(e2e) & test(/^%s::/))' "$1"
    [ "$1" != clients ] || printf ' | (package(lumpscope) & test(/^packages::/))'
}

chosen_tests() {
    local group all=none
    [ -z "$first" ] || all=all
    for group in "${groups[@]}"; do
        if [ -n "$first" ]; then
            is_chosen "$group" || all+=" - ($(tests_of "$group"))"
        else
            ! is_chosen "$group" || all+=" | $(tests_of "$group")"
        fi
    done
    sed 's/\(all\|none\)/\1()/' <<<"$all"
}

# The twenty slowest tests, in seconds, and what was skipped, with the reason.
show_times() {
    # Not in TARGET: nextest keeps it in the workspace.
    local report=target/nextest/default/junit.xml
    [ -f "$report" ] || return 0
    say "the slowest tests, with the time that they waited for their turn"
    sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([^"]*\)".*/\3 \2 \1/p' "$report" |
        sort -rn | awk 'NR <= 20' >&2
    grep -o 'SKIPPED [^&<]*' "$report" | sort -u >&2 || true
}

# What this run did not test, in words.
left_out() {
    local group out=()
    [ -n "$first" ] || out+=("the first tier")
    for group in "${groups[@]}"; do is_chosen "$group" || out+=("$group"); done
    [ ${#out[@]} -gt 0 ] || out=(nothing)
    echo "${out[*]}"
}

# Builds probes and guard from source and names the objects in LUMPSCOPE_PROBE_OBJECT and LUMPSCOPE_GUARD_OBJECT, so
# that the tests load those.
use_rebuilt_probes() {
    ebpf/build-probes --have-toolchain >/dev/null 2>&1 || return 0
    say "building the probes from source"
    LUMPSCOPE_PROBE_OBJECT=$(ebpf/build-probes --check) || die "the probes do not build"
    LUMPSCOPE_GUARD_OBJECT=$(dirname "$LUMPSCOPE_PROBE_OBJECT")/lumpscope-guard
    export LUMPSCOPE_PROBE_OBJECT LUMPSCOPE_GUARD_OBJECT
}

# What runs beside: its session, by name.
declare -A beside=()

# Runs a command beside what follows, until `end_beside NAME` shows its output and returns its exit code.
begin_beside() {
    local name=$1
    shift
    # A session of its own, for a background process does not hear Ctrl-C.
    setsid "$@" >"$tools/$name.log" 2>&1 &
    beside[$name]=$!
}

end_beside() {
    local name=$1 code=0
    wait "${beside[$name]}" || code=$?
    unset "beside[$name]"
    cat "$tools/$name.log" >&2
    return "$code"
}

end_all_beside() {
    local session
    for session in "${beside[@]}"; do pkill --session "$session" || true; done
}

# The oldest and the newest kernel; `./dev kernels` runs all. Emulation uses one core.
begin_kernels() {
    local lines
    mapfile -t lines < <(tests/kernels/run --list)
    say "tests on the kernel lines ${lines[0]} and ${lines[-1]}: begun"
    begin_beside kernels tests/kernels/run --short --unless-passed "${lines[0]}" "${lines[-1]}"
}

# 77: qemu or a kernel is not to be had.
end_kernels() {
    local code=0
    say "tests on other kernels"
    end_beside kernels || code=$?
    case $code in
        0) ;;
        77)
            [ "${CI:-}" != true ] || { say "the tests on other kernels cannot be run" && return 1; }
            say "SKIPPED: the tests on other kernels (see above)"
            ;;
        *) say "the tests fail on another kernel: the logs are named above" && return 1 ;;
    esac
}
