//! What the figures say beside the published ones, worked out from the figures.

use super::args::ODD_OFFSET;
use super::report::{Report, TrialView, place};
use crate::lab::StoreKind;
use crate::report::Findings;
use crate::seeds::predict::Rule;
use crate::seeds::published::DISKBENCHI;

/// Sectors that the first write and the cut in the middle may differ by.
const OF_FIRST: u64 = 16;
/// Ratios that are no further apart agree.
const NEAR: f64 = 0.05;

pub(super) fn of(report: &Report) -> Findings {
    let mut findings = Findings::default();
    for at in report.places() {
        requests(report, at, &mut findings);
    }
    absolute(report, &mut findings);
    for rule in Rule::ALL {
        ratios(report, rule, &mut findings);
    }
    findings.hypotheses.push(
        "That a drive loses a revolution for a rewritten end after each 3 MiB of a stream is \
         supposed: one parameter, fitted to the published tables. It gives a ratio that does not \
         grow with the number of writes."
            .to_owned(),
    );
    findings.hypotheses.push(
        "That the last published run is so much slower (4000 writes, 1.43) is not in the requests, \
         which stay the same to the last write. It must be the drive, such as a cache that changes \
         its ways when it is full of parts of physical sectors, or chance: each was run once."
            .to_owned(),
    );
    findings
}

/// Whether the stream of requests stays the same from the first write to the last.
fn requests(report: &Report, at: (StoreKind, u64), findings: &mut Findings) {
    let name = place(at.0, at.1);
    // How the block layer cuts and merges requests depends on how the buffer's pages lie; what is
    // written, and what twice, does not.
    let steady = |trial: &TrialView| {
        let half = trial.of_half;
        let twice = [2 * half.sectors, 2 * half.overlaps];
        let all = [trial.counted.own_writes.sectors, trial.counted.overlaps];
        let odd = report.count % 2 * report.block / 512;
        let slack = [OF_FIRST + odd, 2];
        twice
            .iter()
            .zip(all)
            .zip(slack)
            .all(|((twice, all), slack)| twice.abs_diff(all) <= slack)
    };
    if report.at(at).all(steady) {
        findings.agrees.push(format!(
            "{name}: the second half of the writes is written, padded and rewritten as the first; \
             nothing grows with the number of writes."
        ));
    } else {
        findings.differs.push(format!(
            "{name}: the second half of the writes is not written as the first."
        ));
    }
    if at.1 != ODD_OFFSET {
        return;
    }
    let wanted = report.count.saturating_sub(1);
    if report.at(at).all(|trial| trial.counted.overlaps == wanted) {
        findings.agrees.push(format!(
            "{name}: each of the {wanted} writes after the first begins in the end of the write \
             before, and rewrites zeroes that the kernel had put there."
        ));
    }
    if report
        .at(at)
        .all(|t| t.counted.flushes == 0 && t.counted.own_reads.requests == 0)
    {
        findings.agrees.push(format!(
            "{name}: no read and no flush: the kernel does not wait for the platters."
        ));
    }
}

/// Whether the emulated drive writes as fast as the published one.
fn absolute(report: &Report, findings: &mut Findings) {
    for (writes, seconds, _) in DISKBENCHI {
        let Some(ours) = report.predicted((StoreKind::Xfs, 0), Rule::Ideal, writes) else {
            continue;
        };
        let off = ours.median / seconds - 1.0;
        let line = format!(
            "{writes} writes from byte 0 on xfs: {:.1} s predicted, {seconds:.1} s published \
             ({:+.1} %).",
            ours.median,
            off * 100.0
        );
        if off.abs() <= NEAR {
            findings.agrees.push(line);
        } else {
            findings.differs.push(line);
        }
    }
}

/// Ratios of one rule beside the published ones.
fn ratios(report: &Report, rule: Rule, findings: &mut Findings) {
    let (mut near, mut all, mut said) = (0, 0, Vec::new());
    for (writes, even, odd) in DISKBENCHI {
        let Some(ratio) = report.ratio(StoreKind::Xfs, rule, writes) else {
            continue;
        };
        all += 1;
        let published = odd / even;
        near += usize::from((ratio - published).abs() <= NEAR);
        said.push(format!("{ratio:.2} for {published:.2}"));
    }
    if all == 0 {
        return;
    }
    let line = format!(
        "xfs, {}: time from byte 3584 over that from byte 0 is {} as published; {near} of {all} \
         within {NEAR}.",
        rule.name(),
        said.join(", ")
    );
    if near == all {
        findings.agrees.push(line);
    } else {
        findings.differs.push(line);
    }
}
