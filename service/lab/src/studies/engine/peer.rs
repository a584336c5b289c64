//! The original engine, run by a program of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::slow::SlowLoad;
use crate::failure::peer_failed;
use crate::load::{Load, Measured, limit};
use crate::process::Interrupt;

/// Name of the program.
pub const PEER_PROGRAM: &str = "lumpscope-cannyls-peer";

/// Output of the program: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Name and version of the engine.
    pub engine: String,
    /// How its puts come to their promise.
    pub durability: String,
    /// The puts.
    pub put: Option<Measured>,
    /// The gets.
    pub get: Option<Measured>,
}

/// The program, found.
#[derive(Clone, Debug)]
pub(crate) struct Peer(PathBuf);

impl Peer {
    /// The given program, or the one beside this program's own file.
    pub(crate) fn find(given: Option<&Path>) -> Result<Peer, String> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .map(|me| me.with_file_name(PEER_PROGRAM))
                .map_err(|error| format!("cannot find this program's own folder: {error}"))?,
        };
        if path.is_file() {
            Ok(Peer(path))
        } else {
            Err(format!(
                "there is no {}: ./dev bench builds it, or name one with --cannyls-peer",
                path.display()
            ))
        }
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs a load on a file, which it overwrites.
    pub(crate) fn file(
        &self,
        file: &Path,
        capacity: u64,
        load: &Load,
        gets: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<PeerReport> {
        let mut command = Command::new(&self.0);
        command.arg("file").arg("--file").arg(file);
        for (option, value) in [
            ("--capacity", capacity.to_string()),
            ("--size", load.size.to_string()),
            ("--count", load.count.to_string()),
            ("--depth", load.depth.to_string()),
            ("--promise", load.promise.name().to_owned()),
            ("--milliseconds", load.time.as_millis().to_string()),
            ("--seed", load.seed.to_string()),
        ] {
            command.args([option, &value]);
        }
        if !gets {
            command.arg("--no-gets");
        }
        self.report(command, load.time, interrupt)
    }

    /// Runs gets on a slow disk in memory.
    pub(super) fn slow(
        &self,
        slow: &SlowLoad,
        interrupt: &Interrupt,
    ) -> anyhow::Result<PeerReport> {
        let mut command = Command::new(&self.0);
        command.arg("slow");
        for (option, value) in [
            ("--latency-us", slow.latency_us.to_string()),
            ("--size", slow.size.to_string()),
            ("--lumps", slow.lumps.to_string()),
            ("--depth", slow.depth.to_string()),
            ("--milliseconds", slow.milliseconds.to_string()),
        ] {
            command.args([option, &value]);
        }
        self.report(command, slow.load().time, interrupt)
    }

    fn report(
        &self,
        command: Command,
        timed: Duration,
        interrupt: &Interrupt,
    ) -> anyhow::Result<PeerReport> {
        let printed = interrupt.run(command, limit(timed))?;
        serde_json::from_str(&printed)
            .map_err(|error| peer_failed(PEER_PROGRAM, format!("not its JSON: {error}")))
    }
}
