//! Measures the correlator: nanoseconds per block request, without kernel or disk.
//!
//! `cargo run --release -p lumpscope-observer --example correlate_cost`
//!
//! Half of the block requests are this service's reads, each declared, ended and counted; the
//! rest are another process's. Then all of them are another process's. They come at 100,000 a
//! second, so below 10,000 ns the correlator keeps up.

use lumpscope_observer::{Correlator, Input, StoreReport};
use rustix::time::{ClockId, clock_gettime};

const BLOCKS: u64 = 200_000;
/// One block request every 10 us.
const EVERY_NS: u64 = 10_000;
/// The ring is drained every 50 ms.
const DRAIN_EVERY: u64 = 5000;

/// Time on a processor: the machine may be busy with other things.
fn processor_ns() -> i128 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

fn input(json: &str) -> Input {
    serde_json::from_str(json).expect("an input")
}

/// Inputs as the observer learns them: what was told in a period before that period's events.
/// `own_in`: one of so many is this service's; 0: none.
fn inputs(depth: u64, own_in: u64) -> Vec<Input> {
    let mut all = Vec::new();
    all.push(input(
        r#"{"placed":{"store":0,"placement":{"dev":1,"file_system":"","extents":
            [{"offset":0,"sector":0,"len":1099511627776}]}}}"#,
    ));
    // One long I/O must not make all others slow to find.
    all.push(input(
        r#"{"declared":{"store":0,"token":999999999,"requests":[],"purpose":"data","op":"write",
            "offset":1099000000000,"len":268435456,"begin_ns":1}}"#,
    ));
    for period in 0..BLOCKS / DRAIN_EVERY {
        let mut events = Vec::new();
        for number in period * DRAIN_EVERY..(period + 1) * DRAIN_EVERY {
            let done = (number + depth + 1) * EVERY_NS;
            let (queue, issue) = (done - depth * EVERY_NS, done - depth * EVERY_NS / 2);
            // Beside each other, as a log is written.
            let sector = number * 8;
            let own = own_in > 0 && number % own_in == 0;
            if own {
                let (begin, end) = (queue - 500, done + 500);
                let (from, to) = (begin - 500, end + 500);
                all.push(input(&format!(
                    r#"{{"declared":{{"store":0,"token":{number},"requests":[{number}],
                        "purpose":"data","op":"read","offset":{},"len":4096,
                        "begin_ns":{begin}}}}}"#,
                    sector * 512
                )));
                all.push(input(&format!(
                    r#"{{"finished":{{"store":0,"token":{number},"end_ns":{end}}}}}"#
                )));
                all.push(input(&format!(
                    r#"{{"ended":{{"request":{number},"store":0,"method":"get","bytes":4096,
                        "begin_ns":{from},"end_ns":{to},"ok":true,
                        "stages_ns":[0,0,0,{},0,0]}}}}"#,
                    to - from
                )));
            }
            let class = if own { "own" } else { "other" };
            events.push(input(&format!(
                r#"{{"event":{{"dev":1,"op":"read","class":"{class}","queue_ns":{queue},
                    "issue_ns":{issue},"done_ns":{done},"sector":{sector},"sectors":8,
                    "bytes":4096,"seek":1,"own":{own},"flush_parent":false,"failed":false,
                    "tgid":1,"comm":"someone"}}}}"#
            )));
        }
        all.append(&mut events);
        let until_ns = ((period + 1) * DRAIN_EVERY + depth) * EVERY_NS;
        all.push(Input::Drained { until_ns });
    }
    all
}

fn main() {
    for (depth, own_in) in [(1, 2), (32, 2), (256, 2), (1, 0), (256, 0)] {
        let inputs = inputs(depth, own_in);
        let mut correlator = Correlator::new(1);
        let begin = processor_ns();
        for input in inputs {
            correlator.apply(input);
        }
        let took = processor_ns() - begin;
        let mut report = StoreReport::default();
        correlator.fill(0, &mut report);
        println!(
            "{depth:>4} in flight: {:>6} ns per block request ({} requests, {} bytes attributed, {})",
            took / i128::from(BLOCKS),
            report.operations.first().map_or(0, |o| o.count),
            report.block.attributed_bytes,
            if own_in > 0 {
                "half others'"
            } else {
                "all others'"
            },
        );
    }
}
