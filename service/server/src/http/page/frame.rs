//! Changes at one store between two looks, as the page draws them.

use std::collections::BTreeMap;

use lumpscope_observer::{
    EventPolicy, HeatCell, OPERATIONS, OWNERS, OperationReport, OwnerTotal, StoreReport,
};
use serde::Serialize;

use super::dots::Dot;
use super::health::Health;
use crate::buckets::{self, Bucket, quantile};
use crate::observed::left_out;

/// One store over one interval.
#[derive(Debug, Default, Serialize)]
pub(super) struct StoreFrame {
    health: Health,
    observed: bool,
    why_not: String,
    /// Possible gaps, in words; empty: none.
    doubts: String,
    /// By method; only those of which some ended.
    requests: BTreeMap<String, Requests>,
    heat: Vec<Cell>,
    block: Blocks,
    data_requests: u64,
    sequential: u64,
    moves: Vec<Move>,
    /// Time that requests lost to others, by the class of the others.
    lost_ns: BTreeMap<String, u64>,
    dots: Vec<Dot>,
    dots_left_out: u64,
    totals: Totals,
}

/// Requests of one method.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Requests {
    count: u64,
    errors: u64,
    bytes: u64,
    total_ns: u64,
    /// Estimated within their buckets.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    stages: BTreeMap<String, u64>,
    latency: Vec<Bucket>,
}

/// A cell of the histogram: seek distance from and to, device time from and to, owner and operation
/// as places in their lists, and how many.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Cell(i64, i64, u64, u64, usize, usize, u64);

/// Head move: owner, moved by, requests, seeks, bytes travelled.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Move(String, String, u64, u64, u64);

/// Requests and bytes by owner and operation.
type Blocks = BTreeMap<String, BTreeMap<String, (u64, u64)>>;

/// Since the service started: what the metrics say.
#[derive(Debug, Default, Serialize)]
struct Totals {
    requests: BTreeMap<String, Total>,
    block: Blocks,
    data_requests: u64,
    sequential: u64,
    lost_events: u64,
}

#[derive(Debug, Serialize)]
struct Total {
    count: u64,
    errors: u64,
    bytes: u64,
}

impl StoreFrame {
    /// Changes between two reports of one store.
    pub(super) fn between(
        was: &StoreReport,
        is: &StoreReport,
        policy: EventPolicy,
        (dots, dots_left_out): (Vec<Dot>, u64),
        health: Health,
    ) -> Self {
        let more = |of: fn(&StoreReport) -> u64| of(is).saturating_sub(of(was));
        Self {
            health,
            observed: is.observed,
            why_not: is.not_observed_because.clone(),
            doubts: doubts(is, policy),
            requests: requests(&was.operations, &is.operations),
            heat: heat(&was.heat, &is.heat),
            block: blocks(&was.block.owners, &is.block.owners),
            data_requests: more(|r| r.block.data_requests),
            sequential: more(|r| r.block.sequential),
            moves: moves(was, is),
            lost_ns: lost(was, is),
            dots,
            dots_left_out,
            totals: totals(is),
        }
    }

    /// A store that could not be opened: nothing happens there.
    pub(super) fn not_open(why: &str) -> Self {
        Self {
            health: Health::not_open(why),
            why_not: "the store is not open".to_owned(),
            ..Self::default()
        }
    }
}

/// Possible gaps since the service started: a count that was wrong once stays wrong.
fn doubts(is: &StoreReport, policy: EventPolicy) -> String {
    if !is.observed {
        return format!("not observed: {}", is.not_observed_because);
    }
    let finding = (!is.audit.complete).then(|| is.audit.finding.clone());
    let told: Vec<String> = finding.into_iter().chain(left_out(policy)).collect();
    told.join("; ")
}

