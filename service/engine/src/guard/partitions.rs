//! The kernel's list of partitions.

#![expect(unsafe_code, reason = "an ioctl without a wrapper")]

use std::fs::File;
use std::io;

use rustix::ioctl::{NoArg, ioctl, opcode};

/// `BLKRRPART` of `linux/fs.h`: read the partition table again.
const BLKRRPART: rustix::ioctl::Opcode = opcode::none(0x12, 95);

/// Makes the kernel read the disk's partition table again.
pub(crate) fn reread(disk: &File) -> io::Result<()> {
    // SAFETY: BLKRRPART takes no argument.
    let request = unsafe { NoArg::<BLKRRPART>::new() };
    // SAFETY: the request touches no memory of this process; on what is no disk it fails.
    unsafe { ioctl(disk, request) }.map_err(io::Error::from)
}
