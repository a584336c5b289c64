//! Backend of threads that call pread, pwrite and fdatasync.
//!
//! Works on every kernel and under every seccomp filter. Each thread carries one I/O at a time,
//! so the pool is as large as the number of I/Os wanted in flight.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use rustix::io::retry_on_intr;

use super::{
    Claimed, Completion, Declarer, Io, IoBackend, IoProgress, Mailbox, MailboxSender, Next, Wait,
    Waker, WriteCache, failed_with, is_stray, size_of,
};
use crate::declaration::IoOp;
use crate::facts::LiveCache;
use crate::options::IoBackendKind;

/// Most bytes of one system call; larger I/Os are done in pieces.
const CALL_LIMIT: usize = 64 * 1024 * 1024;

/// Threads that call pread, pwrite and fdatasync, one I/O at a time each.
pub(crate) struct ThreadPool {
    /// `None` only while dropping.
    queue: Option<Sender<Io>>,
    threads: Vec<JoinHandle<()>>,
    file: Arc<Claimed>,
    cache: LiveCache,
    mailbox: Mailbox,
}

/// State of a thread of the pool.
#[derive(Clone)]
struct Worker {
    file: Arc<Claimed>,
    alignment: usize,
    declarer: Declarer,
    queue: Receiver<Io>,
    completions: MailboxSender,
}

impl ThreadPool {
    pub(crate) fn start(
        file: Arc<Claimed>,
        alignment: usize,
        threads: usize,
        declarer: Declarer,
    ) -> io::Result<Self> {
        let mailbox = Mailbox::default();
        let cache = LiveCache::of(&file);
        // Bounded by the owner thread, which limits the I/Os in flight.
        let (sender, queue) = crossbeam_channel::unbounded();
        let worker = Worker {
            file: Arc::clone(&file),
            alignment,
            declarer,
            queue,
            completions: mailbox.sender(),
        };
        let mut pool = Self {
            queue: Some(sender),
            threads: Vec::with_capacity(threads),
            file,
            cache,
            mailbox,
        };
        for number in 0..threads.max(1) {
            let worker = worker.clone();
            let thread = std::thread::Builder::new()
                .name(format!("lump-io-{number}"))
                .spawn(move || worker.run())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

impl IoBackend for ThreadPool {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Threads
    }

    fn submit(&mut self, io: Io) {
        if let Some(queue) = &self.queue {
            // The receivers live as long as the threads, and they end only after the sender.
            let _ = queue.send(io);
        }
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.mailbox.wait(ended, wait);
    }

    fn write_cache(&self) -> WriteCache {
        self.cache.now()
    }

    fn size(&self) -> Option<u64> {
        size_of(&self.file)
    }

    fn is_stray(&self, path: &Path) -> bool {
        is_stray(&self.file, path)
    }

    fn waker(&self) -> Waker {
        self.mailbox.waker()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn run(&self) {
        while let Ok(mut io) = self.queue.recv() {
            self.declarer.begin(&io);
            let token = io.token;
            let result = self.declarer.during(token, || self.transfer(&mut io));
            let result = result.map_err(|error| match error.raw_os_error() {
                Some(errno) => failed_with(&self.file, &io, errno),
                None => error,
            });
            self.declarer.end(io.token, &result);
            let completion = Completion {
                token: io.token,
                buf: io.buf,
                result,
            };
            if !self.completions.send(completion) {
                return;
            }
        }
    }

    fn transfer(&self, io: &mut Io) -> io::Result<()> {
        if io.op == IoOp::Flush {
            return Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.file))?);
        }
        let mut progress = IoProgress { done: 0 };
        loop {
            let from = progress.done;
            let offset = io.offset + from as u64;
            let Some(buf) = io.buf.as_mut() else {
                return Ok(());
            };
            let to = buf.len().min(from + CALL_LIMIT);
            let moved = match io.op {
                IoOp::Read => {
                    retry_on_intr(|| rustix::io::pread(&self.file, &mut buf[from..to], offset))?
                }
                _ => retry_on_intr(|| rustix::io::pwrite(&self.file, &buf[from..to], offset))?,
            };
            let end = (self.alignment, self.file.is_block_device());
            match progress.advance(io, moved, end) {
                Next::Finished if io.forced => {
                    return Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.file))?);
                }
                Next::Finished => return Ok(()),
                Next::Continue => {}
                Next::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}
