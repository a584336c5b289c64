//! The few functions of libblkid that name what is on a device.
//!
//! libblkid knows every signature that Linux tools write, and it is the same library that `mount`,
//! `wipefs` and `mkfs` ask. The published bindings generate their code at build time and so need
//! libclang; these few declarations need only the library. They are in C's types of
//! `blkid/blkid.h` 2.38 (its ABI has been stable since 2.17).

#![expect(unsafe_code, reason = "libblkid is a C library")]

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::ptr;

use super::{Signature, SignatureKind};
use crate::units::ByteOffset;

/// `struct blkid_struct_probe`: only ever seen through a pointer.
#[repr(C)]
struct ProbeHandle {
    opaque: [u8; 0],
    not_send_or_sync: PhantomData<*mut u8>,
}

const SUBLKS_TYPE: c_int = 1 << 5;
const SUBLKS_USAGE: c_int = 1 << 7;
const SUBLKS_MAGIC: c_int = 1 << 9;
const SUBLKS_BADCSUM: c_int = 1 << 10;
const PARTS_FORCE_GPT: c_int = 1 << 1;
const PARTS_MAGIC: c_int = 1 << 3;

/// More signatures than this on one device are not listed.
const MAX_SIGNATURES: usize = 64;

#[link(name = "blkid")]
unsafe extern "C" {
    fn blkid_new_probe() -> *mut ProbeHandle;
    fn blkid_free_probe(probe: *mut ProbeHandle);
    fn blkid_probe_set_device(probe: *mut ProbeHandle, fd: c_int, offset: i64, size: i64) -> c_int;
    fn blkid_probe_enable_superblocks(probe: *mut ProbeHandle, enable: c_int) -> c_int;
    fn blkid_probe_set_superblocks_flags(probe: *mut ProbeHandle, flags: c_int) -> c_int;
    fn blkid_probe_enable_partitions(probe: *mut ProbeHandle, enable: c_int) -> c_int;
    fn blkid_probe_set_partitions_flags(probe: *mut ProbeHandle, flags: c_int) -> c_int;
    fn blkid_do_probe(probe: *mut ProbeHandle) -> c_int;
    fn blkid_probe_lookup_value(
        probe: *mut ProbeHandle,
        name: *const c_char,
        data: *mut *const c_char,
        len: *mut usize,
    ) -> c_int;
}

/// Every signature on the device or in the file at `path`, also such whose checksum is wrong and
/// partition tables of which only the backup is left.
///
/// # Errors
/// The target cannot be read, or libblkid cannot tell: then nothing may be concluded.
pub(crate) fn signatures(path: &Path) -> io::Result<Vec<Signature>> {
    let file = File::open(path)?;
    // libblkid takes an empty file for an error.
    if rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut probe = Probe::new(&file)?;
    let mut found = Vec::new();
    while found.len() < MAX_SIGNATURES && probe.advance()? {
        found.push(probe.signature());
    }
    Ok(found)
}

/// A probe of one open file.
struct Probe<'a> {
    handle: *mut ProbeHandle,
    file: PhantomData<&'a File>,
}

impl<'a> Probe<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        // SAFETY: takes nothing; the result is checked.
        let handle = unsafe { blkid_new_probe() };
        if handle.is_null() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let probe = Self {
            handle,
            file: PhantomData,
        };
        probe.configure(file.as_raw_fd())?;
        Ok(probe)
    }

    fn configure(&self, fd: RawFd) -> io::Result<()> {
        let superblocks = SUBLKS_TYPE | SUBLKS_USAGE | SUBLKS_MAGIC | SUBLKS_BADCSUM;
        // SAFETY: the handle is valid until drop, and so is the descriptor: `self` borrows its file.
        check(unsafe { blkid_probe_set_device(self.handle, fd, 0, 0) })?;
        // SAFETY: the handle is valid until drop.
        check(unsafe { blkid_probe_enable_superblocks(self.handle, 1) })?;
        // SAFETY: the handle is valid until drop.
        check(unsafe { blkid_probe_set_superblocks_flags(self.handle, superblocks) })?;
        // SAFETY: the handle is valid until drop.
        check(unsafe { blkid_probe_enable_partitions(self.handle, 1) })?;
        let partitions = PARTS_FORCE_GPT | PARTS_MAGIC;
        // SAFETY: the handle is valid until drop.
        check(unsafe { blkid_probe_set_partitions_flags(self.handle, partitions) })
    }

    /// Goes on to the next signature; false: there is none.
    fn advance(&mut self) -> io::Result<bool> {
        // SAFETY: the handle is valid until drop, and this is its only user.
        match unsafe { blkid_do_probe(self.handle) } {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(last_error()),
        }
    }

    /// The signature the probe stands at.
    fn signature(&self) -> Signature {
        let table = self.value(c"PTTYPE");
        let class = match (&table, self.value(c"USAGE").as_deref()) {
            (Some(_), _) => SignatureKind::PartitionTable,
            (None, Some("filesystem")) => SignatureKind::FileSystem,
            (None, Some("raid")) => SignatureKind::Raid,
            (None, Some("crypto")) => SignatureKind::Crypto,
            (None, _) => SignatureKind::Other,
        };
        let kind = table
            .or_else(|| self.value(c"TYPE"))
            .unwrap_or_else(|| "unknown".to_owned());
        let (offset, magic) = match class {
            SignatureKind::PartitionTable => (c"PTMAGIC_OFFSET", c"PTMAGIC"),
            _ => (c"SBMAGIC_OFFSET", c"SBMAGIC"),
        };
        Signature {
            kind,
            class,
            offset: self
                .value(offset)
                .and_then(|text| text.parse().ok())
                .map(ByteOffset),
            magic_len: self.raw_value(magic).map_or(0, <[u8]>::len),
        }
    }

    /// A value as text.
    fn value(&self, name: &CStr) -> Option<String> {
        let raw = self.raw_value(name)?;
        // The length of a text counts its terminating zero.
        let text = raw.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// A value as bytes, valid until the probe goes on.
    fn raw_value(&self, name: &CStr) -> Option<&[u8]> {
        let (mut data, mut len) = (ptr::null(), 0);
        let name = name.as_ptr();
        // SAFETY: the handle and the name are valid; the two results are written or left alone.
        let result = unsafe { blkid_probe_lookup_value(self.handle, name, &mut data, &mut len) };
        if result != 0 || data.is_null() {
            return None;
        }
        // SAFETY: libblkid says that `len` bytes stand at `data`, and they stay until the next
        // call that advances the probe, which needs `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(data.cast(), len) })
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from blkid_new_probe and is freed once.
        unsafe { blkid_free_probe(self.handle) };
    }
}

/// Most functions of libblkid answer a negative number for a failure.
fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// libblkid sets errno for failed system calls only, so errno may be an older one: a hint.
fn last_error() -> io::Error {
    let hint = io::Error::last_os_error();
    io::Error::other(format!(
        "libblkid cannot tell what is there (last system error: {hint})"
    ))
}
