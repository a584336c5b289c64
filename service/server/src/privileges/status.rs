//! Privileges of the threads of a process, from /proc.

use std::fs;
use std::io;

use super::capability::CapSet;

/// Kernel flag of a thread that the kernel started for io_uring: `PF_IO_WORKER`.
const IO_WORKER: u64 = 0x10;
/// Offset from the first real-time signal: the first few are popular.
const SIGNAL_OFFSET: i32 = 11;
/// Longest that /proc is read again because threads come and go meanwhile.
const ATTEMPTS: usize = 100;

/// Privileges of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Its id.
    pub tid: i32,
    /// As /proc has it: 15 bytes at most.
    pub name: String,
    /// User ids: real, effective, saved, file system.
    pub uids: [u32; 4],
    /// Group ids: real, effective, saved, file system.
    pub gids: [u32; 4],
    /// Supplementary groups, in ascending order.
    pub groups: Vec<u32>,
    /// Passed on to programs that it starts.
    pub inheritable: CapSet,
    /// Capabilities it may make effective.
    pub permitted: CapSet,
    /// Values in force.
    pub effective: CapSet,
    /// Capabilities it can ever gain.
    pub bounding: CapSet,
    /// Kept by programs that it starts.
    pub ambient: CapSet,
    /// True: it can never gain anything.
    pub no_new_privs: bool,
    /// True: some system calls are forbidden to it (seccomp).
    pub filtered: bool,
    /// True: it has limited itself to what [`super::Reach`] names (Landlock). Only says so of threads
    /// of this service.
    pub limited: bool,
    /// True: a worker that the kernel started to carry out requests of io_uring. It runs no code of
    /// the program, takes no signals, and does each request with the rights that its submitter had
    /// when it was submitted; its own are those of the moment in which it was started.
    pub kernel_worker: bool,
}

/// The signal by which each thread is told to change its own privileges.
pub(super) fn signal() -> i32 {
    libc::SIGRTMIN() + SIGNAL_OFFSET
}

/// Whether a thread that blocks these signals has taken the rules of Landlock.
///
/// /proc does not show the rules. So the handler of [`signal`], once the kernel has accepted them,
/// leaves its own signal blocked: a thread passes that on to the threads that it starts, as it passes
/// on the rules. A thread that starts another one blocks every signal for a moment, and does not
/// count.
fn has_rules(blocked: u64) -> bool {
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
    is_blocked(signal()) && !is_blocked(signal() + 1)
}

/// All threads of this process.
///
/// # Errors
/// /proc cannot be read, or is no proc file system.
pub fn own_threads() -> io::Result<Vec<ThreadStatus>> {
    threads_in("/proc/self")
}

/// All threads of another process.
///
/// # Errors
/// As [`own_threads`]; not found: there is no such process.
pub fn threads_of(pid: u32) -> io::Result<Vec<ThreadStatus>> {
    threads_in(&format!("/proc/{pid}"))
}

/// A list of which the kernel's own count says that nobody is missing: threads that end while the
/// folder is read can hide others.
fn threads_in(process: &str) -> io::Result<Vec<ThreadStatus>> {
    for _ in 0..ATTEMPTS {
        let before = count(process)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(format!("{process}/task"))? {
            found.extend(read_thread(&entry?.path())?);
        }
        if found.len() == before && count(process)? == before && !found.is_empty() {
            return Ok(found);
        }
        std::thread::yield_now();
    }
    Err(io::Error::other(format!(
        "{process}: threads come and go faster than they can be listed"
    )))
}

fn count(process: &str) -> io::Result<usize> {
    let text = fs::read_to_string(format!("{process}/status"))?;
    field(&text, "Threads")?.parse().map_err(io::Error::other)
}