fn requests(was: &[OperationReport], is: &[OperationReport]) -> BTreeMap<String, Requests> {
    let none = OperationReport::default();
    let of = |is: &OperationReport| {
        let was = was.iter().find(|o| o.method == is.method);
        let was = was.unwrap_or(&none);
        let more = |of: fn(&OperationReport) -> u64| of(is).saturating_sub(of(was));
        let edges = |b: &lumpscope_observer::Bucket| (b.from, b.to, b.count);
        let (before, after) = (was.latency.iter().map(edges), is.latency.iter().map(edges));
        let latency = buckets::difference(before, after);
        let stages = is.stages.iter().map(|stage| {
            let before = was.stages.iter().find(|s| s.stage == stage.stage);
            let ns = stage
                .total_ns
                .saturating_sub(before.map_or(0, |s| s.total_ns));
            (stage.stage.clone(), ns)
        });
        let requests = Requests {
            count: more(|o| o.count),
            errors: more(|o| o.errors),
            bytes: more(|o| o.bytes),
            total_ns: more(|o| o.total_ns),
            p50_ns: quantile(&latency, 50, 100),
            p99_ns: quantile(&latency, 99, 100),
            stages: stages.filter(|(_, ns)| *ns > 0).collect(),
            latency,
        };
        (is.method.clone(), requests)
    };
    is.iter().map(of).filter(|(_, r)| r.count > 0).collect()
}

/// The place of a word in its list. The last of both lists is "other".
pub(super) fn place(words: &[&str], word: &str) -> usize {
    let found = words.iter().position(|known| *known == word);
    found.unwrap_or(words.len() - 1)
}

fn heat(was: &[HeatCell], is: &[HeatCell]) -> Vec<Cell> {
    let key = |c: &HeatCell| {
        (
            place(&OWNERS, &c.owner),
            place(&OPERATIONS, &c.operation),
            c.seek_from_bytes,
            c.device_from_ns,
        )
    };
    let before: BTreeMap<_, u64> = was.iter().map(|c| (key(c), c.count)).collect();
    let more = |c: &HeatCell| {
        let key = key(c);
        let count = c
            .count
            .saturating_sub(before.get(&key).copied().unwrap_or(0));
        let (owner, operation, ..) = key;
        Cell(
            c.seek_from_bytes,
            c.seek_to_bytes,
            c.device_from_ns,
            c.device_to_ns,
            owner,
            operation,
            count,
        )
    };
    is.iter().map(more).filter(|cell| cell.6 > 0).collect()
}

fn blocks(was: &[OwnerTotal], is: &[OwnerTotal]) -> Blocks {
    let mut all = Blocks::new();
    for total in is {
        let same = |o: &&OwnerTotal| o.owner == total.owner && o.operation == total.operation;
        let before = was.iter().find(same);
        let (requests, bytes) = before.map_or((0, 0), |o| (o.requests, o.bytes));
        let more = (
            total.requests.saturating_sub(requests),
            total.bytes.saturating_sub(bytes),
        );
        if more != (0, 0) {
            let of = all.entry(total.owner.clone()).or_default();
            of.insert(total.operation.clone(), more);
        }
    }
    all
}

fn moves(was: &StoreReport, is: &StoreReport) -> Vec<Move> {
    let more = |m: &lumpscope_observer::HeadMove| {
        let mut before = was.block.moves.iter();
        let before = before.find(|b| b.owner == m.owner && b.moved_by == m.moved_by);
        let (requests, seeks, travel) =
            before.map_or((0, 0, 0), |b| (b.requests, b.seeks, b.travel_bytes));
        Move(
            m.owner.clone(),
            m.moved_by.clone(),
            m.requests.saturating_sub(requests),
            m.seeks.saturating_sub(seeks),
            m.travel_bytes.saturating_sub(travel),
        )
    };
    let all = is.block.moves.iter().map(more);
    all.filter(|m| m.2 > 0).collect()
}

fn lost(was: &StoreReport, is: &StoreReport) -> BTreeMap<String, u64> {
    let more = |l: &lumpscope_observer::LostTime| {
        let before = was.block.lost.iter().find(|b| b.owner == l.owner);
        let ns = l.ns.saturating_sub(before.map_or(0, |b| b.ns));
        (l.owner.clone(), ns)
    };
    let all = is.block.lost.iter().map(more);
    all.filter(|(_, ns)| *ns > 0).collect()
}

