//! The result as text.

use lumpscope_units::escape::{escaped, escaped_lines};
use lumpscope_units::{columns, human};

use super::{DiskView, Row, WatchReport};
use crate::experiment::text::table;

/// Columns of a file's name.
const NAME: usize = 24;

/// What the rows do not say by themselves.
const LEGEND: &str = "\
fs-journal, fs-metadata and flushes are of all who use the disk. unknown:
written back by the kernel, or made by a process that has ended, in no file that
was seen; or two processes wrote where a file came or went. A request over
several files counts for the first, its bytes for each.";

/// All of it; `most`: files of a disk that are shown.
pub(super) fn text(report: &WatchReport, most: usize) -> String {
    let mut out = vec![format!(
        "{}: {}",
        escaped(&report.subject),
        human::duration_ns(report.elapsed_ns)
    )];
    for disk in &report.disks {
        out.push(String::new());
        out.extend(of_disk(disk, &report.model, most));
    }
    out.push(String::new());
    if report.still_running > 0 {
        out.push(format!(
            "{} of its processes still run; what they do from now on is not here.",
            report.still_running
        ));
    }
    if report.files_overflowed {
        out.push("Some files were not told apart: there are more than a million.".to_owned());
    }
    out.push(LEGEND.to_owned());
    columns::fitted(&escaped_lines(&out.join("\n")), columns::width())
        .trim_end()
        .to_owned()
}

fn of_disk(disk: &DiskView, model: &str, most: usize) -> Vec<String> {
    let mut all = Row {
        name: "all".to_owned(),
        ..Row::default()
    };
    for row in &disk.rows {
        all.merge(row);
    }
    let mut out = vec![
        format!(
            "{}: {} block requests, {} read, {} written, {} flushes",
            disk.disk,
            human::count(all.requests()),
            human::bytes(all.read_bytes),
            human::bytes(all.written_bytes),
            human::count(all.flushes)
        ),
        format!(
            "On a {model}: {}; the bytes alone, in one piece: {}.",
            human::duration_ns(disk.modelled_ns),
            human::duration_ns(disk.transfer_ns)
        ),
        trust(disk),
        String::new(),
    ];
    let mut rows = disk.rows.clone();
    rows.push(all);
    out.extend(rows_of("for", &rows));
    if !disk.files.is_empty() && most > 0 {
        out.push(String::new());
        let shown = disk.files.len().min(most);
        out.extend(rows_of("file", &disk.files[..shown]));
        if shown < disk.files.len() {
            let more = human::count_of(disk.files.len() - shown);
            out.push(format!("and {more} more files: --files N shows them"));
        }
    }
    out
}

fn trust(disk: &DiskView) -> String {
    if disk.trust.complete {
        return "Complete: as many as the kernel counted.".to_owned();
    }
    format!(
        "INCOMPLETE: at least {} of {} block requests were not seen.",
        human::count(disk.trust.missing),
        human::count(disk.trust.kernel_requests)
    )
}

fn rows_of(title: &str, rows: &[Row]) -> Vec<String> {
    let mut table = table(&[
        title, "reads", "bytes", "writes", "bytes", "flushes", "moves", "moving",
    ]);
    for row in rows {
        table.add_row([
            shortened(&row.name),
            human::count(row.reads),
            human::short_bytes(row.read_bytes),
            human::count(row.writes),
            human::short_bytes(row.written_bytes),
            human::count(row.flushes),
            human::count(row.seeks),
            human::short_ns(row.seek_ns),
        ]);
    }
    table.lines()
}

/// The end of a long path.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - (NAME - 1)).collect();
    format!("…{end}")
}
