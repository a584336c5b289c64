//! The sum of memory that clients can make the service hold, and what the machine gives it.

use std::path::{Path, PathBuf};

use lumpscope_units::Size;
use tracing::warn;

use crate::config::ServeConfig;
use crate::connection_memory;
use crate::grpc::{LISTS, MESSAGES};
use crate::observed::{ANSWERS, WATCHED};
use crate::request::Budget;
use crate::telemetry::status_bytes;

/// Program, runtime, observer and the state of stores that hold little.
const SELF: u64 = 128 << 20;
/// Free buffers that a store keeps.
const KEPT: u64 = 128 << 20;
/// Documents of S3 in XML, as they are read.
pub const S3_XML: u64 = 64 << 20;
/// A connection of HTTP/1, with TLS.
const HTTP: u64 = 256 << 10;

/// Most bytes that the service holds whatever its clients do, beside the index of its stores.
#[must_use]
pub fn memory_sum(config: &ServeConfig) -> u64 {
    let put = config.put_memory().0;
    let stores = config.stores.len() as u64 * (Budget::most(config.get_memory().0) + KEPT);
    let most = config.max_connections as u64;
    let entrances = 1 + u64::from(config.unix_socket.is_some());
    let connections = connection_memory::most(config, entrances * most);
    let s3 = if config.s3_listen.is_some() {
        most * HTTP + Budget::most(S3_XML)
    } else {
        0
    };
    let replies = Budget::most(LISTS) + Budget::most(ANSWERS) + WATCHED;
    SELF + Budget::most(put) + stores + MESSAGES + replies + connections + s3 + 128 * HTTP
}

/// Says it when the service has less memory than it may come to hold: then the kernel kills it when
/// its clients ask for most. `index`: bytes that the index of its stores has besides.
pub(crate) fn warn_of_limit(sum: u64, index: u64) {
    let root = Path::new("/");
    if let Some((limit, of)) = limit(root)
        && limit < sum.saturating_add(index)
    {
        warn!(
            memory = %Size(sum),
            index = %Size(index),
            limit = %Size(limit),
            of = %of.display(),
            "the limit of memory is less than what clients can make the service hold: raise it, or \
             lower max-connections, connection-memory, put-memory or get-memory"
        );
    }
}

/// Least memory that this process may have, and the file that says so: of its cgroup, of those above,
/// and of the machine. `None`: no file says anything.
fn limit(root: &Path) -> Option<(u64, PathBuf)> {
    let own = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next()?, parts.next()?) {
            ("", path) => Some(("sys/fs/cgroup", "memory.max", path)),
            ("memory", path) => Some(("sys/fs/cgroup/memory", "memory.limit_in_bytes", path)),
            _ => None,
        }
    });
    let files = groups.flat_map(|(mount, file, path)| {
        let mount = root.join(mount);
        // In a container the path may be one of outside, whose folders are not there.
        let all = Path::new(path.trim_start_matches('/')).ancestors();
        all.map(|group| mount.join(group).join(file))
            .collect::<Vec<_>>()
    });
    let limits = files.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        // No number: no limit.
        Some((text.trim().parse().ok()?, file))
    });
    limits.chain(machine(root)).min()
}

fn machine(root: &Path) -> Option<(u64, PathBuf)> {
    let file = root.join("proc/meminfo");
    let text = std::fs::read_to_string(&file).ok()?;
    Some((status_bytes(&text, "MemTotal:")?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let found = || {
            let (limit, file) = limit(folder.path())?;
            let file = file.strip_prefix(folder.path()).unwrap().to_owned();
            Some((limit >> 20, file.display().to_string()))
        };
        assert_eq!(found(), None);
        write(
            "proc/meminfo",
            "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
        );
        assert_eq!(found(), Some((8192, "proc/meminfo".to_owned())));
        write("proc/self/cgroup", "0::/a.slice/b.service\n");
        write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        write("sys/fs/cgroup/a.slice/memory.max", "4294967296\n");
        let of = |file: &str| file.to_owned();
        let expected = Some((4096, of("sys/fs/cgroup/a.slice/memory.max")));
        assert_eq!(found(), expected);
        write("sys/fs/cgroup/memory.max", "1073741824\n");
        assert_eq!(found(), Some((1024, of("sys/fs/cgroup/memory.max"))));
        let one = "9:cpu:/x\n4:memory:/y\n";
        write("proc/self/cgroup", one);
        write(
            "sys/fs/cgroup/memory/y/memory.limit_in_bytes",
            "2147483648\n",
        );
        let file = of("sys/fs/cgroup/memory/y/memory.limit_in_bytes");
        assert_eq!(found(), Some((2048, file)));
    }
}
