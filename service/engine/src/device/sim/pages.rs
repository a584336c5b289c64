//! Sparse bytes whose copies share what they have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page: what one write to a shared copy duplicates.
const PAGE: usize = 4096;

/// Bytes by offset; what was never written is zeros and takes no memory. Cloning costs a reference
/// count for each page.
#[derive(Clone, Default)]
pub(super) struct Pages {
    map: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Pages {
    /// Copies the bytes from `offset` on into `to`.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        for (page, at, range) in pieces(offset, to.len()) {
            let to = &mut to[range];
            match self.map.get(&page) {
                Some(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
                None => to.fill(0),
            }
        }
    }

    /// Overwrites the bytes from `offset` on.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        for (page, at, range) in pieces(offset, from.len()) {
            let from = &from[range];
            let entry = self.map.entry(page);
            let bytes = Arc::make_mut(entry.or_insert_with(|| Arc::new([0; PAGE])));
            bytes[at..at + from.len()].copy_from_slice(from);
        }
    }
}

/// Page number, first byte in it, and range of the buffer, for each page that is touched.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let byte = offset + done as u64;
        let at = usize::try_from(byte % PAGE as u64).unwrap_or(0);
        let end = len.min(done + PAGE - at);
        let range = done..end;
        done = end;
        Some((byte / PAGE as u64, at, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_until_they_are_written() {
        let mut one = Pages::default();
        one.write(4000, &[7; 200]);
        let mut two = one.clone();
        two.write(4095, &[9; 2]);
        let read = |pages: &Pages, offset, len| {
            let mut bytes = vec![1; len];
            pages.read(offset, &mut bytes);
            bytes
        };
        assert_eq!(read(&one, 4094, 4), [7, 7, 7, 7]);
        assert_eq!(read(&two, 4094, 4), [7, 9, 9, 7]);
        assert_eq!(read(&one, 3999, 2), [0, 7]);
        assert_eq!(read(&one, 1 << 40, 3), [0, 0, 0]);
    }
}
