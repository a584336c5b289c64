//! Other causes that the published ratios could have: the recorded requests, replayed with the drive's
//! firmware, its cache, or the place of the files changed.

use lumpscope_platter::disk::{PartialSectors, Policy};
use lumpscope_platter::drive::{Drive, SECTOR};
use lumpscope_platter::replay::WhatIf;
use lumpscope_platter::trace::{Op, Trace, Traced};

use super::report::{Group, Report};
use crate::disks::StoreKind;
use crate::experiment::report::{Cell, Table};
use crate::human;
use crate::studies::predict::{self, Rule};

/// Own writes of at least so many sectors are of lumps; what lies below the first is the journal.
const OF_A_LUMP: u32 = 256;
/// A scattered file lies in pieces of so many sectors: those of a block group of ext4.
const PIECE: u64 = (128 << 20) / SECTOR;

/// A recorded run and the drive that it is replayed on.
struct Varied {
    drive: Drive,
    policy: Policy,
    requests: Vec<Traced>,
    on_file_system: bool,
}

/// One change; all else is the overlap rule's.
pub(super) struct Variation {
    pub(super) name: &'static str,
    change: fn(&mut Varied),
}

const fn variation(name: &'static str, change: fn(&mut Varied)) -> Variation {
    Variation { name, change }
}

pub(super) static ALL: [Variation; 14] = [
    variation("nothing: the overlap rule", |_| {}),
    variation("dirty data out before reads", |v| v.writes_before_reads()),
    variation("the same, no overlap rule", |v| {
        v.writes_before_reads();
        v.policy.overlap = None;
    }),
    variation("parts of sectors read first", |v| {
        v.policy.partial = PartialSectors::ReadFirst;
    }),
    variation("no read-ahead", |v| v.policy.read_ahead = false),
    variation("cache of 16 MiB", |v| v.cache(16)),
    variation("cache of 4 MiB", |v| v.cache(4)),
    variation("written out from 1 MiB on", |v| {
        v.drive.destage_at_bytes = 1 << 20
    }),
    variation("written out after 2 ms idle", |v| {
        v.drive.destage_idle_ns = 2_000_000
    }),
    variation("no journal of the store", |v| v.without_journal()),
    variation("journal at the disk's end", |v| v.journal_at_the_end()),
    variation("file in the disk's middle", |v| {
        v.file_from(|free| free / 2)
    }),
    variation("file at the disk's end", |v| v.file_from(|free| free)),
    variation("file in pieces of 128 MiB", Varied::scattered),
];

impl Varied {
    fn writes_before_reads(&mut self) {
        self.policy.write_before_read = true;
        self.policy.partial = PartialSectors::ReadFirst;
    }

    fn cache(&mut self, mib: u64) {
        self.drive.cache_bytes = mib << 20;
        self.drive.destage_at_bytes = (mib << 20) / 3;
        self.drive.destage_run_bytes = (mib << 20) / 2;
    }

    /// First sector of the lumps.
    fn lumps(&self) -> u64 {
        let of_lumps = |request: &&Traced| {
            request.own && request.op == Op::Write && request.sectors >= OF_A_LUMP
        };
        let sectors = self.requests.iter().filter(of_lumps);
        sectors.map(|request| request.sector).min().unwrap_or(0)
    }

    fn without_journal(&mut self) {
        let lumps = self.lumps();
        self.requests
            .retain(|request| !request.own || request.end() > lumps || request.op == Op::Flush);
    }

    fn journal_at_the_end(&mut self) {
        let lumps = self.lumps();
        self.moved(
            |request, drive| match request.own && request.end() <= lumps {
                true => request.sector + whole(drive.sectors - lumps, drive),
                false => request.sector,
            },
        );
    }

    /// A file system that begins the file elsewhere. `begin`: where, of so many free sectors.
    fn file_from(&mut self, begin: fn(u64) -> u64) {
        let by = begin(self.drive.sectors.saturating_sub(self.used()));
        self.moved_by_file_system(|sector, drive| sector + whole(by, drive));
    }

    /// A file system that spreads the file evenly over the disk.
    fn scattered(&mut self) {
        let pieces = self.used().div_ceil(PIECE).max(1);
        let stride = (self.drive.sectors / pieces).max(PIECE);
        self.moved_by_file_system(|sector, drive| {
            sector / PIECE * whole(stride, drive) + sector % PIECE
        });
    }

    fn used(&self) -> u64 {
        self.requests.iter().map(Traced::end).max().unwrap_or(0)
    }

    fn moved_by_file_system(&mut self, to: impl Fn(u64, &Drive) -> u64) {
        if self.on_file_system {
            self.moved(|request, drive| to(request.sector, drive));
        }
    }

    /// A request that would go beyond the end of the disk stays.
    fn moved(&mut self, to: impl Fn(&Traced, &Drive) -> u64) {
        for request in self.requests.iter_mut().filter(|one| one.sectors > 0) {
            let sector = to(request, &self.drive);
            if sector + u64::from(request.sectors) <= self.drive.sectors {
                request.sector = sector;
            }
        }
    }
}

/// As many sectors as whole physical ones have.
fn whole(sectors: u64, drive: &Drive) -> u64 {
    sectors - sectors % drive.physical_sectors()
}

/// Seconds of a recorded run on the drive, in the order of [`ALL`].
pub(super) fn seconds(trace: &Trace, drive: &Drive, kind: StoreKind) -> anyhow::Result<Vec<f64>> {
    let seconds = ALL.iter().map(|variation| {
        let mut varied = Varied {
            drive: drive.clone(),
            policy: Rule::Overlap.policy(),
            requests: trace.requests.clone(),
            on_file_system: kind != StoreKind::Raw,
        };
        (variation.change)(&mut varied);
        let trace = Trace::new(varied.requests, trace.missing);
        let what_if = WhatIf::new(variation.name, varied.drive, varied.policy);
        let elapsed_ns = predict::replayed_as(&trace, &what_if)?.elapsed_ns;
        Ok(human::as_float(elapsed_ns) / 1e9)
    });
    seconds.collect()
}

