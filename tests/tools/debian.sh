# Packages of Debian and Ubuntu that commands of ./dev need, and how they are installed. Sourced by ./dev.
# shellcheck shell=bash

# "file or command : Debian package". A file that exists means that the package is there.
build_needs=(
    "cc:gcc" "ld:binutils" "/usr/include/blkid/blkid.h:libblkid-dev" "/usr/include/stdio.h:libc6-dev"
)
demo_needs=(
    "mkfs.ext4:e2fsprogs" "mkfs.xfs:xfsprogs" "losetup:mount" "findmnt:util-linux"
)
bench_needs=("fio:fio")
# BlueStore, as Debian packs it.
ceph_needs=("ceph-osd:ceph-osd" "ceph-mon:ceph-mon" "ceph:ceph-common")
# Finds the versions of libraries that the program needs at least.
deb_needs=("dpkg-shlibdeps:dpkg-dev")
test_needs=(
    "${bench_needs[@]}" "bpftrace:bpftrace" "mkfs.btrfs:btrfs-progs" "pvcreate:lvm2" "mdadm:mdadm"
    "cryptsetup:cryptsetup-bin" "mkfs.vfat:dosfstools" "sfdisk:fdisk" "setpriv:util-linux" "filefrag:e2fsprogs"
    "systemd-analyze:systemd" "man:man-db"
)

# Kernels are booted in QEMU with tools of this machine inside.
kernels_needs=(
    "qemu-system-x86_64:qemu-system-x86" "busybox:busybox-static" "cpio:cpio" "depmod:kmod" "xz:xz-utils"
    "zstd:zstd" "strip:binutils" "ldd:libc-bin" "dmsetup:dmsetup" "blkid:util-linux"
    "/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring"
)

# For an engine in namespaces of its own and for images where no registry answers.
compose_needs=(
    "debootstrap:debootstrap" "slirp4netns:slirp4netns" "busybox:busybox-static" "curl:curl" "jq:jq" "losetup:mount"
    "nsenter:util-linux"
)

# Metadata engines. Only the programs: the packages redis-server and mariadb-server would start services.
juicefs_needs=(
    "losetup:mount" "unshare:util-linux" "mkfs.ext4:e2fsprogs" "fio:fio" "python3:python3" "redis-check-rdb:redis-tools"
    "mariadbd:mariadb-server-core" "my_print_defaults:mariadb-client-core"
)

swift_needs=(
    "losetup:mount" "unshare:util-linux" "mkfs.xfs:xfsprogs" "python3:python3"
)

# Clients of S3 that only ./dev s3-suites clients tries.
s3_clients_needs=(
    "s3cmd:s3cmd" "rclone:rclone" "restic:restic" "s3fs:s3fs" "s3backer:s3backer" "/usr/bin/aws:awscli"
    "mkfs.ext4:e2fsprogs" "npm:npm"
)

# The packages of a list of needs that are not there.
missing_packages() {
    local need thing package
    for need in "$@"; do
        thing=${need%%:*} package=${need##*:}
        case $thing in
            /*) [ -e "$thing" ] || printf '%s\n' "$package" ;;
            *) PATH="$PATH:/usr/sbin:/sbin" command -v "$thing" >/dev/null || printf '%s\n' "$package" ;;
        esac
    done | sort -u
}

apt_updated=
apt_install() {
    command -v apt-get >/dev/null || die "this machine has no apt-get; install by hand: $*"
    if [ -z "$apt_updated" ]; then
        as_root apt-get update -q >&2
        apt_updated=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2
}

install_needs() {
    local packages
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} -eq 0 ] && return
    say "installing ${packages[*]}"
    apt_install "${packages[@]}"
}
