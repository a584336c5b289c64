//! Children that end in time, and signals that become an ordinary return.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::error::BenchError;
use crate::lab::tie_to_parent;

/// Pause between two looks at a child.
const PAUSE: Duration = Duration::from_millis(5);

/// Set by the first signal. The handlers stay for the rest of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// A child that is killed and reaped when nobody waits for it any more.
struct Held(Child);

impl Held {
    fn end(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

impl Interrupt {
    pub(crate) fn install() -> Result<Interrupt, BenchError> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .map_err(BenchError::Signals)?;
        }
        Ok(interrupt)
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.0.load(Ordering::Relaxed) {
            Err(BenchError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Runs a command to its successful end and returns what it printed. It is killed when it takes
    /// longer than `limit`, when a signal comes, and when this process dies.
    pub(crate) fn run(&self, mut command: Command, limit: Duration) -> Result<String, BenchError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        tie_to_parent(&mut command, None);
        let child = command
            .spawn()
            .map_err(|error| BenchError::peer(&program, format!("cannot be started: {error}")))?;
        let mut child = Held(child);
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        thread::scope(|scope| {
            let printed = scope.spawn(|| text(stdout));
            let complained = scope.spawn(|| text(stderr));
            let ended = self.wait(&mut child.0, &program, limit);
            if ended.is_err() {
                // The pipes end with it, and with them the two threads.
                child.end();
            }
            let (printed, complained) = (printed.join(), complained.join());
            if ended? {
                return Ok(printed.unwrap_or_default());
            }
            let complained = complained.unwrap_or_default();
            let last = complained
                .trim()
                .lines()
                .last()
                .unwrap_or("it said nothing");
            Err(BenchError::peer(&program, format!("failed: {last}")))
        })
    }

    /// True: it ended well.
    fn wait(&self, child: &mut Child, program: &str, limit: Duration) -> Result<bool, BenchError> {
        let begin = Instant::now();
        loop {
            let looked = child
                .try_wait()
                .map_err(|error| BenchError::peer(program, error.to_string()))?;
            if let Some(status) = looked {
                return Ok(status.success());
            }
            self.check()?;
            if begin.elapsed() > limit {
                return Err(BenchError::TooSlow {
                    program: program.to_owned(),
                    limit,
                });
            }
            thread::sleep(PAUSE);
        }
    }
}

fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What cannot be read is not said.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn children_end_in_time_and_say_why_they_failed() {
        let interrupt = Interrupt::default();
        let minute = Duration::from_secs(60);
        assert_eq!(
            interrupt
                .run(shell("echo so"), minute)
                .expect("it succeeds"),
            "so\n"
        );
        let failed = interrupt.run(shell("echo no >&2; exit 3"), minute);
        let failed = failed.expect_err("it fails").to_string();
        assert!(failed.ends_with("failed: no"), "{failed}");
        let slow = interrupt.run(shell("exec sleep 600"), Duration::from_millis(50));
        assert!(matches!(slow, Err(BenchError::TooSlow { .. })), "{slow:?}");
        interrupt.0.store(true, Ordering::Relaxed);
        let stopped = interrupt.run(shell("exec sleep 600"), minute);
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
    }
}
