//! Where a file's bytes are on its disk, as the file system tells (`FS_IOC_FIEMAP`).

#![expect(unsafe_code, reason = "an ioctl")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::extents::Extent;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const EXTENTS: usize = 512;
const EXTENT_LAST: u64 = 0x1;
/// UNKNOWN, DELALLOC, ENCODED, NOT_ALIGNED, INLINE, TAIL: no place on the disk to speak of.
const PLACELESS: u64 = 0x2 | 0x4 | 0x8 | 0x100 | 0x200 | 0x400;

/// `struct fiemap` with room for its extents, in 64-bit words.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    capacity: u32,
    reserved: u32,
    extents: [[u64; 7]; EXTENTS],
}

/// Lists a file's extents in the order of the file; `partition_sector` is added to each place.
pub(crate) fn extents_of(file: &File, partition_sector: u64) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Box::new(Request {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            capacity: u32::try_from(EXTENTS).map_err(io::Error::other)?,
            reserved: 0,
            extents: [[0; 7]; EXTENTS],
        });
        // SAFETY: the kernel writes at most `capacity` extents into the array that follows.
        let code = unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                FS_IOC_FIEMAP,
                std::ptr::from_mut(&mut *request),
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = usize::try_from(request.mapped)
            .map_err(io::Error::other)?
            .min(EXTENTS);
        for &[logical, physical, length, _, _, flags, _] in &request.extents[..mapped] {
            // `flags` is a 32-bit field: the low half on a little-endian machine.
            let flags = if cfg!(target_endian = "little") {
                flags & 0xffff_ffff
            } else {
                flags >> 32
            };
            start = logical.saturating_add(length);
            if flags & PLACELESS == 0 {
                push_merged(&mut found, logical, physical, length, partition_sector);
            }
            if flags & EXTENT_LAST != 0 {
                return Ok(found);
            }
        }
        if mapped == 0 {
            return Ok(found);
        }
    }
}

fn push_merged(found: &mut Vec<Extent>, logical: u64, physical: u64, length: u64, base: u64) {
    let next = Extent {
        offset: logical,
        sector: physical / 512 + base,
        len: length,
    };
    if let Some(last) = found.last_mut()
        && last.offset + last.len == next.offset
        && last.sector + last.len / 512 == next.sector
    {
        last.len += next.len;
        return;
    }
    found.push(next);
}
