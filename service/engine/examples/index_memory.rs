//! Memory and speed of the index: `index_memory [LUMPS]`, 10 million unless given.
//!
//! Each way of filling it runs in a process of its own, and its bytes a lump are the growth of
//! that process's resident set: the allocator's slack and fragmentation are in it.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use lumpscope_engine::LumpId;
use lumpscope_engine::format::{Geometry, Header, header};
use lumpscope_engine::measure::IndexProbe;
use lumpscope_engine::units::{BlockSize, ByteLen, ByteOffset};

/// Resident bytes of this process.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? * 1024)
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

/// Ids without order, each with the next one: a lump and a mark, as Swift's fragments have.
fn pair(n: u64) -> LumpId {
    LumpId(random(n / 2).0 & !1 | u128::from(n % 2))
}

fn ascending(n: u64) -> LumpId {
    LumpId(u128::from(n) + (1 << 100))
}

/// A disk of 16 TiB whose journal holds billions of lumps.
fn geometry() -> Geometry {
    let header = Header {
        minor: header::MINOR_VERSION,
        block_size: BlockSize::DEFAULT,
        uuid: [0; 16],
        journal_len: ByteLen(160 << 30),
        data_len: ByteLen(16 << 40),
    };
    Geometry::new(ByteOffset(0), &header)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let lumps = arguments.next().unwrap_or("10000000".to_owned());
    if let Some(way) = arguments.next() {
        return measure(&way, lumps.parse()?);
    }
    println!("{lumps} lumps; bytes a lump by resident set, and by the index's own word");
    for way in ["random", "pairs", "ascending", "descending", "filled"] {
        let status = Command::new(std::env::current_exe()?)
            .args([lumps.as_str(), way])
            .status()?;
        if !status.success() {
            return Err(format!("{way}: {status}").into());
        }
    }
    Ok(())
}

fn measure(way: &str, lumps: u64) -> Result<(), Box<dyn Error>> {
    let geometry = geometry();
    let id = |n: u64| match way {
        "random" => random(n),
        "pairs" => pair(n),
        "descending" => ascending(lumps - n),
        _ => ascending(n),
    };
    let before = resident()?;
    let begin = Instant::now();
    let index = if way == "filled" {
        IndexProbe::fill(&geometry, (0..lumps).map(id))
    } else {
        let mut index = IndexProbe::new(&geometry);
        (0..lumps).for_each(|n| index.insert(id(n), n));
        index
    };
    let insert = begin.elapsed();
    let grown = resident()?.saturating_sub(before);
    let begin = Instant::now();
    assert!(
        (0..lumps).all(|n| index.contains(id(n))),
        "every id is there"
    );
    let get = begin.elapsed();
    let hundredths = |total: u64| {
        let each = total * 100 / lumps;
        format!("{:3}.{:02}", each / 100, each % 100)
    };
    println!(
        "{way:10} {}  {}   insert {:4} ns, get {:4} ns",
        hundredths(grown),
        hundredths(index.memory_bytes()),
        insert.as_nanos() / u128::from(lumps),
        get.as_nanos() / u128::from(lumps),
    );
    Ok(())
}
