//! Pictures of recorded traces, side by side.

use lumpscope_platter::trace::{Trace, Traced};

use crate::experiment::report::{Heat, Page, Scatter, TraceParts, of_trace};

/// How much of a trace a picture shows: more would lie on itself.
const FIRST_NS: u64 = 5_000_000_000;
/// Most requests.
const MOST_REQUESTS: usize = 20_000;
const COUNTED: &str = "requests";

/// Adds the begin of each trace: where it went, and how far.
pub(super) fn add<'a>(page: &mut Page, traces: impl Iterator<Item = (&'a str, &'a Trace)>) {
    let parts: Vec<TraceParts> = traces
        .map(|(name, trace)| of_trace(name, &begin_of(trace)))
        .collect();
    if parts.is_empty() {
        return;
    }
    let scatter = Scatter {
        caption: "Where the requests went in the first seconds, on the fast disk that recorded \
                  them."
            .to_owned(),
        x: TraceParts::time(),
        y: TraceParts::place(),
        counted: COUNTED.to_owned(),
        panels: parts.iter().map(|parts| parts.scatter.clone()).collect(),
    };
    let seeks = Heat {
        caption: "How far the head would have had to go from one request to the next.".to_owned(),
        x: TraceParts::time(),
        y: TraceParts::seek(),
        counted: COUNTED.to_owned(),
        panels: parts.into_iter().map(|parts| parts.seeks).collect(),
    };
    page.section("The first seconds").add(scatter).add(seeks);
}

fn begin_of(trace: &Trace) -> Trace {
    let begin = trace.requests.first().map_or(0, |first| first.issue_ns);
    let early = |request: &&Traced| request.issue_ns.saturating_sub(begin) < FIRST_NS;
    Trace {
        requests: trace
            .requests
            .iter()
            .take_while(early)
            .take(MOST_REQUESTS)
            .copied()
            .collect(),
        missing: trace.missing,
    }
}
