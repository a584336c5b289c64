//! The deep check: reads every lump and compares it with its checksum.

use super::report::CheckReport;
use super::{FINDINGS_LISTED, Inspector, checkpoint, data_lumps};
use crate::clock::monotonic_ns;
use crate::finding::{Finding, FindingKind, Findings};
use crate::format::sums::PayloadSums;
use crate::format::verify::{Misfit, Provenance, Subject};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::units::to_usize;

/// Bytes read at a time.
const PIECE: u64 = 1024 * 1024;
/// Bytes read at a time to find out which ones cannot be read.
const FINE_PIECE: u64 = 4096;

/// Verdict on the bytes of one lump.
enum Verdict {
    Verified,
    Unverified,
    Damaged(Box<Finding>),
}

impl Inspector {
    /// Reads every lump, in the order of their place on the disk. `progress` is called with the
    /// bytes read and the bytes there are; when it returns false, the check ends early and its
    /// report is about what was read until then.
    ///
    /// Lumps embedded in the journal were verified when it was read. Lumps that share blocks are
    /// read all the same; those that lie after the end count as damaged.
    pub fn check(&self, mut progress: impl FnMut(u64, u64) -> bool) -> CheckReport {
        let started_ns = monotonic_ns();
        let mut findings: Findings = self.report.findings.clone();
        let mut report = CheckReport {
            clean: false,
            complete: true,
            verified_lumps: self.report.lumps.as_ref().map_or(0, |lumps| lumps.embedded),
            unverified_lumps: 0,
            damaged_lumps: 0,
            read_bytes: 0,
            elapsed_ns: 0,
            inspect: self.report.clone(),
            findings: Findings::default(),
        };
        if let Some(journal) = &self.journal {
            report.verified_lumps -= journal.damaged_embeds;
            report.damaged_lumps += journal.damaged_embeds;
            let (geometry, ring) = (&journal.store.geometry, &journal.ring);
            let index = &journal.index;
            let mut lumps: Vec<(Portion, LumpId)> = data_lumps(index).collect();
            lumps.sort_unstable();
            let bytes_of = |portion: Portion| portion.byte_len(geometry.block_size()).0;
            let total = lumps.iter().map(|(portion, _)| bytes_of(*portion)).sum();
            let mut ended = !progress(0, total);
            for (portion, id) in lumps {
                if ended {
                    report.complete = false;
                    break;
                }
                if geometry.portion_offset(portion).0 + bytes_of(portion) > self.source.size {
                    // The inspection has said so; what is missing would be read as zeros.
                    report.damaged_lumps += 1;
                    report.read_bytes += bytes_of(portion);
                    continue;
                }
                let before = report.read_bytes;
                let mut passed = |bytes| {
                    report.read_bytes = before + bytes;
                    ended = !progress(report.read_bytes, total);
                    !ended
                };
                let provenance = ring
                    .as_ref()
                    .zip(index.get(id))
                    .map_or(Provenance::Foreign, |(ring, entry)| ring.provenance(entry));
                match self.verify(geometry, (id, provenance), portion, &mut passed) {
                    None => report.complete = false,
                    Some(Verdict::Verified) => report.verified_lumps += 1,
                    Some(Verdict::Unverified) => report.unverified_lumps += 1,
                    Some(Verdict::Damaged(finding)) => {
                        report.damaged_lumps += 1;
                        findings.add(*finding, FINDINGS_LISTED);
                    }
                }
            }
        }
        let newest = self
            .journal
            .as_ref()
            .and_then(|journal| journal.newest.as_ref());
        if let Some(finding) = newest.and_then(|slot| checkpoint::check(&self.source, slot)) {
            findings.add(finding, FINDINGS_LISTED);
        }
        report.elapsed_ns = monotonic_ns().saturating_sub(started_ns);
        report.clean = report.complete && findings.total == 0;
        report.findings = findings;
        report
    }

    /// Reads one lump piece by piece. `None`: the caller wants no more.
    fn verify(
        &self,
        geometry: &Geometry,
        (id, provenance): (LumpId, Provenance),
        portion: Portion,
        passed: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Verdict> {
        let (start, block) = (
            geometry.portion_offset(portion).0,
            geometry.block_size().bytes(),
        );
        let len = portion.byte_len(geometry.block_size()).0;
        let damaged =
            |kind, why: String| Box::new(Finding::of_portion(kind, geometry, id, portion, why));
        let unreadable = |error: String| {
            let finding = damaged(FindingKind::Read, error);
            // A second look says which bytes; when it finds none, the whole lump is suspect.
            let narrowed = match self.source.unreadable(start, len, FINE_PIECE) {
                Some((offset, len)) => finding.narrowed(offset, len),
                None => *finding,
            };
            Verdict::Damaged(Box::new(narrowed))
        };
        let unfit = |misfit: &Misfit| {
            let finding = Finding::of_misfit(geometry, id, portion, misfit);
            Verdict::Damaged(Box::new(finding))
        };
        let subject = Subject {
            id,
            blocks: portion.len(),
            block_size: geometry.block_size(),
            provenance,
            expected_len: None,
        };
        let end = match self.source.read(start + len - block, block) {
            Ok(last) => subject.judge_end(&last),
            Err(error) => return Some(unreadable(error.to_string())),
        };
        let end = match end {
            Ok(end) => end,
            Err(misfit) => return Some(unfit(&misfit)),
        };
        let mut sums = PayloadSums::new(end.0);
        let mut done = 0;
        while done < len {
            let piece = PIECE.min(len - done);
            match self.source.read(start + done, piece) {
                Ok(bytes) => {
                    let payload = end.0.saturating_sub(done).min(piece);
                    let payload = to_usize(payload);
                    sums.update(bytes.get(..payload).unwrap_or_default());
                }
                Err(error) => return Some(unreadable(error.to_string())),
            }
            done += piece;
            if !passed(done) && done < len {
                return None;
            }
        }
        Some(match subject.judge_sums(sums, end) {
            Ok(true) => Verdict::Verified,
            Ok(false) => Verdict::Unverified,
            Err(misfit) => unfit(&misfit),
        })
    }
}
