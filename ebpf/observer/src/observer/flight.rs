//! The flight recorder: what the correlator learned in the last minute is always kept, and written
//! to a file when something has happened that somebody will ask about in the morning.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::api::FlightOptions;
use crate::correlate::{Ended, Input};

use super::Core;
use super::recording::{clock, line_of};

/// So much of the past is kept...
const KEEP_NS: u64 = 60_000_000_000;
/// ...but at most so many inputs: about 20 MiB of memory, and as much in a file.
const MAX_INPUTS: usize = 65_536;
/// A file is written so long after its cause, for what the disk does then belongs to it.
const AFTER_NS: u64 = 2_000_000_000;
/// From one cause to the next.
const PAUSE_NS: u64 = 60_000_000_000;
/// Files that stay; older ones are removed.
const MAX_FILES: usize = 16;
/// Names of the files begin so, and end in [`END`].
const BEGIN: &str = "flight-";
const END: &str = ".jsonl";

/// The last minute, and where it goes.
#[derive(Debug)]
pub(super) struct Flight {
    options: FlightOptions,
    /// Stores on disks that say they have no arm.
    armless: HashSet<usize>,
    inputs: VecDeque<(u64, Input)>,
    /// Why and when a file is to be written.
    cause: Option<(String, u64)>,
    /// When the last cause came.
    last_ns: Option<u64>,
}

impl Flight {
    pub(super) fn new(options: FlightOptions) -> Flight {
        Flight {
            options,
            armless: HashSet::new(),
            inputs: VecDeque::new(),
            cause: None,
            last_ns: None,
        }
    }

    /// Keeps an input, which may be a cause.
    pub(super) fn keep(&mut self, input: Input, now_ns: u64) {
        match &input {
            Input::Ended(ended) if ended.total_ns() >= self.slower_than_ns(ended.store) => {
                self.happened(cause_of(ended), now_ns);
            }
            Input::Event(event) if event.failed => {
                self.happened("disk-error".to_owned(), now_ns);
            }
            _ => {}
        }
        if matches!(input, Input::Clock { .. }) {
            return;
        }
        while self.inputs.len() >= MAX_INPUTS
            || self
                .inputs
                .front()
                .is_some_and(|(at, _)| at + KEEP_NS < now_ns)
        {
            self.inputs.pop_front();
        }
        self.inputs.push_back((now_ns, input));
    }

    /// The disk of a store says that it has no arm.
    pub(super) fn has_no_arm(&mut self, store: usize) {
        self.armless.insert(store);
    }

    fn slower_than_ns(&self, store: usize) -> u64 {
        match self.armless.contains(&store) {
            true => self.options.slower_than_without_arm_ns,
            false => self.options.slower_than_ns,
        }
    }

    /// Declared I/Os that have not returned, by their stores, were begun at these times.
    fn looks(&mut self, begins: impl Iterator<Item = (usize, u64)>, now_ns: u64) {
        let mut ages = begins.map(|(store, begin)| (store, now_ns.saturating_sub(begin)));
        if ages.any(|(store, age)| age >= self.slower_than_ns(store)) {
            self.happened("stall".to_owned(), now_ns);
        }
    }

    /// Somebody will ask about this moment; `cause`: a word for the name of the file.
    pub(super) fn happened(&mut self, cause: String, now_ns: u64) {
        let lately = |last: u64| now_ns.saturating_sub(last) < PAUSE_NS;
        if self.cause.is_none() && !self.last_ns.is_some_and(lately) {
            self.last_ns = Some(now_ns);
            self.cause = Some((cause, now_ns));
        }
    }

    /// The cause of a file that is due.
    fn due(&mut self, now_ns: u64) -> Option<String> {
        let is_due = |(_, since): &mut (String, u64)| now_ns.saturating_sub(*since) >= AFTER_NS;
        Some(self.cause.take_if(is_due)?.0)
    }
}

impl Core {
    /// Writes a file if one is due. `now_ns`: what ended before is known.
    pub(super) fn write_flight(&mut self, now_ns: u64) {
        let Some(flight) = &mut self.flight else {
            return;
        };
        flight.looks(self.correlator.under_way(), now_ns);
        let Some(cause) = flight.due(now_ns) else {
            return;
        };
        let first = [clock()].into_iter().chain(self.correlator.places());
        let kept = flight.inputs.iter().map(|(_, input)| input.clone());
        let inputs: Vec<Input> = first.chain(kept).collect();
        let dir = flight.options.dir.clone();
        // The disk that holds the folder may be the one that hangs.
        let written = thread::Builder::new()
            .name("flight".to_owned())
            .spawn(move || match write(&dir, &cause, &inputs) {
                Ok(path) => {
                    tracing::warn!(cause, path = %path.display(), "the last minute is kept")
                }
                Err(error) => tracing::warn!(%error, cause, "the last minute is lost"),
            });
        if let Err(error) = written {
            tracing::warn!(%error, "the last minute is lost");
        }
    }
}

fn cause_of(ended: &Ended) -> String {
    format!("{}-{}", ended.method.replace('_', "-"), ended.request)
}

