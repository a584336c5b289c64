//! `lumpscope completions` and `lumpscope man`: what shells and manuals know of the commands, made
//! from the commands themselves.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use lumpscope_units::human;

use crate::error::file as file_error;
use crate::help;
use crate::output::{escaped, print, write};

/// `lumpscope completions`.
#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// Shell to make completions for
    shell: Shell,
}

/// `lumpscope man`.
#[derive(Args)]
pub(super) struct ManArgs {
    /// Folder for the pages, created if missing
    folder: PathBuf,
}

/// Writes the completions of a shell to standard output.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "lumpscope", &mut script);
    write(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual, a page for the program and one for each command.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<ExitCode> {
    let folder = &args.folder;
    fs::create_dir_all(folder).map_err(file_error("make", folder))?;
    let mut command = help::global_once(command).disable_help_subcommand(true);
    command.build();
    let pages = write_pages(&command, folder).map_err(file_error("write to", folder))?;
    print(&format!(
        "{} in {}",
        human::counted(pages, "page"),
        escaped(&folder.display().to_string())
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those below it; says how many.
fn write_pages(command: &Command, folder: &std::path::Path) -> io::Result<u64> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .render(&mut page)?;
    fs::write(folder.join(format!("{name}.1")), page)?;
    let mut pages = 1;
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        pages += write_pages(below, folder)?;
    }
    Ok(pages)
}
