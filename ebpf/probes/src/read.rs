//! Reads disks, flags and members of the kernel's structures.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use lumpscope_ebpf_common::{flag, kernel_dev, op};

use crate::maps::{self, Key, Layer};
use crate::settings::DISK_MAJOR;

const REQ_OP_MASK: u32 = 0xff;
/// Those of SCSI before 5.16, and those of all drivers.
const REQ_OP_OF_DRIVERS: u32 = 32;
const REQ_META: u32 = 1 << 12;
const REQ_FUA: u32 = 1 << 17;
const REQ_PREFLUSH: u32 = 1 << 18;

/// Key of a request or bio: its address.
#[inline(always)]
pub fn key(rq: u64) -> Key {
    Key { id: rq, sector: 0 }
}

/// How a program reads the kernel's structures.
pub trait Memory {
    /// The value so many bytes behind an address; `None`: there is no memory.
    unsafe fn read<T>(base: u64, offset: u32) -> Option<T>;
}

/// By a helper, from any address.
pub struct Probed;

/// By loads, which need no call. The kernel's verifier knows what stands at the address: it is an
/// argument of a BTF tracepoint, or was read from one. Where there is no memory, zeros are read.
pub struct Typed;

impl Memory for Probed {
    #[inline(always)]
    unsafe fn read<T>(base: u64, offset: u32) -> Option<T> {
        bpf_probe_read_kernel((base + offset as u64) as *const T).ok()
    }
}

impl Memory for Typed {
    #[inline(always)]
    unsafe fn read<T>(base: u64, offset: u32) -> Option<T> {
        Some(((base + offset as u64) as *const T).read_volatile())
    }
}

/// Slot and number of a disk that is watched by this.
#[inline(always)]
pub unsafe fn watched<M: Memory>(disk: u64, layer: Layer) -> Option<[u32; 2]> {
    maps::watched(number::<M>(disk)?, layer)
}

/// Device number of a disk.
#[inline(always)]
pub unsafe fn number<M: Memory>(disk: u64) -> Option<u32> {
    let major = M::read(disk, DISK_MAJOR.load())?;
    // `first_minor` follows it.
    let minor = M::read(disk, DISK_MAJOR.load() + size_of::<u32>() as u32)?;
    Some(kernel_dev(major, minor))
}

/// What `cmd_flags` or `bi_opf` say; `None`: a driver's own command.
#[inline(always)]
pub fn decode(request_flags: u32) -> Option<(u8, u8)> {
    let code = request_flags & REQ_OP_MASK;
    if code >= REQ_OP_OF_DRIVERS {
        return None;
    }
    let mut flags = 0;
    if request_flags & REQ_META != 0 {
        flags |= flag::META;
    }
    if request_flags & REQ_FUA != 0 {
        flags |= flag::FUA;
    }
    if request_flags & REQ_PREFLUSH != 0 {
        flags |= flag::PREFLUSH;
    }
    let op = match code {
        0 => op::READ,
        1 => op::WRITE,
        2 => op::FLUSH,
        3 | 5 => op::DISCARD,
        _ => op::OTHER,
    };
    Some((op, flags))
}
