//! Support for tests on real devices: loop devices, mounts, aligned buffers, declared I/O.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lumpscope_needs::{Alone, LOOPS, alone};
use lumpscope_observer::{
    Declared, EndedRequest, Flavour, GuardPolicy, Observer, ObserverOptions, Op, Purpose,
    StoreReport, Tuning, WatchedStore,
};
use rustix::time::{ClockId, clock_gettime};

/// The turn of a test that needs loop devices and probes: programs of several observers disturb each other's classic
/// flavour.
pub(crate) fn ready() -> Option<Alone> {
    alone(LOOPS)
}

/// Runs a command; its output when it succeeds.
pub(crate) fn sh(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output();
    let out = out.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Runs dd with these arguments, written as in a shell.
pub(crate) fn dd(arguments: &str) {
    sh("dd", &arguments.split(' ').collect::<Vec<_>>());
}

/// The classic flavour needs tracefs: mounts it where it is missing.
pub(crate) fn mount_tracefs() {
    if !Path::new("/sys/kernel/tracing/events").exists() {
        let at = "/sys/kernel/tracing";
        sh("mount", &["-t", "tracefs", "tracefs", at]);
    }
}

/// A loop device on a sparse image; gone when dropped.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    dir: tempfile::TempDir,
}

impl LoopDevice {
    pub(crate) fn new(bytes: u64) -> LoopDevice {
        let mut dir = tempfile::Builder::new();
        let dir = dir.prefix("lumpscope-").tempdir_in("/var/tmp");
        let dir = dir.expect("a temporary directory");
        let image = dir.path().join("lumpscope-disk.img");
        let file = File::create(&image).expect("an image");
        file.set_len(bytes).expect("its length");
        let image = image.to_str().expect("UTF-8");
        let args = ["--direct-io=on", "-b", "512", "--show", "-f", image];
        LoopDevice {
            path: PathBuf::from(sh("losetup", &args)),
            dir,
        }
    }

    /// Takes its bytes away: from here on, reads fail.
    pub(crate) fn empty(&self) {
        File::create(self.dir.path().join("lumpscope-disk.img")).expect("emptied");
    }

