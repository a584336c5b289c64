//! The workloads as they were run for the published table.

use std::io::Write as _;

use tempfile::NamedTempFile;

use crate::failure::cannot;
use crate::workload::{CommandStream, WorkloadArgs, builtin};

/// Loop in the listing of `rand2`.
const LISTED: &str = "20000.times";
/// Loop that its table was made with: it counts 15,000 puts and 10,000 gets.
const RUN: &str = "10000.times";

/// A workload, ready to be run.
#[derive(Debug)]
pub(super) struct PublishedWorkload {
    pub(super) name: String,
    pub(super) args: WorkloadArgs,
    pub(super) stream: CommandStream,
    // Where its text is, if it is not a builtin one.
    _file: Option<NamedTempFile>,
}

impl PublishedWorkload {
    /// By name, at a scale.
    pub(super) fn new(name: &str, scale: f64) -> anyhow::Result<PublishedWorkload> {
        let file = as_run(name).map(|text| write(&text)).transpose()?;
        let source = match &file {
            Some(file) => file.path().to_string_lossy().into_owned(),
            None => name.to_owned(),
        };
        let args = WorkloadArgs::new(source, scale);
        Ok(PublishedWorkload {
            name: name.to_owned(),
            stream: args.stream()?,
            args,
            _file: file,
        })
    }
}

/// Its text, where that is not the listing's.
fn as_run(name: &str) -> Option<String> {
    let text = builtin(name)?.text;
    text.contains(LISTED).then(|| text.replace(LISTED, RUN))
}

fn write(text: &str) -> anyhow::Result<NamedTempFile> {
    let dir = std::env::temp_dir();
    let failed = || cannot("write a workload to", &dir);
    let mut file = NamedTempFile::new().map_err(failed())?;
    file.write_all(text.as_bytes()).map_err(failed())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::seeds::published::CANNYLS;
    use crate::workload::Command;

    #[test]
    fn the_workloads_have_the_published_counts() {
        for row in CANNYLS {
            let workload = PublishedWorkload::new(row.workload, 1.0).expect("a known name");
            let commands = &workload.stream.commands;
            let puts = commands.iter().filter(|c| matches!(c, Command::Put { .. }));
            let gets = commands.iter().filter(|c| matches!(c, Command::Get { .. }));
            let counts = (puts.count() as u64, gets.count() as u64);
            assert_eq!(counts, (row.puts, row.gets), "{}", row.workload);
        }
    }
}
