//! Asynchronous direct I/O on one device or file.
//!
//! The owner thread hands over an [`Io`] and gets a [`Completion`] when it waits. Only
//! [`AlignedBuf`] crosses this boundary. Nothing here knows the format.

mod mailbox;
mod open;
mod pool;
pub mod sim;
mod uring;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::buffer::AlignedBuf;
use crate::clock::monotonic_ns;
use crate::declaration::{IoDeclaration, IoOp, IoPurpose, IoSink, RequestId};
use crate::options::IoBackendKind;

pub use crate::facts::{DeviceFacts, WriteCache};
pub use crate::waker::Waker;
pub use mailbox::{Mailbox, MailboxSender};
pub(crate) use open::{Claimed, alignment, claim, claim_now, open};

/// One I/O for a backend.
#[derive(Debug)]
pub struct Io {
    /// Comes back in the completion; unique within the store's life.
    pub token: u64,
    /// Read, write or flush.
    pub op: IoOp,
    /// Of a write: it is durable when it has ended, without a flush.
    pub forced: bool,
    /// First byte in the device or file; a multiple of the device's alignment.
    pub offset: u64,
    /// Memory to read into or to write, a multiple of the alignment long; `None` for a flush.
    pub buf: Option<AlignedBuf>,
    /// Purpose, to be declared.
    pub purpose: IoPurpose,
    /// The requests it is done for, to be declared.
    pub requests: Vec<RequestId>,
}

impl Io {
    /// Bytes to transfer.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.buf.as_ref().map_or(0, |buf| buf.len() as u64)
    }

    /// True: no bytes are transferred.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The end of one I/O. All bytes were transferred, or `result` is an error.
#[derive(Debug)]
pub struct Completion {
    /// Token of the I/O.
    pub token: u64,
    /// The memory of the I/O, given back.
    pub buf: Option<AlignedBuf>,
    /// `Err` with the errno of the failure; nothing is known of the bytes then.
    pub result: io::Result<()>,
}

/// How long [`IoBackend::wait`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until an I/O has ended or the waker was used.
    Forever,
    /// Wait for a completion, or until this time of [`monotonic_ns`].
    Until(u64),
}

/// Does I/O. A write is durable when a flush that was submitted after the write's completion has
/// completed; when it was forced, or found a [write-through](WriteCache) device, at its own
/// completion. Used by one thread at a time; I/Os end in any order.
///
/// Dropping it waits for the I/Os that the kernel has.
pub trait IoBackend: Send {
    /// Which one it is.
    fn kind(&self) -> IoBackendKind;
    /// Takes one I/O and returns at once. The backend may hold it until the next
    /// [`start`](IoBackend::start) or [`wait`](IoBackend::wait), to hand over several at a time.
    fn submit(&mut self, io: Io);
    /// Starts everything taken.
    fn start(&mut self) {}
    /// Starts everything taken and appends the I/Os that have ended to `ended`.
    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait);
    /// The cache of the device, as a flush sent now would find it: write-through means that all
    /// writes that have ended are durable, and that the flush need not be sent.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Back
    }
    /// True: a forced write costs less than a write and a flush.
    fn forces_writes(&self) -> bool {
        false
    }
    /// Bytes of the device or file now; `None`: unknown.
    fn size(&self) -> Option<u64> {
        None
    }
    /// True: this path does not lead to the open file any more.
    fn is_stray(&self, _path: &Path) -> bool {
        false
    }
    /// Ends a wait from another thread.
    fn waker(&self) -> Waker;
}

/// An open device or file with its backend.
pub struct Device {
    /// Path, for messages.
    pub path: PathBuf,
    /// Bytes of the device; of a file: its length at open.
    pub size: u64,
    /// True: a block device, whose size is a hard limit.
    pub is_block_device: bool,
    /// Smallest unit, in bytes, of offsets and lengths: what the device writes without tearing.
    pub alignment: u32,
    /// Alignment of memory in bytes.
    pub memory_alignment: usize,
    /// Does the I/O.
    pub backend: Box<dyn IoBackend>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("path", &self.path)
            .field("size", &self.size)
            .finish()
    }
}

impl Device {
    /// Why the device is no longer what was opened; `None`: it has the first `needed` bytes that it had
    /// then.
    pub(crate) fn shrunk(&self, needed: u64) -> Option<Arc<str>> {
        let needed = needed.min(self.size);
        // A disk that was pulled out has 0 bytes: it is gone, as its I/Os tell, and may come back.
        let is_gone = |size| self.is_block_device && size == 0;
        let size = self.backend.size();
        let size = size.filter(|&size| size < needed && !is_gone(size))?;
        let path = self.path.display();
        Some(Arc::from(format!(
            "{path} has become shorter: {size} bytes, and the store had {needed}; remove the store, and \
             restore it from a copy"
        )))
    }

