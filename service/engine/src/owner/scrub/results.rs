//! Results of a read: counts, findings, and the progress of the pass.

use super::plan::{ScrubTarget, place};
use super::verify::{Verdict, Verified, Work};
use super::{MARKS, MOST, Scrub, ScrubLump, ScrubPlace};
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::owner::ctx::Ctx;
use crate::scrub::FINDINGS;
use crate::units::RingPosition;

impl Scrub {
    /// A read failed. Of several lumps each is tried alone.
    pub(super) fn failed(&mut self, ctx: &Ctx, work: Work, offset: u64, len: u64, error: &Error) {
        let (target, record, finding) = match work {
            Work::Group(parts) if parts.len() > 1 => {
                return self.singles.extend(parts.iter().map(ScrubLump::target));
            }
            Work::Group(parts) => {
                let Some(part) = parts.first() else { return };
                let finding = finding(ctx, part, FindingKind::Read, error.to_string());
                (part.target(), part.record, finding)
            }
            Work::End(large) | Work::Piece(large) => {
                let (kind, why) = (FindingKind::Read, error.to_string());
                let geometry = &ctx.storage.geometry;
                let finding = Finding::of_portion(kind, geometry, large.id, large.portion, why)
                    .narrowed(offset, len);
                (large.target(), large.record, finding)
            }
        };
        self.found(ctx, target, record, finding);
    }

    pub(super) fn verdict(&mut self, ctx: &mut Ctx, verified: Verified) {
        match verified {
            Verified::Continue(large) => self.large = Some(large),
            Verified::Group(parts) => {
                for (part, verdict) in parts {
                    count(ctx, &verdict);
                    let finding = match (verdict, part.place) {
                        (Verdict::Misfit(misfit), ScrubPlace::Portion(portion, _)) => {
                            let geometry = &ctx.storage.geometry;
                            Some(Finding::of_misfit(geometry, part.id, portion, &misfit))
                        }
                        (Verdict::Record(why), _) => {
                            Some(finding(ctx, &part, FindingKind::Record, why))
                        }
                        _ => None,
                    };
                    if let Some(finding) = finding {
                        self.found(ctx, part.target(), part.record, finding);
                    }
                    self.passed(ctx, part.offset + part.len as u64);
                }
            }
            Verified::Large(large, verdict) => {
                count(ctx, &verdict);
                if let Verdict::Misfit(misfit) = verdict {
                    let (id, portion) = (large.id, large.portion);
                    let finding = Finding::of_misfit(&ctx.storage.geometry, id, portion, &misfit);
                    self.found(ctx, large.target(), large.record, finding);
                }
                self.passed(ctx, large.offset + large.len);
            }
        }
    }

    /// Notes damage of a lump. One that was replaced or deleted meanwhile has none; one whose
    /// record has moved, or that was put anew to the same place, is looked at again.
    fn found(&mut self, ctx: &Ctx, target: ScrubTarget, record: RingPosition, finding: Finding) {
        let Some(entry) = ctx.storage.index.get(target.id) else {
            return;
        };
        if entry.record() != record {
            if place(&ctx.storage.geometry, entry) == target.offset {
                self.singles.push_back(target);
            }
            return;
        }
        let counters = &ctx.shared.counters;
        let mut status = ctx.shared.scrub.locked();
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

    fn passed(&mut self, ctx: &mut Ctx, end: u64) {
        let geometry = &ctx.storage.geometry;
        let (base, len) = (geometry.base().0, geometry.image_len().0);
        self.position = self.position.max(end);
        ctx.shared.scrub.locked().position = self.position;
        let passed = self.position.saturating_sub(base);
        ctx.shared.counters.scrub_position_bytes.set(passed);
        self.note(ctx, (len / MARKS).max(MOST));
    }
}

fn finding(ctx: &Ctx, part: &ScrubLump, kind: FindingKind, why: String) -> Finding {
    let geometry = &ctx.storage.geometry;
    match part.place {
        ScrubPlace::Portion(portion, _) => {
            Finding::of_portion(kind, geometry, part.id, portion, why)
        }
        ScrubPlace::Record(position) => {
            Finding::of_record(kind, geometry, position, part.len as u64, why).about(part.id)
        }
    }
}

fn count(ctx: &Ctx, verdict: &Verdict) {
    let counters = &ctx.shared.counters;
    let mut status = ctx.shared.scrub.locked();
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
