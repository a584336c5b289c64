//! Why requests were started in the order they were, and what was learnt of the disks.

use std::fmt;

use lumpscope_engine::{LearnedStats, OrderStats};

use super::collector::Snapshot;
use super::exposition::Out;
use super::heat::{float, seconds};
use super::names::{self, Metric};

/// Units of the distances.
const UNITS: [(u64, &str); 4] = [
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
];

/// A signed number of bytes as the label of a series.
fn label(distance: i64) -> String {
    let far = distance.unsigned_abs();
    let sign = if distance < 0 { "-" } else { "" };
    let whole = |(size, _): &&(u64, &str)| far >= *size && far.is_multiple_of(*size);
    match UNITS.iter().find(whole) {
        Some((size, unit)) => format!("{sign}{}{unit}", far / size),
        None => format!("{sign}{far}"),
    }
}

/// A number of what was learnt.
type Number = fn(&LearnedStats) -> u64;

/// The order of one store.
struct One<'a> {
    store: &'a str,
    stats: OrderStats,
}

/// Writes all of it.
pub(super) fn encode(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    let all: Vec<One<'_>> = stores
        .iter()
        .map(|s| One {
            store: &s.named.name,
            stats: s.named.store.order(),
        })
        .collect();
    let chosen = all.iter().flat_map(|one| {
        [
            ("arrival", one.stats.by_arrival),
            ("bound", one.stats.by_bound),
            ("deadline", one.stats.by_deadline),
            ("position", one.stats.by_position),
        ]
        .map(|(reason, count)| (vec![one.store, reason], float(count)))
    });
    out.counter(&names::ORDER_CHOSEN, chosen)?;
    let learned: Vec<(&str, LearnedStats)> = all
        .iter()
        .filter_map(|one| Some((one.store, one.stats.learned?)))
        .collect();
    let told = learned.iter().flat_map(|(store, l)| {
        [
            ("engine", l.own),
            ("observer", l.told),
            ("dropped", l.dropped),
        ]
        .map(|(source, count)| (vec![*store, source], float(count)))
    });
    out.counter(&names::ORDER_OBSERVATIONS, told)?;
    let times: [(&Metric, Number); 3] = [
        (&names::ORDER_PREDICTED, |l| l.predicted_ns),
        (&names::ORDER_OBSERVED, |l| l.observed_ns),
        (&names::ORDER_ERROR, |l| l.error_ns),
    ];
    for (metric, of) in times {
        let series = learned
            .iter()
            .map(|(store, l)| (vec![*store], seconds(of(l))));
        out.counter(metric, series)?;
    }
    let known = learned
        .iter()
        .map(|(store, l)| (vec![*store], float(l.known)));
    out.gauge(&names::ORDER_KNOWN, known)?;
    let flat = learned
        .iter()
        .map(|(store, l)| (vec![*store], float(u64::from(l.flat))));
    out.gauge(&names::ORDER_FLAT, flat)?;
    curve(out, &learned)
}

fn curve(out: &mut Out<'_, '_>, learned: &[(&str, LearnedStats)]) -> fmt::Result {
    let points: Vec<(&str, String, f64)> = learned
        .iter()
        .flat_map(|(store, l)| {
            let point = |(distance, ns): (i64, u64)| (*store, label(distance), seconds(ns));
            l.curve.map(point)
        })
        .collect();
    let series = points
        .iter()
        .map(|(store, distance, ns)| (vec![*store, distance.as_str()], *ns));
    out.gauge(&names::POSITIONING, series)
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn distances_are_labelled_in_whole_units() {
        assert_eq!(label(0), "0");
        assert_eq!(label(1 << 20), "1MiB");
        assert_eq!(label(-(256 << 30)), "-256GiB");
        assert_eq!(label(-1000), "-1000");
        assert_eq!(label(1 << 42), "4TiB");
    }
}
