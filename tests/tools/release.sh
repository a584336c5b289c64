# What is handed out: an installed program, the package of Debian, a release. Sourced by ./dev.
# shellcheck shell=bash

# Manual pages and completions, made by the program itself.
write_pages() {
    local program=$1 folder=$2
    rm -rf "$folder"
    mkdir -p "$folder"
    "$program" man "$folder/man" >/dev/null
    "$program" completions bash >"$folder/lumpscope.bash"
    "$program" completions zsh >"$folder/_lumpscope"
    "$program" completions fish >"$folder/lumpscope.fish"
}

# Whether files can be made in a folder, which need not be there yet.
writable() {
    local at=$1
    until [ -e "$at" ]; do at=$(dirname "$at"); done
    [ -w "$at" ]
}

cmd_install() {
    local prefix=${1:-$HOME/.local} pages=$target/package program
    case $prefix in -*) die "usage: ./dev install [PREFIX]" ;; esac
    program=$(built_program)
    write_pages "$program" "$pages"
    local to=(install -D)
    writable "$prefix" || to=(as_root install -D)
    "${to[@]}" --strip -m 755 "$program" "$prefix/bin/lumpscope"
    "${to[@]}" -m 644 -t "$prefix/share/man/man1" "$pages"/man/*.1
    "${to[@]}" -m 644 "$pages/lumpscope.bash" "$prefix/share/bash-completion/completions/lumpscope"
    "${to[@]}" -m 644 -t "$prefix/share/zsh/site-functions" "$pages/_lumpscope"
    "${to[@]}" -m 644 -t "$prefix/share/fish/vendor_completions.d" "$pages/lumpscope.fish"
    say "installed $prefix/bin/lumpscope"
    case ":$PATH:" in
        *":$prefix/bin:"*) ;;
        *) say "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

# The path of the package is the last line.
cmd_deb() {
    local program at=$target/package/release
    install_once cargo-deb "$cargo_deb_version" -- install_cargo_deb || die "cargo-deb cannot be installed"
    install_needs "${deb_needs[@]}"
    program=$(built_program)
    write_pages "$program" "$target/package"
    # cargo-deb takes what lies where a build puts it.
    install -D --strip -m 755 "$program" "$at/lumpscope"
    mkdir -p "$at/package"
    cp -r "$target"/package/man "$target"/package/{lumpscope.bash,_lumpscope,lumpscope.fish} "$at/package/"
    mkdir -p "$target/debian"
    CARGO_TARGET_DIR=$target/package "$tools/bin/cargo-deb" --no-build --no-strip --offline --locked \
        --package lumpscope --output "$target/debian/" "$@"
}

# The bill of materials of the program (CycloneDX): each crate that is linked into it, with version, checksum and licence.
write_sbom() {
    local out=$1 name=lumpscope-sbom
    install_once cargo-cyclonedx "$cargo_cyclonedx_version" -- install_cargo_cyclonedx ||
        die "cargo-cyclonedx cannot be installed"
    PATH="$PATH:$tools/bin" cargo cyclonedx -qq --format json --spec-version 1.5 --no-build-deps \
        --override-filename "$name"
    # References have the folder's name in them.
    sed "s|file://$PWD|file:///lumpscope|g" "service/cli/$name.json" >"$out"
    # It writes one beside each manifest of the workspace.
    git ls-files --others -z -- "*/$name.json" | xargs -0 rm --
    jq --exit-status '.components | length > 100 and all(.licenses and .version)' "$out" >/dev/null ||
        die "$out lacks crates, versions or licences"
}

