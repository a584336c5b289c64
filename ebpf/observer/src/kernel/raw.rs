//! The flavours that are handed pointers: where the members are, and which argument is which.

use crate::api::Flavour;
use crate::btf::{Btf, BtfError};

use super::{HAS_START, Hook, Plan, PlanError};

const GETRQ: &str = "block_getrq";
const IO_START: &str = "block_io_start";
const BIO_QUEUE: &str = "block_bio_queue";
const BIO_COMPLETE: &str = "block_bio_complete";
const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";

type Globals = Vec<(&'static str, u32)>;

/// A program's name with BTF tracepoints, and with raw ones.
struct Name(&'static str, &'static str);

impl Name {
    fn of(&self, flavour: Flavour) -> &'static str {
        if flavour == Flavour::TpBtf {
            self.0
        } else {
            self.1
        }
    }
}

pub(super) fn plan(
    flavour: Flavour,
    btf: &Btf<'_>,
    hidden: &dyn Fn(&str) -> bool,
) -> Result<Plan, PlanError> {
    let arguments = |tracepoint: &'static str| match hidden(tracepoint) {
        true => Err(PlanError::NoTracepoint(tracepoint)),
        false => Ok(btf.tracepoint_arguments(tracepoint)?),
    };
    let mut globals = of_requests(btf)?;
    if arguments(COMPLETE)? != 3 {
        return Err(unknown(COMPLETE, arguments(COMPLETE)?));
    }
    let done = Name("done_btf", "done_raw");
    let issue = match arguments(ISSUE)? {
        1 => Name("issue_btf", "issue_raw"),
        2 => Name("issue_q_btf", "issue_q_raw"),
        found => return Err(unknown(ISSUE, found)),
    };
    let bios = of_bios(btf);
    let (start, tracepoint, why_not) = start(&arguments, bios.as_ref().err());
    if tracepoint == GETRQ && why_not.is_empty() {
        globals.push(("RQ_BIO", btf.member_offset("request", "bio")?));
    }
    globals.push((HAS_START, u32::from(why_not.is_empty())));
    globals.extend(bios.clone().unwrap_or_default());
    let bio_hooks = match bios {
        Ok(_) => bio_hooks(flavour, &arguments).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Ok(Plan {
        flavour,
        hooks: vec![
            Hook::needed(done.of(flavour), COMPLETE),
            Hook::needed(issue.of(flavour), ISSUE),
            Hook::start(start.of(flavour), tracepoint).missing(why_not),
        ],
        bio_hooks,
        globals,
    })
}

fn unknown(tracepoint: &'static str, found: usize) -> PlanError {
    PlanError::Arguments { tracepoint, found }
}

type Arguments<'a> = &'a dyn Fn(&'static str) -> Result<usize, PlanError>;

/// How requests being made are seen: the program, its tracepoint, and why not.
///
/// Before 6.5 only the bio is shown that a request will be made of. It is remembered by the bio's
/// address and taken over when the request is sent.
fn start(arguments: Arguments<'_>, no_bios: Option<&BtfError>) -> (Name, &'static str, String) {
    match arguments(IO_START) {
        Ok(1) => return (Name("start_btf", "start_raw"), IO_START, String::new()),
        Ok(found) => {
            let why = unknown(IO_START, found).to_string();
            return (Name("start_btf", "start_raw"), IO_START, why);
        }
        Err(_) => {}
    }
    let first = Name("start_bio_btf", "start_bio_raw");
    if let Some(error) = no_bios {
        return (first, GETRQ, error.to_string());
    }
    match arguments(GETRQ) {
        Ok(1) => (first, GETRQ, String::new()),
        Ok(2 | 3) => {
            let second = Name("start_bio_q_btf", "start_bio_q_raw");
            (second, GETRQ, String::new())
        }
        Ok(found) => (first, GETRQ, unknown(GETRQ, found).to_string()),
        Err(error) => (first, GETRQ, error.to_string()),
    }
}

fn bio_hooks(flavour: Flavour, arguments: Arguments<'_>) -> Result<Vec<Hook>, PlanError> {
    let queue = match arguments(BIO_QUEUE)? {
        1 => Name("bio_queue_btf", "bio_queue_raw"),
        2 => Name("bio_queue_q_btf", "bio_queue_q_raw"),
        found => return Err(unknown(BIO_QUEUE, found)),
    };
    if arguments(BIO_COMPLETE)? != 2 {
        return Err(unknown(BIO_COMPLETE, arguments(BIO_COMPLETE)?));
    }
    let done = Name("bio_done_btf", "bio_done_raw");
    Ok(vec![
        Hook::needed(done.of(flavour), BIO_COMPLETE),
        Hook::needed(queue.of(flavour), BIO_QUEUE),
    ])
}

fn of_requests(btf: &Btf<'_>) -> Result<Globals, PlanError> {
    let major = btf.member_offset("gendisk", "major")?;
    if btf.member_offset("gendisk", "first_minor")? != major + 4 {
        return Err(PlanError::Gendisk);
    }
    // Until 5.16 a request names its disk.
    let disk = match btf.member_offset("request", "rq_disk") {
        Ok(offset) => ("RQ_DISK", offset),
        Err(_) => ("QUEUE_DISK", btf.member_offset("request_queue", "disk")?),
    };
    let errno = btf.tracepoint_argument(COMPLETE, 1)? != "blk_status_t";
    Ok(vec![
        ("RQ_QUEUE", btf.member_offset("request", "q")?),
        ("RQ_FLAGS", btf.member_offset("request", "cmd_flags")?),
        ("RQ_LEN", btf.member_offset("request", "__data_len")?),
        ("RQ_SECTOR", btf.member_offset("request", "__sector")?),
        // Without it a flush whose completion was missed looks as if it had been sent twice.
        (
            "RQ_BORN",
            btf.member_offset("request", "start_time_ns").unwrap_or(0),
        ),
        disk,
        ("DISK_MAJOR", major),
        ("DONE_ERRNO", u32::from(errno)),
    ])
}

fn of_bios(btf: &Btf<'_>) -> Result<Globals, BtfError> {
    let iter = btf.member_offset("bio", "bi_iter")?;
    let mut globals = vec![
        ("BIO_NEXT", btf.member_offset("bio", "bi_next")?),
        ("BIO_FLAGS", btf.member_offset("bio", "bi_opf")?),
        ("BIO_STATUS", btf.member_offset("bio", "bi_status")?),
        (
            "BIO_SECTOR",
            iter + btf.member_offset("bvec_iter", "bi_sector")?,
        ),
        (
            "BIO_BYTES",
            iter + btf.member_offset("bvec_iter", "bi_size")?,
        ),
    ];
    match btf.member_offset("bio", "bi_bdev") {
        Ok(offset) => {
            globals.push(("BIO_DISK", offset));
            globals.push(("BDEV_DISK", btf.member_offset("block_device", "bd_disk")?));
        }
        // Before 5.12.
        Err(_) => globals.push(("BIO_DISK", btf.member_offset("bio", "bi_disk")?)),
    }
    Ok(globals)
}
