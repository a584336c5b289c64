//! Writes an empty store, in an order in which no interruption leaves something that opens
//! (FORMAT.md section 8): whatever was there is destroyed first, the header is written last.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::target::CreateTarget;
use super::{CreateOptions, CreatePlan, Prealloc};
use crate::format::checkpoint::CheckpointHeader;
use crate::format::copies::CheckedCopy;
use crate::format::journal_header::ScrubMark;
use crate::format::seal::{LogSum, SealPlace};
use crate::format::{Record, Seal, minfs};
use crate::guard::{self, FormatError};
use crate::storage::journal::new_epoch;
use crate::units::{ByteOffset, RingPosition, to_usize};

/// Bytes at both ends of a device that are zeroed: the places of nearly all signatures and of
/// their backups, and more than the 128 blocks that mkfs.minfs zeroes.
const WIPED_LEN: u64 = 1024 * 1024;
/// The part of that which holds the lusf header of either layout.
const HEAD_LEN: u64 = 64 * 1024;
/// Bytes of one write of zeros.
const CHUNK_LEN: u64 = 4 * 1024 * 1024;
/// Rounds of looking for signatures and erasing them.
const MAX_ROUNDS: usize = 32;

const _: () = assert!(minfs::ZEROED_BLOCKS * minfs::BLOCK_LEN <= WIPED_LEN);

/// Makes the store; returns the bytes written.
pub(super) fn make(
    target: &CreateTarget,
    plan: &CreatePlan,
    options: &CreateOptions<'_>,
) -> Result<u64, FormatError> {
    let mut writer = Writer::new(target);
    if target.is_block_device() {
        wipe_device(&mut writer)?;
        erase_signatures(&mut writer)?;
    } else {
        make_file(&mut writer, plan, options)?;
    }
    if target.has_partitions() {
        drop_partitions(target)?;
    }
    let (copy, end) = empty_journal(plan);
    let [header, mut journal] = copy.blocks(options.name, ScrubMark::default());
    journal.extend(end);
    writer.write(plan.geometry.journal_header_offset(), &journal)?;
    writer.sync()?;
    reserve_checkpoints(&mut writer, plan)?;
    if target.is_block_device() {
        writer.write(
            ByteOffset(0),
            &minfs::encode_metadata(plan.geometry.image_len().0),
        )?;
        writer.sync()?;
    }
    writer.write(plan.geometry.base(), &header)?;
    writer.sync()?;
    if target.is_created() {
        sync_directory(target)?;
    }
    Ok(writer.written)
}

/// Zeroes both ends of a device, the place of an old store's header first.
fn wipe_device(writer: &mut Writer<'_>) -> Result<(), FormatError> {
    let len = writer.target.len();
    writer.zero(0, len.min(HEAD_LEN), None)?;
    writer.sync()?;
    writer.zero(0, len.min(WIPED_LEN), None)?;
    writer.zero(len.saturating_sub(WIPED_LEN), len, None)?;
    writer.sync()
}

/// Empties the file, gives it its size, and allocates it as asked.
fn make_file(
    writer: &mut Writer<'_>,
    plan: &CreatePlan,
    options: &CreateOptions<'_>,
) -> Result<(), FormatError> {
    let (file, len) = (writer.target.file(), plan.geometry.end().0);
    let error = |what, source| FormatError::io(writer.target.path(), what, None, source);
    if writer.target.len() > 0 {
        file.set_len(0).map_err(|e| error("emptying it", e))?;
        writer.sync()?;
    }
    file.set_len(len)
        .map_err(|e| error("setting its size", e))?;
    if options.prealloc != Prealloc::Sparse {
        // Also before zeros are written: the file system can then choose one extent, and says at
        // once when there is no space.
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) if options.prealloc == Prealloc::Zero => {}
            Err(errno) => return Err(error("allocating it", errno.into())),
        }
    }
    if options.prealloc == Prealloc::Zero {
        writer.zero(0, len, options.progress)?;
    }
    writer.sync()
}

/// Erases what still looks like something: magics away from the ends, backups that come to light
/// when the first copy is gone.
fn erase_signatures(writer: &mut Writer<'_>) -> Result<(), FormatError> {
    let target = writer.target;
    let mut found = Vec::new();
    for _ in 0..MAX_ROUNDS {
        found = guard::find_signatures(target.file()).map_err(|source| {
            FormatError::io(target.path(), "looking for what is left", None, source)
        })?;
        if found.is_empty() {
            return Ok(());
        }
        for signature in &found {
            let (Some(offset), len) = (signature.offset, signature.magic_len) else {
                continue;
            };
            let len = u64::try_from(len).unwrap_or(u64::MAX).max(1);
            let unit = target.alignment();
            let start = offset.0 - offset.0 % unit;
            let end = offset.0.saturating_add(len).next_multiple_of(unit);
            writer.zero(start, end.min(target.len()), None)?;
        }
        writer.sync()?;
    }
    Err(FormatError::NotErased {
        path: target.path().to_owned(),
        found,
    })
}

