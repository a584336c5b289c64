//! Backend of one `io_uring`, driven by the thread that submits.
//!
//! Taken I/Os go into the submission queue, and one system call hands them all to the kernel and
//! waits for whatever ends next; so a request costs no change of thread. Other threads end that
//! wait through an eventfd that the ring reads. Every buffer stays in `in_flight` until the kernel
//! has reported its end.

#![expect(unsafe_code, reason = "the ring takes raw pointers")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;

use super::{
    Claimed, Completion, Declarer, DeviceFacts, Io, IoBackend, IoProgress, Next, Wait, Waker,
    WriteCache, failed_with, is_stray, size_of,
};
use crate::clock::monotonic_ns;
use crate::declaration::IoOp;
use crate::facts::LiveCache;
use crate::options::IoBackendKind;

/// Entries of the submission ring.
const ENTRIES: u32 = 256;
/// User data of the wake-up read. All other entries carry the token of their I/O, so that who
/// observes the disk can tell what the kernel submits.
const WAKE: u64 = u64::MAX;
/// Most bytes of one entry.
const ENTRY_LIMIT: usize = 64 * 1024 * 1024;
/// Most entries of one I/O that the kernel has at a time.
const ENTRIES_AN_IO: usize = 16;

/// Pause between two looks at the bell when there is no io_uring to sleep on.
const LISTEN_PAUSE: Duration = Duration::from_millis(1);

/// How other threads wake the one that waits on the ring. They write to the eventfd only when it
/// sleeps: a system call for each command would cost more than the command.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
    sleeping: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is about to overflow: then it rings anyway.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// The thread is about to sleep. False: it was rung since it last looked.
    fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let quiet = !self.rung.load(Ordering::SeqCst);
        if !quiet {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        quiet
    }

    /// Waits without the io_uring. It has failed, so nothing is in flight and nothing is urgent.
    fn listen(&self, wait: Wait) {
        let time = match wait {
            Wait::No => return,
            Wait::Forever => u64::MAX,
            Wait::Until(time) => time,
        };
        while !self.rung.load(Ordering::SeqCst) && monotonic_ns() < time {
            std::thread::sleep(LISTEN_PAUSE);
        }
    }

    /// The thread is going to look at everything that a ring may announce.
    fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.rung.store(false, Ordering::SeqCst);
    }
}

/// An I/O and the entries that it is done with. All carry its token, so they are told apart by
/// nothing: it is over when the last has ended.
struct Flying {
    io: Io,
    progress: IoProgress,
    /// Entries that the kernel has.
    entries: usize,
    /// Most that it may have.
    most: usize,
    /// Bytes that the entries since the last step were to transfer, and did.
    asked: usize,
    moved: usize,
    /// True: the kernel wants one of them again.
    again: bool,
    /// Errno of one that failed.
    failed: Option<i32>,
}

impl Flying {
    fn new(io: Io) -> Self {
        Self {
            io,
            progress: IoProgress { done: 0 },
            entries: 0,
            most: ENTRIES_AN_IO,
            asked: 0,
            moved: 0,
            again: false,
            failed: None,
        }
    }

    /// The next entry, of at most `limit` bytes; `None`: the kernel has all, or enough of them.
    fn next_entry(&mut self, fd: types::Fd, limit: usize) -> Option<squeue::Entry> {
        if self.entries >= self.most {
            return None;
        }
        let entry = match (self.io.op, self.io.buf.as_mut()) {
            (IoOp::Flush, _) | (_, None) if self.entries > 0 => return None,
            (IoOp::Flush, _) | (_, None) => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            (op, Some(buf)) => {
                let from = self.progress.done + self.asked;
                let rest = buf.get_mut(from..).filter(|rest| !rest.is_empty())?;
                let (bytes, offset) = (rest.len().min(limit), self.io.offset + from as u64);
                let len = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.asked += bytes;
                match op {
                    IoOp::Read => opcode::Read::new(fd, rest.as_mut_ptr(), len)
                        .offset(offset)
                        .build(),
                    // On a block device the request then carries FUA, and no flush follows it.
                    _ => opcode::Write::new(fd, rest.as_ptr(), len)
                        .offset(offset)
                        .rw_flags(if self.io.forced { libc::RWF_DSYNC } else { 0 })
                        .build(),
                }
            }
        };
        self.entries += 1;
        Some(entry.user_data(self.io.token))
    }

