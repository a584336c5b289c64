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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;

use super::{
    Claimed, Completion, Declarer, Io, IoBackend, Next, Progress, Wait, Waker, WriteCache,
    failed_with,
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
/// Most bytes of one entry; larger I/Os are done in pieces.
const CALL_LIMIT: usize = 64 * 1024 * 1024;

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
    /// I/Os the kernel has, by token, which is the entry's user data.
    in_flight: HashMap<u64, (Io, Progress)>,
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
        fua: bool,
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
            fua,
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
        let Some((io, progress)) = self.in_flight.get_mut(&token) else {
            return;
        };
        let offset = io.offset + progress.done as u64;
        let entry = match (io.op, io.buf.as_mut()) {
            (IoOp::Flush, _) | (_, None) => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            (op, Some(buf)) => {
                let rest = &mut buf[progress.done..];
                let len = u32::try_from(rest.len().min(CALL_LIMIT)).unwrap_or(u32::MAX);
                match op {
                    IoOp::Read => opcode::Read::new(fd, rest.as_mut_ptr(), len)
                        .offset(offset)
                        .build(),
                    // On a block device the request then carries FUA, and no flush follows it.
                    _ => opcode::Write::new(fd, rest.as_ptr(), len)
                        .offset(offset)
                        .rw_flags(if io.forced { libc::RWF_DSYNC } else { 0 })
                        .build(),
                }
            }
        };
        self.push_entry(&entry.user_data(token));
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
        let Some((io, progress)) = self.in_flight.get_mut(&token) else {
            return;
        };
        let next = match usize::try_from(result) {
            Ok(moved) => progress.advance(io, moved, (self.alignment, self.file.is_block_device())),
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => Next::Continue,
            Err(_) => Next::Failed(-result),
        };
        let result = match next {
            Next::Continue => return self.push(token),
            Next::Finished => Ok(()),
            Next::Failed(errno) => Err(failed_with(&self.file, io, errno)),
        };
        if let Some((io, _)) = self.in_flight.remove(&token) {
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
        for (_, (io, _)) in self.in_flight.drain() {
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
        self.in_flight.insert(token, (io, Progress { done: 0 }));
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

    #[test]
    fn a_forced_write_is_one_entry() {
        let file = Arc::new(Claimed::from(tempfile::tempfile().unwrap()));
        let Ok(mut uring) = Uring::start(&file, 512, true, &Declarer(None)) else {
            // Not on this kernel: `open` tells who asks for it.
            return;
        };
        assert!(uring.forces_writes());
        assert_eq!(uring.write_cache(), WriteCache::Back, "a file");
        let mut buf = BufferPool::new(512).get(512);
        buf[..].fill(7);
        uring.submit(Io {
            token: 1,
            op: IoOp::Write,
            forced: true,
            offset: 512,
            buf: Some(buf),
            purpose: IoPurpose::Journal,
            requests: Vec::new(),
        });
        let mut ended = Vec::new();
        while ended.is_empty() {
            uring.wait(&mut ended, Wait::Forever);
        }
        assert!(ended[0].result.is_ok(), "{ended:?}");
        let mut bytes = [0; 512];
        std::os::unix::fs::FileExt::read_exact_at(&**file, &mut bytes, 512).unwrap();
        assert_eq!(bytes, [7; 512]);
    }
}
