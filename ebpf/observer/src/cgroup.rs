//! Paths of cgroups, by the number that the kernel gives a block request's maker: the inode of the
//! cgroup's directory in the hierarchy of version 2.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Directories that a walk looks at.
const MAX_WALKED: usize = 65_536;
/// Time between two walks through the whole hierarchy.
const WALK_NS: u64 = 10_000_000_000;
/// Hexadecimal digits of a container's id.
const CONTAINER_DIGITS: usize = 64;

/// Finds the paths of cgroups.
#[derive(Debug)]
pub(crate) struct Finder {
    /// Where the hierarchy is mounted; `None`: nowhere.
    mount: Option<PathBuf>,
    /// The cgroup that was asked for last.
    last: u64,
    /// When to ask again for a cgroup that was asked for; `u64::MAX`: it was found.
    asked: HashMap<u64, u64>,
    /// What the last walk found.
    walked: HashMap<u64, String>,
    walk_ns: u64,
}

impl Finder {
    /// In the hierarchy that this process sees.
    pub(crate) fn new() -> Finder {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Finder::at(mount_of(&mounts))
    }

    fn at(mount: Option<PathBuf>) -> Finder {
        Finder {
            mount,
            last: 0,
            asked: HashMap::new(),
            walked: HashMap::new(),
            walk_ns: 0,
        }
    }

    /// The path of a cgroup that is seen for the first time, with a process that was in it.
    /// `None`: it was told, or cannot be found now.
    pub(crate) fn first_seen(&mut self, id: u64, pid: u32, now_ns: u64) -> Option<String> {
        if id == 0 || id == self.last {
            return None;
        }
        self.last = id;
        if self.asked.get(&id).is_some_and(|again| now_ns < *again) {
            return None;
        }
        if self.asked.len() >= MAX_WALKED {
            self.asked.clear();
        }
        let found = self.find(id, pid, now_ns);
        let again = found
            .as_ref()
            .map_or(now_ns.saturating_add(WALK_NS), |_| u64::MAX);
        self.asked.insert(id, again);
        found
    }

    fn find(&mut self, id: u64, pid: u32, now_ns: u64) -> Option<String> {
        let mount = self.mount.as_deref()?;
        if let Some(path) = of_process(mount, id, pid) {
            return Some(path);
        }
        if !self.walked.contains_key(&id) && now_ns >= self.walk_ns {
            self.walked = walk(mount);
            self.walk_ns = now_ns.saturating_add(WALK_NS);
        }
        self.walked.get(&id).cloned()
    }
}

/// The container that a cgroup belongs to, as Docker, containerd, CRI-O and Podman name its
/// directory: the last 64 hexadecimal digits in a row in the path.
pub(crate) fn container(path: &str) -> Option<&str> {
    let parts = path.rsplit('/').filter(|part| !part.contains("conmon"));
    let mut words = parts.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric()));
    words.find(|word| {
        word.len() == CONTAINER_DIGITS && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Where the hierarchy of version 2 is mounted.
fn mount_of(mountinfo: &str) -> Option<PathBuf> {
    let mut mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_ours = after.split(' ').next() == Some("cgroup2");
        let at = before.split(' ').nth(4).filter(|_| is_ours)?;
        Some(PathBuf::from(at))
    });
    mounts.next()
}

/// What the process says of itself, if that is the cgroup: it may be gone, or have moved, or another
/// may have its number.
fn of_process(mount: &Path, id: u64, pid: u32) -> Option<String> {
    if pid == 0 {
        return None;
    }
    let all = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = all.lines().find_map(|line| line.strip_prefix("0::"))?;
    let inode = fs::metadata(mount.join(path.trim_start_matches('/')))
        .ok()?
        .ino();
    (inode == id).then(|| path.to_owned())
}

/// All cgroups there are, by the inode of the directory.
fn walk(mount: &Path) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    if let Ok(root) = fs::metadata(mount) {
        found.insert(root.ino(), "/".to_owned());
    }
    let mut open = vec![(mount.to_owned(), String::new())];
    while let Some((folder, path)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if found.len() >= MAX_WALKED {
                return found;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = format!("{path}/{}", entry.file_name().to_string_lossy());
                found.insert(entry.ino(), path.clone());
                open.push((entry.path(), path));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_directory() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods.slice/kubepods-podab_cd.slice/cri-containerd-{id}.scope"),
            format!("/kubepods/besteffort/pod1234-5678/{id}"),
            format!("/machine.slice/libpod-{id}.scope/container/init.scope"),
        ] {
            assert_eq!(container(&path), Some(id.as_str()), "{path}");
        }
        for path in [
            "/".to_owned(),
            "/system.slice/lumpscope.service".to_owned(),
            format!("/machine.slice/libpod-conmon-{id}.scope"),
            format!("/docker/{id}0"),
        ] {
            assert_eq!(container(&path), None, "{path}");
        }
    }

    #[test]
    fn a_cgroup_is_found_by_the_inode_of_its_directory_and_told_once() {
        let root = tempfile::tempdir().expect("a folder");
        let inner = root.path().join("a.slice/b.scope");
        fs::create_dir_all(&inner).expect("made");
        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        let (outer, inner) = (inode(root.path()), inode(&inner));
        let mut it = Finder::at(Some(root.path().to_owned()));
        assert_eq!(it.first_seen(0, 1, 1), None);
        // Nobody is process 0: the hierarchy is walked.
        let expected = Some("/a.slice/b.scope");
        assert_eq!(it.first_seen(inner, 0, 1).as_deref(), expected);
        assert_eq!(it.first_seen(outer, 0, 2).as_deref(), Some("/"));
        assert_eq!(it.first_seen(inner, 0, 3), None);
        let late = root.path().join("late");
        fs::create_dir(&late).expect("made");
        let late = inode(&late);
        assert_eq!(it.first_seen(late, 0, 4), None, "a walk is rare");
        assert_eq!(it.first_seen(inner, 0, 5), None);
        let again = 2 * WALK_NS;
        assert_eq!(it.first_seen(late, 0, again).as_deref(), Some("/late"));
    }

    #[test]
    fn the_hierarchy_is_that_of_version_2() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
                      32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let mount = mount_of(mounts);
        assert_eq!(mount, Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_of("30 24 0:26 / / rw - ext4 /dev/sda rw\n"), None);
    }
}
