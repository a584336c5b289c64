//! Finds out what this kernel offers, and the constants that the probes need on it.

use std::fmt;

use thiserror::Error;

use crate::api::Flavour;
use crate::btf::{Btf, BtfError, VMLINUX};
use crate::submission;
use crate::tracefs::{self, TracefsError};

mod classic;
mod raw;

/// Tells the programs whether they are shown when requests are made.
const HAS_START: &str = "HAS_START";

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
    #[error("tracepoint {tracepoint} has {found} arguments on this kernel, which is not known")]
    Arguments {
        tracepoint: &'static str,
        found: usize,
    },
    /// The records differ where the probes take them to be alike.
    #[error("`{field}` is not at the same place in all records of block tracepoints")]
    Records { field: &'static str },
    /// The tracepoint is not there, or counts as missing.
    #[error("this kernel has no tracepoint {0}")]
    NoTracepoint(&'static str),
    /// The disk's numbers are not next to each other.
    #[error("gendisk.first_minor does not follow gendisk.major on this kernel")]
    Gendisk,
    /// Tracefs is needed and does not answer.
    #[error("{0}")]
    Tracefs(#[from] TracefsError),
}

/// How to load one flavour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadPlan {
    pub(crate) flavour: Flavour,
    /// In the order in which they are to be attached.
    pub(crate) hooks: Vec<Hook>,
    /// For disks that make no requests; an error says why they cannot be watched.
    pub(crate) bio_hooks: Result<Vec<Hook>, String>,
    /// For disks that paths lead to; an error says why they cannot be watched.
    pub(crate) path_hooks: Result<Vec<Hook>, String>,
    /// Constants for the programs.
    pub(crate) globals: Vec<(&'static str, u32)>,
}

/// A program, and where it is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    /// Name of the program in the object.
    pub(crate) program: &'static str,
    /// `block` or another system of tracepoints.
    pub(crate) system: &'static str,
    pub(crate) tracepoint: &'static str,
    /// Nothing works without it.
    pub(crate) needed: bool,
    /// It tells when requests are made.
    pub(crate) tells_start: bool,
    /// Why it cannot be attached, as far as is known before it is tried; empty: it can.
    pub(crate) why_not: String,
}

impl LoadPlan {
    /// The kernel refused a program: does without it, if that can be done.
    pub(crate) fn give_up(&mut self, program: &str, why_not: &str) -> bool {
        let wanted = |hook: &&mut Hook| hook.program == program && hook.why_not.is_empty();
        let Some(hook) = self.hooks.iter_mut().find(wanted) else {
            return false;
        };
        if hook.needed {
            return false;
        }
        hook.why_not = why_not.to_owned();
        if hook.tells_start {
            self.globals.retain(|(name, _)| *name != HAS_START);
            self.globals.push((HAS_START, 0));
        }
        true
    }
}

impl Hook {
    pub(crate) fn needed(program: &'static str, tracepoint: &'static str) -> Hook {
        Hook {
            program,
            system: "block",
            tracepoint,
            needed: true,
            tells_start: false,
            why_not: String::new(),
        }
    }

    /// Tells when requests are made: without it only the time in the queue, the process and what
    /// follows from them are unknown.
    pub(crate) fn start(program: &'static str, tracepoint: &'static str) -> Hook {
        Hook {
            needed: false,
            tells_start: true,
            ..Hook::needed(program, tracepoint)
        }
    }

    /// Tells what an io_uring does; the programs of the flavours in the order of [`Flavour`].
    fn of_ring(flavour: Flavour, programs: [&'static str; 3], tracepoint: &'static str) -> Hook {
        let program = programs[match flavour {
            Flavour::TpBtf => 0,
            Flavour::RawTp => 1,
            Flavour::Classic => 2,
        }];
        Hook {
            system: "io_uring",
            needed: false,
            ..Hook::needed(program, tracepoint)
        }
    }

    pub(crate) fn missing(self, why_not: String) -> Hook {
        Hook { why_not, ..self }
    }

    /// True: it is, or can be, attached.
    pub(crate) fn is_there(&self) -> bool {
        self.why_not.is_empty()
    }
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
/// Up to 6.18 the raw flavours lose least: the kernel checks each program for recursion by itself.
/// From 7.0 on it preempts them, and the classic flavour loses least.
pub(crate) fn ladder(release: Release, forced: Option<Flavour>) -> Vec<Flavour> {
    match forced {
        Some(flavour) => vec![flavour],
        None if release.major >= 7 => vec![Flavour::Classic, Flavour::TpBtf, Flavour::RawTp],
        None => vec![Flavour::TpBtf, Flavour::RawTp, Flavour::Classic],
    }
}

/// Finds out what a flavour has to be told. Hooks of these names count as missing.
pub(crate) fn plan(flavour: Flavour, hidden: &[String]) -> Result<LoadPlan, PlanError> {
    let hidden = |hook: &str| hidden.iter().any(|name| name == hook);
    let mut plan = match flavour {
        Flavour::TpBtf | Flavour::RawTp => {
            let bytes = std::fs::read(VMLINUX).map_err(PlanError::NoBtf)?;
            raw::plan(flavour, &Btf::parse(&bytes)?, &hidden)
        }
        Flavour::Classic => classic::plan(&tracefs::find()?, &hidden),
    }?;
    let programs = ["submit_btf", "submit_raw", "submit_tp"];
    let submit = Hook::of_ring(flavour, programs, "io_uring_submit_req");
    plan.hooks.push(match submission::ring_hook(flavour) {
        Ok(ring) => {
            plan.globals.push(ring.global);
            Hook {
                tracepoint: ring.tracepoint,
                ..submit
            }
        }
        Err(why) => submit.missing(why),
    });
    let programs = ["punt_btf", "punt_raw", "punt_tp"];
    let punt = Hook::of_ring(flavour, programs, submission::PUNTED);
    plan.hooks.push(match submission::punt_globals(flavour) {
        Ok(globals) => {
            plan.globals.extend(globals);
            punt
        }
        Err(why) => punt.missing(why),
    });
    plan.globals.push(("TASK_FLAGS", task_flags()));
    Ok(plan)
}

/// Where a thread's flags are, which tell kernel threads; 0: the kernel does not publish its types.
fn task_flags() -> u32 {
    let bytes = std::fs::read(VMLINUX).unwrap_or_default();
    let offset = Btf::parse(&bytes).and_then(|btf| btf.member_offset("task_struct", "flags"));
    offset.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_two_numbers() {
        let of = Release::parse;
        let found = of("6.18.44-fc-v445\n");
        assert_eq!(
            found,
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
