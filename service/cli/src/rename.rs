//! `lumpscope rename`: the name in the image of a store that nobody uses.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_engine::Machine;
use serde_json::json;

use crate::output::{escaped, print, print_json};

/// `lumpscope rename`.
#[derive(Args)]
#[command(
    after_help = "`serve` writes the name of a store into its image when it is first served, and refuses \
                  the image under another name."
)]
pub(super) struct RenameArgs {
    /// Block device or file with a store that is not being served
    path: PathBuf,
    /// New name: 1 to 64 letters, digits, '-', '_' or '.'
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Gives a store another name.
pub(super) fn run(args: &RenameArgs) -> Result<ExitCode> {
    let RenameArgs { path, name, json } = args;
    let before = lumpscope_engine::rename(path, name, Some(&Machine::this()))?;
    if *json {
        print_json(&json!({"before": before, "after": name}))?;
    } else {
        let path = path.display().to_string();
        let path = escaped(&path);
        let before = before.map(|before| format!(", {before} before"));
        print(&format!("{path}: {name}{}", before.unwrap_or_default()))?;
    }
    Ok(ExitCode::SUCCESS)
}
