//! A completed block request, in user space's terms.

use lumpscope_ebpf_common::{BlockEvent, NO_SEEK, class, flag, flag2, op, row};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::name::ThreadName;

/// Names of the operations in reports.
pub const OPERATIONS: [&str; 5] = op::NAMES;

/// One completed block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Whole disk: see [`lumpscope_ebpf_common::kernel_dev`].
    pub dev: u32,
    /// Its operation.
    pub op: BlockOp,
    /// Class of its likely owner, from its flags and the task that started it.
    pub class: Class,
    /// When it was made; absent: its start was not seen.
    pub queue_ns: Option<u64>,
    /// When the driver was given it; absent: never.
    pub issue_ns: Option<u64>,
    /// When it completed. With `done_unknown`: the last time at which it is known to have been
    /// under way.
    pub done_ns: u64,
    /// It has completed, but no program was shown it: when, and so how long the disk took, is not
    /// known.
    #[serde(default)]
    pub done_unknown: bool,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Bytes completed.
    pub bytes: u32,
    /// Signed distance in sectors from the end of the data request issued before.
    pub seek: Option<i64>,
    /// Started by the service's process.
    pub own: bool,
    /// Started by a kernel thread: for whom is not known.
    #[serde(default)]
    pub kernel_thread: bool,
    /// It grew after it was made: what others asked for, perhaps another process, was merged into it.
    #[serde(default)]
    pub merged: bool,
    /// It asked for a flush before it, which the block layer sent.
    #[serde(default)]
    pub preflush: bool,
    /// It asked for FUA, and the block layer sent a flush after it: the disk has none.
    #[serde(default)]
    pub fua: bool,
    /// The disk was asked to write past its cache (FUA).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// It said that it is a file system's metadata.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata: bool,
    /// It said that it reads ahead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// Hardware queue of the disk that it was sent to, from 0; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_queue: Option<u32>,
    /// An empty request that asked for a flush; it was not sent to the disk itself.
    pub flush_parent: bool,
    /// The disk or the kernel returned an error.
    pub failed: bool,
    /// Why; absent: it did not fail, or the recording is old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Process that started it; 0: unknown.
    pub tgid: u32,
    /// Name of the thread that started it.
    pub comm: ThreadName,
    /// Cgroup of that thread, by the inode of its directory in the hierarchy of version 2; 0:
    /// unknown. [`crate::Input::Cgroup`] tells its path.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub cgroup: u64,
    /// The I/O that the thread which made it had said to be in the kernel for; absent: it said
    /// none, as kernel workers, or it is not the service's.
    #[serde(default)]
    pub submission: Option<Submission>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_unknown(cgroup: &u64) -> bool {
    *cgroup == 0
}

/// A declared I/O, as the thread named it that handed it to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submission {
    /// Index of its store.
    pub store: usize,
    /// Its token: see [`crate::Declared::token`].
    pub token: u64,
}

/// Whether a block request may be the service's, by the thread that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// A thread of the service made it.
    Own,
    /// Another process did.
    Foreign,
    /// A kernel thread, which works for anybody (a throttled cgroup's I/O is made by one), or its
    /// making was not seen.
    Unknown,
}

/// Operation of a block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOp {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
    /// Flush of the disk's write cache.
    Flush,
    /// Discard or secure erase.
    Discard,
    /// Anything else.
    Other,
}

/// Class of a block request's likely owner, as the kernel side sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The service's own process.
    Own,
    /// A file system's journal or log.
    FsJournal,
    /// Other file-system metadata.
    FsMetadata,
    /// Written back by a kernel worker.
    Writeback,
    /// Another process.
    Other,
}

impl BlockOp {
    /// Name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BlockOp::Read => "read",
            BlockOp::Write => "write",
            BlockOp::Flush => "flush",
            BlockOp::Discard => "discard",
            BlockOp::Other => "other",
        }
    }

    /// True for reads and writes: what moves the head.
    #[must_use]
    pub fn is_data(self) -> bool {
        matches!(self, BlockOp::Read | BlockOp::Write)
    }
}

impl Event {
    /// Whose thread made it.
    pub(crate) fn maker(&self) -> Maker {
        // Recordings of old do not tell kernel threads, but for those that write back.
        let kernel = self.kernel_thread || self.class == Class::Writeback;
        if self.own {
            Maker::Own
        } else if kernel || self.tgid == 0 || self.queue_ns.is_none() {
            Maker::Unknown
        } else {
            Maker::Foreign
        }
    }

    /// True: a worker of an io_uring of the service made it, to which its I/O was handed. Before 5.12 such
    /// workers are not threads of the service.
    pub(crate) fn is_of_ring_worker(&self) -> bool {
        self.own && self.comm.text().starts_with("iou-wrk-")
    }

    /// When it is known to have existed first.
    #[must_use]
    pub fn first_ns(&self) -> u64 {
        self.queue_ns.or(self.issue_ns).unwrap_or(self.done_ns)
    }

    /// Sector after its last.
    #[must_use]
    pub fn end_sector(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    /// Nanoseconds from made to given to the driver; 0: unknown.
    #[must_use]
    pub fn queue_time_ns(&self) -> u64 {
        match (self.queue_ns, self.issue_ns) {
            (Some(queue), Some(issue)) => issue.saturating_sub(queue),
            _ => 0,
        }
    }

    /// When it is known to have existed last.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        self.completed_ns()
            .unwrap_or_else(|| self.issue_ns.unwrap_or(self.first_ns()))
    }

