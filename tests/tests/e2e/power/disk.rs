//! A disk that remembers: one file of FUSE that keeps every write and when each write and flush
//! began and ended, so that it can be had as a power cut would have left it at any moment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

const NAME: &str = "disk";
const DISK: INodeNo = INodeNo(2);
/// The kernel asks again each time: the file may grow.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Some answers are held back this long: a flush then begins while a write before it has not
/// ended, and does not cover it.
const HELD_BACK: Duration = Duration::from_micros(300);

/// One thing that happened. Writes and flushes are numbered in the order they began.
#[derive(Debug, Clone)]
pub(super) enum DiskEvent<T> {
    WriteBegan(usize),
    WriteEnded(usize),
    FlushBegan(usize),
    FlushEnded(usize),
    /// Whatever else must be known to have happened before or after those.
    Noted(T),
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
}

/// All that happened to a disk since it was made.
#[derive(Debug)]
pub(super) struct History<T> {
    pub(super) before: Vec<u8>,
    pub(super) events: Vec<DiskEvent<T>>,
    pub(super) writes: Vec<Write>,
}

impl<T> History<T> {
    fn new(before: Vec<u8>) -> History<T> {
        History {
            before,
            events: Vec::new(),
            writes: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct DiskState<T> {
    bytes: Vec<u8>,
    flushes: usize,
    history: History<T>,
}

/// What the disk and the test share.
#[derive(Debug)]
pub(super) struct SharedDisk<T>(Mutex<DiskState<T>>);

impl<T> SharedDisk<T> {
    fn lock(&self) -> MutexGuard<'_, DiskState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something between the writes and flushes.
    pub(super) fn note(&self, what: T) {
        self.lock().history.events.push(DiskEvent::Noted(what));
    }

    /// Tells every note since [`SharedDisk::begin`], in order.
    pub(super) fn each_note(&self, mut tell: impl FnMut(&T)) {
        for event in &self.lock().history.events {
            if let DiskEvent::Noted(note) = event {
                tell(note);
            }
        }
    }

    /// Forgets everything until now: the disk as it is becomes the one to begin with. Nothing may
    /// be under way.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        state.flushes = 0;
        state.history = History::new(state.bytes.clone());
    }

    /// Gives away what happened since [`SharedDisk::begin`].
    pub(super) fn take(&self) -> History<T> {
        std::mem::replace(&mut self.lock().history, History::new(Vec::new()))
    }
}

/// An answer that the disk still owes.
#[derive(Debug)]
enum Owed {
    Write(ReplyWrite, u32, usize),
    Flush(ReplyEmpty, usize),
}

/// A disk in the tree of files, until it is dropped.
#[derive(Debug)]
pub(super) struct RecordingDisk<T> {
    pub(super) path: PathBuf,
    pub(super) shared: Arc<SharedDisk<T>>,
    _session: BackgroundSession,
}

impl<T: std::fmt::Debug + Send + 'static> RecordingDisk<T> {
    /// A disk that holds `bytes`, in the folder `mount`.
    pub(super) fn new(mount: &Path, bytes: Vec<u8>) -> RecordingDisk<T> {
        let shared = Arc::new(SharedDisk(Mutex::new(DiskState {
            history: History::new(bytes.clone()),
            bytes,
            flushes: 0,
        })));
        let (owed, to_answer) = channel();
        let answering = shared.clone();
        std::thread::spawn(move || answer(&answering, &to_answer));
        let file = DiskFileSystem {
            shared: shared.clone(),
            owed,
        };
        let session = fuser::spawn_mount(file, mount, &Config::default());
        RecordingDisk {
            path: mount.join(NAME),
            shared,
            _session: session.expect("FUSE can be mounted"),
        }
    }
}

/// Ends writes and flushes in any order, until the disk is gone.
fn answer<T>(shared: &SharedDisk<T>, to_answer: &Receiver<Owed>) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut waiting: Vec<Owed> = Vec::new();
    while let Ok(owed) = to_answer.recv() {
        waiting.push(owed);
        while !waiting.is_empty() {
            if random.u8(..4) == 0 {
                std::thread::sleep(HELD_BACK);
            }
            waiting.extend(to_answer.try_iter());
            let next = waiting.swap_remove(random.usize(..waiting.len()));
            let ended = match &next {
                Owed::Write(_, _, number) => DiskEvent::WriteEnded(*number),
                Owed::Flush(_, number) => DiskEvent::FlushEnded(*number),
            };
            // First noted, then told: who has heard of the end and flushes then begins later.
            shared.lock().history.events.push(ended);
            match next {
                Owed::Write(reply, length, _) => reply.written(length),
                Owed::Flush(reply, _) => reply.ok(),
            }
        }
    }
}

/// The file system: one file in one directory.
struct DiskFileSystem<T> {
    shared: Arc<SharedDisk<T>>,
    owed: Sender<Owed>,
}

