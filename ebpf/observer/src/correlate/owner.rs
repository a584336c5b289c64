//! Owners of block requests.

use std::sync::Arc;

use crate::event::{Class, Event};
use crate::name::ThreadName;

pub(super) const CLASSES: usize = 7;
/// The class of [`Owner::Unknown`].
pub(super) const UNKNOWN: usize = 5;
/// The owner classes, as reports name them.
pub const OWNERS: [&str; CLASSES] = [
    "request",
    "store",
    "fs-journal",
    "fs-metadata",
    "writeback",
    "unknown",
    "other",
];

/// Owner of a block request. Small and cheap to clone: each block request keeps one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// Exactly this request.
    Request(u64),
    /// Several requests, at least two.
    Requests(Arc<[u64]>),
    /// The store itself.
    Store,
    FsJournal,
    FsMetadata,
    Writeback,
    /// The service's process made it, in no place that the service had told of.
    Unknown,
    /// Another process.
    Other(Process),
}

/// A process that is not the service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    /// Of the thread that made the block request.
    pub(super) name: ThreadName,
    /// 0: unknown.
    pub(super) pid: u32,
    /// See [`Event::cgroup`].
    pub(super) cgroup: u64,
}

impl Process {
    /// As `dd[4711]`; empty: unknown.
    pub(super) fn text(&self) -> String {
        match self.pid {
            _ if self.name.is_empty() => String::new(),
            0 => self.name.text(),
            pid => format!("{}[{pid}]", self.name.text()),
        }
    }
}

impl Owner {
    /// Number of the class: see [`OWNERS`].
    pub(super) fn class(&self) -> usize {
        match self {
            Owner::Request(_) | Owner::Requests(_) => 0,
            Owner::Store => 1,
            Owner::FsJournal => 2,
            Owner::FsMetadata => 3,
            Owner::Writeback => 4,
            Owner::Unknown => UNKNOWN,
            Owner::Other(_) => 6,
        }
    }

    /// True: it was made for this request, perhaps among others.
    pub(super) fn serves(&self, request: u64) -> bool {
        match self {
            Owner::Request(id) => *id == request,
            Owner::Requests(ids) => ids.contains(&request),
            _ => false,
        }
    }

    /// The requests it was made for.
    pub(super) fn requests(&self) -> &[u64] {
        match self {
            Owner::Request(id) => std::slice::from_ref(id),
            Owner::Requests(ids) => ids,
            _ => &[],
        }
    }

    /// The class, with the request or the process where one is known.
    pub(super) fn short_name(&self) -> String {
        match self {
            Owner::Request(id) => format!("request {id}"),
            Owner::Other(process) if !process.name.is_empty() => {
                format!("other ({})", process.text())
            }
            other => OWNERS[other.class()].to_owned(),
        }
    }

    /// Cgroup of the process, if it is another's; 0: unknown.
    pub(super) fn cgroup(&self) -> u64 {
        match self {
            Owner::Other(process) => process.cgroup,
            _ => 0,
        }
    }

    /// The kernel side's guess, for a block request that nobody declared.
    pub(super) fn guess(event: &Event) -> Owner {
        match event.class {
            Class::Own if event.op.is_data() => Owner::Unknown,
            Class::Own => Owner::Store,
            Class::FsJournal => Owner::FsJournal,
            Class::FsMetadata => Owner::FsMetadata,
            Class::Writeback => Owner::Writeback,
            Class::Other => Owner::Other(Process {
                name: event.comm,
                pid: event.tgid,
                cgroup: event.cgroup,
            }),
        }
    }
}
