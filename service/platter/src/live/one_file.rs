//! The file system below the loop device: one directory with one file, the disk.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, WriteFlags,
};

use super::emulation::{Answer, Emulation};
use crate::disk::Request;
use crate::trace::Op;

/// Requests of the loop device that may be under way at a time.
const MAX_BACKGROUND: u16 = 512;
/// Largest request in bytes: what one request of FUSE carries.
const MAX_REQUEST: u32 = 1 << 20;
/// Nothing about the file ever changes.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
const SECTOR: u64 = 512;
const DISK: INodeNo = INodeNo(2);

/// The file system.
#[derive(Debug)]
pub(super) struct OneFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) emulation: Arc<Emulation>,
}

impl OneFile {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_disk = inode == DISK;
        FileAttr {
            ino: inode,
            size: if is_disk { self.bytes } else { 0 },
            blocks: 0,
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

    /// The request for a range, if it consists of sectors of the disk.
    fn request(&self, op: Op, offset: u64, length: u64) -> Option<Request> {
        let aligned = offset.is_multiple_of(SECTOR) && length.is_multiple_of(SECTOR);
        let inside = offset.checked_add(length)? <= self.bytes;
        (aligned && inside && length > 0).then_some(Request {
            op,
            fua: false,
            sector: offset / SECTOR,
            sectors: u32::try_from(length / SECTOR).ok()?,
        })
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let needed = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config.add_capabilities(needed).map_err(|lacking| {
            let why = format!("this kernel's FUSE lacks {lacking:?}");
            io::Error::new(io::ErrorKind::Unsupported, why)
        })?;
        let set = config.set_max_background(MAX_BACKGROUND);
        set.map_err(|_| io::Error::other("FUSE refuses its number of requests"))?;
        let set = config.set_max_write(MAX_REQUEST);
        set.map_err(|_| io::Error::other("FUSE refuses the size of its requests"))?;
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == OsStr::new(&self.name) {
            reply.entry(&FOR_EVER, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(ino));
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let request = self.request(Op::Read, offset, u64::from(size));
        let (Some(request), Ok(length)) = (request, usize::try_from(size)) else {
            return reply.error(Errno::EINVAL);
        };
        let answer = Answer::Read {
            reply,
            offset,
            length,
            data: None,
        };
        self.emulation.take(Instant::now(), &request, answer);
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // To keep the data is no part of the way.
        let seen = Instant::now();
        let length = u32::try_from(data.len()).unwrap_or(0);
        let Some(request) = self.request(Op::Write, offset, u64::from(length)) else {
            return reply.error(Errno::EINVAL);
        };
        match self.emulation.memory.write(data, offset) {
            Ok(()) => self
                .emulation
                .take(seen, &request, Answer::Written { reply, length }),
            Err(error) => {
                self.emulation.refused();
                reply.error(error.into());
            }
        }
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Somebody closes the file; that is nothing to a disk.
        reply.ok();
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let request = Request {
            op: Op::Flush,
            fua: false,
            sector: 0,
            sectors: 0,
        };
        let answer = Answer::Flushed(reply);
        self.emulation.take(Instant::now(), &request, answer);
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        // A disk of platters can neither discard nor zero by itself.
        reply.error(Errno::EOPNOTSUPP);
    }
}