    /// An entry has ended with this result. The I/O's next step, if it was the last entry.
    fn ended(&mut self, result: i32, end: (usize, bool)) -> Option<Next> {
        self.entries -= 1;
        match usize::try_from(result) {
            Ok(moved) => self.moved += moved,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => self.again = true,
            Err(_) => self.failed = Some(-result),
        }
        if self.entries > 0 {
            return None;
        }
        let (asked, moved) = (self.asked, self.moved);
        (self.asked, self.moved) = (0, 0);
        let again = std::mem::take(&mut self.again);
        Some(if let Some(errno) = self.failed {
            Next::Failed(errno)
        } else if again || (moved < asked && self.most > 1) {
            // Which of them fell short is not known, so all are done again, one after the other.
            self.most = 1;
            Next::Continue
        } else {
            self.progress.advance(&mut self.io, moved, end)
        })
    }
}

/// An io_uring and the I/Os that the kernel has.
pub(crate) struct Uring {
    ring: IoUring,
    file: Arc<Claimed>,
    bell: Arc<Bell>,
    /// Where the kernel puts the eventfd's counter; boxed so that it never moves.
    bell_count: Box<[u8; 8]>,
    declarer: Declarer,
    alignment: usize,
    cache: LiveCache,
    /// True: the device has FUA.
    fua: bool,
    /// Most bytes of an entry.
    entry_bytes: usize,
    /// I/Os the kernel has, by token, which is the entry's user data.
    in_flight: HashMap<u64, Flying>,
    /// Ends that were found and not yet handed over.
    ended: Vec<Completion>,
    /// The ring itself has failed: nothing goes through it any more.
    broken: Option<Broken>,
}

/// Why a ring is not used any more.
#[derive(Clone, Copy, Debug)]
struct Broken(io::ErrorKind);

impl Broken {
    fn error(self) -> io::Error {
        io::Error::new(self.0, "the io_uring of this store has failed")
    }
}

impl Uring {
    /// Makes the ring, or says why it does not work here.
    pub(crate) fn start(
        file: &Arc<Claimed>,
        alignment: usize,
        device: DeviceFacts,
        declarer: &Declarer,
    ) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        let supported = needed.iter().all(|&code| probe.is_supported(code));
        if !supported || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let bell = Bell {
            fd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            rung: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
        };
        let mut uring = Self {
            ring,
            file: Arc::clone(file),
            bell: Arc::new(bell),
            bell_count: Box::new([0; 8]),
            declarer: declarer.clone(),
            alignment,
            cache: LiveCache::of(file),
            fua: device.fua,
            entry_bytes: entry_bytes(device, alignment),
            in_flight: HashMap::new(),
            ended: Vec::new(),
            broken: None,
        };
        uring.arm_bell();
        Ok(uring)
    }

    /// Pushes the (rest of the) I/O.
    fn push(&mut self, token: u64) {
        let fd = types::Fd(self.file.as_raw_fd());
        let limit = self.entry_bytes;
        while let Some(entry) = self
            .in_flight
            .get_mut(&token)
            .and_then(|flying| flying.next_entry(fd, limit))
        {
            self.push_entry(&entry);
        }
    }

    fn arm_bell(&mut self) {
        let fd: RawFd = self.bell.fd.as_raw_fd();
        let entry = opcode::Read::new(types::Fd(fd), self.bell_count.as_mut_ptr(), 8)
            .build()
            .user_data(WAKE);
        self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the memory of every entry is owned by `in_flight` (or is `bell_count`) and
            // stays there until the kernel has reported the entry's end.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return;
            }
            // The ring is full: hand it to the kernel.
            let submitted = self.declarer.driving(|| self.ring.submit());
            if let Err(error) = submitted
                && !is_transient(&error)
            {
                return self.give_up(&error);
            }
        }
    }

    /// One system call: hands over what was taken and waits, as far as there is a reason to.
    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let nothing_to_hand_over = self.ring.submission().is_empty();
        let sleeps = wait != Wait::No && self.ring.completion().is_empty();
        if nothing_to_hand_over && !sleeps {
            return Ok(());
        }
        self.declarer.driving(|| self.call(wait, sleeps))?;
        Ok(())
    }

    fn call(&self, wait: Wait, sleeps: bool) -> io::Result<usize> {
        match wait {
            Wait::Until(time) if sleeps => {
                let left = time.saturating_sub(monotonic_ns());
                let seconds = left / 1_000_000_000;
                let nanoseconds = u32::try_from(left % 1_000_000_000).unwrap_or(0);
                let time = Timespec::new().sec(seconds).nsec(nanoseconds);
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
            Wait::Forever if sleeps => self.ring.submit_and_wait(1),
            _ => self.ring.submit(),
        }
    }

    fn reap(&mut self) {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                return;
            };
            if entry.user_data() == WAKE {
                self.arm_bell();
            } else {
                self.end(entry.user_data(), entry.result());
            }
        }
    }

    fn end(&mut self, token: u64, result: i32) {
        let Some(flying) = self.in_flight.get_mut(&token) else {
            return;
        };
        let end = (self.alignment, self.file.is_block_device());
        let result = match flying.ended(result, end) {
            None => return,
            Some(Next::Continue) => return self.push(token),
            Some(Next::Finished) => Ok(()),
            Some(Next::Failed(errno)) => Err(failed_with(&self.file, &flying.io, errno)),
        };
        if let Some(Flying { io, .. }) = self.in_flight.remove(&token) {
            self.declarer.end(io.token, &result);
            self.ended.push(Completion {
                token: io.token,
                buf: io.buf,
                result,
            });
        }
    }

    fn enter_or_give_up(&mut self, wait: Wait) {
        if self.broken.is_none()
            && let Err(error) = self.enter(wait)
            && !is_transient(&error)
        {
            self.give_up(&error);
        }
    }

    /// The ring itself failed. The kernel may still own the buffers, so they are leaked.
    fn give_up(&mut self, error: &io::Error) {
        let broken = Broken(error.kind());
        self.broken = Some(broken);
        for (_, Flying { io, .. }) in self.in_flight.drain() {
            let result = Err(broken.error());
            self.declarer.end(io.token, &result);
            self.ended.push(Completion {
                token: io.token,
                buf: None,
                result,
            });
            std::mem::forget(io);
        }
        std::mem::forget(std::mem::take(&mut self.bell_count));
    }
}