/// `None`: it has ended.
fn read_thread(folder: &std::path::Path) -> io::Result<Option<ThreadStatus>> {
    let read = |file: &str| match fs::read_to_string(folder.join(file)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(status), Some(stat)) = (read("status")?, read("stat")?) else {
        return Ok(None);
    };
    parse(&status, &stat).map(Some)
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn parse(status: &str, stat: &str) -> io::Result<ThreadStatus> {
    let set = |name| {
        u64::from_str_radix(field(status, name)?, 16)
            .map(CapSet)
            .map_err(io::Error::other)
    };
    let name = field(status, "Name")?.to_owned();
    Ok(ThreadStatus {
        tid: field(status, "Pid")?.parse().map_err(io::Error::other)?,
        uids: four(field(status, "Uid")?)?,
        gids: four(field(status, "Gid")?)?,
        groups: ids(field(status, "Groups")?)?,
        inheritable: set("CapInh")?,
        permitted: set("CapPrm")?,
        effective: set("CapEff")?,
        bounding: set("CapBnd")?,
        ambient: set("CapAmb")?,
        no_new_privs: field(status, "NoNewPrivs")? == "1",
        filtered: field(status, "Seccomp").is_ok_and(|mode| mode == "2"),
        limited: has_rules(set("SigBlk")?.0),
        kernel_worker: flags(stat)? & IO_WORKER != 0 && name.starts_with("iou-wrk-"),
        name,
    })
}

fn field<'a>(status: &'a str, name: &str) -> io::Result<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
        .ok_or_else(|| io::Error::other(format!("/proc says nothing of {name}")))
}

fn ids(text: &str) -> io::Result<Vec<u32>> {
    let mut ids: Vec<u32> = text
        .split_whitespace()
        .map(|id| id.parse().map_err(io::Error::other))
        .collect::<io::Result<_>>()?;
    ids.sort_unstable();
    Ok(ids)
}

fn four(text: &str) -> io::Result<[u32; 4]> {
    let mut words = text.split_whitespace().map(str::parse);
    let mut next = || words.next().and_then(Result::ok);
    let found = (|| Some([next()?, next()?, next()?, next()?]))();
    found.ok_or_else(|| io::Error::other(format!("{text:?} are not four ids")))
}

/// Field 9 of `stat`; the second is a name in brackets, which may hold anything.
fn flags(stat: &str) -> io::Result<u64> {
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = behind.split_whitespace().nth(6).unwrap_or_default();
    flags.parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tlumps) x\nPid:\t7\nUid:\t0\t5\t0\t0\nGid:\t0\t6\t0\t0\nGroups:\t9 3 \n\
        SigBlk:\t0000100000000000\nCapInh:\t0000000000000001\nCapPrm:\t0000000000000003\nCapEff:\t0000000000000002\n\
        CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

    #[test]
    fn a_status_is_read_field_by_field() {
        let found = parse(STATUS, "7 (lumps) x) S 1 7 7 0 -1 4194624 1 0").unwrap();
        assert_eq!(found.tid, 7);
        assert_eq!(found.uids, [0, 5, 0, 0]);
        assert_eq!(found.gids, [0, 6, 0, 0]);
        assert_eq!(found.groups, [3, 9]);
        assert_eq!((found.permitted, found.effective), (CapSet(3), CapSet(2)));
        assert_eq!(found.bounding.names().len(), 41);
        assert!(found.no_new_privs && found.limited && !found.kernel_worker);
        let starting = STATUS.replace("0000100000000000", "fffffffffffbfeff");
        assert!(
            !parse(&starting, "7 (x) S 1 7 7 0 -1 4194624 1")
                .unwrap()
                .limited
        );
        let worker = STATUS.replace("lumps) x", "iou-wrk-7");
        assert!(
            parse(&worker, "7 (iou-wrk-7) S 1 7 7 0 -1 4210768 1")
                .unwrap()
                .kernel_worker
        );
        // A name alone proves nothing: every thread can choose its own.
        assert!(
            !parse(&worker, "7 (iou-wrk-7) S 1 7 7 0 -1 4194624 1")
                .unwrap()
                .kernel_worker
        );
        assert!(parse("", "").is_err());
        assert!(parse(STATUS, "7").is_err());
    }

    #[test]
    fn every_thread_of_this_process_is_found() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            ready
                .send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let _ = wait.recv();
        });
        let tid = started.recv().unwrap();
        assert!(
            own_threads()
                .unwrap()
                .iter()
                .any(|thread| thread.tid == tid)
        );
        drop(stop);
        thread.join().unwrap();
        assert!(threads_of(u32::MAX).is_err());
    }
}