fn totals(is: &StoreReport) -> Totals {
    let total = |o: &OperationReport| {
        let total = Total {
            count: o.count,
            errors: o.errors,
            bytes: o.bytes,
        };
        (o.method.clone(), total)
    };
    Totals {
        requests: is.operations.iter().map(total).collect(),
        block: blocks(&[], &is.block.owners),
        data_requests: is.block.data_requests,
        sequential: is.block.sequential,
        lost_events: is.audit.lost_events,
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_observer::{
        AuditReport, BlockReport, EVERY_EVENT, HeadMove, LostTime, StageTime,
    };

    use super::*;

    /// After so many puts, each with two writes of its own and a seek.
    fn report(puts: u64) -> StoreReport {
        let text = str::to_owned;
        let mut audit = AuditReport::default();
        audit.told.complete = true;
        StoreReport {
            observed: true,
            operations: vec![OperationReport {
                method: text("put"),
                count: puts,
                bytes: puts * 4096,
                total_ns: puts * 1500,
                stages: vec![StageTime {
                    stage: text("device"),
                    total_ns: puts * 1500,
                }],
                latency: vec![lumpscope_observer::Bucket {
                    from: 1024,
                    to: 2048,
                    count: puts,
                }],
                ..OperationReport::default()
            }],
            block: BlockReport {
                owners: vec![OwnerTotal {
                    owner: text("request"),
                    operation: text("write"),
                    requests: puts * 2,
                    bytes: puts * 8192,
                }],
                data_requests: puts * 2,
                sequential: puts,
                moves: vec![HeadMove {
                    owner: text("request"),
                    moved_by: text("fs-journal"),
                    requests: puts,
                    seeks: puts,
                    travel_bytes: puts * 512,
                }],
                lost: vec![LostTime {
                    owner: text("fs-journal"),
                    ns: puts * 7,
                }],
                ..BlockReport::default()
            },
            audit,
            heat: vec![HeatCell {
                owner: text("request"),
                operation: text("write"),
                seek_from_bytes: -1024,
                seek_to_bytes: -512,
                device_from_ns: 1024,
                device_to_ns: 2048,
                count: puts,
            }],
            ..StoreReport::default()
        }
    }

    fn frame(was: &StoreReport, is: &StoreReport) -> serde_json::Value {
        let frame = StoreFrame::between(was, is, EVERY_EVENT, (Vec::new(), 3), Health::default());
        let mut told = serde_json::to_value(frame).unwrap();
        assert!(told["health"].take().is_object());
        told
    }

    #[test]
    fn a_frame_tells_what_lies_between_and_the_totals() {
        let told = frame(&report(10), &report(14));
        let wanted = serde_json::json!({
            "health": null, "observed": true, "why_not": "", "doubts": "",
            "requests": {"put": {
                "count": 4, "errors": 0, "bytes": 16384, "total_ns": 6000,
                "p50_ns": 1535, "p99_ns": 2047,
                "stages": {"device": 6000}, "latency": [[1024, 2048, 4]],
            }},
            "heat": [[-1024, -512, 1024, 2048, 0, 1, 4]],
            "block": {"request": {"write": [8, 32768]}},
            "data_requests": 8, "sequential": 4,
            "moves": [["request", "fs-journal", 4, 4, 2048]],
            "lost_ns": {"fs-journal": 28},
            "dots": [], "dots_left_out": 3,
            "totals": {
                "requests": {"put": {"count": 14, "errors": 0, "bytes": 57344}},
                "block": {"request": {"write": [28, 114_688]}},
                "data_requests": 28, "sequential": 14, "lost_events": 0,
            },
        });
        assert_eq!(told, wanted);
    }

    #[test]
    fn nothing_new_is_nothing_and_doubts_are_said() {
        let mut is = report(10);
        let quiet = frame(&is, &is);
        for key in ["requests", "block", "lost_ns"] {
            assert_eq!(quiet[key], serde_json::json!({}), "{key}");
        }
        for key in ["heat", "moves"] {
            assert_eq!(quiet[key], serde_json::json!([]), "{key}");
        }
        is.audit.complete = false;
        is.audit.finding = "3 events did not fit".to_owned();
        assert_eq!(frame(&is, &is)["doubts"], "3 events did not fit");
        is.observed = false;
        is.not_observed_because = "no privileges".to_owned();
        let told = frame(&is, &is);
        assert_eq!(told["doubts"], "not observed: no privileges");
        assert_eq!(told["why_not"], "no privileges");
    }
}