/// Makes the kernel forget the partitions of a table that is gone.
fn drop_partitions(target: &CreateTarget) -> Result<(), FormatError> {
    guard::partitions::reread(target.file()).map_err(|source| {
        FormatError::io(
            target.path(),
            "making the kernel forget its partitions",
            None,
            source,
        )
    })
}

/// An empty journal: the checked copy of both headers, with the ring's head at 0, and the block
/// there, with the end of records and its seal.
fn empty_journal(plan: &CreatePlan) -> (CheckedCopy, Vec<u8>) {
    let seal = Seal {
        epoch: new_epoch(),
        log_end: 0,
        foreign_end: 0,
        log_sum: Some(0),
    };
    let place = SealPlace {
        uuid: plan.header.uuid,
        tail: RingPosition(0),
        before: &[],
    };
    let mut end = Record::EndOfRecords.to_bytes();
    end.extend_from_slice(&seal.encode(place));
    let copy = CheckedCopy {
        header: plan.header,
        ring_head: RingPosition(0),
        log_head: 0,
        seal,
        sums: Some(LogSum::default()),
    };
    end.resize(plan.header.block_size.get().into(), 0);
    (copy, end)
}

/// Marks the area behind the image as one for checkpoints: nothing is ever written there without.
fn reserve_checkpoints(writer: &mut Writer<'_>, plan: &CreatePlan) -> Result<(), FormatError> {
    let Some(area) = plan.checkpoints else {
        return Ok(());
    };
    let header = CheckpointHeader::empty(plan.header.uuid).block();
    for slot in [area.slot(0), area.slot(1)] {
        writer.write(ByteOffset(slot), &header)?;
    }
    writer.sync()
}

fn sync_directory(target: &CreateTarget) -> Result<(), FormatError> {
    let parent = guard::folder_of(target.path());
    File::open(&parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| FormatError::io(&parent, "making the new file durable", None, source))
}

/// Direct writes to a target.
struct Writer<'a> {
    target: &'a CreateTarget,
    /// Twice a chunk, so that an aligned chunk is in it.
    space: Vec<u8>,
    start: usize,
    written: u64,
}

impl<'a> Writer<'a> {
    fn new(target: &'a CreateTarget) -> Self {
        let chunk = to_usize(CHUNK_LEN);
        // Memory for direct I/O: no device wants a coarser alignment than a 64 KiB page.
        let alignment = 64 * 1024;
        let space = vec![0; chunk + alignment];
        let start = space.as_ptr().align_offset(alignment).min(alignment);
        Self {
            target,
            space,
            start,
            written: 0,
        }
    }

    /// Zeroes the bytes from `start` to `end`, whole units of direct I/O.
    fn zero(
        &mut self,
        start: u64,
        end: u64,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<(), FormatError> {
        let total = end.saturating_sub(start);
        let mut at = start;
        self.buffer(CHUNK_LEN).fill(0);
        while at < end {
            let len = (end - at).min(CHUNK_LEN);
            self.write_buffer(ByteOffset(at), len)?;
            at += len;
            if let Some(progress) = progress {
                progress(at - start, total);
            }
        }
        Ok(())
    }

    /// Writes `bytes`, whole units of direct I/O and at most one chunk.
    fn write(&mut self, offset: ByteOffset, bytes: &[u8]) -> Result<(), FormatError> {
        let len = u64::try_from(bytes.len())
            .unwrap_or(u64::MAX)
            .min(CHUNK_LEN);
        for (to, from) in self.buffer(len).iter_mut().zip(bytes) {
            *to = *from;
        }
        self.write_buffer(offset, len)
    }

    fn buffer(&mut self, len: u64) -> &mut [u8] {
        let end = self.start.saturating_add(to_usize(len));
        self.space.get_mut(self.start..end).unwrap_or_default()
    }

    fn write_buffer(&mut self, offset: ByteOffset, len: u64) -> Result<(), FormatError> {
        let target = self.target;
        let buffer = self.buffer(len);
        target
            .file()
            .write_all_at(buffer, offset.0)
            .map_err(|source| FormatError::io(target.path(), "writing", Some(offset), source))?;
        self.written = self.written.saturating_add(len);
        Ok(())
    }

    fn sync(&self) -> Result<(), FormatError> {
        let error = |source: io::Error| {
            FormatError::io(
                self.target.path(),
                "flushing to stable storage",
                None,
                source,
            )
        };
        self.target.file().sync_all().map_err(error)
    }
}
