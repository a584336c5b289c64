//! The published tables, by arithmetic alone: lumps one behind the other, no file system, no kernel,
//! no journal, no time of the host. docs/platter.md shows the result.

use std::fmt::Write as _;

use fastrand::Rng;
use lumpscope_platter::disk::{Disk, Policy, Request};
use lumpscope_platter::drive::by_name;

const DOCUMENT: &str = include_str!("../../../../docs/platter.md");

/// Sectors that one block request takes at most here: 512 KiB.
const LARGEST: u64 = 1024;

/// A workload: lumps of `size` sectors, `puts` of them first, and then `mixed` puts and gets.
struct Workload {
    name: &'static str,
    size: u64,
    puts: u64,
    mixed: u64,
    /// Gets are of the oldest 1 to 5 %, and take turns with puts; or of any lump, at random.
    oldest: bool,
    published_s: [&'static str; 3],
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "100,000 puts of 256 KiB",
        size: 513,
        puts: 100_000,
        mixed: 0,
        oldest: false,
        published_s: ["117.6", "194.8", "185.9"],
    },
    Workload {
        name: "5000 puts of 4 MiB",
        size: 8193,
        puts: 5000,
        mixed: 0,
        oldest: false,
        published_s: ["121.1", "166.0", "157.6"],
    },
    Workload {
        name: "5000 puts of 1 MiB, then 40,000 puts and gets",
        size: 2049,
        puts: 5000,
        mixed: 40_000,
        oldest: false,
        published_s: ["474.9", "537.6", "559.0"],
    },
    Workload {
        name: "5000 puts of 1 MiB, then 20,000 puts and gets of old ones",
        size: 2049,
        puts: 5000,
        mixed: 20_000,
        oldest: true,
        published_s: ["271.7", "360.2", "361.2"],
    },
];

/// A program that waits for each lump.
struct Program {
    disk: Disk,
    now_ns: u64,
    lumps: u64,
    size: u64,
    /// Lumps are written in whole blocks, as file systems do.
    whole_blocks: bool,
}

impl Program {
    fn transfer(&mut self, write: bool, lump: u64) {
        let (mut sector, mut end) = (lump * self.size, (lump + 1) * self.size);
        if write && self.whole_blocks {
            end = end.next_multiple_of(8);
        }
        let begin_ns = self.now_ns;
        while sector < end {
            let sectors = u32::try_from((end - sector).min(LARGEST)).unwrap();
            let request = match write {
                true => Request::write(sector, sectors),
                false => Request::read(sector, sectors),
            };
            let served = self.disk.serve(begin_ns, &request).unwrap();
            self.now_ns = self.now_ns.max(served.done_ns);
            sector += u64::from(sectors);
        }
    }

    fn put(&mut self) {
        self.transfer(true, self.lumps);
        self.lumps += 1;
    }
}

/// How long it takes.
fn elapsed_ns(workload: &Workload, policy: Policy, whole_blocks: bool) -> u64 {
    let drive = by_name("st1000dm003-tables").unwrap();
    let mut random = Rng::with_seed(0);
    let mut program = Program {
        disk: Disk::new(&drive, policy).unwrap(),
        now_ns: 0,
        lumps: 0,
        size: workload.size,
        whole_blocks,
    };
    for _ in 0..workload.puts {
        program.put();
    }
    for number in 0..workload.mixed {
        let lumps = program.lumps;
        let put = match workload.oldest {
            true => number % 2 == 0,
            false => random.bool(),
        };
        match (put, workload.oldest) {
            (true, _) => program.put(),
            (false, true) => program.transfer(false, random.u64(lumps / 100..lumps / 20)),
            (false, false) => program.transfer(false, random.u64(0..lumps)),
        }
    }
    program.now_ns
}

/// Seconds and a tenth, rounded.
fn seconds(ns: u64) -> String {
    let tenths = (ns + 50_000_000) / 100_000_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn hundredths(part: u64, whole: u64) -> String {
    let ratio = (part * 100 + whole / 2) / whole;
    format!("{}.{:02}", ratio / 100, ratio % 100)
}

#[test]
fn the_document_has_the_published_tables_beside_the_models() {
    let mut table =
        "| workload | raw: table, model | ext4, xfs: tables' ratios | in whole blocks: \
                     with the overlap rule, without | no read-ahead, \
                     written out before reads: raw, with the overlap rule, without |\n|---|---|---|---|---|\n"
            .to_owned();
    for workload in &WORKLOADS {
        let raw_ns = elapsed_ns(workload, Policy::default(), false);
        let [raw, ext4, xfs] = workload.published_s;
        let tenths = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
        let overlap_ns = elapsed_ns(workload, Policy::default().with_overlap(), true);
        let ideal_ns = elapsed_ns(workload, Policy::default(), true);
        let eager = Policy {
            write_before_read: true,
            read_ahead: false,
            ..Policy::default()
        };
        let eager_ns = elapsed_ns(workload, eager, false);
        writeln!(
            table,
            "| {} | {raw} s, {} s | {}, {} | {}, {} | {} s, {}, {} |",
            workload.name,
            seconds(raw_ns),
            hundredths(tenths(ext4), tenths(raw)),
            hundredths(tenths(xfs), tenths(raw)),
            hundredths(overlap_ns, raw_ns),
            hundredths(ideal_ns, raw_ns),
            seconds(eager_ns),
            hundredths(elapsed_ns(workload, eager.with_overlap(), true), eager_ns),
            hundredths(elapsed_ns(workload, eager, true), eager_ns),
        )
        .unwrap();
    }
    assert!(
        DOCUMENT.contains(&table),
        "docs/platter.md should have this table:\n{table}"
    );
}
