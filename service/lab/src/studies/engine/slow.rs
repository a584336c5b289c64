//! A disk in memory that takes a fixed time for each I/O and does any number at once: what a disk
//! with deep queues is to an engine, where none is at hand.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::device::{
    Completion, Device, Io, IoBackend, Mailbox, MailboxSender, Wait, Waker,
};
use lumpscope_engine::{IoBackendKind, IoOp, Store, StoreOptions};

use super::ours;
use crate::failure::cannot;
use crate::load::{Load, Measured, Promise};
use crate::process::Interrupt;

/// Room beside the lumps: headers, journal, trailers.
const SPARE_BYTES: u64 = 16 << 20;

/// Gets at a disk each of whose I/Os takes some time.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct SlowLoad {
    /// Time of each I/O in microseconds
    #[arg(long, default_value_t = 5000)]
    pub latency_us: u64,
    /// Bytes of a lump
    #[arg(long, default_value_t = 4096)]
    pub size: u64,
    /// Lumps there are
    #[arg(long, default_value_t = 256)]
    pub lumps: u64,
    /// Gets in flight
    #[arg(long, default_value_t = 8)]
    pub depth: usize,
    /// Length of the timed part in milliseconds
    #[arg(long, default_value_t = 1000)]
    pub milliseconds: u64,
}

impl SlowLoad {
    /// Time of each I/O.
    #[must_use]
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_us)
    }

    /// Bytes of a storage that holds the lumps.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let lumps = self
            .lumps
            .saturating_mul(self.size.next_multiple_of(4096) + 4096);
        lumps.saturating_add(SPARE_BYTES)
    }

    /// As a load: every lump is put before anything is slow.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            size: self.size,
            depth: self.depth,
            count: self.lumps,
            distinct: self.lumps,
            time: Duration::from_millis(self.milliseconds),
            promise: Promise::Synced,
            seed: 1,
        }
    }
}

/// The bytes of the disk; the engine closes and opens it, they stay.
type Bytes = Arc<Mutex<Vec<u8>>>;

/// The gets of our engine on such a disk.
pub(super) fn gets(slow: &SlowLoad, interrupt: &Interrupt) -> anyhow::Result<Measured> {
    let bytes: Bytes = Arc::new(Mutex::new(formatted(slow.capacity())?));
    let load = slow.load();
    let filling = Load {
        time: Duration::from_secs(3600),
        ..load
    };
    let store = open(&bytes, Duration::ZERO)?;
    ours::puts(&store, &filling, interrupt)?;
    store.close()?;
    let store = open(&bytes, slow.latency())?;
    let measured = ours::gets(&store, &load, load.count, interrupt)?;
    store.close()?;
    Ok(measured)
}

/// The bytes of an empty store. The engine formats files and devices only, so this is a file's.
fn formatted(capacity: u64) -> anyhow::Result<Vec<u8>> {
    let dir = std::env::temp_dir();
    let folder = tempfile::tempdir_in(&dir).map_err(cannot("make a folder in", &dir))?;
    let image = folder.path().join("image.lusf");
    let options = CreateOptions {
        capacity: Some(capacity),
        prealloc: Prealloc::Sparse,
        volatile: true,
        ..CreateOptions::default()
    };
    format(&image, &options)?;
    let mut bytes = std::fs::read(&image).map_err(cannot("read", &image))?;
    bytes.resize(usize::try_from(capacity).unwrap_or(usize::MAX), 0);
    Ok(bytes)
}

fn open(bytes: &Bytes, latency: Duration) -> anyhow::Result<Store> {
    let len = bytes.lock().unwrap_or_else(PoisonError::into_inner).len();
    let device = Device {
        path: PathBuf::from("slow-disk"),
        size: len as u64,
        // A block device would hold a minfs.
        is_block_device: false,
        alignment: 4096,
        memory_alignment: 4096,
        backend: Box::new(SlowDisk::start(Arc::clone(bytes), latency)),
    };
    Ok(Store::open_on(device, StoreOptions::new("slow"))?)
}

/// An I/O, and when it ends.
struct Due {
    at: Instant,
    io: Io,
}

struct SlowDisk {
    latency: Duration,
    mailbox: Mailbox,
    /// `None` only while dropping.
    queue: Option<Sender<Due>>,
    thread: Option<JoinHandle<()>>,
}

impl SlowDisk {
    fn start(bytes: Bytes, latency: Duration) -> SlowDisk {
        let mailbox = Mailbox::default();
        let (queue, due) = unbounded();
        let sender = mailbox.sender();
        let thread = std::thread::spawn(move || carry_out(&due, &bytes, &sender));
        SlowDisk {
            latency,
            mailbox,
            queue: Some(queue),
            thread: Some(thread),
        }
    }
}

impl IoBackend for SlowDisk {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, io: Io) {
        let at = Instant::now() + self.latency;
        if let Some(queue) = &self.queue {
            // The thread ends only after the queue.
            let _ = queue.send(Due { at, io });
        }
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.mailbox.wait(ended, wait);
    }

    fn waker(&self) -> Waker {
        self.mailbox.waker()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends each I/O at its time. All take equally long, so they end in the order in which they came.
fn carry_out(due: &Receiver<Due>, bytes: &Bytes, ended: &MailboxSender) {
    for Due { at, mut io } in due {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let result = transfer(&mut io, bytes);
        ended.send(Completion {
            token: io.token,
            buf: io.buf,
            result,
        });
    }
}

fn transfer(io: &mut Io, bytes: &Bytes) -> io::Result<()> {
    let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(buf) = io.buf.as_mut() else {
        return Ok(());
    };
    let start = usize::try_from(io.offset).unwrap_or(usize::MAX);
    let range: Range<usize> = start..start.saturating_add(buf.len());
    let place = bytes
        .get_mut(range)
        .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
    match io.op {
        IoOp::Read => buf.copy_from_slice(place),
        IoOp::Write => place.copy_from_slice(buf),
        IoOp::Flush => {}
    }
    Ok(())
}
