//! Where, when and by which command something was measured.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lumpscope_units::clock;
use serde::Serialize;

use super::Report;
use crate::human;

/// Bytes of a sector in `/sys`.
const SECTOR: u64 = 512;

/// A fact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Subject.
    pub name: String,
    /// Caption.
    pub value: String,
}

/// Adds what this program runs on, and how busy others kept it. `before`: load average then.
pub(super) fn machine(report: &mut Report, before: Option<f64>) {
    let uname = rustix::system::uname();
    let [system, release, machine] = [uname.sysname(), uname.release(), uname.machine()]
        .map(|word| word.to_string_lossy().into_owned());
    let memory = rustix::system::sysinfo();
    let memory = u64::from(memory.mem_unit).saturating_mul(memory.totalram);
    let load = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.2}"));
    let busy = format!("{} before, {} after", load(before), load(load_average()));
    report.fact("Lumpscope", env!("CARGO_PKG_VERSION"));
    report.fact("Kernel", format!("{system} {release} {machine}"));
    report.fact("Processors", processors());
    report.fact("Memory", human::bytes(memory));
    report.fact("Load average", busy);
}

/// Processes runnable on average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The command of this process, as a shell understands it.
pub(super) fn command_line(words: impl Iterator<Item = String>) -> String {
    words
        .map(|word| quoted(&word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// This minute, e.g. `2026-11-21 20:58 UTC`.
pub(super) fn now() -> Option<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    clock::minute(now.ok()?.as_secs())
}

/// Number and model of the processors.
fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name");
    match model {
        Some((_, model)) => format!("{count} × {}", model.trim()),
        None => count.to_string(),
    }
}

/// Facts of the kernel about the disk that a file, folder or block device is on.
#[must_use]
pub fn disk(path: &Path) -> String {
    let shown = path.display();
    let Ok(metadata) = std::fs::metadata(path) else {
        return format!("{shown} (is not there)");
    };
    let is_device = metadata.file_type().is_block_device();
    let number = if is_device {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let Ok(mut folder) = folder.canonicalize() else {
        return format!("{shown} (not on a block device)");
    };
    if folder.join("partition").exists() {
        folder.pop();
    }
    let device = folder
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut said = vec![device];
    said.extend(properties(&folder));
    format!("{shown} on {}", said.join(", "))
}

/// Model, size, sectors, cache and scheduler, as far as the kernel says them.
fn properties(folder: &Path) -> Vec<String> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        let text = text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let mut said = Vec::new();
    said.extend(read("device/model"));
    let sectors = read("size").and_then(|text| text.parse::<u64>().ok());
    said.extend(sectors.map(|sectors| human::bytes(sectors.saturating_mul(SECTOR))));
    said.extend(read("loop/backing_file").map(|file| format!("a loop device over {file}")));
    said.extend(read("queue/rotational").map(|text| {
        let spins = if text == "1" {
            "rotating"
        } else {
            "not rotating"
        };
        spins.to_owned()
    }));
    let blocks = read("queue/logical_block_size").zip(read("queue/physical_block_size"));
    said.extend(
        blocks
            .map(|(logical, physical)| format!("sectors of {logical} B, physically {physical} B")),
    );
    said.extend(read("queue/write_cache").map(|cache| format!("cache {cache}")));
    let scheduler = read("queue/scheduler").map(|all| {
        let chosen = all
            .split('[')
            .nth(1)
            .and_then(|rest| rest.split(']').next());
        format!("scheduler {}", chosen.unwrap_or(&all))
    });
    said.extend(scheduler);
    said
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted() {
        let words = ["lumpscope", "bench", "--only", "1 MiB", "", "it's"];
        assert_eq!(
            command_line(words.map(str::to_owned).into_iter()),
            "lumpscope bench --only '1 MiB' '' 'it'\\''s'"
        );
    }

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let mut report = Report::default();
        machine(&mut report, None);
        report.fact("Here", disk(Path::new("/")));
        report.fact("Nowhere", disk(Path::new("/nowhere/at/all")));
        assert!(report.facts.iter().all(|fact| !fact.value.is_empty()));
        let nowhere = report.facts.last().expect("it was added");
        assert!(nowhere.value.contains("is not there"), "{nowhere:?}");
    }
}