/// Writes a recording of its own, and removes the oldest ones.
fn write(dir: &Path, cause: &str, inputs: &[Input]) -> std::io::Result<PathBuf> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since_1970.map_or(0, |time| time.as_secs());
    let path = dir.join(format!("{BEGIN}{seconds:011}-{cause}{END}"));
    let file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    let mut file = BufWriter::new(file);
    for line in inputs.iter().filter_map(line_of) {
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    remove_oldest(dir)?;
    Ok(path)
}

/// Ours alone: their names begin with the time.
fn remove_oldest(dir: &Path) -> std::io::Result<()> {
    let mut ours = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(BEGIN) && name.ends_with(END) {
            ours.push(entry.path());
        }
    }
    ours.sort();
    let many = ours.len().saturating_sub(MAX_FILES);
    ours.iter().take(many).try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use lumpscope_ebpf_common::BlockEvent;

    const SECOND: u64 = 1_000_000_000;

    fn flight(dir: &Path) -> Flight {
        let options = FlightOptions {
            dir: dir.to_owned(),
            slower_than_ns: SECOND,
            slower_than_without_arm_ns: SECOND / 10,
        };
        Flight::new(options)
    }

    fn ended(request: u64, took_ns: u64) -> Input {
        Input::Ended(Ended {
            request,
            store: 0,
            method: "put_small".into(),
            bytes: 0,
            begin_ns: 0,
            end_ns: took_ns,
            ok: true,
            stages_ns: [0; 6],
            commit_ns: [0; 3],
            waited_for: None,
            trace: None,
        })
    }

    #[test]
    fn a_slow_request_is_a_cause_and_the_next_minute_has_no_other() {
        let mut it = flight(Path::new("/"));
        it.keep(ended(1, SECOND - 1), 5 * SECOND);
        assert_eq!(it.due(10 * SECOND), None);
        it.keep(ended(2, SECOND), 10 * SECOND);
        it.keep(ended(3, SECOND), 11 * SECOND);
        assert_eq!(it.due(11 * SECOND), None, "what follows belongs to it");
        assert_eq!(it.due(12 * SECOND).as_deref(), Some("put-small-2"));
        it.keep(ended(4, SECOND), 69 * SECOND);
        it.looks([(0, 60 * SECOND)].into_iter(), 69 * SECOND);
        assert_eq!(it.due(90 * SECOND), None);
        it.looks([(0, 99 * SECOND)].into_iter(), 100 * SECOND);
        assert_eq!(it.due(102 * SECOND).as_deref(), Some("stall"));
    }

    #[test]
    fn a_disk_without_an_arm_has_a_threshold_of_its_own() {
        let mut it = flight(Path::new("/"));
        it.keep(ended(1, SECOND / 10), SECOND);
        it.looks([(1, SECOND), (0, SECOND)].into_iter(), SECOND + SECOND / 10);
        assert_eq!(it.cause, None);
        it.has_no_arm(1);
        it.keep(ended(2, SECOND / 10), SECOND);
        assert_eq!(it.cause, None, "it is of the other store");
        it.looks([(0, SECOND), (1, SECOND)].into_iter(), SECOND + SECOND / 10);
        assert_eq!(it.due(4 * SECOND).as_deref(), Some("stall"));
        it.has_no_arm(0);
        it.keep(ended(3, SECOND / 10), 90 * SECOND);
        assert_eq!(it.due(92 * SECOND).as_deref(), Some("put-small-3"));
    }

    #[test]
    fn a_block_request_that_fails_is_a_cause() {
        let mut it = flight(Path::new("/"));
        let mut event = Event::from(&BlockEvent::default());
        it.keep(Input::Event(event), SECOND);
        assert_eq!(it.cause, None);
        event.failed = true;
        it.keep(Input::Event(event), SECOND);
        assert_eq!(it.due(3 * SECOND).as_deref(), Some("disk-error"));
    }

    #[test]
    fn a_minute_is_kept_and_no_more_than_fits() {
        let mut it = flight(Path::new("/"));
        it.keep(ended(1, 1), SECOND);
        it.keep(ended(2, 1), 30 * SECOND);
        it.keep(ended(3, 1), 62 * SECOND);
        assert_eq!(it.inputs.len(), 2);
        for request in 0..70_000 {
            it.keep(ended(request, 1), 63 * SECOND);
        }
        assert_eq!(it.inputs.len(), MAX_INPUTS);
    }

    #[test]
    fn files_are_few_and_nobody_else_s_are_touched() {
        let dir = tempfile::tempdir().expect("a folder");
        for number in 0..20 {
            let name = dir
                .path()
                .join(format!("{BEGIN}0000000000{number:02}-x{END}"));
            fs::write(name, "").expect("written");
        }
        fs::write(dir.path().join("flight-plan.txt"), "").expect("written");
        let path = write(dir.path(), "get-7", &[clock(), ended(7, 1)]).expect("written");
        let text = fs::read_to_string(&path).expect("there");
        assert_eq!(text.lines().count(), 2);
        let left = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(left, MAX_FILES + 1);
    }
}
