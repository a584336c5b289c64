//! Which blocks the lumps of an index take, checked, and what that leaves.

use super::allocator::{Allocator, Overlap};
use super::data_region::DataRegion;
use super::index::Index;
use crate::device::Device;
use crate::error::Error;
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::request::{LumpRange, Placement};
use crate::units::{BlockCount, BlockIndex, RingPosition, to_usize};

/// Bits of a word of the map.
const WORD: u64 = u64::BITS as u64;
const LEN_BITS: u32 = 16;

/// The data region with the blocks of all lumps taken, and the bytes of the largest live record.
///
/// # Errors
/// [`Error::Corrupt`]: a block belongs to two lumps, or the file ends before a lump does.
pub(super) fn used_blocks(
    index: &Index,
    geometry: &Geometry,
    device: &Device,
) -> Result<(DataRegion, u64), Error> {
    let mut largest_record = 0;
    let mut last: Option<(Portion, LumpId, RingPosition)> = None;
    for (id, entry) in index.range(LumpRange::ALL) {
        if entry.placement() == Placement::Embedded {
            largest_record = largest_record.max(entry.record_len());
        }
        let lump = entry.portion().map(|portion| (portion, id, entry.record()));
        last = last.max(lump);
    }
    if let Some((portion, id, record)) = last {
        let offset = geometry.portion_offset(portion).0;
        let end = offset + portion.byte_len(geometry.block_size()).0;
        if end > device.size {
            let why = format!(
                "{} ends at byte {end} but the file has only {}",
                name(id, portion, record),
                device.size
            );
            return Err(Error::Corrupt {
                what: "the last lump",
                offset,
                why,
            });
        }
    }
    let claimed = |Overlap { block }| Error::Corrupt {
        what: "the data region",
        offset: geometry.data_offset().0 + block * geometry.block_size().bytes(),
        why: format!("block {block} belongs to {}", holders(index, block)),
    };
    let blocks = geometry.data_blocks();
    let portions = index
        .range(LumpRange::ALL)
        .filter_map(|(_, entry)| entry.portion());
    // A bit a block, or a word a lump: whatever takes less memory.
    let allocator = if blocks.div_ceil(WORD) <= index.len() {
        by_map(blocks, portions)
    } else {
        by_sorting(blocks, portions)
    };
    Ok((
        DataRegion::new(blocks, allocator.map_err(claimed)?),
        largest_record,
    ))
}

/// The first two lumps with a block.
fn holders(index: &Index, block: u64) -> String {
    let holds = |portion: &Portion| (portion.start().0..portion.end().0).contains(&block);
    let holders: Vec<String> = index
        .range(LumpRange::ALL)
        .filter_map(|(id, entry)| {
            let portion = entry.portion().filter(holds)?;
            Some(name(id, portion, entry.record()))
        })
        .take(2)
        .collect();
    holders.join(" and to ")
}

fn name(id: LumpId, portion: Portion, record: RingPosition) -> String {
    let (start, end) = (portion.start().0, portion.end().0);
    format!(
        "lump {id} (blocks {start}..{end}, its record at ring position {})",
        record.0
    )
}

/// Marks every block in a map.
fn by_map(blocks: u64, portions: impl Iterator<Item = Portion>) -> Result<Allocator, Overlap> {
    let mut map = vec![0_u64; to_usize(blocks.div_ceil(WORD))];
    for portion in portions {
        let (mut block, end) = (portion.start().0, portion.end().0);
        while block < end {
            let in_word = (end - block).min(WORD - block % WORD);
            let bits = (u64::MAX >> (WORD - in_word)) << (block % WORD);
            let Some(word) = usize::try_from(block / WORD)
                .ok()
                .and_then(|at| map.get_mut(at))
            else {
                break;
            };
            let twice = *word & bits;
            if twice != 0 {
                let block = block - block % WORD + u64::from(twice.trailing_zeros());
                return Err(Overlap { block });
            }
            *word |= bits;
            block += in_word;
        }
    }
    Ok(Allocator::of_extents(free_extents(&map, blocks)))
}

/// The runs of zeros below bit `blocks`.
fn free_extents(map: &[u64], blocks: u64) -> Vec<(u64, u64)> {
    let mut extents = Vec::new();
    let mut free_since = None;
    for (number, &word) in (0..).zip(map) {
        let first = number * WORD;
        let mut bit = 0;
        while bit < WORD {
            let rest = word >> bit;
            let same = match free_since {
                // Up to the next taken block.
                Some(_) => u64::from(rest.trailing_zeros()),
                None => u64::from(rest.trailing_ones()),
            };
            bit += same.min(WORD - bit);
            if bit < WORD {
                let at = first + bit;
                match free_since.take() {
                    Some(start) => extents.push((start, at - start)),
                    None => free_since = Some(at),
                }
            }
        }
    }
    if let Some(start) = free_since.filter(|&start| start < blocks) {
        extents.push((start, blocks - start));
    }
    extents
}

/// Builds the allocator by sorting the portions.
fn by_sorting(blocks: u64, portions: impl Iterator<Item = Portion>) -> Result<Allocator, Overlap> {
    let packed = |portion: Portion| portion.start().0 << LEN_BITS | u64::from(portion.len().0);
    let mut portions: Vec<u64> = portions.map(packed).collect();
    portions.sort_unstable();
    let unpacked = |packed: u64| {
        let len = u16::try_from(packed & u64::from(u16::MAX)).unwrap_or(u16::MAX);
        Portion::new(BlockIndex(packed >> LEN_BITS), BlockCount(len)).ok()
    };
    Allocator::around(blocks, portions.into_iter().filter_map(unpacked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn portion(start: u64, len: u16) -> Portion {
        Portion::new(BlockIndex(start), BlockCount(len)).unwrap()
    }

    proptest! {
        #[test]
        fn both_ways_find_the_same(
            gaps in prop::collection::vec((0_u64..90, 1_u16..200), 0..40),
            behind in 0_u64..200,
            twice in prop::option::of((any::<prop::sample::Index>(), 0_u64..300)),
        ) {
            let mut portions = Vec::new();
            let mut at = 0;
            for (gap, len) in gaps {
                portions.push(portion(at + gap, len));
                at += gap + u64::from(len);
            }
            let blocks = at + behind;
            let free = blocks - portions.iter().map(|p| u64::from(p.len().0)).sum::<u64>();
            let overlap = twice.filter(|_| !portions.is_empty()).and_then(|(which, by)| {
                let other = which.get(&portions);
                (by < u64::from(other.len().0)).then(|| portion(other.start().0 + by, 1))
            });
            portions.reverse();
            portions.extend(overlap);
            let map = by_map(blocks, portions.iter().copied());
            let sorted = by_sorting(blocks, portions.iter().copied());
            match overlap {
                Some(overlap) => {
                    let block = overlap.start().0;
                    prop_assert_eq!(map.unwrap_err(), Overlap { block });
                    prop_assert!(sorted.is_err());
                }
                None => {
                    let (map, sorted) = (map.unwrap(), sorted.unwrap());
                    prop_assert_eq!(map.free_blocks(), free);
                    prop_assert_eq!(map.all_extents(), sorted.all_extents());
                }
            }
        }
    }
}