    /// Why it failed; empty: it did not, or that is not known.
    #[must_use]
    pub fn failure_name(&self) -> &'static str {
        self.failure.map_or("", Failure::name)
    }

    /// Flags that say what kind of a request it is, in the kernel's words: what it asked for, whether
    /// the disk or the block layer did it.
    #[must_use]
    pub fn flag_names(&self) -> Vec<String> {
        let flags = [
            (self.preflush, "preflush"),
            (self.forced || self.fua, "fua"),
            (self.metadata, "meta"),
            (self.ahead, "ahead"),
        ];
        let set = flags.iter().filter(|(set, _)| *set);
        set.map(|(_, name)| (*name).to_owned()).collect()
    }

    /// When it completed; `None`: not seen.
    #[must_use]
    pub fn completed_ns(&self) -> Option<u64> {
        (!self.done_unknown).then_some(self.done_ns)
    }

    /// When it was at the device, from and to; `None`: not seen.
    #[must_use]
    pub fn at_device_ns(&self) -> Option<(u64, u64)> {
        Some((self.issue_ns?, self.completed_ns()?))
    }

    /// Nanoseconds from given to the driver to completed; 0: unknown.
    #[must_use]
    pub fn device_time_ns(&self) -> u64 {
        self.at_device_ns()
            .map_or(0, |(issue, done)| done.saturating_sub(issue))
    }
}

impl From<&BlockEvent> for Event {
    fn from(raw: &BlockEvent) -> Event {
        let known = |ns: u64| (ns != 0).then_some(ns);
        let has = |bit: u8| raw.flags & bit != 0;
        let done_unknown = raw.flags2 & flag2::DONE_UNKNOWN != 0;
        let wrapped = raw.flags2 & flag2::WRAPPED != 0;
        let [forced, metadata, ahead] =
            row::FLAGS.map(|(bit, _)| raw.request_flags & bit != 0 && raw.issue_ns != 0);
        Event {
            dev: raw.dev,
            op: match raw.op {
                op::READ => BlockOp::Read,
                op::WRITE => BlockOp::Write,
                op::FLUSH => BlockOp::Flush,
                op::DISCARD => BlockOp::Discard,
                _ => BlockOp::Other,
            },
            class: match raw.class {
                class::OWN => Class::Own,
                class::FS_JOURNAL => Class::FsJournal,
                class::FS_METADATA => Class::FsMetadata,
                class::WRITEBACK => Class::Writeback,
                _ => Class::Other,
            },
            queue_ns: known(raw.queue_ns),
            issue_ns: known(raw.issue_ns),
            done_ns: if done_unknown {
                raw.issue_ns.max(raw.queue_ns)
            } else {
                raw.done_ns
            },
            done_unknown,
            sector: raw.sector,
            sectors: raw.sectors,
            bytes: raw.bytes_done,
            seek: (raw.seek != NO_SEEK).then_some(raw.seek),
            own: has(flag::OWN),
            kernel_thread: raw.flags2 & flag2::KERNEL_THREAD != 0,
            merged: raw.flags2 & flag2::MERGED != 0,
            preflush: wrapped && has(flag::PREFLUSH),
            fua: wrapped && has(flag::FUA) && !forced,
            forced,
            metadata: metadata || has(flag::META),
            ahead,
            hardware_queue: raw.hardware_queue.checked_sub(1),
            flush_parent: has(flag::FLUSH_PARENT),
            failed: raw.error != 0,
            failure: Failure::of(raw),
            tgid: raw.tgid,
            comm: ThreadName::from(raw.comm),
            cgroup: raw.cgroup,
            submission: (raw.flags2 & flag2::SUBMITTED != 0)
                .then(|| usize::try_from(raw.store).ok())
                .flatten()
                .map(|store| Submission {
                    store,
                    token: raw.token,
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_writes_ask_for_flushes_where_the_block_layer_wraps_them() {
        let asks = |flags2: u8| {
            let event = Event::from(&BlockEvent {
                op: op::WRITE,
                flags: flag::FUA | flag::PREFLUSH,
                flags2,
                ..BlockEvent::default()
            });
            (event.fua, event.preflush)
        };
        assert_eq!(asks(flag2::WRAPPED), (true, true));
        // The disk can do it by itself.
        assert_eq!(asks(0), (false, false));
    }

    #[test]
    fn a_disk_that_forces_writes_itself_is_not_flushed_after_them() {
        let both = flag::FUA | flag::PREFLUSH;
        let event = Event::from(&BlockEvent {
            op: op::WRITE,
            issue_ns: 1,
            flags: both,
            flags2: flag2::WRAPPED,
            request_flags: row::FLAGS[0].0,
            ..BlockEvent::default()
        });
        assert!(event.preflush && event.forced && !event.fua);
        assert_eq!(event.flag_names(), ["preflush", "fua"]);
    }

    #[test]
    fn hardware_queues_are_numbered_as_the_kernel_does() {
        let of = |hardware_queue| {
            let event = BlockEvent {
                hardware_queue,
                ..BlockEvent::default()
            };
            Event::from(&event).hardware_queue
        };
        assert_eq!((of(0), of(1), of(8)), (None, Some(0), Some(7)));
    }
}