    /// Makes a file system and mounts it.
    pub(crate) fn mounted(bytes: u64, mkfs: &str, args: &[&str]) -> Mounted {
        let device = LoopDevice::new(bytes);
        let at = device.dir.path().join("mnt");
        std::fs::create_dir(&at).expect("a mount point");
        let path = device.path.to_str().expect("UTF-8");
        sh(mkfs, &[args, &[path]].concat());
        sh("mount", &[path, at.to_str().expect("UTF-8")]);
        Mounted { at, device }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

/// A mounted file system on a loop device; unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) at: PathBuf,
    pub(crate) device: LoopDevice,
}

impl Mounted {
    /// A file written with zeroes, as a store is.
    pub(crate) fn zeroed(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.at.join(name);
        let file = File::create(&path).expect("a file");
        let chunk = vec![0_u8; 1 << 20];
        for at in (0..bytes).step_by(chunk.len()) {
            file.write_all_at(&chunk, at as u64).expect("zeroes");
        }
        file.sync_all().expect("on disk");
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever looks at all mounts keeps it busy for a moment.
        for _ in 0..40 {
            let ended = Command::new("umount").arg(&self.at).status();
            if ended.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Memory for direct I/O.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize) -> Aligned {
        let bytes = vec![0xa5; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, start, len }
    }

    pub(crate) fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// An observer on one store, and the store's file for direct I/O.
pub(crate) struct Watched {
    pub(crate) observer: Observer,
    pub(crate) index: usize,
    name: String,
    pub(crate) file: File,
    tokens: AtomicU64,
}

pub(crate) const STORE: &str = "it";

fn watched(path: &Path, name: &str) -> WatchedStore {
    WatchedStore {
        name: name.to_owned(),
        path: path.to_owned(),
        guard: GuardPolicy::Off,
    }
}

/// An observer on the one store of a test.
pub(crate) fn observer_of(path: &Path, tuning: Tuning) -> Observer {
    Observer::start(ObserverOptions {
        stores: vec![watched(path, STORE)],
        enabled: true,
        tuning,
        ..ObserverOptions::default()
    })
}

impl Watched {
    pub(crate) fn new(path: &Path, tuning: Tuning) -> Watched {
        Watched::of(observer_of(path, tuning), 0, path, STORE)
    }

    /// Adds a store to an observer that runs.
    pub(crate) fn added(observer: &Observer, path: &Path, name: &str) -> Watched {
        let index = observer.add_store(watched(path, name));
        Watched::of(observer.clone(), index, path, name)
    }

    fn of(observer: Observer, index: usize, path: &Path, name: &str) -> Watched {
        let status = observer.store_status(name).expect("the store");
        assert!(status.observed, "{}", status.why_not);
        let mut file = OpenOptions::new();
        file.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = file.open(path).expect("direct I/O");
        Watched {
            observer,
            index,
            name: name.to_owned(),
            file,
            tokens: AtomicU64::new(1),
        }
    }

    /// Does a declared I/O.
    pub(crate) fn io(&self, requests: &[u64], purpose: Purpose, op: Op, offset: u64, len: usize) {
        self.declared(requests, purpose, op, (offset, len), |token| {
            self.observer.entering(self.index, token);
            self.undeclared(op, offset, len);
        });
    }

    /// Declares an I/O around its doing, which gets the token.
    pub(crate) fn declared(
        &self,
        requests: &[u64],
        purpose: Purpose,
        op: Op,
        (offset, len): (u64, usize),
        act: impl FnOnce(u64),
    ) {
        let token = self.begun(requests, purpose, op, (offset, len));
        act(token);
        self.observer.left();
        self.observer.finish(self.index, token, now(), true);
    }

    /// Declares an I/O that begins now; its token.
    pub(crate) fn begun(
        &self,
        requests: &[u64],
        purpose: Purpose,
        op: Op,
        (offset, len): (u64, usize),
    ) -> u64 {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.observer.declare(Declared {
            store: self.index,
            token,
            requests: requests.to_vec(),
            purpose,
            op,
            offset,
            len: len as u64,
            begin_ns: now(),
        });
        token
    }

    /// Does an I/O without telling.
    pub(crate) fn undeclared(&self, op: Op, offset: u64, len: usize) {
        let mut buffer = Aligned::new(len);
        let done = match op {
            Op::Read => self.file.read_exact_at(buffer.get(), offset),
            Op::Write => self.file.write_all_at(buffer.get(), offset),
            Op::Flush => self.file.sync_data(),
        };
        done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }

    pub(crate) fn write(&self, request: u64, offset: u64, len: usize) {
        self.io(&[request], Purpose::Data, Op::Write, offset, len);
    }

    /// A whole request around some I/O; all its time but none other is data time.
    pub(crate) fn request(
        &self,
        request: u64,
        method: &'static str,
        bytes: u64,
        io: impl FnOnce(),
    ) {
        let begin_ns = now();
        io();
        let end_ns = now();
        let data_ns = end_ns - begin_ns;
        self.observer.request_done(EndedRequest {
            request,
            store: self.index,
            method: method.into(),
            bytes,
            begin_ns,
            end_ns,
            ok: true,
            stages_ns: [0, 0, 0, data_ns, 0, 0],
            ..EndedRequest::default()
        });
    }

    /// The report when all is in and its audit is final.
    pub(crate) fn report(&self) -> StoreReport {
        let settled = self.observer.settle(Duration::from_secs(10));
        assert!(settled, "did not settle");
        for attempt in 0..1000 {
            let report = self.observer.report(&self.name).expect("the store");
            // Where others flush all the time, there is always a flush whose owner is being found.
            let all_read = report.audit.unread == 0 || attempt > 25;
            if !report.audit.settling && all_read {
                return report;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("an audit settles within seconds");
    }
}

pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) fn forced(flavour: Flavour) -> Tuning {
    Tuning {
        flavour: Some(flavour),
        ..Tuning::default()
    }
}

/// Requests and bytes of an owner and operation.
pub(crate) fn owned(report: &StoreReport, owner: &str, operation: &str) -> (u64, u64) {
    let mut owners = report.block.owners.iter();
    let found = owners.find(|o| o.owner == owner && o.operation == operation);
    found.map_or((0, 0), |o| (o.requests, o.bytes))
}

/// Runs a scenario until its audit is complete, at most five times: on a busy machine the kernel
/// now and then does not show a completion to any program. The audit must then say so, and what is
/// submitted next at that place may disagree with it.
pub(crate) fn until_complete(mut scenario: impl FnMut() -> StoreReport) -> StoreReport {
    for attempt in 1..=5 {
        let report = scenario();
        let audit = &report.audit;
        let all_shown = audit.seen_requests == audit.kernel_requests;
        assert!(audit.conflicts == 0 || !all_shown, "{audit:?}");
        if audit.complete {
            return report;
        }
        assert!(audit.finding.starts_with("incomplete: "), "{audit:?}");
        eprintln!("attempt {attempt}: {}", audit.finding);
    }
    panic!("five runs, and each was incomplete");
}
