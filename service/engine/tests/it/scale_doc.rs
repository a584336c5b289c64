//! The capacity sheet of docs/scale.md is what the code makes of disks.

use std::time::Duration;

use lumpscope_engine::format::geometry::RegionSizes;
use lumpscope_engine::format::record::PUT_LEN;
use lumpscope_engine::format::trailer::LumpShape;
use lumpscope_engine::units::{BlockSize, ByteLen};

const DOCUMENT: &str = include_str!("../../../../docs/scale.md");
const MARKER: &str = "<!-- capacity -->\n";

/// Terabytes of the disk, KiB of a lump.
const ROWS: [(u64, u64); 7] = [
    (1, 64),
    (1, 1024),
    (4, 4096),
    (10, 1024),
    (10, 4096),
    (20, 1024),
    (20, 4096),
];
/// Of the disk, for the checkpoint behind the image, at most: thousandths.
const CHECKPOINT: u64 = 4;
/// The default.
const JOURNAL_RATIO: f64 = 0.01;
/// Bytes of memory a lump, as `examples/index_memory` finds.
const MEMORY: u64 = 32;
/// Nanoseconds a lump to open, with a checkpoint and without, as `examples/open_many` finds.
const OPENING: [u64; 2] = [100, 430];
/// Bytes a second of a pass of the scrubber.
const SCRUB: u64 = 50 << 20;

/// In the largest unit of which there is one: at least two digits.
fn short(value: u64, base: u64, units: &[&str]) -> String {
    let mut size = 1;
    let mut unit = units[0];
    for name in &units[1..] {
        if value < size * base {
            break;
        }
        size *= base;
        unit = name;
    }
    let tenths = (value * 10 + size / 2) / size;
    match tenths {
        ..100 if size > 1 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        _ => format!("{} {unit}", (tenths + 5) / 10),
    }
}

fn bytes(value: u64) -> String {
    short(value, 1024, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn time(nanoseconds: u64) -> String {
    let time = Duration::from_nanos(nanoseconds);
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ ..120 => format!("{seconds} s"),
        seconds => format!("{} h", (seconds + 1800) / 3600),
    }
}

fn row((terabytes, kib): (u64, u64)) -> String {
    let block_size = BlockSize::DEFAULT;
    let disk = terabytes * 1_000_000_000_000;
    let image = ByteLen(disk - disk / 1000 * CHECKPOINT);
    let regions = RegionSizes::divide(image, block_size, JOURNAL_RATIO).expect("a size that fits");
    let shape = LumpShape::new(kib * 1024, block_size).expect("a lump that fits");
    let lumps = regions.data_len.0 / (u64::from(shape.blocks().0) * block_size.bytes());
    let live = lumps * PUT_LEN as u64;
    let ratio = (2 * live * 10_000).div_ceil(disk);
    format!(
        "| {terabytes} TB | {} KiB | {} | {} | {} | 0.{ratio:04} | {}; {} | {} |",
        kib,
        short(lumps, 1000, &["", "thousand", "million"]),
        bytes(lumps * MEMORY),
        bytes(live),
        time(lumps * OPENING[0]),
        time(lumps * OPENING[1]),
        time(disk / SCRUB * 1_000_000_000),
    )
}

#[test]
fn the_capacity_sheet_is_computed() {
    let (_, rest) = DOCUMENT.split_once(MARKER).expect("the sheet");
    let lines = rest.lines().take_while(|line| line.starts_with('|'));
    let written: Vec<&str> = lines.skip(2).collect();
    let computed: Vec<String> = ROWS.into_iter().map(row).collect();
    let computed: Vec<&str> = computed.iter().map(String::as_str).collect();
    assert_eq!(
        written,
        computed,
        "docs/scale.md; computed:\n{}",
        computed.join("\n")
    );
}
