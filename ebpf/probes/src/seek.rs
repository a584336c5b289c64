//! How far a disk must go from the data request before, on each of its access ranges.

use lumpscope_ebpf_common::{InFlight, MAX_RANGES, NO_SEEK, Ranges, op};

use crate::maps::LAST;

/// Signed distance of a request from the end of the data request issued before in its access range,
/// which this one becomes.
///
/// Two requests issued at the same instant on two CPUs may both be measured from the one before
/// them; user space notices, because it checks the chain.
#[inline(always)]
pub unsafe fn of(entry: &InFlight) -> i64 {
    if entry.op > op::WRITE || entry.sectors == 0 {
        return NO_SEEK;
    }
    let Some(end) = last_end(entry.slot as u32, entry.sector) else {
        return NO_SEEK;
    };
    let seek = if *end == Ranges::NONE {
        NO_SEEK
    } else {
        entry.sector.wrapping_sub(*end) as i64
    };
    *end = entry.sector.wrapping_add(entry.sectors as u64);
    seek
}

/// Where the range of a sector keeps the end of its last data request.
#[inline(always)]
unsafe fn last_end(slot: u32, sector: u64) -> Option<*mut u64> {
    let last = LAST.get_ptr_mut(slot)?;
    let range = (*last).ranges.range(sector);
    // Volatile and masked for the verifier, which may have lost the bound.
    let range = core::ptr::read_volatile(&range) & (MAX_RANGES - 1);
    Some((&raw mut (*last).ends).cast::<u64>().add(range))
}

/// The disk was not sent a request after all.
#[inline(always)]
pub unsafe fn take_back(entry: &InFlight) {
    let sent = entry.sector.wrapping_add(entry.sectors as u64);
    if let Some(end) = last_end(entry.slot as u32, entry.sector)
        && *end == sent
    {
        *end = if entry.seek == NO_SEEK {
            Ranges::NONE
        } else {
            entry.sector.wrapping_sub(entry.seek as u64)
        };
    }
}
