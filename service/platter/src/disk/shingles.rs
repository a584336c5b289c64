//! A drive that writes its tracks overlapping, like shingles, and keeps that to itself.
//!
//! A band of tracks can only be written from its begin to its end. What continues a band, or replaces
//! it whole, goes to its place; everything else goes to the end of a log on tracks that do not
//! overlap, at the outside, and waits there. When the log is full, or nobody wants anything for a
//! while, the drive cleans: it takes the band whose writes have waited longest, reads it with all that
//! the log has of it, and writes it anew.

use std::collections::{BTreeMap, VecDeque};

use super::arm::Arm;
use crate::drive::{Drive, SECTOR};

/// Where data of the log belongs, and the address it has meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Logged {
    end: u64,
    address: u64,
}

/// Sectors from one to another, and the address of the first.
type Piece = (u64, u64, u64);

/// The bands, and the log.
#[derive(Debug, Clone)]
pub(super) struct Shingles {
    band: u64,
    /// Sectors of the log.
    room: u64,
    /// Its first address: behind all others, wherever its tracks are.
    first: u64,
    /// Sectors written to the log, ever: it is written in a circle.
    written: u64,
    /// In the log, by their first sector; their sectors.
    logged: BTreeMap<u64, Logged>,
    used: u64,
    /// Bands with anything in the log, as they came.
    waiting: VecDeque<u64>,
    /// Sector up to which a band is written, by band.
    ends: BTreeMap<u64, u64>,
}

impl Shingles {
    /// `None`: the tracks of the drive do not overlap.
    pub(super) fn new(drive: &Drive) -> Option<Shingles> {
        let unit = drive.physical_sectors();
        let band = drive.band_bytes / SECTOR / unit * unit;
        let (first, room) = drive.log();
        (band > 0).then(|| Shingles {
            band,
            room,
            first,
            written: 0,
            logged: BTreeMap::new(),
            used: 0,
            waiting: VecDeque::new(),
            ends: BTreeMap::new(),
        })
    }

    /// Sectors that wait in the log.
    pub(super) fn waiting(&self) -> u64 {
        self.used
    }

    /// How far a write from `start` on goes in one piece, and where. `None`: the log is full.
    fn place(&mut self, start: u64, end: u64) -> Option<(u64, u64)> {
        let band = start / self.band;
        let begin = band * self.band;
        let until = end.min(begin + self.band);
        let written = self.ends.get(&band).copied().unwrap_or(begin);
        let replaces = start == begin && until >= written && until - start == self.band;
        if replaces || start == written {
            self.forget(start, until);
            self.ends.insert(band, until);
            return Some((until, start));
        }
        let at = self.written % self.room.max(1);
        let until = until.min(start + (self.room - at));
        if self.used + (until - start) > self.room {
            return None;
        }
        self.forget(start, until);
        let address = self.first + at;
        self.logged.insert(
            start,
            Logged {
                end: until,
                address,
            },
        );
        self.written += until - start;
        self.used += until - start;
        if !self.waiting.contains(&band) {
            self.waiting.push_back(band);
        }
        Some((until, address))
    }

    /// The next sector from this one on that is in the log.
    pub(super) fn next_logged(&self, sector: u64) -> Option<u64> {
        self.logged.range(sector..).next().map(|(from, _)| *from)
    }

    /// What the log has of a stretch.
    fn found(&self, start: u64, end: u64) -> Vec<Piece> {
        let before = self.logged.range(..start).next_back();
        let first = before
            .filter(|(_, one)| one.end > start)
            .map_or(start, |(from, _)| *from);
        let found = self.logged.range(first..end.max(first));
        let cut = |(from, one): (&u64, &Logged)| {
            let at = start.max(*from);
            (at, end.min(one.end), one.address + (at - from))
        };
        found.map(cut).collect()
    }

    fn forget(&mut self, start: u64, end: u64) {
        for (from, to, _) in self.found(start, end) {
            let key = self.logged.range(..=from).next_back().map(|(key, _)| *key);
            let Some((key, old)) = key.and_then(|key| Some((key, self.logged.remove(&key)?)))
            else {
                continue;
            };
            self.used -= to - from;
            if key < from {
                self.logged.insert(key, Logged { end: from, ..old });
            }
            if to < old.end {
                let address = old.address + (to - key);
                self.logged.insert(
                    to,
                    Logged {
                        end: old.end,
                        address,
                    },
                );
            }
        }
    }

    /// A stretch as the head finds it.
    fn pieces(&self, start: u64, end: u64) -> Vec<Piece> {
        let (mut pieces, mut at) = (Vec::new(), start);
        for (from, to, address) in self.found(start, end) {
            if at < from {
                pieces.push((at, from, at));
            }
            pieces.push((from, to, address));
            at = to;
        }
        if at < end {
            pieces.push((at, end, at));
        }
        pieces
    }