/// Names of the variations by which both ratios of a row of the published table come as near as
/// `near`.
pub(super) fn explain(report: &Report, group: Group<'_>, near: f64) -> Vec<&'static str> {
    let Some(row) = group.published() else {
        return Vec::new();
    };
    let is_near = |at: usize| {
        let of = |kind| report.varied(group, kind, at).map(|ratio| ratio.median);
        let ratios = [(StoreKind::Ext4, 1), (StoreKind::Xfs, 2)];
        ratios.into_iter().all(|(kind, column)| {
            of(kind).is_some_and(|ratio| (ratio - row.ratios[column]).abs() <= near)
        })
    };
    let all = ALL.iter().enumerate();
    all.filter(|(at, _)| is_near(*at))
        .map(|(_, variation)| variation.name)
        .collect()
}

impl Report {
    /// One row a variation, one column a published row; `None`: none is repeated.
    pub(super) fn variations(&self) -> Option<Table> {
        let groups = self.groups();
        let rows = groups
            .into_iter()
            .filter_map(|group| Some((group, group.published()?)));
        let rows: Vec<_> = rows.collect();
        let columns: Vec<&str> = rows.iter().map(|(group, _)| group.workload).collect();
        let caption = "What else could have made the published ratios: ext4 and xfs to raw, and \
                       seconds on raw at full scale, medians.";
        let mut table = Table::new(caption, &columns);
        table.corner = "changed".to_owned();
        let published = rows.iter().map(|(_, row)| {
            let [raw, ..] = row.seconds;
            Cell::text(format!(
                "{:.2} {:.2} {raw:.0}",
                row.ratios[1], row.ratios[2]
            ))
        });
        table.row("published", published.collect());
        for (at, variation) in ALL.iter().enumerate() {
            let cells = rows.iter().map(|(group, _)| {
                let ratio = |kind| {
                    let ratio = self.varied(*group, kind, at);
                    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}", ratio.median))
                };
                let raw = self.seconds_of(*group, StoreKind::Raw, |run| run.varied_seconds[at]);
                let raw = raw.map_or(0.0, |raw| raw.median / self.scale);
                let [ext4, xfs] = [StoreKind::Ext4, StoreKind::Xfs].map(ratio);
                Cell::text(format!("{ext4} {xfs} {raw:.0}"))
            });
            table.row(variation.name, cells.collect());
        }
        (!rows.is_empty()).then_some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(own: bool, sector: u64, sectors: u32, at: u64) -> Traced {
        Traced {
            op: Op::Write,
            fua: false,
            sector,
            sectors,
            queue_ns: at,
            issue_ns: at,
            done_ns: at + 1,
            own,
        }
    }

    fn varied(on_file_system: bool) -> Varied {
        let drive = predict::drive_named(crate::studies::seeds::DRIVE).expect("it is there");
        Varied {
            drive,
            policy: Rule::Overlap.policy(),
            requests: vec![
                request(false, 8, 8, 0),
                request(true, 2048, 8, 2),
                request(true, 4096, 1024, 4),
                request(true, 4096 + PIECE, 1024, 6),
            ],
            on_file_system,
        }
    }

    fn sectors(varied: &Varied) -> Vec<u64> {
        varied
            .requests
            .iter()
            .map(|request| request.sector)
            .collect()
    }

    #[test]
    fn only_what_is_named_is_changed() {
        let mut without = varied(false);
        without.without_journal();
        assert_eq!(sectors(&without), [8, 4096, 4096 + PIECE]);
        let mut at_the_end = varied(false);
        at_the_end.journal_at_the_end();
        let moved = sectors(&at_the_end);
        assert!(moved[1] > at_the_end.drive.sectors - 4096, "{moved:?}");
        assert_eq!(moved[2..], [4096, 4096 + PIECE]);
        for change in [Varied::scattered as fn(&mut Varied), |v| {
            v.file_from(|free| free)
        }] {
            let mut raw = varied(false);
            change(&mut raw);
            assert_eq!(
                sectors(&raw),
                sectors(&varied(false)),
                "a raw disk has no file"
            );
            let mut on_file_system = varied(true);
            change(&mut on_file_system);
            let moved = sectors(&on_file_system);
            assert!(
                moved[3] - moved[2] >= PIECE && moved[3] > 4096 + PIECE,
                "{moved:?}"
            );
            assert!(moved.iter().all(|sector| sector % 8 == 0), "{moved:?}");
        }
    }

    #[test]
    fn every_variation_can_be_replayed_and_most_change_the_time() {
        let drive = predict::drive_named(crate::studies::seeds::DRIVE).expect("it is there");
        let mut requests = Vec::new();
        for at in 0..200_u64 {
            let sector = 1_000_000 + at * 2049;
            let mut put = request(true, sector, 2049, at * 10);
            requests.push(put);
            put.op = Op::Read;
            put.sector = 1_000_000 + at / 20 * 2049;
            put.queue_ns += 5;
            put.issue_ns += 5;
            put.done_ns += 5;
            requests.push(put);
        }
        let trace = Trace::new(requests, 0);
        let seconds = seconds(&trace, &drive, StoreKind::Ext4).expect("all fit");
        assert_eq!(seconds.len(), ALL.len());
        let base = seconds[0];
        let different = seconds.iter().filter(|other| (**other - base).abs() > 1e-6);
        assert!(different.count() >= 5, "{seconds:?}");
    }
}