impl<T> DiskFileSystem<T> {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_disk = inode == DISK;
        let bytes = self.shared.lock().bytes.len() as u64;
        FileAttr {
            ino: inode,
            size: if is_disk { bytes } else { 0 },
            blocks: if is_disk { bytes / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_disk {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if is_disk { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl<T: Send + 'static> Filesystem for DiskFileSystem<T> {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == OsStr::new(NAME) {
            reply.entry(&NOT_AT_ALL, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NOT_AT_ALL, &self.attributes(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size.and_then(|size| usize::try_from(size).ok()) {
            self.shared.lock().bytes.resize(size, 0);
        }
        reply.attr(&NOT_AT_ALL, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.shared.lock();
        let from =
            usize::try_from(offset).map_or(state.bytes.len(), |at| at.min(state.bytes.len()));
        let to = (from + size as usize).min(state.bytes.len());
        reply.data(&state.bytes[from..to]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let offset = usize::try_from(offset).expect("the disk is small");
        let length = u32::try_from(data.len()).expect("FUSE's writes are small");
        let mut state = self.shared.lock();
        let end = offset + data.len();
        if state.bytes.len() < end {
            state.bytes.resize(end, 0);
        }
        state.bytes[offset..end].copy_from_slice(data);
        let number = state.history.writes.len();
        let bytes = data.to_vec();
        state.history.writes.push(Write { offset, bytes });
        state.history.events.push(DiskEvent::WriteBegan(number));
        drop(state);
        let _ = self.owed.send(Owed::Write(reply, length, number));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Somebody closes the file; that is nothing to a disk.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.shared.lock();
        let number = state.flushes;
        state.flushes += 1;
        state.history.events.push(DiskEvent::FlushBegan(number));
        drop(state);
        let _ = self.owed.send(Owed::Flush(reply, number));
    }
}

/// What happens to the sectors that no flush has covered when the power goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Lost,
    Kept,
    /// Each write by itself is kept or lost.
    Writes,
    /// Each sector by itself is kept or lost.
    Sectors,
    /// All but one write are kept.
    AllButOne,
}

impl Fate {
    pub(super) const ALL: [Fate; 5] = [
        Fate::Lost,
        Fate::Kept,
        Fate::Writes,
        Fate::Sectors,
        Fate::AllButOne,
    ];
}

const SECTOR: usize = 512;

/// The disk on its way through its history, one event after the other.
#[derive(Debug)]
pub(super) struct Walk {
    /// Contents that every power cut leaves.
    durable: Vec<u8>,
    /// Writes that no flush has covered, and whether they have ended.
    volatile: BTreeMap<usize, bool>,
    /// Writes that had ended when a flush began that has not ended.
    flushing: BTreeMap<usize, Vec<usize>>,
}

impl Walk {
    pub(super) fn new(before: &[u8]) -> Walk {
        Walk {
            durable: before.to_vec(),
            volatile: BTreeMap::new(),
            flushing: BTreeMap::new(),
        }
    }

    pub(super) fn step<T>(&mut self, event: &DiskEvent<T>, writes: &[Write]) {
        match event {
            DiskEvent::WriteBegan(number) => drop(self.volatile.insert(*number, false)),
            DiskEvent::WriteEnded(number) => drop(self.volatile.insert(*number, true)),
            DiskEvent::FlushBegan(flush) => {
                let ended = self.volatile.iter().filter(|(_, ended)| **ended);
                let covered = ended.map(|(number, _)| *number).collect();
                self.flushing.insert(*flush, covered);
            }
            DiskEvent::FlushEnded(flush) => {
                for number in self.flushing.remove(flush).unwrap_or_default() {
                    if self.volatile.remove(&number).is_some() {
                        put(&mut self.durable, &writes[number], |_| true);
                    }
                }
            }
            DiskEvent::Noted(_) => {}
        }
    }

    /// Writes whose fate a power cut decides now.
    pub(super) fn volatile(&self) -> usize {
        self.volatile.len()
    }

    /// The disk after a power cut now.
    pub(super) fn cut(&self, writes: &[Write], fate: Fate, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut image = self.durable.clone();
        let lost = random.usize(..self.volatile.len().max(1));
        for (place, number) in self.volatile.keys().enumerate() {
            let whole = random.bool();
            put(&mut image, &writes[*number], |_| match fate {
                Fate::Lost => false,
                Fate::Kept => true,
                Fate::Writes => whole,
                Fate::Sectors => random.bool(),
                Fate::AllButOne => place != lost,
            });
        }
        image
    }
}

/// Puts those sectors of a write that are `kept` onto a disk.
fn put(disk: &mut Vec<u8>, write: &Write, mut kept: impl FnMut(usize) -> bool) {
    let end = write.offset + write.bytes.len();
    if disk.len() < end {
        disk.resize(end, 0);
    }
    for (number, sector) in write.bytes.chunks(SECTOR).enumerate() {
        if kept(number) {
            let at = write.offset + number * SECTOR;
            disk[at..at + sector.len()].copy_from_slice(sector);
        }
    }
}
