//! Findings: the measured figures beside the published ones.

use std::ops::RangeInclusive;

use super::report::{Group, RULES, Report};
use super::vary;
use crate::disks::StoreKind;
use crate::experiment::report::{Findings, together};
use crate::experiment::text;
use crate::studies::predict::Rule;
use crate::studies::seeds::live;
use crate::studies::seeds::published::CannylsRow;

/// Ratios that are no further apart agree.
const NEAR: f64 = 0.06;
/// Percentage that the making of a store may overlap.
pub(super) const OF_MAKING: u64 = 1;
/// File systems, and where they stand in a published row.
pub(super) const FILE_SYSTEMS: [(StoreKind, usize); 2] =
    [(StoreKind::Ext4, 1), (StoreKind::Xfs, 2)];

/// Ratios that agree with this one.
pub(super) fn near(ratio: f64) -> RangeInclusive<f64> {
    ratio - NEAR..=ratio + NEAR
}

pub(super) fn of(report: &Report) -> Findings {
    let mut findings = Findings::default();
    for group in report.groups() {
        match group.published() {
            Some(row) => against_published(report, group, row, &mut findings),
            None => without_penalty(report, group, &mut findings),
        }
    }
    live_runs(report, &mut findings);
    let window = "That a drive loses a revolution for a rewritten end after each 3 MiB of a stream \
                  is supposed: one parameter, fitted to the published table itself. That file \
                  systems make lumps of whole sectors overlap, and blocks of 4096 do not, is \
                  measured.";
    findings.hypotheses.push(window.to_owned());
    findings.hypotheses.extend(explanations(report));
    findings
}

/// Which variations of drive and layout come near a row of the published table.
fn explanations(report: &Report) -> Vec<String> {
    let groups = report.groups().into_iter();
    let rows = groups.filter_map(|group| Some((group, group.published()?)));
    let said = rows.map(|(group, row)| {
        let [_, ext4, xfs] = row.ratios;
        let near = vary::explain(report, group, NEAR);
        let near = match near.as_slice() {
            [] => "no variation".to_owned(),
            names => format!("\"{}\"", names.join("\", \"")),
        };
        format!(
            "{}, published {ext4:.2} and {xfs:.2}: of {} variations, {near} comes within {NEAR} \
             of both.",
            group.workload,
            vary::ALL.len()
        )
    });
    said.collect()
}

/// The rows of the published table.
fn against_published(report: &Report, group: Group<'_>, row: &CannylsRow, findings: &mut Findings) {
    for (at, rule) in RULES.iter().enumerate() {
        for (kind, column) in FILE_SYSTEMS {
            let Some(ratio) = report.ratio(group, kind, at) else {
                continue;
            };
            let line = format!(
                "{} on {}, {}: {} predicted, {:.2} published.{}",
                group.workload,
                kind.name(),
                rule.name(),
                text::spread(ratio),
                row.ratios[column],
                reason(report, group, kind, *rule)
            );
            let judged = ratio.judged(report.runs_of_each, &near(row.ratios[column]));
            findings.file(line, judged);
        }
    }
}

/// Runs on the emulated drive beside what is predicted from their own records.
fn live_runs(report: &Report, findings: &mut Findings) {
    let Some(rule) = report.live else { return };
    for group in report.groups() {
        for kind in StoreKind::ALL {
            let Group {
                workload,
                engine,
                block_size,
            } = group;
            let name = format!(
                "{workload}, {} engine, blocks of {block_size}, {}",
                engine.name(),
                kind.name()
            );
            let over = report.measured_over_predicted(group, kind);
            live::compared((&name, rule), over, report.runs_of_each, findings);
        }
    }
}

/// Explanation by the trace.
fn reason(report: &Report, group: Group<'_>, kind: StoreKind, rule: Rule) -> String {
    if rule != Rule::Overlap {
        return String::new();
    }
    let overlaps = |kind| {
        report
            .of(group, kind)
            .next()
            .map_or(0, |run| run.counted.overlaps)
    };
    let puts = report.of(group, kind).next().map_or(0, |run| run.puts);
    format!(
        " {} of {puts} puts begin in the end of the write before; on raw {}.",
        overlaps(kind),
        overlaps(StoreKind::Raw)
    )
}

