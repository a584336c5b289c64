//! Says in the log what the scrubbers find.

use std::collections::BTreeMap;
use std::time::Duration;

use lumpscope_engine::ScrubStatus;
use tracing::{error, info, warn};

use crate::stores::Stores;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(2);

/// Findings reported so far for one store.
#[derive(Default)]
struct ReportedFindings {
    findings: u64,
    passes: u64,
}

/// Looks at the scrubbers as long as it is polled.
pub async fn watch(stores: Stores) {
    // By index: a store that was taken out and added again has nothing in common with the one before.
    let mut told: BTreeMap<usize, ReportedFindings> = BTreeMap::new();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let all = stores.all();
        told.retain(|index, _| all.iter().any(|named| named.index == *index));
        for named in all.iter() {
            let told = told.entry(named.index).or_default();
            report(&named.name, &named.store.scrub_status(), told);
        }
    }
}

fn report(store: &str, status: &ScrubStatus, told: &mut ReportedFindings) {
    let new = usize::try_from(told.findings).unwrap_or(usize::MAX);
    for finding in status.findings.list.iter().skip(new) {
        let kind = finding.kind;
        error!(store, ?kind, "the scrubber found damage: {finding}");
    }
    let listed = status.findings.list.len() as u64;
    if status.findings.total > told.findings.max(listed) {
        let more = status.findings.total - told.findings.max(listed);
        warn!(store, more, "the scrubber found more damage than it lists");
    }
    told.findings = status.findings.total;
    if let Some(pass) = status.last_pass.filter(|_| status.passes > told.passes) {
        let (lumps, bytes, damaged) = (pass.lumps, pass.bytes, pass.damaged);
        info!(store, lumps, bytes, damaged, "the scrubber ended a pass");
    }
    told.passes = status.passes;
}