impl IoBackend for Uring {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Uring
    }

    fn size(&self) -> Option<u64> {
        size_of(&self.file)
    }

    fn is_stray(&self, path: &Path) -> bool {
        is_stray(&self.file, path)
    }

    fn submit(&mut self, io: Io) {
        if let Some(broken) = self.broken {
            return self.ended.push(Completion {
                token: io.token,
                buf: io.buf,
                result: Err(broken.error()),
            });
        }
        let token = io.token;
        // The kernel has the memory of what is in flight: it must not be replaced.
        if token == WAKE || self.in_flight.contains_key(&token) {
            return self.ended.push(Completion {
                token,
                buf: io.buf,
                result: Err(io::ErrorKind::InvalidInput.into()),
            });
        }
        self.declarer.begin(&io);
        self.in_flight.insert(token, Flying::new(io));
        self.push(token);
    }

    fn start(&mut self) {
        self.enter_or_give_up(Wait::No);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        let sleeps = wait != Wait::No && self.ended.is_empty() && self.bell.may_sleep();
        if self.broken.is_none() {
            self.enter_or_give_up(if sleeps { wait } else { Wait::No });
        } else if sleeps {
            self.bell.listen(wait);
        }
        self.bell.awake();
        if self.broken.is_none() {
            self.reap();
        }
        ended.append(&mut self.ended);
    }

    fn write_cache(&self) -> WriteCache {
        self.cache.now()
    }

    fn forces_writes(&self) -> bool {
        self.fua
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Waker::new(move || bell.ring())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel writes to buffers that it has; they must not be freed under it.
        while !self.in_flight.is_empty() && self.broken.is_none() {
            match self.enter(Wait::Forever) {
                Err(error) if !is_transient(&error) => self.give_up(&error),
                _ => self.reap(),
            }
        }
        // The read of the eventfd ends with the ring, but some time after it.
        std::mem::forget(std::mem::take(&mut self.bell_count));
    }
}

