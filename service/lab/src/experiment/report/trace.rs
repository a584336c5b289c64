//! Figures of a recorded trace of block requests.

use lumpscope_platter::trace::{Op, Trace, Traced};

use super::chart::{Axis, Dots, HeatCell, HeatPanel, ScatterPanel};
use super::unit::Unit;
use crate::human;

/// Columns of the picture of distances over time.
const TIME_COLUMNS: u32 = 80;
/// Bytes of a sector.
const SECTOR: i64 = 512;

/// One trace as panels, to be put beside those of other traces in charts with the axes below.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceParts {
    /// Sector over time, by operation and by whose request it is. Axes: [`TraceParts::time`],
    /// [`TraceParts::place`].
    pub scatter: ScatterPanel,
    /// Signed seek distance over time. Axes: [`TraceParts::time`], [`TraceParts::seek`].
    pub seeks: HeatPanel,
    /// Device time over signed seek distance. Axes: [`TraceParts::seek`], [`TraceParts::device`].
    pub device: HeatPanel,
}

impl TraceParts {
    /// Time since the first request of the trace.
    #[must_use]
    pub fn time() -> Axis {
        Axis::linear("Time since the first request", Unit::Nanoseconds)
    }

    /// Place on the disk.
    #[must_use]
    pub fn place() -> Axis {
        Axis::linear("First byte on the disk", Unit::Bytes)
    }

    /// How far the head went.
    #[must_use]
    pub fn seek() -> Axis {
        Axis::linear(
            "Seek distance from the end of the request before",
            Unit::Bytes,
        )
    }

    /// How long the device took.
    #[must_use]
    pub fn device() -> Axis {
        Axis::log("Time in the device", Unit::Nanoseconds)
    }
}

/// Panels of a trace. Flushes have no place; they are counted as left out.
#[must_use]
pub fn of_trace(name: &str, trace: &Trace) -> TraceParts {
    let begin = trace.requests.first().map_or(0, |first| first.issue_ns);
    let data = || trace.requests.iter().filter(|request| is_data(request));
    let flushes = trace.requests.len() - data().count();
    let (mut seeks, mut device) = (panel(name, flushes), panel(name, flushes));
    let last = trace.requests.last().map_or(begin, |last| last.issue_ns);
    let column = (last.saturating_sub(begin) / u64::from(TIME_COLUMNS)).max(1);
    let mut counts = std::collections::BTreeMap::new();
    let mut both = std::collections::BTreeMap::new();
    let mut end: Option<u64> = None;
    for request in data() {
        let distance = end.map(|end| request.sector.cast_signed().wrapping_sub(end.cast_signed()));
        end = Some(request.end());
        let Some(distance) = distance else {
            // Nobody knows where the head was before.
            seeks.left_out += 1;
            device.left_out += 1;
            continue;
        };
        let doublings = doublings(distance.saturating_mul(SECTOR));
        let time = (request.issue_ns - begin) / column;
        *counts.entry((time, doublings)).or_insert(0_u64) += 1;
        // Four rows an octave of time.
        let took = human::as_float(request.done_ns.saturating_sub(request.issue_ns).max(1));
        let row = human::whole((took.log2() * 4.0).floor());
        *both.entry((row, doublings)).or_insert(0_u64) += 1;
    }
    let time = |index: u64| human::as_float(index.saturating_mul(column));
    let rows = |index: u64| (human::as_float(index) / 4.0).exp2();
    seeks.cells = counts
        .into_iter()
        .map(|((at, distance), count)| HeatCell {
            x: (time(at), time(at + 1)),
            y: bounds(distance),
            count,
        })
        .collect();
    device.cells = both
        .into_iter()
        .map(|((row, distance), count)| HeatCell {
            x: bounds(distance),
            y: (rows(row), rows(row + 1)),
            count,
        })
        .collect();
    TraceParts {
        scatter: ScatterPanel {
            name: name.to_owned(),
            groups: groups(trace, begin),
        },
        seeks,
        device,
    }
}

fn panel(name: &str, left_out: usize) -> HeatPanel {
    HeatPanel {
        name: name.to_owned(),
        cells: Vec::new(),
        left_out: super::chart::as_count(left_out),
    }
}

fn is_data(request: &Traced) -> bool {
    matches!(request.op, Op::Read | Op::Write)
}

/// One group an operation and owner, those without requests left out.
fn groups(trace: &Trace, begin: u64) -> Vec<Dots> {
    let kinds = [
        ("write, asked for", Op::Write, true),
        ("read, asked for", Op::Read, true),
        ("write of the file system", Op::Write, false),
        ("read of the file system", Op::Read, false),
    ];
    let of = |op: Op, own: bool| -> Vec<(f64, f64)> {
        let requests = trace.requests.iter();
        requests
            .filter(|request| request.op == op && request.own == own)
            .map(|request| {
                let bytes = request.sector.saturating_mul(SECTOR.unsigned_abs());
                (
                    human::as_float(request.issue_ns.saturating_sub(begin)),
                    human::as_float(bytes),
                )
            })
            .collect()
    };
    let groups = kinds.into_iter().map(|(name, op, own)| Dots {
        name: name.to_owned(),
        points: of(op, own),
    });
    groups.filter(|group| !group.points.is_empty()).collect()
}

/// Power of two of a distance in bytes with its sign; 0 for none.
fn doublings(bytes: i64) -> i32 {
    let Some(power) = bytes.unsigned_abs().checked_ilog2() else {
        return 0;
    };
    i32::try_from(power).unwrap_or(0) * if bytes < 0 { -1 } else { 1 }
}

/// From and to of such a power, in bytes.
fn bounds(power: i32) -> (f64, f64) {
    if power == 0 {
        return (0.0, 0.0);
    }
    let near = 2_f64.powi(power.abs());
    if power < 0 {
        (-near * 2.0, -near)
    } else {
        (near, near * 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_becomes_panels() {
        let at = |op, own, sector, issue_ns| Traced {
            op,
            fua: false,
            sector,
            sectors: 8,
            queue_ns: issue_ns,
            issue_ns,
            done_ns: issue_ns + 1_000_000,
            own,
        };
        let trace = Trace::new(
            vec![
                at(Op::Write, true, 0, 1000),
                at(Op::Write, true, 8, 2000),
                at(Op::Flush, false, 0, 3000),
                at(Op::Read, false, 8, 4000),
            ],
            0,
        );
        let parts = of_trace("raw", &trace);
        let names: Vec<&str> = parts
            .scatter
            .groups
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, ["write, asked for", "read of the file system"]);
        assert_eq!(parts.scatter.groups[1].points, [(3000.0, 4096.0)]);
        // The flush has no place, and before the first request nothing is known.
        assert_eq!((parts.seeks.left_out, parts.device.left_out), (2, 2));
        let seeks: Vec<(f64, f64)> = parts.seeks.cells.iter().map(|cell| cell.y).collect();
        assert_eq!(seeks, [(0.0, 0.0), (-8192.0, -4096.0)]);
        assert!(
            parts
                .device
                .cells
                .iter()
                .all(|cell| cell.y.0 <= 1e6 && 1e6 <= cell.y.1)
        );
        assert_eq!(of_trace("none", &Trace::default()).scatter.groups, []);
    }
}
