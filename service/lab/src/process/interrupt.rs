//! Signals that become an ordinary return, so that everything is taken down in order, and children
//! that end in time.
//!
//! The handlers stay for the rest of the process: a second Ctrl-C while things are taken down changes
//! nothing. (If the process is killed at that moment, the kernel takes them down.)

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{ChildGuard, tie_to_parent};
use crate::failure::{Interrupted, cannot_do, peer_failed};

/// Pause between two looks at a child.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause between two looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// Set by the first signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// A child that has ended: its status and output.
#[derive(Debug)]
pub(crate) struct ChildOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Interrupt {
    pub(crate) fn install() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .map_err(cannot_do("handle signals"))?;
        }
        Ok(interrupt)
    }

    /// Fails once a signal has come.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        Ok(())
    }

    /// True: a signal has come since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    /// Ends when a signal has come.
    pub(crate) async fn wait(&self) {
        while self.check().is_ok() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The result of `work`, unless a signal comes first.
    pub(crate) async fn or_stop<T, E: Into<anyhow::Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            () = self.wait() => Err(Interrupted.into()),
        }
    }

    /// Runs a command to its successful end and returns its standard output. It is killed when it
    /// takes longer than `limit`, when a signal comes, and when this process dies.
    pub(crate) fn run(&self, mut command: Command, limit: Duration) -> anyhow::Result<String> {
        tie_to_parent(&mut command, None);
        let program = program(&command);
        let ended = self.output(command, limit)?;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        let last = ended.stderr.trim().lines().last();
        let last = last.unwrap_or("it said nothing");
        Err(peer_failed(&program, format!("failed: {last}")))
    }

    /// Runs a command to its end, whatever that is. It is killed when it takes longer than `limit`
    /// and when a signal comes.
    pub(crate) fn output(
        &self,
        mut command: Command,
        limit: Duration,
    ) -> anyhow::Result<ChildOutput> {
        let program = program(&command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| peer_failed(&program, format!("cannot be started: {error}")))?;
        let mut child = ChildGuard(child);
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        thread::scope(|scope| {
            let stdout = scope.spawn(|| text(stdout));
            let stderr = scope.spawn(|| text(stderr));
            let ended = self.ended(&mut child.0, &program, limit);
            if ended.is_err() {
                // The pipes end with it, and with them the two threads.
                child.end();
            }
            let (stdout, stderr) = (stdout.join(), stderr.join());
            Ok(ChildOutput {
                status: ended?,
                stdout: stdout.unwrap_or_default(),
                stderr: stderr.unwrap_or_default(),
            })
        })
    }

    fn ended(
        &self,
        child: &mut Child,
        program: &str,
        limit: Duration,
    ) -> anyhow::Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            let looked = child
                .try_wait()
                .map_err(|error| peer_failed(program, error.to_string()))?;
            if let Some(status) = looked {
                return Ok(status);
            }
            self.check()?;
            if begin.elapsed() > limit {
                return Err(peer_failed(
                    program,
                    format!(
                        "stopped after {limit:?}, many times the length of its round: the disk is \
                         busy or does not answer; use fewer --rounds or a shorter --seconds on a \
                         quiet machine"
                    ),
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
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
    use crate::failure::PeerFailed;

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
        assert!(
            slow.as_ref().is_err_and(|error| error.is::<PeerFailed>()),
            "{slow:?}"
        );
        interrupt.0.store(true, Ordering::Relaxed);
        let stopped = interrupt.run(shell("exec sleep 600"), minute);
        assert!(stopped.is_err_and(|error| error.is::<Interrupted>()));
    }
}
