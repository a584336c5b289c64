//! `lumpscope platter drives`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_platter::drive::{DRIVES, Drive, Source};
use lumpscope_platter::figures::Figures;
use lumpscope_units::human;
use serde_json::{Value, json};

use super::named_drive;
use crate::output;

/// `lumpscope platter drives`.
#[derive(Args)]
pub(crate) struct DrivesArgs {
    /// Show this one, with the source of every number
    #[arg(value_name = "DRIVE", value_parser = named_drive)]
    drive: Option<Drive>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DrivesArgs) -> Result<ExitCode> {
    let drives = match &args.drive {
        Some(drive) => vec![drive.clone()],
        None => DRIVES.to_vec(),
    };
    if args.json {
        let all = drives.iter().map(as_json).collect::<Result<Vec<_>, _>>()?;
        output::print_json(&Value::from(all))?;
    } else if let Some(drive) = &args.drive {
        show(drive)?;
    } else {
        list(&drives)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn figures(drive: &Drive) -> Result<Figures> {
    Figures::of(drive).map_err(anyhow::Error::msg)
}

fn as_json(drive: &Drive) -> Result<Value> {
    Ok(json!({
        "drive": drive,
        "figures": figures(drive)?,
        "parameters": drive.parameters(),
    }))
}

fn rate(bytes: u64) -> String {
    format!("{} MB/s", bytes / 1_000_000)
}

fn list(drives: &[Drive]) -> Result<()> {
    let mut table = output::table(&[
        "DRIVE",
        "SIZE",
        "RPM",
        "OUTER",
        "INNER",
        "SEEK",
        "STROKE",
        "4K READ",
        "CACHE",
        "WHAT IT IS",
    ]);
    for drive in drives {
        let figures = figures(drive)?;
        table.add_row([
            drive.name.to_string(),
            human::bytes(drive.bytes()),
            drive.rpm.to_string(),
            rate(drive.outer_rate),
            rate(drive.inner_rate),
            human::duration_ns(figures.average_seek_ns),
            human::duration_ns(figures.full_stroke_ns),
            human::duration_ns(figures.random_read_ns),
            human::bytes(drive.cache_bytes),
            drive.title.to_string(),
        ]);
    }
    for column in 1..9 {
        table.right(column);
    }
    output::print(&table.to_string())
}

fn show(drive: &Drive) -> Result<()> {
    let figures = figures(drive)?;
    output::print(&format!("{}: {}", drive.name, drive.title))?;
    output::print(&format!(
        "{} cylinders, a turn in {}, full stroke {}, 4 KiB anywhere {}\n",
        figures.cylinders,
        human::duration_ns(figures.revolution_ns),
        human::duration_ns(figures.full_stroke_ns),
        human::duration_ns(figures.random_read_ns),
    ))?;
    let mut table = output::table(&["PARAMETER", "VALUE", "SOURCE", "WHICH, OR WHY"]);
    for parameter in drive.parameters() {
        let source = match parameter.source {
            Source::Manual => "manual",
            Source::Sibling => "sibling",
            Source::Tables => "tables",
            Source::Derived => "derived",
            Source::Guess => "guess",
        };
        table.add_row([
            parameter.name.as_str(),
            parameter.value.as_str(),
            source,
            parameter.note.as_str(),
        ]);
    }
    table.right(1);
    output::print(&table.to_string())
}
