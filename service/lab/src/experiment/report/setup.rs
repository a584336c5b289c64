//! The setup of a measurement: place, time, machine.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lumpscope_units::clock;
use serde::Serialize;

use crate::experiment::Machine;
use crate::human;

/// Bytes of a sector in `/sys`.
const SECTOR: u64 = 512;

/// Where, when and how something was measured: enough to do it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Setup {
    /// The command that was run, with all its arguments.
    pub command: Vec<String>,
    /// When the report was made, in seconds since 1970 (UTC); absent: not said.
    pub made_at: Option<u64>,
    /// Everything else, in this order.
    pub facts: Vec<Fact>,
}

/// A fact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Subject.
    pub name: String,
    /// Caption.
    pub value: String,
}

impl Setup {
    /// This process's command line, the time, this program's version, and the machine.
    #[must_use]
    pub fn here() -> Setup {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let arguments = std::env::args_os();
        let mut setup = Setup {
            command: arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            made_at: now.ok().map(|since| since.as_secs()),
            facts: Vec::new(),
        };
        setup.fact("Lumpscope", env!("CARGO_PKG_VERSION"));
        let uname = rustix::system::uname();
        setup.fact(
            "Kernel",
            format!(
                "{} {} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy(),
                uname.machine().to_string_lossy()
            ),
        );
        setup.fact("Processors", processors());
        let memory = rustix::system::sysinfo();
        let bytes = u64::from(memory.mem_unit).saturating_mul(memory.totalram);
        setup.fact("Memory", human::bytes(bytes));
        setup
    }

    /// Setup with the machine, and how busy others kept it during the measurement.
    #[must_use]
    pub(crate) fn of(machine: &Machine) -> Setup {
        let mut setup = Setup::here();
        setup.fact("Load average", machine.load());
        setup
    }

    /// Adds a fact at the end.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push(Fact {
            name: name.into(),
            value: value.into(),
        });
    }

    /// Adds what the kernel says about the disk that a file, folder or block device is on.
    pub fn disk(&mut self, name: impl Into<String>, path: &Path) {
        self.fact(name, disk(path));
    }
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

impl Setup {
    /// The command as a shell understands it.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        words.join(" ")
    }

    /// `2026-11-21 20:58 UTC`.
    #[must_use]
    pub fn date(&self) -> Option<String> {
        clock::minute(self.made_at?)
    }
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
        let setup = Setup {
            command: ["lumpscope", "bench", "--only", "1 MiB", "", "it's"]
                .map(str::to_owned)
                .to_vec(),
            made_at: Some(1_795_294_716),
            facts: Vec::new(),
        };
        assert_eq!(
            setup.command_line(),
            "lumpscope bench --only '1 MiB' '' 'it'\\''s'"
        );
        assert_eq!(setup.date().as_deref(), Some("2026-11-21 20:58 UTC"));
    }

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let mut setup = Setup::here();
        setup.disk("Here", Path::new("/"));
        setup.disk("Nowhere", Path::new("/nowhere/at/all"));
        let names: Vec<&str> = setup.facts.iter().map(|fact| fact.name.as_str()).collect();
        assert!(names.starts_with(&["Lumpscope", "Kernel", "Processors", "Memory"]));
        assert!(setup.facts.iter().all(|fact| !fact.value.is_empty()));
        let nowhere = setup.facts.last().expect("it was added");
        assert!(nowhere.value.contains("is not there"), "{nowhere:?}");
    }
}
