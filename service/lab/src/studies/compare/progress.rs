//! Progress on standard error.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lumpscope_units::tell;

/// A bar when standard error is a terminal, otherwise one line a step.
pub(super) struct Progress {
    terminal: bool,
}

/// One step; its bar is gone when this is dropped.
pub(super) struct ProgressStep {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// A step of unknown length.
    pub(super) fn step(&self, what: &str) -> ProgressStep {
        if !self.terminal {
            tell(what);
            return ProgressStep { bar: None };
        }
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        ProgressStep { bar: Some(bar) }
    }

    /// A step of so many commands.
    pub(super) fn commands(&self, what: &str, length: usize) -> ProgressStep {
        if !self.terminal {
            tell(what);
            return ProgressStep { bar: None };
        }
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let bar = ProgressBar::new(length).with_message(what.to_owned());
        let template = "{msg} {wide_bar} {human_pos}/{human_len}, {elapsed}, {eta} to go";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        ProgressStep { bar: Some(bar) }
    }
}

impl ProgressStep {
    /// Shows the counter until dropped.
    pub(super) async fn follow(&self, finished: Arc<AtomicU64>) -> Infallible {
        loop {
            if let Some(bar) = &self.bar {
                bar.set_position(finished.load(Ordering::Relaxed));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
