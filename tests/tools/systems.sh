# The service inside other systems: docker, JuiceFS, Swift, a browser that takes pictures. Sourced by ./dev.
# shellcheck shell=bash

# docker-compose.yml with a docker of its own, in namespaces of its own.
cmd_compose() {
    need_rust
    install_needs "${compose_needs[@]}"
    install_prometheus
    as_root env PATH="$PATH" HOME="$HOME" CARGO_TARGET_DIR="$target" tests/compose/run "$@"
}

# Docker as this user may use it.
use_docker() {
    command -v docker >/dev/null || apt_install docker.io docker-cli || die "docker is missing: https://docs.docker.com/engine/install/"
    docker compose version >/dev/null 2>&1 || apt_install docker-compose || true
    docker compose version >/dev/null 2>&1 ||
        die "docker compose is missing (2.20 or newer): https://docs.docker.com/compose/install/linux/"
    docker=(docker)
    docker info >/dev/null 2>&1 || docker=(as_root docker)
}

cmd_up() {
    use_docker
    say "building and starting (the first time takes some minutes)"
    "${docker[@]}" compose up --detach --build --wait "$@"
    say "up after $(elapsed). ./dev down ends it and removes everything
    the service's page    $(published 9464 demo lumpscope)
    Grafana               $(published 3000 grafana)
    Prometheus            $(published 9090 prometheus)
    Alertmanager          $(published 9093 alertmanager)
    Jaeger                $(published 16686 jaeger)
    gRPC                  $(published 50051 demo lumpscope)"
}

# The address at which this machine has a port of one of these services: .env may say another port.
published() {
    local port=$1 service address
    shift
    for service in "$@"; do
        address=$("${docker[@]}" compose port "$service" "$port" 2>/dev/null) && [ -n "$address" ] && break
    done
    echo "http://${address:-(not running)}"
}

cmd_down() {
    use_docker
    "${docker[@]}" compose --profile demo --profile disk --profile load down --volumes "$@"
}

# Swift with a store on each disk, in namespaces of its own.
cmd_swift() {
    need_rust
    install_needs "${build_needs[@]}" "${swift_needs[@]}"
    local binary
    install_swift_once || die "swift $SWIFT_VERSION cannot be installed: it comes from the Python index"
    case " $* " in
        *" --help "* | *" -h "*) exec "$tools/bin/swift-python" tests/swift/run --help ;;
        *" --juicefs "*)
            install_once juicefs "$juicefs_version $juicefs_without" -- install_juicefs ||
                die "juicefs cannot be installed: it is built with Go 1.21 or newer"
            ;;
    esac
    binary=$(built_program)
    as_root env PATH="$tools/bin:$PATH" "$tools/bin/swift-python" tests/swift/run --binary "$binary" \
        --work "$target/swift" "$@"
}

# JuiceFS over services of its own, in namespaces of its own.
cmd_juicefs() {
    need_rust
    case " $* " in *" --help "* | *" -h "*) exec tests/juicefs/run --help ;; esac
    install_needs "${build_needs[@]}" "${juicefs_needs[@]}"
    local binary
    install_once juicefs "$juicefs_version $juicefs_without" -- install_juicefs ||
        die "juicefs cannot be installed: it is built with Go 1.21 or newer"
    install_once etcd "$(dpkg --print-architecture)" -- install_etcd || die "etcd cannot be had: it is a package of Debian"
    case " $* " in
        *" --workloads"*)
            install_needs "make:make"
            install_once redis-source 7 -- install_redis_source || die "the sources of Redis cannot be had: Debian packages them"
            set -- --sources "$tools/redis-source/redis.tar.gz" "$@"
            ;;
    esac
    binary=$(built_program)
    as_root env PATH="$tools/bin:$PATH" tests/juicefs/run --binary "$binary" \
        --work "$target/juicefs" "$@"
}

cmd_screenshots() {
    need_rust
    install_needs "${build_needs[@]}" "${demo_needs[@]}" "pngquant:pngquant"
    install_browser
    [ -x "$tools/bin/browser-node" ] || die "there is no browser to take pictures with"
    local binary
    binary=$(built_program)
    mkdir -p docs/pictures
    say "taking pictures; the charts take a minute to fill"
    as_root env GRAFANA_URL="${GRAFANA_URL:-http://127.0.0.1:3000}" \
        "$tools/bin/browser-node" tests/browser/screenshots.mjs "$binary" docs/pictures
}