# An image as `docker load` and `podman load` take it, made without either: the program, what demo needs beside it, and the
# libraries of both, as on this machine. It goes by the names that docker-compose.yml uses, so nothing is compiled there.
write_image() {
    local program=$1 version=$2 out=$3 work root tool file layer config
    work=$(mktemp -d) root=$work/root
    install_needs "${demo_needs[@]}"
    mkdir -p "$root"/{etc,tmp,proc,sys,dev,var/lib} "$work/image"
    install -D --strip -m 755 "$program" "$root/usr/bin/lumpscope"
    install -D -m 644 LICENSE "$root/usr/share/doc/lumpscope/copyright"
    for tool in mkfs.ext4 mkfs.xfs; do
        install -D -m 755 "$(PATH=$PATH:/usr/sbin:/sbin command -v "$tool")" "$root/usr/sbin/$tool"
    done
    install -D -m 644 /etc/mke2fs.conf "$root/etc/mke2fs.conf"
    for file in $(ldd "$program" "$root"/usr/sbin/* | grep -o '/[^ :)]*[.]so[^ :)]*' | sort -u); do
        install -D -m 755 "$file" "$root$file"
    done
    printf 'root:x:0:0::/:/\nlumpscope:x:10001:10001::/:/\n' >"$root/etc/passwd"
    printf 'root:x:0:\nlumpscope:x:10001:\n' >"$root/etc/group"
    chmod 1777 "$root/tmp"
    mkdir -m 700 "$root/var/lib/lumpscope-lab"
    mkdir -m 750 "$root/var/lib/lumpscope"
    # The same files make the same image.
    tar -C "$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --exclude=./var/lib/lumpscope -cf "$work/image/layer.tar" .
    tar -C "$root" --owner=10001 --group=10001 --numeric-owner --mtime=@0 -rf "$work/image/layer.tar" ./var/lib/lumpscope
    layer=$(sha256sum <"$work/image/layer.tar")
    jq --null-input --arg layer "sha256:${layer%% *}" --arg arch "$(dpkg --print-architecture)" \
        --arg created "$(TZ=UTC git log -1 --date=iso-strict-local --format=%cd | sed 's/+00:00/Z/')" '{
        architecture: $arch, os: "linux", created: $created,
        rootfs: {type: "layers", diff_ids: [$layer]},
        config: {User: "lumpscope", Entrypoint: ["lumpscope"], Cmd: ["--help"], StopSignal: "SIGTERM",
            Env: ["PATH=/usr/sbin:/usr/bin"], ExposedPorts: {"50051/tcp": {}, "9464/tcp": {}},
            Labels: {"org.opencontainers.image.title": "lumpscope", "org.opencontainers.image.licenses": "MIT"},
            Healthcheck: {Test: ["CMD", "lumpscope", "health", "--timeout", "4", "--retries", "0"],
                Interval: 10000000000, Timeout: 5000000000, StartPeriod: 60000000000, Retries: 3}}}' >"$work/config.json"
    config=$(sha256sum <"$work/config.json")
    mv "$work/config.json" "$work/image/${config%% *}.json"
    jq --null-input --arg config "${config%% *}.json" --arg version "$version" '[{Config: $config, Layers: ["layer.tar"],
        RepoTags: ["lumpscope:\($version)", "lumpscope-demo:\($version)"]}]' >"$work/image/manifest.json"
    tar -C "$work/image" --sort=name --owner=0 --group=0 --mtime=@0 -cf - . | gzip -n >"$out"
    rm -rf "$work"
}

# Everything that is handed out, in TARGET/release-VERSION, and the tag. What is pushed or published is for people.
cmd_release() {
    local version=${1:-} out
    need_rust
    [ -n "$version" ] || die "usage: ./dev release VERSION, as Cargo.toml says it"
    grep -q "^version = \"$version\"\$" Cargo.toml || die "Cargo.toml has another version than $version"
    grep -q "^version = \"$version\"\$" proto/python/pyproject.toml || die "pyproject.toml has another version"
    grep -q "^## $version" CHANGELOG.md || die "CHANGELOG.md has no section '## $version'"
    [ -z "$(git status --porcelain)" ] || die "there are changes that are not committed"
    ! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || die "there is a tag v$version"
    out=$target/release-$version
    rm -rf "$out" && mkdir -p "$out"
    cmd_deb
    cp "$target"/debian/*.deb "$out/"
    tar -C "$target/package/release" -czf "$out/lumpscope-$version-$(uname -m).tar.gz" lumpscope package
    cargo package --locked --package lumpscope-proto --package lumpscope-client
    cp "$target"/package/lumpscope-{proto,client}-"$version".crate "$out/"
    install_package_tools || die "what builds the wheel cannot be installed"
    build_wheel "$tools/packages/bin" "$out"
    write_sbom "$out/lumpscope-$version.cdx.json"
    write_image "$(built_program)" "$version" "$out/lumpscope-$version-image-$(uname -m).tar.gz"
    git archive --prefix="lumpscope-$version/" -o "$out/lumpscope-$version.tar.gz" HEAD
    (cd "$out" && sha256sum -- * >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
    git tag --annotate "v$version" --message "Lumpscope $version"
    say "made in $out and tagged v$version; push it with: git push origin v$version"
}

# The wheel of the Python package, built of a copy so that nothing is left in the sources.
build_wheel() {
    local bin=$1 out=$2 copy
    copy=$(mktemp -d)
    cp -r proto/lumpscope proto/python "$copy/"
    (cd "$copy/python" && PATH="$bin:$PATH" "$bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --wheel-dir "$out" .) || { rm -rf "$copy"; return 1; }
    rm -rf "$copy"
}
