//! `lumpscope bpftrace`: a script of ebpf/bpftrace, with its arguments filled in.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use lumpscope_client::{LumpId, v1};
use lumpscope_units::Span;

use super::live::ending;
use crate::client::ConnectionArgs;
use crate::error::Exit;
use crate::output::{print, write};

macro_rules! scripts {
    ($($name:literal)*) => {
        const NAMES: &[&str] = &[$($name),*];
        /// The text of each.
        const SCRIPTS: &[&str] = &[$(
            include_str!(concat!("../../../../ebpf/bpftrace/", $name, ".bt"))
        ),*];
    };
}

scripts! {
    "request-latency" "lump-trace" "seek-distance" "seek-heatmap" "d2c-by-distance" "head-mover"
    "fs-journal" "block-count"
}

/// `lumpscope bpftrace`.
#[derive(Args)]
pub(crate) struct BpftraceArgs {
    /// Script
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES.iter().copied()))]
    name: String,
    /// Store to look at, of a service on this machine that runs this program [default: show what the
    /// script does]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// End after this time; 0: at Ctrl-C. block-count always runs until Ctrl-C
    #[arg(long, value_name = "TIME", default_value = "10s")]
    seconds: Span,
    /// Lump to trace; only for lump-trace
    #[arg(long, value_name = "ID")]
    lump: Option<LumpId>,
}

pub(crate) async fn run(connection: ConnectionArgs, args: BpftraceArgs) -> Result<ExitCode> {
    let mut scripts = NAMES.iter().zip(SCRIPTS);
    let found = scripts.find(|(name, _)| **name == args.name);
    let (_, &script) = found.context("no such script")?;
    let (head, program) = script.split_once("*/\n").unwrap_or((script, ""));
    let Some(store) = args.store.clone() else {
        let lines = head
            .lines()
            .skip(2)
            .map(|line| line.trim_start_matches(" *"));
        let lines: Vec<&str> = lines
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        print(&lines.join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let _ending = ending()?;
    let client = connection.connect().await?;
    let request = v1::DescribeStoreRequest { store };
    let info = client
        .describe_store(request)
        .await?
        .info
        .unwrap_or_default();
    let usage = head
        .split("USAGE: ")
        .nth(1)
        .and_then(|usage| usage.lines().next());
    let words = words(usage.unwrap_or_default(), &args, &info)?;
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-e", program]).args(words);
    tokio::task::spawn_blocking(move || forward(bpftrace)).await?
}

/// The arguments that a script asks for, in its order.
fn words(usage: &str, args: &BpftraceArgs, info: &v1::StoreInfo) -> Result<Vec<String>> {
    let device = &info.device;
    ensure!(
        !device.is_empty(),
        "the disk of store {} is not known: {}",
        info.name,
        info.not_observed_because
    );
    let number = format!("/sys/block/{device}/dev");
    let number = fs::read_to_string(&number)
        .with_context(|| format!("cannot read {number}: does the service run on this machine?"))?;
    let (major, minor) = number.trim().split_once(':').unwrap_or_default();
    let lump = args.lump.map(|id| id.to_string());
    let mut words = Vec::new();
    // The disks after the first are others.
    let (first, disks) = usage.split_once("[MAJOR MINOR").unwrap_or((usage, ""));
    let disk = if disks.is_empty() { "" } else { "MAJOR MINOR" };
    for word in first
        .split_whitespace()
        .skip(1)
        .chain(disk.split_whitespace())
    {
        words.push(match word.trim_matches(['[', ']']) {
            "SECONDS" => (args.seconds.nanoseconds().div_ceil(1_000_000_000)).to_string(),
            "BINARY" => std::env::current_exe()?.display().to_string(),
            "MAJOR" => major.to_owned(),
            "MINOR" => minor.to_owned(),
            "FIRST_SECTOR" => first_sector(&info.path)?,
            id => match (id.strip_prefix("0xID"), &lump) {
                (Some(part), Some(lump)) => {
                    let from = 8 * (part.parse::<usize>()?.saturating_sub(1));
                    format!("0x{}", lump.get(from..from + 8).unwrap_or_default())
                }
                (Some(_), None) => bail!("lump-trace needs --lump ID"),
                (None, _) => break,
            },
        });
    }
    Ok(words)
}

/// Of the partition that the store is on, or of the whole disk.
fn first_sector(path: &str) -> Result<String> {
    let path = fs::canonicalize(path).with_context(|| format!("cannot find {path}"))?;
    let name = path.file_name().unwrap_or_default();
    let class = Path::new("/sys/class/block").join(name);
    if !class.exists() {
        bail!(
            "{} is a file: bpftrace does not know where its blocks are; see `lumpscope explain`",
            path.display()
        );
    }
    let start = fs::read_to_string(class.join("start"));
    Ok(start.map_or_else(|_| "0".to_owned(), |start| start.trim().to_owned()))
}

/// Runs it and shows what it prints. It prints an empty line for each of its maps, filled or not.
fn forward(mut bpftrace: Command) -> Result<ExitCode> {
    let mut child = bpftrace
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run bpftrace, which `apt install bpftrace` installs")?;
    let mut empty = false;
    for line in child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(|out| out.lines())
    {
        let line = line?;
        if line.is_empty() {
            empty = true;
            continue;
        }
        let before = if std::mem::take(&mut empty) { "\n" } else { "" };
        if !write(format!("{before}{line}\n").as_bytes())? {
            break;
        }
    }
    let ended = child.wait()?;
    match ended.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(Exit::Failed.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_gets_the_arguments_that_it_names() {
        let info = v1::StoreInfo {
            device: "loop0".into(),
            path: "/dev/loop0".into(),
            ..Default::default()
        };
        if !Path::new("/sys/block/loop0/dev").exists() {
            return;
        }
        let args = BpftraceArgs {
            name: String::new(),
            store: None,
            seconds: "3s".parse().unwrap(),
            lump: Some("00000001000000020000000300000004".parse().unwrap()),
        };
        let exe = std::env::current_exe().unwrap().display().to_string();
        let lump = "0x00000001 0x00000002 0x00000003 0x00000004 0";
        let disk = "3 7 0".to_owned();
        for (name, script) in NAMES.iter().zip(SCRIPTS) {
            let usage = script
                .split("USAGE: ")
                .nth(1)
                .unwrap()
                .lines()
                .next()
                .unwrap();
            let wanted = match *name {
                "request-latency" => format!("3 {exe}"),
                "lump-trace" => format!("3 {exe} 7 0 {lump}"),
                "block-count" => "7 0".to_owned(),
                _ => disk.clone(),
            };
            let found = words(usage, &args, &info).unwrap().join(" ");
            assert_eq!(found, wanted, "{name}");
        }
    }
}
