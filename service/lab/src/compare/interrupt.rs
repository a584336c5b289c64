//! Ctrl-C and its relatives become an ordinary return, so that everything is taken down in order.
//!
//! The handlers stay for the rest of the process: a second Ctrl-C while things are being taken down
//! changes nothing. (Were the process killed at that moment, the kernel would take them down.)

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::error::CompareError;

/// Set by the first signal.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    pub(crate) fn install() -> Result<Interrupt, CompareError> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(CompareError::io("handle signals"))?;
        }
        Ok(Interrupt { flag })
    }

    /// True: a signal has come since this was asked before.
    pub(crate) fn take(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), CompareError> {
        if self.flag.load(Ordering::Relaxed) {
            Err(CompareError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Ends when a signal has come.
    pub(crate) async fn wait(&self) {
        while self.check().is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs a command to its end, or kills it when a signal comes. Returns what it printed on
    /// standard error.
    pub(crate) fn run(&self, mut command: Command) -> Result<(ExitStatus, String), CompareError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(CompareError::io(format!("run {program}")))?;
        self.wait_for(child).map_err(|error| match error {
            Some(source) => CompareError::Io {
                what: format!("wait for {program}"),
                source,
            },
            None => CompareError::Interrupted,
        })
    }

    /// `Err(None)`: a signal came.
    fn wait_for(&self, mut child: Child) -> Result<(ExitStatus, String), Option<std::io::Error>> {
        let stderr = child.stderr.take();
        thread::scope(|scope| {
            let text = scope.spawn(|| stderr.and_then(|pipe| std::io::read_to_string(pipe).ok()));
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if self.check().is_err() {
                    child.kill()?;
                    child.wait()?;
                    return Err(None);
                }
                thread::sleep(Duration::from_millis(10));
            };
            Ok((status, text.join().ok().flatten().unwrap_or_default()))
        })
    }
}