/// Cases without a published row: whether the file systems cost anything.
fn without_penalty(report: &Report, group: Group<'_>, findings: &mut Findings) {
    let overlap = RULES.iter().position(|rule| *rule == Rule::Overlap);
    let Some(at) = overlap else { return };
    let (mut said, mut judged) = (Vec::new(), Vec::new());
    for (kind, _) in FILE_SYSTEMS {
        let Some(ratio) = report.ratio(group, kind, at) else {
            continue;
        };
        let overlaps = report.of(group, kind).map(|run| run.counted.overlaps).max();
        judged.push(match overlaps <= Some(OF_MAKING) {
            true => ratio.judged(report.runs_of_each, &near(1.0)),
            false => Ok(false),
        });
        said.push(format!(
            "{} {} ({} overlaps)",
            kind.name(),
            text::spread(ratio),
            overlaps.unwrap_or(0)
        ));
    }
    let line = format!(
        "{}, {} engine, blocks of {}, overlap rule: {}.",
        group.workload,
        group.engine.name(),
        group.block_size,
        said.join(", ")
    );
    let judged = together(judged);
    let why = match judged {
        Ok(true) => " Nothing overlaps, and a file system costs nothing.",
        Ok(false) => " Not in the published table.",
        Err(_) => "",
    };
    findings.file(line + why, judged);
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::args::Engine;
    use super::super::case::Case;
    use super::super::report::RunView;
    use super::*;
    use crate::blocks::{Counted, Trust};
    use crate::experiment::Machine;
    use crate::studies::seeds::published::CANNYLS;

    /// A run of seq1 whose time by the overlap rule is `seconds`; by the ideal cache it is 1.
    fn run(engine: Engine, kind: StoreKind, seconds: f64, overlaps: u64) -> RunView {
        RunView {
            workload: "seq1".to_owned(),
            case: Case {
                engine,
                block_size: 512,
                kind,
                run: 1,
            },
            measured_seconds: 1.02,
            predicted_seconds: [1.0, seconds],
            varied_seconds: vec![seconds; vary::ALL.len()],
            commands: 1000,
            puts: 1000,
            counted: Counted {
                overlaps,
                ..Counted::default()
            },
            trust: Trust {
                missing: 0,
                kernel_requests: 1000,
                complete: true,
            },
            emulated: None,
        }
    }

    /// Of three equal runs of each.
    pub(in super::super) fn report(runs: Vec<RunView>, live: Option<Rule>) -> Report {
        let again = |number| {
            let runs = runs.iter().cloned();
            runs.map(move |mut run| {
                run.case.run = number;
                run
            })
        };
        let runs = (1..=3).flat_map(again).collect();
        Report {
            machine: Machine::before(),
            drive: "a drive".to_owned(),
            scale: 0.05,
            live,
            runs_of_each: 3,
            runs,
            published: CANNYLS,
            findings: Findings::default(),
            notes: Vec::new(),
            traces: Vec::new(),
        }
    }

    pub(in super::super) fn runs(
        engine: Engine,
        [raw, ext4, xfs]: [(f64, u64); 3],
    ) -> Vec<RunView> {
        let of = |kind, (seconds, overlaps)| run(engine, kind, seconds, overlaps);
        vec![
            of(StoreKind::Raw, raw),
            of(StoreKind::Ext4, ext4),
            of(StoreKind::Xfs, xfs),
        ]
    }

    #[test]
    fn a_ratio_near_the_published_one_agrees_and_others_do_not() {
        // Published: 1.65 and 1.58.
        let times = [(1.0, 0), (1.64, 874), (1.40, 870)];
        let findings = of(&report(runs(Engine::Original, times), None));
        assert_eq!(findings.agrees.len(), 1, "{:?}", findings.agrees);
        let agrees = &findings.agrees[0];
        assert!(agrees.contains("seq1 on ext4, overlap rule: 1.64 predicted, 1.65 published"));
        assert!(agrees.contains("874 of 1000 puts begin in the end"));
        // Both of the ideal cache, and xfs.
        assert_eq!(findings.differs.len(), 3, "{:?}", findings.differs);
        assert!(
            findings
                .differs
                .iter()
                .any(|line| line.contains("xfs, ideal cache: 1.00"))
        );
        assert_eq!(findings.hypotheses.len(), 2);
    }

    #[test]
    fn what_was_not_published_is_judged_by_overlaps_and_time() {
        let ours = |times| of(&report(runs(Engine::Lumpscope, times), None));
        let free = ours([(1.0, 0), (1.02, 1), (1.0, 0)]);
        assert_eq!((free.agrees.len(), free.differs.len()), (1, 0));
        assert!(free.agrees[0].contains("Nothing overlaps"));
        let slow = ours([(1.0, 0), (1.2, 0), (1.0, 0)]);
        assert_eq!((slow.agrees.len(), slow.differs.len()), (0, 1));
        let overlapping = ours([(1.0, 0), (1.0, 500), (1.0, 0)]);
        assert!(overlapping.differs[0].contains("(500 overlaps)"));
    }

    #[test]
    fn runs_that_differ_and_single_runs_decide_nothing() {
        let times = [(1.0, 0), (1.64, 874), (1.58, 870)];
        let mut noisy = report(runs(Engine::Original, times), Some(Rule::Overlap));
        for run in &mut noisy.runs {
            // Of three runs two are near what was published.
            run.predicted_seconds[1] *= if run.case.run == 2 { 1.5 } else { 1.0 };
            if run.case.kind == StoreKind::Raw {
                run.predicted_seconds[1] = 1.0;
            }
        }
        let findings = of(&noisy);
        assert!(
            findings
                .agrees
                .iter()
                .all(|line| !line.contains("ext4, overlap"))
        );
        let wide = |line: &&String| line.contains("the range is too wide");
        assert_eq!(
            findings.undecided.iter().filter(wide).count(),
            2,
            "{findings:?}"
        );

        let mut single = report(runs(Engine::Original, times), Some(Rule::Overlap));
        single.runs.retain(|run| run.case.run == 1);
        single.runs_of_each = 1;
        let findings = of(&single);
        assert!(findings.agrees.is_empty() && findings.differs.is_empty());
        assert!(
            findings
                .undecided
                .iter()
                .all(|line| line.contains("one run, and it takes 3"))
        );
    }

    #[test]
    fn live_runs_stand_beside_their_own_predictions() {
        let times = [(1.0, 0), (1.02, 1), (1.5, 0)];
        let live = of(&report(runs(Engine::Lumpscope, times), Some(Rule::Overlap)));
        let said = |lines: &[String]| lines.iter().filter(|line| line.contains("live")).count();
        // 1.02 s measured: near 1.0 and 1.02, far from 1.5.
        assert_eq!(
            (said(&live.agrees), said(&live.differs)),
            (2, 1),
            "{live:?}"
        );
        let recorded = of(&report(runs(Engine::Lumpscope, times), None));
        assert_eq!((said(&recorded.agrees), said(&recorded.differs)), (0, 0));
    }

    #[test]
    fn it_is_said_which_variations_come_near() {
        let mut all = runs(Engine::Original, [(1.0, 0), (1.06, 10), (1.06, 10)]);
        for run in &mut all {
            run.workload = "rand2".to_owned();
        }
        let said = |all: &[RunView]| of(&report(all.to_vec(), None)).hypotheses.join("\n");
        assert!(said(&all).contains("of 14 variations, no variation comes"));
        for run in &mut all[1..] {
            run.varied_seconds[1] = 1.31;
        }
        let said = said(&all);
        assert!(
            said.contains("\"dirty data out before reads\" comes"),
            "{said}"
        );
    }
}
