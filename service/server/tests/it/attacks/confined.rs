//! Must not achieve: to start programs, to look into other processes, to change mounts and
//! namespaces, or to reach files, ports and processes that the service does not need, with code that
//! runs inside the service.

#![expect(unsafe_code, reason = "system calls by their numbers")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_needs::missing;
use lumpscope_server::privileges::{self, Reach};

/// Tells the process that it is the one inside, and its folder: what it cannot remove itself.
const INSIDE: &str = "LUMPSCOPE_CONFINED";

/// chmod, chown, links, times, extended attributes and mknod, in all the forms of x86-64.
#[cfg(target_arch = "x86_64")]
const OF_FILES: [i64; 27] = [
    90, 91, 268, 452, 92, 93, 94, 260, 86, 265, 88, 266, 132, 235, 261, 280, 188, 189, 190, 463,
    197, 198, 199, 466, 469, 133, 259,
];
/// chmod and execve of x32.
#[cfg(target_arch = "x86_64")]
const OF_X32: [i64; 2] = [0x4000_0000 | 90, 0x4000_0000 | 520];
#[cfg(not(target_arch = "x86_64"))]
const OF_FILES: [i64; 3] = [libc::SYS_fchmodat, libc::SYS_fchownat, libc::SYS_utimensat];
#[cfg(not(target_arch = "x86_64"))]
const OF_X32: [i64; 0] = [];

