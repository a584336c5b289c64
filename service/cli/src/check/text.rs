//! Reports for people.

use std::fmt::Write as _;

use lumpscope_engine::inspect::{
    CheckReport, InspectReport, JournalInfo, LumpInfo, RecordInfo, SizeClass,
};
use lumpscope_engine::salvage::SalvageCheck;
use lumpscope_engine::{Findings, SalvageReport};
use lumpscope_units::columns::words;
use lumpscope_units::human::{bytes_at_least as bytes, counted};

use crate::output::{escaped, table, width};

/// Findings shown; `--json` has more of them.
const FINDINGS_SHOWN: usize = 50;

fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Adds a line `name  text`.
fn line(out: &mut String, name: &str, text: impl std::fmt::Display) {
    let lines = words(&escaped(&text.to_string()), width() - 13);
    let lines = lines.join(&format!("\n{:13}", ""));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name:<12} {lines}");
}

/// Adds a line `name  text` with a text of several parts.
macro_rules! line {
    ($out:expr, $name:expr, $($text:tt)*) => { line($out, $name, format_args!($($text)*)) };
}

/// The whole inspection.
pub(super) fn summary(report: &InspectReport) -> String {
    let mut out = inspected(report);
    findings(&mut out, &report.findings);
    out
}

fn inspected(report: &InspectReport) -> String {
    let mut out = String::new();
    target(&mut out, report);
    journal(&mut out, report);
    space(&mut out, report);
    out
}

/// Text of the plan of salvage mode.
pub(super) fn salvage(report: &SalvageReport) -> String {
    let mut out = String::new();
    if report.is_clean() {
        line(&mut out, "salvage", "no damage: the store opens normally");
    } else {
        line(&mut out, "salvage", "the store opens in salvage mode only");
    }
    line!(
        &mut out,
        "lumps",
        "{} served, {} dropped; {} superseded",
        report.lumps,
        report.dropped_lumps,
        counted(report.superseded_records, "put")
    );
    if report.gaps > 0 {
        line!(
            &mut out,
            "log",
            "continues after {}",
            counted(report.gaps, "damaged part")
        );
    }
    if let Some(cut) = &report.cut {
        line!(
            &mut out,
            "log",
            "cut at ring position {}: {} in {} kept",
            cut.ring_position,
            counted(cut.records_kept, "record"),
            counted(cut.bytes_kept, "byte")
        );
        line!(
            &mut out,
            "behind",
            "{}; {} in the first {} of them, lost or of older rounds",
            counted(cut.bytes_behind, "byte"),
            counted(cut.records_behind, "intact record"),
            cut.bytes_searched
        );
    }
    for found in report.findings.iter().take(FINDINGS_SHOWN) {
        line(&mut out, found.action.name(), &found.finding);
    }
    let shown = FINDINGS_SHOWN.min(report.findings.len()) as u64;
    if report.total > shown {
        line!(&mut out, "", "and {} more", report.total - shown);
    }
    if !report.is_clean() {
        line(
            &mut out,
            "repair",
            "`lumpscope serve --salvage` makes this final; copy the device first if you can",
        );
    }
    out
}

/// Text of the plan, with the verdicts on the lumps it would serve.
pub(super) fn salvage_checked(check: &SalvageCheck) -> String {
    let mut out = salvage(&check.salvage);
    line!(
        &mut out,
        "checked",
        "{} verified, {} without a checksum, {} damaged",
        counted(check.verified_lumps, "lump"),
        check.unverified_lumps,
        check.damaged_lumps
    );
    for why in check.damage.iter().take(FINDINGS_SHOWN) {
        line(&mut out, "damaged", why);
    }
    out
}

fn target(out: &mut String, report: &InspectReport) {
    let target = &report.target;
    line!(
        out,
        "target",
        "{} ({}, {} bytes, I/O in units of {}{})",
        target.path.display(),
        target.kind,
        target.size_bytes,
        target.unit_bytes,
        if target.direct_io {
            ""
        } else {
            ", through the page cache"
        }
    );
    if let Some(minfs) = &report.minfs {
        let name = minfs.file_name.as_deref().unwrap_or("?");
        line!(out, "minfs", "file {name:?}");
    }
    let Some(image) = &report.image else {
        return line(out, "image", "unusable header");
    };
    line!(
        out,
        "image",
        "lusf {}, {}, {}, blocks of {} bytes, from byte {} to {}",
        image.version,
        image.name.as_deref().unwrap_or("unnamed"),
        image.uuid,
        image.block_size,
        image.base_offset,
        image.end_offset
    );
    line!(
        out,
        "regions",
        "journal {}, data {} from byte {}; largest lump {}",
        bytes(image.journal_region_bytes),
        bytes(image.data_region_bytes),
        image.data_offset,
        bytes(image.max_lump_bytes)
    );
}

