//! The workload and the room it needs.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use lumpscope_platter::live::LiveOptions;

use super::args::CompareArgs;
use super::table::unique;
use crate::disks::{StoreKind, free_bytes};
use crate::failure::{argument, no_room, within};
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
        within("--depth", args.depth, 1..=1024)?;
        let fits = |size: &u16| *size > 0 && size.is_multiple_of(512);
        let once = unique(args.block_size.iter()).len() == args.block_size.len();
        if args.block_size.is_empty() || !args.block_size.iter().all(fits) || !once {
            let allowed = "multiples of 512 up to 65024, each once";
            return Err(argument("--block-size", allowed));
        }
        let room = SpaceBound::of(args)?;
        let stream = WorkloadArgs::new(&args.workload, args.scale).stream_while(|peak| {
            interrupt.check()?;
            room.check(peak)
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

/// The narrowest of the places of the stores, as a bound before the workload is made: what a store
/// takes beside its live lumps is known only then.
enum SpaceBound {
    /// All images lie here.
    Dir { dir: PathBuf, free: u64 },
    /// A place of one store.
    OfStore { place: String, free: u64 },
}

impl SpaceBound {
    fn of(args: &CompareArgs) -> anyhow::Result<SpaceBound> {
        if let Some(name) = &args.drive {
            let options = LiveOptions::new(name).sharing(StoreKind::ALL.len())?;
            let bounds = [options.bytes, options.memory_bytes];
            return Ok(SpaceBound::OfStore {
                place: format!("an emulated {name}, which keeps its data in memory,"),
                free: bounds.into_iter().flatten().min().unwrap_or(u64::MAX),
            });
        }
        let (Some(raw), Some(ext4), Some(xfs)) = (&args.raw, &args.ext4, &args.xfs) else {
            let dir = args.study.dir();
            let free = free_bytes(&dir)?;
            return Ok(SpaceBound::Dir { dir, free });
        };
        let places = [
            (raw, disk_bytes(raw)),
            (ext4, free_bytes(ext4)?),
            (xfs, free_bytes(xfs)?),
        ];
        let narrowest = places.into_iter().min_by_key(|(_, free)| *free);
        let (path, free) = narrowest.unwrap_or((raw, u64::MAX));
        let place = path.display().to_string();
        Ok(SpaceBound::OfStore { place, free })
    }

    /// Refuses more live bytes than there is room for.
    fn check(&self, peak: u64) -> anyhow::Result<()> {
        match self {
            SpaceBound::Dir { dir, free } if peak > *free => Err(no_room(dir, peak, *free)),
            SpaceBound::OfStore { place, free } if peak > *free => Err(anyhow!(
                "each store will take {} MiB or more, and {place} has room for {} MiB. Choose a \
                 smaller --scale",
                peak.div_ceil(MIB),
                free >> 20
            )),
            _ => Ok(()),
        }
    }
}

/// Of a block device. What is none is refused later, by a message of its own.
fn disk_bytes(path: &Path) -> u64 {
    let end = File::open(path).and_then(|mut disk| disk.seek(SeekFrom::End(0)));
    match end {
        Ok(bytes) if bytes > 0 => bytes,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_fit_is_refused_before_its_workload_is_made() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: CompareArgs,
        }
        let words = ["compare", "--drive", "st1000dm003", "--scale", "900"];
        let Command { args } = clap::Parser::parse_from(words);
        let SpaceBound::OfStore { free, .. } = SpaceBound::of(&args).unwrap() else {
            panic!("an emulated drive is a place of one store");
        };
        assert!((MIB..1 << 40).contains(&free), "{free}");

        let small = tempfile::NamedTempFile::new().unwrap();
        small.as_file().set_len(5 * MIB).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let own = CompareArgs {
            drive: None,
            raw: Some(small.path().to_owned()),
            ext4: Some(dir.path().to_owned()),
            xfs: Some(dir.path().to_owned()),
            ..args
        };
        let room = SpaceBound::of(&own).unwrap();
        room.check(5 * MIB).unwrap();
        let why = room.check(5 * MIB + 1).unwrap_err().to_string();
        let named = format!(
            "6 MiB or more, and {} has room for 5 MiB",
            small.path().display()
        );
        assert!(why.contains(&named) && why.contains("--scale"), "{why}");
    }
}
