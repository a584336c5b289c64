//! A request's timeline.
//!
//! The service measures how long each stage took, not when it began. The order is known:
//! receiving, waiting for its turn, index, data, journal from the begin on, the reply up to the
//! end; a rest that no stage claims lies before the reply. So the places of these steps are
//! derived, while those of the block requests are what the kernel's clock said.

use lumpscope_units::human::{short_bytes, short_ns};

use crate::api::{Purpose, STAGES};
use crate::correlate::requests::Block;
use crate::event::BlockOp;
use crate::report::Step;

use super::RequestFacts;
use super::words::{behind, place_text, purpose_name, waited_for};

/// All steps, in the order of time.
pub(super) fn steps(known: &RequestFacts<'_>, blocks: &[Block]) -> Vec<Step> {
    let [
        recv,
        sched,
        index,
        submit,
        queue,
        device,
        journal,
        wait,
        write,
        flush,
        reply,
    ] = *known.stages;
    let mut steps = Vec::new();
    let data = submit.saturating_add(queue).saturating_add(device);
    let in_system = if data == submit {
        "data I/O; what the disk did in it was not seen".to_owned()
    } else {
        format!(
            "none of its block requests was queued or at the disk, spread over {} of data I/O",
            short_ns(data)
        )
    };
    let plan = [
        (0, recv, recv, "received"),
        (1, sched, sched, "waited for the store's turn"),
        (2, index, index, "index lookup or block allocation"),
        (3, submit, data, &in_system),
        (7, wait, wait, &format!("waited for {}", waited_for(known))),
        (
            8,
            write,
            write,
            "its batch is written to the journal, until the service has seen that",
        ),
        (
            9,
            flush,
            flush,
            "flushes that it needs, until the service has seen their end",
        ),
        (
            6,
            journal,
            journal,
            "commit, apart from waits, writes and flushes",
        ),
    ];
    let mut at: u64 = 0;
    for (stage, took_ns, next, text) in plan {
        if took_ns > 0 {
            steps.push(stage_step(stage, at, took_ns, text));
        }
        at = at.saturating_add(next);
    }
    let end = known.ended.total_ns().saturating_sub(reply);
    if reply > 0 {
        steps.push(stage_step(10, end, reply, "replied"));
    }
    steps.extend(blocks.iter().map(|block| of_block(known, block)));
    steps.sort_by_key(|step| step.from_ns);
    steps
}

fn stage_step(stage: usize, at: u64, took_ns: u64, text: &str) -> Step {
    Step {
        from_ns: i64::try_from(at).unwrap_or(i64::MAX),
        took_ns,
        stage: STAGES[stage].to_owned(),
        text: text.to_owned(),
    }
}

fn of_block(known: &RequestFacts<'_>, block: &Block) -> Step {
    let event = &block.event;
    let stage = match block.share.purpose {
        Purpose::Flush => "flush",
        Purpose::Journal | Purpose::Header if event.op == BlockOp::Flush => "flush",
        Purpose::Data | Purpose::Scrub | Purpose::Recovery | Purpose::Checkpoint => "device",
        Purpose::Journal | Purpose::Header => "write",
    };
    Step {
        from_ns: known.after_begin(event.first_ns()),
        took_ns: event.last_ns().saturating_sub(event.first_ns()),
        stage: stage.to_owned(),
        text: format!("{}: {}", what(known, block), times(block)),
    }
}

fn what(known: &RequestFacts<'_>, block: &Block) -> String {
    let (event, share) = (&block.event, &block.share);
    let shared = if share.sharers.is_some() {
        ", shared with other requests"
    } else {
        ""
    };
    if event.op == BlockOp::Flush {
        return format!("flush of the disk's cache{shared}");
    }
    let purpose = match share.purpose {
        Purpose::Data => "",
        other => purpose_name(other),
    };
    let space = if purpose.is_empty() { "" } else { " " };
    format!(
        "{purpose}{space}{} of {} at sector {}{shared}, {}",
        event.op.name(),
        short_bytes(u64::from(event.sectors) * 512),
        event.sector,
        place_text(known, block)
    )
}

fn times(block: &Block) -> String {
    let event = &block.event;
    let mut parts = Vec::new();
    if event.queue_ns.is_some() && event.issue_ns.is_some() {
        let waited = short_ns(event.queue_time_ns());
        parts.push(match behind(block.ahead, "") {
            None => format!("queued {waited}"),
            Some(behind) => format!("queued {waited} {behind}"),
        });
    } else if event.op != BlockOp::Flush {
        parts.push("how long it waited was not seen".to_owned());
    }
    parts.push(match (event.issue_ns, event.at_device_ns()) {
        (_, Some(_)) => format!("{} at the device", short_ns(event.device_time_ns())),
        (Some(_), None) => "when it completed was not seen".to_owned(),
        (None, _) => "when it was sent was not seen".to_owned(),
    });
    if event.is_of_ring_worker() {
        parts.push("issued by an io_uring worker".to_owned());
    }
    if block.share.uncertain {
        parts.push("possibly not its own".to_owned());
    }
    if event.failed {
        parts.push(match event.failure_name() {
            "" => "failed".to_owned(),
            why => format!("failed: {why}"),
        });
    }
    parts.join(", ")
}
