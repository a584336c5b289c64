//! Backend of one thread that drives an `io_uring`.
//!
//! The owner thread sends I/Os through a channel and wakes the ring thread through an eventfd,
//! which the ring itself reads; so the thread has one place to wait. Every buffer stays in
//! `in_flight` until the kernel has reported its end.

#![expect(unsafe_code, reason = "the ring takes raw pointers")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;

use super::{Completion, Declarer, Io, IoBackend, Next, Progress};
use crate::options::IoBackendKind;
use crate::request::IoOp;

/// Entries of the submission ring.
const ENTRIES: u32 = 256;
/// Marks the end of the wake-up read.
const WAKE: u64 = u64::MAX;
/// Most bytes of one entry; larger I/Os are done in pieces.
const CALL_LIMIT: usize = 64 * 1024 * 1024;

/// The handle of the ring thread.
pub(crate) struct Uring {
    /// `None` only while dropping.
    queue: Option<Sender<Io>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Uring {
    /// Starts the ring, or says why it does not work here.
    pub(crate) fn start(
        file: &Arc<File>,
        alignment: usize,
        declarer: &Declarer,
        completions: &Sender<Completion>,
    ) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let (sender, queue) = crossbeam_channel::unbounded();
        let worker = RingThread {
            ring,
            file: Arc::clone(file),
            wake: Arc::clone(&wake),
            wake_count: Box::new([0; 8]),
            queue,
            completions: completions.clone(),
            declarer: declarer.clone(),
            alignment,
            in_flight: Vec::new(),
            vacant: Vec::new(),
            active: 0,
        };
        let thread = std::thread::Builder::new()
            .name("lump-uring".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            queue: Some(sender),
            wake,
            thread: Some(thread),
        })
    }

    fn wake(&self) {
        // Fails only when the counter is about to overflow, and then the thread is awake anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl IoBackend for Uring {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Uring
    }

    fn submit(&mut self, io: Io) {
        if let Some(queue) = &self.queue {
            // The receiver lives as long as the thread, and it ends only after the sender.
            let _ = queue.send(io);
            self.wake();
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.queue = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the ring thread.
struct RingThread {
    ring: IoUring,
    file: Arc<File>,
    wake: Arc<OwnedFd>,
    /// Where the kernel puts the eventfd's counter; boxed so that it never moves.
    wake_count: Box<[u8; 8]>,
    queue: Receiver<Io>,
    completions: Sender<Completion>,
    declarer: Declarer,
    alignment: usize,
    /// I/Os the kernel has; the index is the entry's user data.
    in_flight: Vec<Option<(Io, Progress)>>,
    vacant: Vec<usize>,
    active: usize,
}

impl RingThread {
    fn run(mut self) {
        self.arm_wake();
        let mut open = true;
        while open || self.active > 0 {
            loop {
                match self.queue.try_recv() {
                    Ok(io) => self.start(io),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        open = false;
                        break;
                    }
                }
            }
            if !open && self.active == 0 {
                break;
            }
            if let Err(error) = self.ring.submit_and_wait(1)
                && !is_transient(&error)
            {
                self.give_up(&error);
                return;
            }
            self.reap();
        }
    }

    fn start(&mut self, io: Io) {
        self.declarer.begin(&io);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some((io, Progress { done: 0 }));
        self.active += 1;
        self.push(slot);
    }

    /// Pushes the (rest of the) I/O in `slot`.
    fn push(&mut self, slot: usize) {
        let fd = types::Fd(self.file.as_raw_fd());
        let Some((io, progress)) = self.in_flight[slot].as_mut() else {
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
                    _ => opcode::Write::new(fd, rest.as_ptr(), len)
                        .offset(offset)
                        .build(),
                }
            }
        };
        self.push_entry(&entry.user_data(slot as u64));
    }

    fn arm_wake(&mut self) {
        let fd: RawFd = self.wake.as_raw_fd();
        let entry = opcode::Read::new(types::Fd(fd), self.wake_count.as_mut_ptr(), 8)
            .build()
            .user_data(WAKE);
        self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the memory of every entry is owned by `in_flight` (or is `wake_count`) and
            // stays there until the kernel has reported the entry's end.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return;
            }
            // The ring is full: hand it to the kernel. An error shows up again in `run`.
            let _ = self.ring.submit();
        }
    }

    fn reap(&mut self) {
        let ended: Vec<(u64, i32)> = self
            .ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        for (user_data, result) in ended {
            if user_data == WAKE {
                self.arm_wake();
            } else if let Ok(slot) = usize::try_from(user_data) {
                self.ended(slot, result);
            }
        }
    }

    fn ended(&mut self, slot: usize, result: i32) {
        let Some((io, progress)) = self.in_flight.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let next = match usize::try_from(result) {
            Ok(moved) => progress.advance(io, moved, self.alignment),
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => Next::Continue,
            Err(_) => Next::Failed(-result),
        };
        let result = match next {
            Next::Continue => return self.push(slot),
            Next::Finished => Ok(()),
            Next::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
        };
        if let Some((io, _)) = self.in_flight[slot].take() {
            self.vacant.push(slot);
            self.active -= 1;
            self.declarer.end(io.token, &result);
            let _ = self.completions.send(Completion {
                token: io.token,
                buf: io.buf,
                result,
            });
        }
    }

    /// The ring itself failed. The kernel may still own the buffers, so they are leaked.
    fn give_up(mut self, error: &io::Error) {
        let failure = || io::Error::new(error.kind(), error.to_string());
        for (io, _) in self.in_flight.drain(..).flatten() {
            let result = Err(failure());
            self.declarer.end(io.token, &result);
            let _ = self.completions.send(Completion {
                token: io.token,
                buf: None,
                result,
            });
            std::mem::forget(io);
        }
        while let Ok(io) = self.queue.recv() {
            let result = Err(failure());
            let _ = self.completions.send(Completion {
                token: io.token,
                buf: io.buf,
                result,
            });
        }
        std::mem::forget(self.wake_count);
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}
