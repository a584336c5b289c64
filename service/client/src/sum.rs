//! Checksum of bytes that come one after the other.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of the bytes so far.
pub(crate) struct Sum(Digest);

impl Default for Sum {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Sum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn crc32c(&self) -> u32 {
        // The type has room for checksums of 64 bits.
        u32::try_from(self.0.finalize()).unwrap_or(u32::MAX)
    }
}
