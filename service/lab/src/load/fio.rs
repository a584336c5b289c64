//! fio: what the disk gives without an engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::measured::{Latency, Measured};
use crate::failure::peer_failed;
use crate::process::{Interrupt, in_path};

/// Name of the program.
const PROGRAM: &str = "fio";

/// One run of fio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) block: u64,
    /// I/Os in flight.
    pub(crate) depth: usize,
    /// Where the part of the file begins that it works on, in bytes.
    pub(crate) from: u64,
    pub(crate) time: Duration,
}

/// Pattern and engine of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Sequential writes through one io_uring, as deep as asked.
    Write,
    /// Random reads through one io_uring, as deep as asked.
    Read,
    /// As many jobs as asked in flight, each doing one random write after the other that is durable
    /// when it ends (O_DSYNC).
    DurableWrite,
    /// As many jobs as asked in flight, each doing random reads and such writes, so many of 100 of
    /// them writes.
    DurableMix(u8),
    /// One random write after the other, each a system call of its own; nothing is synced.
    RandomWrite,
}

/// The program, found.
#[derive(Clone, Debug)]
pub(crate) struct Fio(PathBuf);

#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<JobOutput>,
}

#[derive(Debug, Deserialize)]
struct JobOutput {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
    lat_ns: Spread,
}

#[derive(Debug, Default, Deserialize)]
struct Spread {
    #[serde(default)]
    max: u64,
    #[serde(default)]
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, u64>,
}

impl Spread {
    fn latency(&self) -> Latency {
        let at = |key| self.percentile.get(key).copied().unwrap_or(0);
        Latency {
            p50_ns: at("50.000000"),
            p90_ns: at("90.000000"),
            p95_ns: at("95.000000"),
            p99_ns: at("99.000000"),
            p999_ns: at("99.900000"),
            p9999_ns: at("99.990000"),
            max_ns: self.max,
            mean_ns: self.mean,
        }
    }
}

impl Fio {
    pub(crate) fn find() -> Result<Fio, String> {
        in_path(PROGRAM)
            .map(Fio)
            .ok_or_else(|| "fio is not in PATH: install the package fio".to_owned())
    }

    /// First line of `fio --version`.
    pub(crate) fn version(&self, interrupt: &Interrupt) -> anyhow::Result<String> {
        let mut command = Command::new(&self.0);
        command.arg("--version");
        let printed = interrupt.run(command, super::limit(Duration::ZERO))?;
        Ok(printed.trim().to_owned())
    }

    /// Runs one job on `size` bytes of a file or device.
    pub(crate) fn run(
        &self,
        file: &Path,
        size: u64,
        job: &Job,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Measured> {
        let mut command = Command::new(&self.0);
        command.args(arguments(file, size, job));
        let printed = interrupt.run(command, super::limit(job.time))?;
        parse(&printed, job.kind)
    }

    /// Runs a mix on `size` bytes of a file or device: writes, and reads.
    pub(crate) fn mix(
        &self,
        file: &Path,
        size: u64,
        job: &Job,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(Measured, Measured)> {
        let mut command = Command::new(&self.0);
        command.args(arguments(file, size, job));
        let printed = interrupt.run(command, super::limit(job.time))?;
        Ok((parse(&printed, job.kind)?, parse(&printed, JobKind::Read)?))
    }
}

fn arguments(file: &Path, size: u64, job: &Job) -> Vec<String> {
    let name = file.display().to_string().replace(':', "\\:");
    let (pattern, jobs, depth) = match job.kind {
        JobKind::Write => ("write", 1, job.depth),
        JobKind::Read => ("randread", 1, job.depth),
        JobKind::DurableWrite => ("randwrite", job.depth, 1),
        JobKind::DurableMix(_) => ("randrw", job.depth, 1),
        JobKind::RandomWrite => ("randwrite", 1, 1),
    };
    let engine = match job.kind {
        JobKind::Write | JobKind::Read => "io_uring",
        _ => "psync",
    };
    let mut arguments = vec![
        "--name=peer".to_owned(),
        format!("--filename={name}"),
        format!("--rw={pattern}"),
        format!("--bs={}", job.block),
        format!("--size={}", size / job.block * job.block),
        format!("--offset={}", job.from),
        format!("--ioengine={engine}"),
        format!("--numjobs={jobs}"),
        format!("--iodepth={depth}"),
        format!("--runtime={}ms", job.time.as_millis()),
    ];
    let fixed = [
        "--direct=1",
        "--time_based",
        // Jobs are threads, so that all of them end when the process is killed.
        "--thread",
        "--group_reporting",
        "--allow_file_create=0",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--percentile_list=50:90:95:99:99.9:99.99",
        "--output-format=json",
    ];
    arguments.extend(fixed.map(str::to_owned));
    if let JobKind::DurableMix(writes) = job.kind {
        arguments.push(format!("--rwmixwrite={writes}"));
    }
    if matches!(job.kind, JobKind::DurableWrite | JobKind::DurableMix(_)) {
        arguments.push("--sync=dsync".to_owned());
    }
    arguments
}

/// Reads fio's JSON; some versions print notes before it.
fn parse(printed: &str, kind: JobKind) -> anyhow::Result<Measured> {
    let json = printed.find('{').map_or("", |at| &printed[at..]);
    let output: Output = serde_json::from_str(json)
        .map_err(|error| peer_failed(PROGRAM, format!("not its JSON: {error}")))?;
    let [job] = &output.jobs[..] else {
        let count = output.jobs.len();
        return Err(peer_failed(
            PROGRAM,
            format!("reported {count} jobs instead of 1"),
        ));
    };
    if job.error != 0 {
        let error = std::io::Error::from_raw_os_error(job.error);
        return Err(peer_failed(PROGRAM, format!("failed: {error}")));
    }
    let direction = match kind {
        JobKind::Read => &job.read,
        JobKind::Write | JobKind::DurableWrite | JobKind::DurableMix(_) | JobKind::RandomWrite => {
            &job.write
        }
    };
    Ok(Measured {
        requests: direction.total_ios,
        bytes: direction.io_bytes,
        errors: 0,
        seconds: crate::human::as_float(direction.runtime) / 1e3,
        latency: direction.lat_ns.latency(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_prints_is_understood() {
        let printed = r#"fio: a note
            {"fio version": "fio-3.33", "jobs": [{"error": 0,
            "read": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {"max": 0}},
            "write": {"io_bytes": 2097152, "total_ios": 2, "runtime": 500, "lat_ns": {"max": 9,
                "percentile": {"50.000000": 3, "90.000000": 7, "99.000000": 8, "99.900000": 9}}}}]}"#;
        let result = parse(printed, JobKind::DurableWrite).expect("it is understood");
        assert_eq!(result.requests, 2);
        assert!((result.bytes_per_second() - 4_194_304.0).abs() < 1.0);
        assert_eq!(result.latency.p999_ns, 9);
        for wrong in ["", "{}", r#"{"jobs": []}"#] {
            assert!(parse(wrong, JobKind::Read).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_colon_in_a_name_does_not_part_it() {
        let job = Job {
            kind: JobKind::Write,
            block: 4096,
            depth: 8,
            from: 0,
            time: Duration::from_millis(300),
        };
        let arguments = arguments(Path::new("/a:b"), 10_000, &job);
        for expected in [
            "--filename=/a\\:b",
            "--size=8192",
            "--iodepth=8",
            "--runtime=300ms",
        ] {
            assert!(arguments.iter().any(|one| one == expected), "{arguments:?}");
        }
    }
}