/// The end of the journal.
fn seal(out: &mut String, journal: &JournalInfo) {
    match &journal.seal {
        Some(seal) => line!(
            out,
            "seal",
            "epoch {}, log end {}, foreign before {}",
            seal.epoch,
            seal.log_end,
            seal.foreign_end
        ),
        None => line(
            out,
            "seal",
            "none: another engine wrote the end of the journal",
        ),
    }
    if let Some(outcome) = journal.unsettled {
        line!(out, "last batch", "{outcome}, as opening will find it");
    }
}

fn journal(out: &mut String, report: &InspectReport) {
    let Some(journal) = &report.journal else {
        return line(out, "journal", "not readable");
    };
    let tail = journal
        .tail
        .map_or_else(|| "not reached".to_owned(), |tail| tail.to_string());
    line!(
        out,
        "journal",
        "ring of {}, head {}, tail {tail}, {} used ({} %): {} live, {} garbage",
        bytes(journal.ring_bytes),
        journal.head,
        bytes(journal.used_bytes),
        percent(journal.used_bytes, journal.ring_bytes),
        bytes(journal.live_bytes),
        bytes(journal.garbage_bytes)
    );
    seal(out, journal);
    for checkpoint in &report.checkpoints {
        line!(
            out,
            "checkpoint",
            "number {} at byte {}, {}, log {} to {}{}",
            checkpoint.sequence,
            checkpoint.offset,
            counted(checkpoint.lumps, "lump"),
            checkpoint.log_begin,
            checkpoint.log_end,
            if checkpoint.of_this_epoch {
                ""
            } else {
                ", of another epoch"
            }
        );
    }
    let records = &journal.records;
    line!(
        out,
        "records",
        "{}: {} put, {} embed, {} delete, {} delete range, {} without effect",
        records.total(),
        records.put,
        records.embed,
        records.delete,
        records.delete_range,
        records.no_op
    );
}

fn space(out: &mut String, report: &InspectReport) {
    if let Some(lumps) = &report.lumps {
        line!(
            out,
            "lumps",
            "{} ({} in the data region, {} embedded), {} on disk",
            lumps.count,
            lumps.in_data,
            lumps.embedded,
            bytes(lumps.stored_bytes)
        );
        classes(out, "lumps", &lumps.sizes);
        for lump in &lumps.largest {
            line(out, "  large", self::lump(lump));
        }
    }
    if let Some(free) = &report.free {
        line!(
            out,
            "free",
            "{} in {}, the largest {}; fragmentation {:.4}",
            bytes(free.bytes),
            counted(free.extents, "extent"),
            bytes(free.largest_bytes),
            free.fragmentation
        );
        classes(out, "extents", &free.sizes);
    }
}

fn classes(out: &mut String, what: &str, sizes: &[SizeClass]) {
    if sizes.is_empty() {
        return;
    }
    let mut table = table(&["  size up to", what, "bytes"]);
    for class in sizes {
        table.add_row([
            format!("  {}", bytes(class.up_to_bytes)),
            class.count.to_string(),
            bytes(class.bytes),
        ]);
    }
    table.right(1);
    table.right(2);
    let _ = writeln!(out, "{table}");
}

fn findings(out: &mut String, findings: &Findings) {
    if findings.total == 0 {
        return line(out, "findings", "none");
    }
    line(out, "findings", findings.total);
    for finding in findings.list.iter().take(FINDINGS_SHOWN) {
        let _ = writeln!(out, "  {}", escaped(&finding.to_string()));
    }
    let hidden = findings.total.saturating_sub(FINDINGS_SHOWN as u64);
    if hidden > 0 {
        let _ = writeln!(out, "  and {hidden} more; --json lists the first 1000");
    }
}

/// The result of a check.
pub(super) fn checked(report: &CheckReport) -> String {
    let mut out = inspected(&report.inspect);
    line!(
        &mut out,
        "checked",
        "{} verified, {} without checksum, {} damaged; {} read in {} ms",
        report.verified_lumps,
        report.unverified_lumps,
        report.damaged_lumps,
        bytes(report.read_bytes),
        report.elapsed_ns / 1_000_000
    );
    findings(&mut out, &report.findings);
    line(
        &mut out,
        "result",
        if report.clean {
            "clean"
        } else {
            "PROBLEMS FOUND"
        },
    );
    out
}

/// A lump as a line.
pub(super) fn lump(lump: &LumpInfo) -> String {
    format!(
        "{} {:<8} {:>9} bytes at byte {}",
        lump.id, lump.placement, lump.stored_bytes, lump.offset
    )
}

/// A journal record as a line.
pub(super) fn record(record: &RecordInfo) -> String {
    let mut out = format!("{:>10} {:<12}", record.ring_position, record.record);
    if let Some(id) = record.lump {
        let _ = write!(out, " {id}");
    }
    if let Some(end) = record.end {
        let _ = write!(out, " to {end}");
    }
    if let Some(portion) = record.portion {
        let end = portion.first + portion.count;
        let _ = write!(out, " blocks {}..{end}", portion.first);
    }
    if let Some(len) = record.data_bytes {
        let _ = write!(out, " {}", counted(len, "byte"));
    }
    if record.live {
        out.push_str(" live");
    }
    out
}
