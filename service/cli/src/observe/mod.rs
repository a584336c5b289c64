//! The commands that show what the disks did: `explain`, `trace`, `top`, `record`, `export`, `bpftrace`.

pub(super) mod bpftrace;
pub(super) mod explain;
pub(super) mod export;
pub(super) mod live;
pub(super) mod record;
pub(super) mod replay;
pub(super) mod top;
pub(super) mod trace;
mod units;
