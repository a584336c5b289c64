//! The flavour that is handed records: where the fields are.

use std::path::Path;

use crate::api::Flavour;
use crate::tracefs;

use super::{HAS_START, Hook, LoadPlan, PlanError};

const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";
const BIO_QUEUE: &str = "block_bio_queue";
const BIO_COMPLETE: &str = "block_bio_complete";
const REMAP: &str = "block_bio_remap";

/// A tracepoint and the description of its record.
struct TracepointFormat {
    name: &'static str,
    format: String,
}

impl TracepointFormat {
    fn offset(&self, field: &str) -> Result<u32, PlanError> {
        Ok(tracefs::field_offset(&self.format, self.name, field)?)
    }
}

pub(super) fn plan(root: &Path, hidden: &dyn Fn(&str) -> bool) -> Result<LoadPlan, PlanError> {
    let record = |name: &'static str| match hidden(name) {
        true => Err(PlanError::NoTracepoint(name)),
        false => Ok(TracepointFormat {
            name,
            format: tracefs::format_of(root, name)?,
        }),
    };
    let (done, issue) = (record(COMPLETE)?, record(ISSUE)?);
    // block_getrq: before 6.5.
    let start = record("block_io_start").or_else(|_| record("block_getrq"));
    let mut globals = vec![
        ("TP_DEV", done.offset("dev")?),
        ("TP_SECTOR", done.offset("sector")?),
        ("TP_SECTORS", done.offset("nr_sector")?),
        ("ISSUE_RWBS", issue.offset("rwbs")?),
        ("DONE_RWBS", done.offset("rwbs")?),
        ("DONE_ERROR", done.offset("error")?),
    ];
    same_places(&done, &issue)?;
    let seen = start.and_then(|start| {
        same_places(&done, &start)?;
        Ok((start.name, start.offset("rwbs")?))
    });
    let start = match &seen {
        Ok((name, rwbs)) => {
            globals.push(("START_RWBS", *rwbs));
            Hook::start("start_tp", name)
        }
        Err(error) => Hook::start("start_tp", "block_io_start").missing(error.to_string()),
    };
    globals.push((HAS_START, u32::from(seen.is_ok())));
    let bios = record(BIO_QUEUE).and_then(|queue| bios(&done, &queue, &record(BIO_COMPLETE)?));
    globals.extend(bios.as_ref().ok().into_iter().flatten());
    let bio_hooks = bios.map_err(|error| error.to_string()).map(|_| {
        vec![
            Hook::needed("bio_done_tp", BIO_COMPLETE),
            Hook::needed("bio_queue_tp", BIO_QUEUE),
        ]
    });
    let remapped = record(REMAP).and_then(|remap| {
        same_places(&done, &remap)?;
        remap.offset("old_dev")
    });
    globals.extend(remapped.as_ref().ok().map(|old| ("TP_OLD_DEV", *old)));
    let path_hooks = remapped.map_err(|error| error.to_string());
    Ok(LoadPlan {
        flavour: Flavour::Classic,
        hooks: vec![
            Hook::needed("done_tp", COMPLETE),
            Hook::needed("issue_tp", ISSUE),
            start,
        ],
        bio_hooks,
        path_hooks: path_hooks.map(|_| vec![Hook::needed("path_tp", REMAP)]),
        globals,
    })
}

fn bios(
    like: &TracepointFormat,
    queue: &TracepointFormat,
    done: &TracepointFormat,
) -> Result<[(&'static str, u32); 3], PlanError> {
    same_places(like, queue)?;
    same_places(like, done)?;
    Ok([
        ("BIO_QUEUE_RWBS", queue.offset("rwbs")?),
        ("BIO_DONE_RWBS", done.offset("rwbs")?),
        ("BIO_DONE_ERROR", done.offset("error")?),
    ])
}

/// The programs read these three at the same place in every record.
fn same_places(one: &TracepointFormat, other: &TracepointFormat) -> Result<(), PlanError> {
    for field in ["dev", "sector", "nr_sector"] {
        if one.offset(field)? != other.offset(field)? {
            return Err(PlanError::Records { field });
        }
    }
    Ok(())
}
