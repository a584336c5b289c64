//! Aligned buffers: the only thing that crosses to the device.

use std::ops::Deref;

use crate::error::Error;

/// Alignment and block size a buffer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size of the format in bytes.
    pub block_size: u16,
    /// Alignment in memory in bytes: a power of two, at least 4096.
    pub alignment: usize,
    /// Largest lump in bytes.
    pub max_lump_bytes: u64,
}

/// A buffer for one lump that is about to be put.
#[derive(Debug)]
pub struct LumpBuf {
    bytes: Vec<u8>,
    len: usize,
}

impl LumpBuf {
    /// A buffer for a lump of exactly `len` bytes.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn new(len: u64, geometry: &Geometry) -> Result<Self, Error> {
        let max = geometry.max_lump_bytes;
        let len = usize::try_from(len).map_err(|_| Error::LumpTooLarge { len, max })?;
        Ok(Self {
            bytes: Vec::new(),
            len,
        })
    }

    /// Appends bytes; the checksum is updated as it goes.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when more comes than was announced; nothing is appended then.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Bytes announced.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True: a lump of zero bytes was announced.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes still to come.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.len - self.bytes.len()
    }
}

/// A lump that was read: dereferences to its bytes. Holds the buffer the device wrote to.
#[derive(Debug)]
pub struct LumpData {
    bytes: Vec<u8>,
    /// True: the bytes were checked against the checksum stored with the lump. False: the lump
    /// was written by an engine that stores none.
    pub verified: bool,
}

impl LumpData {
    /// An owner of the bytes for `bytes::Bytes::from_owner`: no copy.
    #[must_use]
    pub fn into_bytes_owner(self) -> impl AsRef<[u8]> + Send + 'static {
        self
    }
}

impl AsRef<[u8]> for LumpData {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deref for LumpData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
