//! Shared parts of commands that run until they are ended.

use anyhow::Result;
use lumpscope_units::human;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::system;
use crate::output::complain;

/// Is cancelled when the user wants the command to end: by Ctrl-C or SIGTERM.
pub(crate) fn ending() -> Result<CancellationToken> {
    let listen = |kind| signal(kind).map_err(system("listen for signals"));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let asked = CancellationToken::new();
    let tell = asked.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tell.cancel();
    });
    Ok(asked)
}

/// Says on stderr what is missing, whenever that changes.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    said: String,
    dropped: u64,
}

impl Doubts {
    /// `incomplete`: in words, empty when nothing is missing; `dropped`: so far.
    pub(super) fn tell(&mut self, incomplete: &str, dropped: u64) {
        if incomplete != self.said {
            match incomplete {
                "" => complain("lumpscope: complete again"),
                _ => complain(&format!("lumpscope: incomplete: {incomplete}")),
            }
            incomplete.clone_into(&mut self.said);
        }
        if dropped > self.dropped {
            let more = human::counted(dropped - self.dropped, "block request");
            complain(&format!(
                "lumpscope: left out {more} that were not read in time"
            ));
            self.dropped = dropped;
        }
    }
}