/// Most bytes of an entry. The kernel does not divide a request for a block device that must not
/// wait: it leaves one that is larger than the device takes to a worker, which costs two changes of
/// thread, and several workers need not keep the order of their requests.
fn entry_bytes(device: DeviceFacts, alignment: usize) -> usize {
    let request = usize::try_from(device.request_bytes).unwrap_or(ENTRY_LIMIT);
    match request - request % alignment {
        0 => ENTRY_LIMIT,
        bytes => bytes.min(ENTRY_LIMIT),
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        // The time of a wait that has passed is reported as an error too, and is none.
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPool;
    use crate::declaration::IoPurpose;

    /// A ring on a new file, if there is io_uring on this kernel: `open` tells who asks for it.
    fn ring(device: DeviceFacts) -> Option<Uring> {
        let file = Arc::new(Claimed::from(tempfile::tempfile().unwrap()));
        Uring::start(&file, 512, device, &Declarer(None)).ok()
    }

    fn io(op: IoOp, offset: u64, bytes: &[u8]) -> Io {
        let mut buf = BufferPool::new(512).get(bytes.len());
        buf.copy_from_slice(bytes);
        Io {
            token: 1,
            op,
            forced: op == IoOp::Write,
            offset,
            buf: Some(buf),
            purpose: IoPurpose::Journal,
            requests: Vec::new(),
        }
    }

    fn completed(uring: &mut Uring, io: Io) -> Completion {
        let mut ended = Vec::new();
        uring.submit(io);
        while ended.is_empty() {
            uring.wait(&mut ended, Wait::Forever);
        }
        ended.remove(0)
    }

    /// Pushes all entries that the kernel may have, of 1 KiB each, and counts them.
    fn pushed(flying: &mut Flying) -> usize {
        std::iter::from_fn(|| flying.next_entry(types::Fd(0), 1024)).count()
    }

    const OF_FILE: (usize, bool) = (512, false);

    #[test]
    fn a_forced_write_is_one_entry() {
        let fua = DeviceFacts {
            fua: true,
            ..DeviceFacts::default()
        };
        let Some(mut uring) = ring(fua) else { return };
        assert!(uring.forces_writes());
        assert_eq!(uring.write_cache(), WriteCache::Back, "a file");
        let end = completed(&mut uring, io(IoOp::Write, 512, &[7; 512]));
        assert!(end.result.is_ok(), "{end:?}");
        let mut bytes = [0; 512];
        std::os::unix::fs::FileExt::read_exact_at(&**uring.file, &mut bytes, 512).unwrap();
        assert_eq!(bytes, [7; 512]);
    }

    #[test]
    fn an_io_larger_than_the_device_takes_is_cut() {
        let device = |request_bytes| DeviceFacts {
            request_bytes,
            ..DeviceFacts::default()
        };
        assert_eq!(entry_bytes(device(1280 << 10), 4096), 1280 << 10);
        assert_eq!(entry_bytes(device(127 << 10), 4096), 124 << 10);
        assert_eq!(entry_bytes(device(1024), 4096), ENTRY_LIMIT);
        assert_eq!(entry_bytes(device(0), 4096), ENTRY_LIMIT);

        let bytes: Vec<u8> = (0..80).flat_map(|sector| [sector; 512]).collect();
        let mut flying = Flying::new(io(IoOp::Write, 0, &bytes));
        assert_eq!(pushed(&mut flying), ENTRIES_AN_IO, "of 40");

        let Some(mut uring) = ring(device(1024)) else {
            return;
        };
        let end = completed(&mut uring, io(IoOp::Write, 512, &bytes));
        assert!(end.result.is_ok(), "{end:?}");
        // Behind the end of the file there are zeros.
        let end = completed(&mut uring, io(IoOp::Read, 512, &[1; 48 << 10]));
        assert!(end.result.is_ok(), "{end:?}");
        let read = end.buf.unwrap();
        assert!(read[..bytes.len()] == bytes && read[bytes.len()..] == [0; 8 << 10]);
    }

    #[test]
    fn what_falls_short_is_done_again_entry_by_entry() {
        for first in [512, 0, -libc::EAGAIN, -libc::EINTR] {
            let mut flying = Flying::new(io(IoOp::Read, 0, &[1; 3 << 10]));
            assert_eq!(pushed(&mut flying), 3);
            assert_eq!(flying.ended(first, OF_FILE), None);
            assert_eq!(flying.ended(1024, OF_FILE), None);
            assert_eq!(flying.ended(1024, OF_FILE), Some(Next::Continue));
            for left in (0..3).rev() {
                assert_eq!(pushed(&mut flying), 1);
                let next = flying.ended(1024, OF_FILE);
                let last = left == 0;
                assert_eq!(next == Some(Next::Finished), last, "{next:?}");
            }
        }
        let mut flush = Flying::new(Io {
            buf: None,
            ..io(IoOp::Flush, 0, &[])
        });
        assert_eq!(pushed(&mut flush), 1);
        assert_eq!(flush.ended(-libc::EINTR, OF_FILE), Some(Next::Continue));
        assert_eq!(pushed(&mut flush), 1);
        assert_eq!(flush.ended(0, OF_FILE), Some(Next::Finished));
    }

    #[test]
    fn an_io_that_failed_ends_when_the_kernel_has_none_of_its_memory() {
        let mut flying = Flying::new(io(IoOp::Write, 0, &[1; 2048]));
        assert_eq!(pushed(&mut flying), 2);
        assert_eq!(flying.ended(-libc::EIO, OF_FILE), None);
        let end = flying.ended(1024, OF_FILE);
        assert_eq!(end, Some(Next::Failed(libc::EIO)));
    }
}