    /// Why nothing more may be put here; `None`: the path leads to the file that is open.
    pub(crate) fn stray(&self) -> Option<Arc<str>> {
        let path = &self.path;
        let reason = || {
            format!(
                "{} was removed or replaced: what the store holds is lost when it is closed; move the file \
                 back, or evacuate the store first",
                path.display()
            )
        };
        self.backend.is_stray(path).then(|| reason().into())
    }
}

/// True: the path does not lead to the open file any more, so that nobody can open its bytes again.
pub(crate) fn is_stray(file: &Claimed, path: &Path) -> bool {
    // The node of a device may go and come again: what it names is still there.
    if file.is_block_device() {
        return false;
    }
    let Ok(ours) = file.metadata() else {
        return false;
    };
    match std::fs::metadata(path) {
        // A path like /proc/PID/fd/3 leads to a file without any other name.
        Ok(named) => (named.dev(), named.ino()) != (ours.dev(), ours.ino()),
        // Not one of a folder that may not be searched, or of a server that does not answer.
        Err(error) => matches!(
            error.raw_os_error(),
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
        ),
    }
}

/// Bytes of an open device or file.
pub(crate) fn size_of(file: &Claimed) -> Option<u64> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)).ok()
}

/// Tells the sink about the I/Os of a backend.
#[derive(Clone)]
pub(crate) struct Declarer(pub(crate) Option<Arc<dyn IoSink>>);

impl Declarer {
    /// To be called immediately before the kernel can see the I/O.
    pub(crate) fn begin(&self, io: &Io) {
        let Some(sink) = &self.0 else { return };
        sink.submitted(&IoDeclaration {
            token: io.token,
            requests: &io.requests,
            purpose: io.purpose,
            op: io.op,
            offset: io.offset,
            len: io.len(),
            begin_ns: monotonic_ns(),
        });
    }

    /// To be called right before and after a system call that does (part of) one I/O.
    pub(crate) fn during<T>(&self, token: u64, call: impl FnOnce() -> T) -> T {
        let Some(sink) = &self.0 else { return call() };
        sink.entering(token);
        let result = call();
        sink.left();
        result
    }

    /// To be called right before and after a system call that drives an io_uring.
    pub(crate) fn driving<T>(&self, call: impl FnOnce() -> T) -> T {
        let Some(sink) = &self.0 else { return call() };
        sink.drives_ring();
        let result = call();
        sink.left();
        result
    }

    /// To be called after the kernel is done with it.
    pub(crate) fn end(&self, token: u64, result: &io::Result<()>) {
        let Some(sink) = &self.0 else { return };
        let error = result
            .as_ref()
            .err()
            .map(|error| error.raw_os_error().unwrap_or(libc::EIO));
        sink.completed(token, monotonic_ns(), error);
    }
}

/// How far one I/O has come: kernels may transfer less than asked.
#[derive(Debug)]
pub(crate) struct IoProgress {
    pub(crate) done: usize,
}

/// Next step after a system call transferred some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Finished,
    Continue,
    Failed(i32),
}

impl IoProgress {
    /// Accounts for a call that returned `transferred` bytes of an I/O. A read that reaches the
    /// end of a file gets zeros for the rest: a file may be shorter than its store, and what was
    /// never written may be read as anything. A device ends before its store (`hard_end`) only when
    /// it is gone: the kernel then gives it the size 0.
    pub(crate) fn advance(
        &mut self,
        io: &mut Io,
        transferred: usize,
        (alignment, hard_end): (usize, bool),
    ) -> Next {
        let Some(buf) = io.buf.as_mut() else {
            return Next::Finished;
        };
        self.done += transferred;
        if self.done >= buf.len() {
            return Next::Finished;
        }
        let at_end = transferred == 0 || !self.done.is_multiple_of(alignment);
        match io.op {
            IoOp::Read if at_end && hard_end => Next::Failed(libc::ENXIO),
            IoOp::Read if at_end => {
                buf[self.done..].fill(0);
                Next::Finished
            }
            IoOp::Write if at_end => Next::Failed(libc::EIO),
            IoOp::Read | IoOp::Write | IoOp::Flush => Next::Continue,
        }
    }
}

/// The errno of a failed I/O. A write behind the end of a block device has no space left, in the
/// words of the kernel: the device has become smaller, or is gone and has the size 0.
pub(crate) fn failed_with(file: &Claimed, io: &Io, errno: i32) -> io::Error {
    let behind_end = errno == libc::ENOSPC
        && file.is_block_device()
        && rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
            .is_ok_and(|size| io.offset.saturating_add(io.len()) > size);
    io::Error::from_raw_os_error(if behind_end { libc::ENXIO } else { errno })
}
