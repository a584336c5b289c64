//! Changes of a store that nobody has open: its size, its name.

use super::io::{BlockingIo, memory_alignment};
use super::recover::{Recovered, recover};
use super::{Storage, claim};
use crate::buffer::BufferPool;
use crate::device::Device;
use crate::error::Error;
use crate::format::checkpoint::{Area, CheckpointHeader, HEADER_SPACE};
use crate::format::{Geometry, minfs};
use crate::options::{Layout, StoreOptions};
use crate::units::{ByteLen, to_usize};

/// Bytes of one write of zeros.
const ZEROS: u64 = 4 << 20;

/// Changes a store whose device nobody else has, under the claim that the options ask for.
pub(crate) fn change_on<T, E: From<Error>>(
    device: &mut Device,
    options: &StoreOptions,
    change: impl FnOnce(&mut BlockingIo<'_>, &mut Recovered) -> Result<T, E>,
) -> Result<T, E> {
    let pool = BufferPool::new(memory_alignment(device));
    let mut next_token = 1;
    let mut io = BlockingIo::new(device, &pool, &mut next_token);
    let held = claim::take(&mut io, options)?;
    let done = recover(&mut io, false).and_then(|mut recovered| {
        if recovered.unsettled.is_some() || !recovered.mended.is_empty() {
            // Writing its end anew would not do.
            return Err(Error::Unsupported {
                path: io.device().path.clone(),
                why: "it was not closed; serve it once and stop the service".to_owned(),
            });
        }
        Ok(change(&mut io, &mut recovered))
    });
    claim::release(&mut io, held, done)?
}

/// Makes the data region `data_len` bytes long, which is more than it was, and the device has. On a
/// file the new bytes are written with zeros, if wanted.
pub(crate) fn grow(
    io: &mut BlockingIo<'_>,
    recovered: &mut Recovered,
    data_len: ByteLen,
    zeros: Option<&dyn Fn(u64, u64)>,
) -> Result<(), Error> {
    let storage = &mut recovered.storage;
    let old_end = storage.geometry.end().0;
    storage.header.data_len = data_len;
    storage.geometry = Geometry::new(storage.geometry.base(), &storage.header);
    if let Some(progress) = zeros {
        write_zeros(io, old_end, storage.geometry.end().0, progress)?;
    }
    // Nothing of this matters to the store as it was, wherever it is interrupted.
    if recovered.layout == Layout::Minfs {
        if let Some(area) = Area::of_device(&storage.geometry, io.device().size) {
            empty_checkpoints(io, storage, area)?;
        }
        write_inode(io, storage)?;
    }
    io.flush()?;
    // The sector with the header and its checked copy decides.
    write_headers(io, recovered)
}

/// Writes both header blocks.
pub(crate) fn write_headers(io: &mut BlockingIo<'_>, recovered: &Recovered) -> Result<(), Error> {
    let mark = recovered.scrub_mark.unwrap_or_default();
    recovered.storage.mend(io, mark, &[])
}

fn write_zeros(
    io: &mut BlockingIo<'_>,
    start: u64,
    end: u64,
    progress: &dyn Fn(u64, u64),
) -> Result<(), Error> {
    let mut at = start;
    while at < end {
        let len = ZEROS.min(end - at);
        let zeros = io.pool().zeroed(to_usize(len));
        io.write(at, zeros)?;
        at += len;
        progress(at - start, end - start);
    }
    Ok(())
}

/// Both slots of the area for checkpoints, empty: the old area becomes blocks of the data region.
fn empty_checkpoints(io: &mut BlockingIo<'_>, storage: &Storage, area: Area) -> Result<(), Error> {
    if !HEADER_SPACE.is_multiple_of(io.unit()) {
        return Ok(());
    }
    let header = CheckpointHeader::empty(storage.header.uuid).block();
    io.write_bytes(area.slot(0), &header)?;
    io.write_bytes(area.slot(1), &header)
}

/// The block of inodes alone: the superblock before it is never at stake.
fn write_inode(io: &mut BlockingIo<'_>, storage: &Storage) -> Result<(), Error> {
    let metadata = minfs::encode_metadata(storage.geometry.image_len().0);
    let (start, len) = (minfs::INODES_OFFSET, minfs::BLOCK_LEN);
    let at = to_usize(start);
    let block = metadata.get(at..at + to_usize(len));
    io.write_bytes(start, block.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LumpId;
    use crate::Store;
    use crate::device::sim::{Random, SimDisk, SimOptions, Survivors, blank_image};
    use crate::request::{Durability, Placement, RequestCtx};
    use crate::units::BlockSize;

    const BLOCKS: u64 = 100;

    fn store(disk: &SimDisk) -> Store {
        Store::open_on(disk.device(), StoreOptions::new("sim")).unwrap()
    }

    fn filled() -> SimDisk {
        let image = blank_image(BlockSize::MIN, 16, BLOCKS, [7; 16]);
        let disk = SimDisk::with_size(1 << 20, &image, SimOptions::default());
        let store = store(&disk);
        for id in 0..20 {
            let mut lump = store.lump_buf(900).unwrap();
            lump.extend(&[u8::try_from(id).unwrap(); 900]).unwrap();
            let (ctx, id) = (RequestCtx::default(), LumpId(id));
            store
                .put(ctx, id, lump, Placement::Data, Durability::Synced)
                .unwrap();
        }
        store.close().unwrap();
        disk
    }

    #[test]
    fn a_growth_cut_anywhere_has_happened_or_not() {
        let wanted = ByteLen(3 * BLOCKS * 512);
        let (mut small, mut large) = (0, 0);
        for seed in 0..200_u64 {
            let disk = filled();
            disk.die_after(seed % 25);
            let options = StoreOptions::new("sim");
            let done = change_on(&mut disk.device(), &options, |io, recovered| {
                grow(io, recovered, wanted, None)
            });
            let mut random = Random::new(seed);
            let survivors = [Survivors::None, Survivors::Sectors(500), Survivors::All];
            let survivors = survivors[usize::try_from(seed % 3).unwrap()];
            let disk = disk.power_cut(survivors, &mut random);
            let store = store(&disk);
            match store.info().data_capacity {
                it if it == wanted.0 => large += 1,
                it if it == BLOCKS * 512 && done.is_err() => small += 1,
                it => panic!("seed {seed}: {it} bytes, {done:?}"),
            }
            for id in 0..20 {
                let lump = store.get(RequestCtx::default(), LumpId(id)).unwrap();
                assert_eq!(&lump[..], [u8::try_from(id).unwrap(); 900]);
            }
        }
        assert!(small > 20 && large > 20, "{small} {large}");
    }
}
