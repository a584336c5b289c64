//! The workload and the room it needs.

use super::args::CompareArgs;
use super::table::unique;
use crate::disks::{default_dir, free_bytes};
use crate::failure::{argument, no_room};
use crate::process::Interrupt;
use crate::workload::{CommandStream, Sizing, WorkloadArgs};

const MIB: u64 = 1 << 20;

/// The runs, and the room they need.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) stream: CommandStream,
    /// Of every store.
    pub(super) sizing: Sizing,
}

impl Plan {
    /// Ends early when a signal comes, and when not even what is alive has room in the directory.
    pub(super) fn new(args: &CompareArgs, interrupt: &Interrupt) -> anyhow::Result<Plan> {
        if !(1..=1024).contains(&args.clients) {
            return Err(argument("--clients", "1 to 1024"));
        }
        let fits = |size: &u16| *size > 0 && size.is_multiple_of(512);
        let once = unique(args.block_size.iter()).len() == args.block_size.len();
        if args.block_size.is_empty() || !args.block_size.iter().all(fits) || !once {
            let allowed = "multiples of 512 up to 65024, each once";
            return Err(argument("--block-size", allowed));
        }
        let in_dir = args.raw.is_none() && args.drive.is_none();
        let dir = args.dir.clone().unwrap_or_else(default_dir);
        let free = if in_dir { free_bytes(&dir)? } else { u64::MAX };
        let stream = WorkloadArgs::new(&args.workload, args.scale).stream_while(|peak| {
            interrupt.check()?;
            match peak > free {
                true => Err(no_room(&dir, peak, free)),
                false => Ok(()),
            }
        })?;
        Ok(Plan {
            sizing: Sizing::of(&stream),
            stream,
        })
    }

    /// Bytes of a disk that takes such a store.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.sizing.disk_bytes()
    }

    /// Real size of the three images: every store is written whole before it is used.
    pub(super) fn image_bytes(&self) -> u64 {
        let file_systems = 2 * 160 * MIB;
        3 * self.sizing.capacity_bytes + file_systems
    }
}