    /// The band that is next: what is written in its place, and what of it is in the log.
    fn take_oldest(&mut self) -> Option<((u64, u64), Vec<Piece>)> {
        let (band, logged) = loop {
            let band = self.waiting.pop_front()?;
            let logged = self.found(band * self.band, (band + 1) * self.band);
            // Everything may have been replaced in its place since.
            if !logged.is_empty() {
                break (band, logged);
            }
        };
        let begin = band * self.band;
        let written = self.ends.get(&band).copied().unwrap_or(begin);
        let end = logged.last().map_or(written, |(_, to, _)| written.max(*to));
        self.forget(begin, begin + self.band);
        self.ends.insert(band, end);
        Some(((begin, written), logged))
    }
}

impl Arm {
    /// How far a write from `start` on goes in one piece, and where; cleans until the log takes it.
    pub(super) fn place(&mut self, start: u64, end: u64) -> (u64, u64) {
        loop {
            let Some(shingles) = &mut self.shingles else {
                return (end, start);
            };
            if let Some(placed) = shingles.place(start, end) {
                return placed;
            }
            if !self.clean_band() {
                return (end, start);
            }
        }
    }

    /// A stretch as the head finds it.
    pub(super) fn pieces(&self, start: u64, end: u64) -> Vec<Piece> {
        match &self.shingles {
            Some(shingles) => shingles.pieces(start, end),
            None => vec![(start, end, start)],
        }
    }

    /// Cleans bands until `now_ns` if nobody has wanted anything for long enough. A band that was begun
    /// is cleaned to its end.
    pub(super) fn clean_while_idle(&mut self, now_ns: u64) {
        let from_ns = self.done_ns.saturating_add(self.drive.clean_idle_ns);
        while self.shingles.as_ref().is_some_and(|one| one.waiting() > 0)
            && self.head_free_ns.max(from_ns) < now_ns
        {
            self.stop_ahead(self.head_free_ns.max(from_ns));
            self.head_free_ns = self.head_free_ns.max(from_ns);
            self.clean_band();
        }
    }

    /// Cleans the band that has waited longest, from when the head is free. False: none waits.
    fn clean_band(&mut self) -> bool {
        let taken = self.shingles.as_mut().and_then(Shingles::take_oldest);
        let Some(((begin, written), logged)) = taken else {
            return false;
        };
        let end = logged.last().map_or(written, |(_, to, _)| written.max(*to));
        let mut reads = vec![(begin, written, begin)];
        reads.extend(logged);
        for (from, to, address) in reads.into_iter().filter(|(from, to, _)| from < to) {
            self.pass(address, to - from, false);
        }
        self.pass(begin, end - begin, true);
        self.counts.bands_cleaned += 1;
        self.counts.media_sectors_written += end - begin;
        true
    }

    /// Lets sectors from an address on pass under the head, as soon as it is free.
    fn pass(&mut self, address: u64, sectors: u64, write: bool) {
        self.go_to(self.head_free_ns, address, write);
        let pass = self
            .mechanics
            .pass(address, sectors, self.head_free_ns, u64::MAX);
        self.head = pass.track;
        self.head_free_ns = pass.end_ns;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_sector_is_where_it_was_written_last(
            writes in prop::collection::vec((0_u64..64, 1_u64..40, any::<bool>()), 1..80),
        ) {
            let mut shingles = Shingles {
                band: 64, room: 48, first: 512, written: 0, logged: BTreeMap::new(), used: 0,
                waiting: VecDeque::new(), ends: BTreeMap::new(),
            };
            // Which sectors are in the log, as a set.
            let mut logged = std::collections::BTreeSet::new();
            for (place, sectors, clean) in writes {
                let (mut at, end) = (place * 8, (place * 8 + sectors).min(512));
                while at < end {
                    let Some((until, address)) = shingles.place(at, end) else {
                        let ((begin, _), _) = shingles.take_oldest().expect("the log is full");
                        logged.retain(|sector| sector / 64 != begin / 64);
                        continue;
                    };
                    prop_assert!(at < until && until <= end);
                    match address == at {
                        true => logged.retain(|sector| !(at..until).contains(sector)),
                        false => {
                            prop_assert!((512..560).contains(&address) && address + until - at <= 560);
                            logged.extend(at..until);
                        }
                    }
                    at = until;
                }
                if let Some(((begin, _), _)) = clean.then(|| shingles.take_oldest()).flatten() {
                    logged.retain(|sector| sector / 64 != begin / 64);
                }
                prop_assert_eq!(shingles.waiting(), logged.len() as u64);
                let pieces = shingles.pieces(0, 512);
                prop_assert_eq!(pieces.iter().map(|(from, to, _)| to - from).sum::<u64>(), 512);
                for (from, to, address) in pieces {
                    for sector in from..to {
                        prop_assert_eq!(logged.contains(&sector), address >= 512);
                    }
                }
            }
        }
    }
}
