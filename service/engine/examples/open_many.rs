//! How long it takes to open a store of many lumps, with and without a checkpoint:
//! `open_many FILE [LUMPS [ROUNDS]]`, 10 million and 5 unless given.
//!
//! Makes a sparse store in FILE (about 31 bytes a lump for the journal and twice as much for the
//! checkpoint; the data region takes nothing), whose journal it writes itself: one put of a block
//! for every lump, with random ids. Then it opens the store in turn with the checkpoint and, read
//! only, without; each time in a process of its own, for the resident set. Removes the file.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::format::{Geometry, Portion, Record};
use lumpscope_engine::units::{BlockCount, BlockIndex, RingPosition};
use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments
        .first()
        .ok_or("usage: open_many FILE [LUMPS [ROUNDS]]")?;
    let path = Path::new(path);
    if let Some(way) = arguments.get(3) {
        return open(path, way == "with");
    }
    let lumps: u64 = arguments
        .get(1)
        .map_or(Ok(10_000_000), |text| text.parse())?;
    let rounds: usize = arguments.get(2).map_or(Ok(5), |text| text.parse())?;
    let result = make(path, lumps).and_then(|()| compare(path, rounds));
    std::fs::remove_file(path)?;
    std::fs::remove_file(path.with_extension("bare"))?;
    result
}

/// The n-th of a row of ids without order (splitmix64, twice).
fn random(n: u64) -> LumpId {
    let mix = |seed: u64| {
        let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    LumpId(u128::from(mix(2 * n + 1)) << 64 | u128::from(mix(2 * n + 2)))
}

/// Makes FILE with a checkpoint, and `FILE.bare` without.
fn make(path: &Path, lumps: u64) -> Outcome<()> {
    let options = CreateOptions {
        // Eight blocks a lump, so that about a hundredth is more than two journals.
        capacity: Some(lumps * 8 * 4096 + (64 << 20)),
        prealloc: Prealloc::Sparse,
        ..CreateOptions::default()
    };
    let geometry = format(path, &options)?.geometry;
    write_journal(path, &geometry, lumps)?;
    let bare = path.with_extension("bare");
    File::create_new(&bare)?.set_len(geometry.end().0)?;
    let (from, to) = (File::open(path)?, File::options().write(true).open(&bare)?);
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < geometry.data_offset().0 {
        let len = from.read_at(&mut piece, at)?;
        to.write_all_at(&piece[..len], at)?;
        at += len as u64;
    }
    to.sync_all()?;
    // The first append seals the journal, and closing writes the checkpoint.
    let begin = Instant::now();
    let store = Store::open(path, StoreOptions::new("made"))?;
    let mut lump = store.lump_buf(5)?;
    lump.extend(b"hello")?;
    let (ctx, id) = (RequestCtx::default(), LumpId(1));
    store.put(ctx, id, lump, Placement::Embedded, Durability::Synced)?;
    let opened = begin.elapsed();
    let begin = Instant::now();
    store.close()?;
    println!(
        "{lumps} lumps; made: opened in {opened:.2?}, closed in {:.2?}",
        begin.elapsed()
    );
    Ok(())
}

fn write_journal(path: &Path, geometry: &Geometry, lumps: u64) -> Outcome<()> {
    let file = File::options().write(true).open(path)?;
    let mut bytes = Vec::new();
    let mut at = geometry.ring_byte(RingPosition(0)).0;
    for n in 0..lumps {
        // Neighbours in the log are neighbours on the disk.
        let portion = Portion::new(BlockIndex(n * 7), BlockCount(7))?;
        Record::Put {
            id: random(n),
            portion,
        }
        .encode_into(&mut bytes);
        if bytes.len() > 1 << 22 {
            file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
            bytes.clear();
        }
    }
    Record::EndOfRecords.encode_into(&mut bytes);
    file.write_all_at(&bytes, at)?;
    file.sync_all()?;
    Ok(())
}

/// Opens in turn, each time in a process of its own, and prints every time and the medians.
fn compare(path: &Path, rounds: usize) -> Outcome<()> {
    let bare = path.with_extension("bare");
    let ways = [("with", path), ("without", bare.as_path())];
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds {
        for ((way, path), times) in ways.iter().zip(&mut times) {
            let output = Command::new(std::env::current_exe()?)
                .arg(path)
                .args(["0", "0", way])
                .output()?;
            std::io::stderr().write_all(&output.stderr)?;
            let text = String::from_utf8(output.stdout)?;
            print!("{way:8} {text}");
            let seconds = text.split(' ').next().ok_or("no answer")?;
            times.push(seconds.parse()?);
        }
    }
    for ((way, _), times) in ways.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (times.first(), times.last()) {
            let median = times[times.len() / 2];
            println!("{way:8} median {median:.2} s, {least:.2} to {most:.2} s");
        }
    }
    Ok(())
}

/// Resident bytes of this process.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? * 1024)
}

fn open(path: &Path, with: bool) -> Outcome<()> {
    let mut options = StoreOptions::new("many");
    options.read_only = true;
    let before = resident()?;
    let begin = Instant::now();
    let store = Store::open(path, options)?;
    let seconds = begin.elapsed().as_secs_f64();
    let replay = store.info().replay;
    let grown = resident()?.saturating_sub(before);
    println!(
        "{seconds:.2} s, checkpoint {}, {} records replayed, {} lumps, {} bytes of resident set a lump",
        replay.checkpoint.name(),
        replay.records,
        replay.lumps,
        grown / replay.lumps.max(1),
    );
    assert_eq!(with, replay.checkpoint.name() == "used");
    Ok(store.close()?)
}