/// Runs a test of this module in a process of its own, which has lost its rights when it ends.
fn inside(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let test = format!("attacks::confined::{test}");
    let inside = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--ignored"])
        .env(INSIDE, folder.path())
        .output()
        .unwrap();
    assert!(inside.status.success(), "{inside:?}");
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn code_inside_the_service_starts_nothing() {
    inside("the_inside_itself");
}

#[test]
fn code_inside_the_service_reaches_only_what_the_service_needs() {
    inside("the_reach_of_the_inside");
}

#[test]
#[ignore = "it is the process that the test starts"]
fn the_inside_itself() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    // It was there before the filter.
    let thread = std::thread::spawn(move || {
        asked.recv().unwrap();
        Command::new("/bin/true").status()
    });
    assert!(Command::new("/bin/true").status().unwrap().success());
    privileges::forbid().unwrap();
    ask.send(()).unwrap();
    let denied = io::ErrorKind::PermissionDenied;
    assert_eq!(thread.join().unwrap().unwrap_err().kind(), denied);
    let found = Command::new("/bin/true").status().unwrap_err().kind();
    assert_eq!(found, denied);
    let mounted = rustix::mount::mount_bind("/proc", "/proc").unwrap_err();
    assert_eq!(mounted, rustix::io::Errno::PERM);
    for call in OF_FILES.into_iter().chain(OF_X32) {
        // SAFETY: no argument is a pointer that can be followed.
        let code = unsafe { libc::syscall(call, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
        let error = io::Error::last_os_error().raw_os_error();
        assert_eq!((code, error), (-1, Some(libc::EPERM)), "call {call}");
    }
    for thread in privileges::own_threads().unwrap() {
        assert!(thread.filtered, "{thread:?}");
    }
}

/// A folder with files on both sides of the limits, and sockets of others.
struct Around {
    folder: PathBuf,
    collector: TcpListener,
    neighbour: TcpListener,
    /// Another process, which is no child of a thread that is limited.
    parent: rustix::process::Pid,
    unix: UnixAddr,
}

impl Around {
    fn new(folder: PathBuf) -> Self {
        for name in ["settings", "stores", "recordings"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        for name in "settings/tokens stores/store recordings/old secret".split(' ') {
            fs::write(folder.join(name), "text").unwrap();
        }
        let name = folder.display().to_string();
        Self {
            collector: TcpListener::bind("127.0.0.1:0").unwrap(),
            neighbour: TcpListener::bind("127.0.0.1:0").unwrap(),
            parent: rustix::process::getppid().unwrap(),
            unix: UnixAddr::from_abstract_name(name).unwrap(),
            folder,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn reach(&self) -> Reach {
        Reach {
            read: vec![self.at("settings"), "/proc".into()],
            stores: vec![self.at("stores")],
            written: vec![self.at("recordings")],
            ports: vec![self.collector.local_addr().unwrap().port()],
            ..Reach::default()
        }
    }

    /// What must still work, by name.
    fn needed(&self) -> Vec<(&'static str, io::Result<()>)> {
        let made = self.at("recordings/new");
        vec![
            ("tokens are read", read(&self.at("settings/tokens"))),
            ("a store is opened", write(&self.at("stores/store"))),
            ("a recording is made", fs::write(&made, "text")),
            ("a recording is removed", fs::remove_file(&made)),
            ("facts are read", read(Path::new("/proc/self/status"))),
            ("spans are sent", connect(self.collector.local_addr())),
        ]
    }

    /// What must be refused where the kernel can limit something, with the word for that. Cut files
    /// have none: the kernels that limit ports know them.
    fn refused(&self) -> Vec<(&'static str, &'static str, io::Result<()>)> {
        let (settings, stores) = (self.at("settings/tokens"), self.at("stores/store"));
        let link = self.at("recordings/link");
        let folder = fs::read_dir(&self.folder).map(drop);
        let beside = fs::write(self.at("stores/new"), "x");
        let linked = std::os::unix::fs::symlink("/etc/passwd", link);
        let moved = fs::rename(&stores, self.at("recordings/store"));
        let started = Command::new("/bin/true").status().map(drop);
        let cut = OpenOptions::new().write(true).truncate(true).open(&stores);
        let called = connect(self.neighbour.local_addr());
        let door = TcpListener::bind("127.0.0.1:0").map(drop);
        let unix = UnixStream::connect_addr(&self.unix).map(drop);
        let signal = rustix::process::test_kill_process(self.parent);
        let signal = signal.map_err(io::Error::from);
        vec![
            ("files", "a foreign file is read", read(&self.at("secret"))),
            ("files", "a folder is listed", folder),
            ("files", "tokens are written", write(&settings)),
            ("files", "tokens are removed", fs::remove_file(&settings)),
            ("files", "a file is made beside a store", beside),
            ("files", "a store is removed", fs::remove_file(&stores)),
            ("files", "a file is made", fs::write(self.at("new"), "x")),
            ("files", "a link is made", linked),
            ("files", "a store is moved", moved),
            ("files", "a program is started", started),
            ("TCP ports", "a store is cut", cut.map(drop)),
            ("TCP ports", "a neighbour is called", called),
            ("TCP ports", "a door is opened", door),
            ("abstract sockets", "a UNIX socket is called", unix),
            ("signals", "a process is signalled", signal),
        ]
    }

    fn check(&self, who: &str, limits: &str) {
        for (name, outcome) in self.needed() {
            assert!(outcome.is_ok(), "{who}: {name}: {outcome:?}");
        }
        for (ability, name, outcome) in self.refused() {
            if limits.contains(ability) {
                let kind = outcome.map_err(|error| error.kind());
                assert_eq!(kind, Err(io::ErrorKind::PermissionDenied), "{who}: {name}");
            }
        }
    }
}

fn read(path: &Path) -> io::Result<()> {
    File::open(path).map(drop)
}

fn write(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(drop)
}

fn connect(address: io::Result<SocketAddr>) -> io::Result<()> {
    TcpStream::connect(address?).map(drop)
}

#[test]
#[ignore = "it is the process that the test starts"]
fn the_reach_of_the_inside() {
    let Some(folder) = std::env::var_os(INSIDE) else {
        return;
    };
    let limits = match privileges::limits_here() {
        Ok(limits) => limits,
        Err(why) => return missing(&why),
    };
    let (has, _lacks) = limits.split_once(';').unwrap_or((&limits, ""));
    let around = Around::new(folder.into());
    let _listens = UnixListener::bind_addr(&around.unix).unwrap();
    let allowed = |(name, outcome): (&str, io::Result<()>)| {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    around.needed().into_iter().for_each(allowed);
    fs::read_dir(&around.folder).unwrap();
    read(&around.at("secret")).unwrap();
    connect(around.neighbour.local_addr()).unwrap();
    UnixStream::connect_addr(&around.unix).unwrap();
    rustix::process::test_kill_process(around.parent).unwrap();
    // It is open already, and stays so.
    let open = File::open(around.at("secret")).unwrap();
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let around = &around;
    std::thread::scope(|threads| {
        let old = threads.spawn(move || {
            asked.recv().unwrap();
            around.check("a thread that was there before", has);
        });
        privileges::give_up(None, false, &around.reach()).unwrap();
        ask.send(()).unwrap();
        old.join().unwrap();
        around.check("the thread that gave up", has);
        let new = threads.spawn(|| around.check("a thread that came later", has));
        new.join().unwrap();
    });
    assert_eq!(io::read_to_string(open).unwrap(), "text");
    for thread in privileges::own_threads().unwrap() {
        assert!(thread.limited, "{thread:?}");
    }
}
