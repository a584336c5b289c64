//! What this kernel offers, and what the probes have to be told about it.

use std::fmt;

use thiserror::Error;

use crate::api::Flavour;
use crate::btf::{Btf, BtfError};
use crate::tracefs::{self, TracefsError};

pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Why a flavour cannot be used.
#[derive(Debug, Error)]
pub(crate) enum PlanError {
    /// The kernel does not publish its types.
    #[error("no type information of the kernel ({VMLINUX}): {0}")]
    NoBtf(std::io::Error),
    /// The types are not as expected.
    #[error("{0}")]
    Btf(#[from] BtfError),
    /// The tracepoint takes other arguments than the probes expect.
    #[error("tracepoint {tracepoint} has {found} arguments on this kernel, not {expected}")]
    Arguments {
        /// Tracepoint.
        tracepoint: &'static str,
        /// What the probes expect.
        expected: usize,
        /// What the kernel has.
        found: usize,
    },
    /// The disk's numbers are not next to each other.
    #[error("gendisk.first_minor does not follow gendisk.major on this kernel")]
    Gendisk,
    /// Tracefs is needed and does not answer.
    #[error("{0}")]
    Tracefs(#[from] TracefsError),
}

/// How to load one flavour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) flavour: Flavour,
    /// The tracepoint that tells of a request being made.
    pub(crate) start: &'static str,
    /// Constants for the programs.
    pub(crate) globals: Vec<(&'static str, u32)>,
}

/// Kernel release, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Release {
    /// The running kernel's; 0.0 when it cannot be read.
    pub(crate) fn running() -> Release {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Release::parse(&text).unwrap_or(Release { major: 0, minor: 0 })
    }

    fn parse(text: &str) -> Option<Release> {
        let mut parts = text.trim().split(|c: char| !c.is_ascii_digit());
        Some(Release {
            major: parts.next()?.parse().ok()?,
            minor: parts.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Flavour {
    /// Name used in reports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Flavour::TpBtf => "tp_btf",
            Flavour::RawTp => "raw_tp",
            Flavour::Classic => "classic",
        }
    }
}

/// Flavours to try, best first.
///
/// Up to 6.18 the raw flavours lose least: each program has a guard of its own. From 7.0 on the
/// kernel preempts them, and the classic flavour loses least.
pub(crate) fn ladder(release: Release, forced: Option<Flavour>) -> Vec<Flavour> {
    match forced {
        Some(flavour) => vec![flavour],
        None if release.major >= 7 => vec![Flavour::Classic, Flavour::TpBtf, Flavour::RawTp],
        None => vec![Flavour::TpBtf, Flavour::RawTp, Flavour::Classic],
    }
}

/// Finds out what a flavour has to be told.
pub(crate) fn plan(flavour: Flavour) -> Result<Plan, PlanError> {
    match flavour {
        Flavour::TpBtf | Flavour::RawTp => {
            let bytes = std::fs::read(VMLINUX).map_err(PlanError::NoBtf)?;
            raw_plan(flavour, &Btf::parse(&bytes)?)
        }
        Flavour::Classic => classic_plan(),
    }
}

fn raw_plan(flavour: Flavour, btf: &Btf<'_>) -> Result<Plan, PlanError> {
    let start = "block_io_start";
    for (tracepoint, expected) in [(start, 1), ("block_rq_issue", 1), ("block_rq_complete", 3)] {
        let found = btf.tracepoint_arguments(tracepoint)?;
        if found != expected {
            return Err(PlanError::Arguments {
                tracepoint,
                expected,
                found,
            });
        }
    }
    let major = btf.member_offset("gendisk", "major")?;
    if btf.member_offset("gendisk", "first_minor")? != major + 4 {
        return Err(PlanError::Gendisk);
    }
    let globals = vec![
        ("RQ_QUEUE", btf.member_offset("request", "q")?),
        ("RQ_FLAGS", btf.member_offset("request", "cmd_flags")?),
        ("RQ_LEN", btf.member_offset("request", "__data_len")?),
        ("RQ_SECTOR", btf.member_offset("request", "__sector")?),
        // Without it a flush whose completion was missed looks as if it had been sent twice.
        (
            "RQ_BORN",
            btf.member_offset("request", "start_time_ns").unwrap_or(0),
        ),
        ("QUEUE_DISK", btf.member_offset("request_queue", "disk")?),
        ("DISK_MAJOR", major),
    ];
    Ok(Plan {
        flavour,
        start,
        globals,
    })
}

fn classic_plan() -> Result<Plan, PlanError> {
    let root = tracefs::find()?;
    let (start, start_format) = match tracefs::format_of(&root, "block_io_start") {
        Ok(format) => ("block_io_start", format),
        // Before 6.5.
        Err(_) => ("block_getrq", tracefs::format_of(&root, "block_getrq")?),
    };
    let issue = tracefs::format_of(&root, "block_rq_issue")?;
    let done = tracefs::format_of(&root, "block_rq_complete")?;
    let offset = tracefs::field_offset;
    let globals = vec![
        ("TP_DEV", offset(&done, "block_rq_complete", "dev")?),
        ("TP_SECTOR", offset(&done, "block_rq_complete", "sector")?),
        (
            "TP_SECTORS",
            offset(&done, "block_rq_complete", "nr_sector")?,
        ),
        ("START_RWBS", offset(&start_format, start, "rwbs")?),
        ("ISSUE_RWBS", offset(&issue, "block_rq_issue", "rwbs")?),
        ("DONE_RWBS", offset(&done, "block_rq_complete", "rwbs")?),
        ("DONE_ERROR", offset(&done, "block_rq_complete", "error")?),
    ];
    Ok(Plan {
        flavour: Flavour::Classic,
        start,
        globals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_two_numbers() {
        let of = Release::parse;
        assert_eq!(
            of("6.18.44-fc-v445\n"),
            Some(Release {
                major: 6,
                minor: 18
            })
        );
        assert_eq!(of("7.2-rc1"), Some(Release { major: 7, minor: 2 }));
        assert_eq!(of("linux"), None);
    }

    #[test]
    fn the_ladder_begins_with_what_loses_least() {
        let first = |major| ladder(Release { major, minor: 0 }, None)[0];
        assert_eq!(first(6), Flavour::TpBtf);
        assert_eq!(first(7), Flavour::Classic);
        let forced = ladder(
            Release {
                major: 6,
                minor: 18,
            },
            Some(Flavour::Classic),
        );
        assert_eq!(forced, [Flavour::Classic]);
    }
}
