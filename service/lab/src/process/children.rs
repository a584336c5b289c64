//! Servers that others wrote: several processes that belong together, with a log each.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{ChildGuard, Interrupt, tie_to_parent};
use crate::failure::peer_failed;

/// How long they may take to serve.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Processes that end when they are dropped: what they stored goes, so nothing need be in order.
#[derive(Default)]
pub(crate) struct Children(Vec<ChildGuard>);

impl Children {
    /// Starts one that says what it says in a log.
    pub(crate) fn start(&mut self, mut command: Command, log: &Path) -> io::Result<()> {
        let output = File::create(log)?;
        command.stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        tie_to_parent(&mut command, None);
        self.0.push(ChildGuard(command.spawn()?));
        Ok(())
    }

    /// One of them has ended.
    fn ended(&mut self) -> bool {
        let mut children = self.0.iter_mut();
        children.any(|child| !matches!(child.0.try_wait(), Ok(None)))
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|child| child.0.id())
    }

    /// Asks until the answer is there, one of them has ended, or nothing has come of it for long.
    pub(crate) fn wait<T>(
        &mut self,
        (name, log): (&str, &Path),
        interrupt: &Interrupt,
        mut ready: impl FnMut() -> Result<T, String>,
    ) -> anyhow::Result<T> {
        let patience = Instant::now() + START_PATIENCE;
        loop {
            let why = match ready() {
                Ok(done) => return Ok(done),
                Err(why) => why,
            };
            interrupt.check()?;
            if self.ended() || Instant::now() > patience {
                let said = fs::read_to_string(log).unwrap_or_default();
                let said = said.trim().lines().last().unwrap_or("nothing");
                let why = format!("did not serve ({why}); it said: {said}");
                return Err(peer_failed(name, why));
            }
            std::thread::sleep(LOOK);
        }
    }
}
