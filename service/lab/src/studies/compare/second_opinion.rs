//! bpftrace beside the probes: both count the block requests of one disk while the workload runs.

use std::time::Duration;

use anyhow::{anyhow, bail};
use lumpscope_proto::v1::StoreReport;

use super::report::TracerView;
use super::{Context, fetch_report};
use crate::failure::cannot_do;
use crate::tracer::Tracer;

/// A pause in which what the disk still does comes to an end.
const PAUSE: Duration = Duration::from_millis(20);
/// How often the disk is looked at for a moment in which it does nothing.
const ATTEMPTS: u32 = 50;

/// A tracer that counts, and what the probes had seen when it began.
pub(super) struct SecondOpinion {
    tracer: Tracer,
    before: (u64, u64),
}

impl SecondOpinion {
    /// Starts the tracer if one was asked for.
    pub(super) async fn start(
        context: &Context<'_>,
        store: &'static str,
    ) -> anyhow::Result<Option<SecondOpinion>> {
        let Some(script) = &context.pass.args.bpftrace else {
            return Ok(None);
        };
        let disk = quiet(context, store).await?;
        let (major, minor) = device_number(&disk.device)?;
        let tracer = Tracer::start(script, major, minor)?;
        let before = quiet(context, store).await?;
        if counts(&before) == counts(&disk) {
            let before = counts(&before);
            return Ok(Some(SecondOpinion { tracer, before }));
        }
        // Something was done while the tracer came up: what, it may or may not have counted.
        drop(tracer);
        let tracer = Tracer::start(script, major, minor)?;
        let before = counts(&quiet(context, store).await?);
        Ok(Some(SecondOpinion { tracer, before }))
    }

    /// Stops the tracer and compares.
    pub(super) async fn finish(
        self,
        context: &Context<'_>,
        store: &'static str,
    ) -> anyhow::Result<TracerView> {
        let after = counts(&quiet(context, store).await?);
        let (requests, bytes) = self.tracer.finish()?.all();
        let seen_requests = after.0.saturating_sub(self.before.0);
        let seen_bytes = after.1.saturating_sub(self.before.1);
        Ok(TracerView {
            requests,
            bytes,
            seen_requests,
            seen_bytes,
            equal: (requests, bytes) == (seen_requests, seen_bytes),
        })
    }
}

fn counts(disk: &StoreReport) -> (u64, u64) {
    let audit = disk.audit.as_ref();
    audit.map_or((0, 0), |audit| (audit.seen_requests, audit.seen_bytes))
}

/// The report of a disk that did nothing for a moment; the last one when it never rests.
async fn quiet(context: &Context<'_>, store: &'static str) -> anyhow::Result<StoreReport> {
    let mut last = report(context, store).await?;
    for _ in 0..ATTEMPTS {
        tokio::time::sleep(PAUSE).await;
        let now = report(context, store).await?;
        if counts(&now) == counts(&last) {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

async fn report(context: &Context<'_>, store: &'static str) -> anyhow::Result<StoreReport> {
    let disk = fetch_report(&context.service.url, store).await?;
    let disk = disk.unwrap_or_default();
    if disk.observed {
        return Ok(disk);
    }
    let why = disk.not_observed_because;
    bail!("{store}: its disk is not observed ({why}): leave --bpftrace out")
}

/// Major and minor of a whole disk by its name in `/sys/block`.
fn device_number(disk: &str) -> anyhow::Result<(u32, u32)> {
    let path = format!("/sys/block/{disk}/dev");
    let text = std::fs::read_to_string(&path).map_err(cannot_do(format!("read {path}")))?;
    text.trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| anyhow!("{path} holds no device number: {text:?}"))
}
