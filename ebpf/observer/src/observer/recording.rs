//! The correlator's inputs, written down so that they can be replayed elsewhere.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::clock::{WallClock, monotonic_ns};
use crate::correlate::Input;
use crate::live::{self, Feed, Watch};

use super::ObserverState;

/// Time between two audits while inputs are recorded or traces watched: each audit may wait some
/// milliseconds for the disk to be idle.
const AUDIT_NS: u64 = 5_000_000_000;

/// A file and live watches that get a copy of every input.
#[derive(Debug, Default)]
pub(super) struct Recording {
    file: Option<BufWriter<File>>,
    feeds: Vec<Feed<String>>,
}

impl Recording {
    /// Into this file, if any.
    pub(super) fn to_file(path: Option<&Path>, clock: WallClock) -> Recording {
        let mut recording = Recording {
            file: path.and_then(open),
            feeds: Vec::new(),
        };
        recording.tell(&began(clock));
        recording
    }

    /// True: there is a file or a watch.
    pub(super) fn is_wanted(&self) -> bool {
        self.file.is_some() || !self.feeds.is_empty()
    }

    /// Writes an input down.
    pub(super) fn tell(&mut self, input: &Input) {
        if !self.is_wanted() {
            return;
        }
        let Some(line) = line_of(input) else {
            return;
        };
        let marks_time = matches!(input, Input::Drained { .. });
        if let Some(file) = &mut self.file
            && let Err(error) = write_line(file, &line, marks_time)
        {
            tracing::warn!(%error, "recording ends here");
            self.file = None;
        }
        self.feeds.retain(|feed| feed.put(line.clone()));
    }

    /// No more into the file.
    pub(super) fn close(&mut self) {
        if let Some(mut file) = self.file.take()
            && let Err(error) = file.flush()
        {
            tracing::warn!(%error, "the recording is incomplete");
        }
    }
}

impl ObserverState {
    /// Begins a recording with what was told before and still holds.
    pub(super) fn watch_inputs(&mut self, capacity: usize) -> Watch<String> {
        let (watch, feed) = live::watch(capacity);
        feed.put(line_of(&began(self.correlator.clock())).unwrap_or_default());
        for line in self.correlator.standing().iter().filter_map(line_of) {
            feed.put(line);
        }
        self.recording.feeds.push(feed);
        self.audit_all();
        watch
    }

    /// Tells the correlator how far the events can be trusted.
    pub(super) fn audit_all(&mut self) {
        self.audited_ns = monotonic_ns();
        let devs: Vec<u32> = self.disks.iter().map(|disk| disk.dev).collect();
        for dev in devs {
            self.audit_one(dev);
        }
    }

    /// As [`ObserverState::audit_all`], for one disk.
    pub(super) fn audit_one(&mut self, dev: u32) {
        self.find_late(dev);
        self.wait_for_rest(dev);
        if let Some(report) = self.audit(dev) {
            let report = Box::new(report);
            self.learn(Input::Audited { dev, report });
        }
    }

    /// Audits every few seconds while inputs are recorded or traces watched.
    pub(super) fn audit_now_and_then(&mut self, now_ns: u64) {
        let wanted = self.recording.is_wanted() || self.correlator.traced_are_watched();
        if wanted && now_ns.saturating_sub(self.audited_ns) >= AUDIT_NS {
            self.audit_all();
        }
    }
}

/// What makes the times of a recording times of day. Nothing that began before is in it.
pub(super) fn began(clock: WallClock) -> Input {
    began_since(clock, monotonic_ns(), None, 0)
}

/// The same for a recording of the past.
pub(super) fn began_since(
    clock: WallClock,
    since_ns: u64,
    request: Option<u64>,
    left_out: u64,
) -> Input {
    let monotonic_ns = monotonic_ns();
    Input::Clock {
        monotonic_ns,
        unix_ns: u64::try_from(clock.unix_ns(monotonic_ns)).unwrap_or(0),
        since_ns: Some(since_ns),
        request,
        left_out,
    }
}

pub(super) fn line_of(input: &Input) -> Option<String> {
    match serde_json::to_string(input) {
        Ok(line) => Some(line),
        Err(error) => {
            tracing::warn!(%error, "an input is not recorded");
            None
        }
    }
}

fn open(path: &Path) -> Option<BufWriter<File>> {
    match File::create(path) {
        Ok(file) => Some(BufWriter::new(file)),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "nothing is recorded");
            None
        }
    }
}

fn write_line(to: &mut BufWriter<File>, line: &str, flush: bool) -> std::io::Result<()> {
    to.write_all(line.as_bytes())?;
    to.write_all(b"\n")?;
    if flush { to.flush() } else { Ok(()) }
}
