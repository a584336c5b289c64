//! What has come of a read: counts, findings, and how far the pass is.

use super::plan::{Target, place};
use super::verify::{Verdict, Verified, Work};
use super::{FINDINGS, MARKS, MOST, Part, Place};
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::lump::LumpId;
use crate::scheduler::Owner;
use crate::storage::index::Entry;
use crate::units::RingPosition;

impl Owner {
    /// A read failed. Of several lumps each is tried alone.
    pub(super) fn scrub_failed(&mut self, work: Work, offset: u64, len: u64, error: &Error) {
        let (target, record, finding) = match work {
            Work::Group(parts) if parts.len() > 1 => {
                return self.scrub.singles.extend(parts.iter().map(Part::target));
            }
            Work::Group(parts) => {
                let Some(part) = parts.first() else { return };
                let finding = self.finding(part, FindingKind::Read, error.to_string());
                (part.target(), part.record, finding)
            }
            Work::End(large) | Work::Piece(large) => {
                let (kind, why) = (FindingKind::Read, error.to_string());
                let geometry = &self.storage.geometry;
                let finding = Finding::of_portion(kind, geometry, large.id, large.portion, why)
                    .narrowed(offset, len);
                (large.target(), large.record, finding)
            }
        };
        self.found(target, record, finding);
    }

    fn finding(&self, part: &Part, kind: FindingKind, why: String) -> Finding {
        let geometry = &self.storage.geometry;
        match part.place {
            Place::Portion(portion, _) => {
                Finding::of_portion(kind, geometry, part.id, portion, why)
            }
            Place::Record(position) => {
                Finding::of_record(kind, geometry, position, part.len as u64, why).about(part.id)
            }
        }
    }

    pub(super) fn scrub_verified(&mut self, verified: Verified) {
        match verified {
            Verified::Continue(large) => self.scrub.large = Some(large),
            Verified::Group(parts) => {
                for (part, verdict) in parts {
                    self.count(&verdict);
                    let finding = match (verdict, part.place) {
                        (Verdict::Misfit(misfit), Place::Portion(portion, _)) => {
                            let geometry = &self.storage.geometry;
                            Some(Finding::of_misfit(geometry, part.id, portion, &misfit))
                        }
                        (Verdict::Record(why), _) => {
                            Some(self.finding(&part, FindingKind::Record, why))
                        }
                        _ => None,
                    };
                    if let Some(finding) = finding {
                        self.found(part.target(), part.record, finding);
                    }
                    self.scrub_passed(part.offset + part.len as u64);
                }
            }
            Verified::Large(large, verdict) => {
                self.count(&verdict);
                if let Verdict::Misfit(misfit) = verdict {
                    let (id, portion) = (large.id, large.portion);
                    let finding = Finding::of_misfit(&self.storage.geometry, id, portion, &misfit);
                    self.found(large.target(), large.record, finding);
                }
                self.scrub_passed(large.offset + large.len);
            }
        }
    }

    fn count(&self, verdict: &Verdict) {
        let counters = &self.shared.counters;
        let mut status = self.shared.scrub.locked();
        status.this_pass.lumps += 1;
        counters.scrub_lumps.add(1);
        match verdict {
            Verdict::Verified => status.verified_lumps += 1,
            Verdict::Unverified => {
                status.unverified_lumps += 1;
                counters.scrub_unverified.add(1);
            }
            Verdict::Misfit(_) | Verdict::Record(_) => {}
        }
    }

    /// Notes damage of a lump. One that was replaced or deleted meanwhile has none; one whose
    /// record has moved, or that was put anew to the same place, is looked at again.
    fn found(&mut self, target: Target, record: RingPosition, finding: Finding) {
        let Some(entry) = self.storage.index.get(target.id) else {
            return;
        };
        if entry.record() != record {
            if place(&self.storage.geometry, entry) == target.offset {
                self.scrub.singles.push_back(target);
            }
            return;
        }
        let counters = &self.shared.counters;
        let mut status = self.shared.scrub.locked();
        if finding.kind == FindingKind::Read {
            status.read_errors += 1;
            counters.scrub_read_errors.add(1);
        } else {
            status.corrupt_lumps += 1;
            counters.scrub_corrupt.add(1);
        }
        status.this_pass.damaged += 1;
        status.findings.add(finding, FINDINGS);
    }

    pub(super) fn is_current(&self, id: LumpId, record: RingPosition) -> bool {
        self.storage.index.get(id).map(Entry::record) == Some(record)
    }

    fn scrub_passed(&mut self, end: u64) {
        let geometry = &self.storage.geometry;
        let (base, len) = (geometry.base().0, geometry.image_len().0);
        self.scrub.position = self.scrub.position.max(end);
        self.shared.scrub.locked().position = self.scrub.position;
        let passed = self.scrub.position.saturating_sub(base);
        self.shared.counters.scrub_position_bytes.set(passed);
        self.scrub.note(base, (len / MARKS).max(MOST));
    }
}
