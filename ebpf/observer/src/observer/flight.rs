//! The flight recorder: what the correlator learned in the last minute is always kept, and written
//! to a file when something has happened that somebody will ask about in the morning.
//!
//! The file is written soon after its cause, and again when the request of which it is the story has
//! ended. Until then nothing that was learned since that request began drops out.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::api::FlightOptions;
use crate::clock::{WallClock, monotonic_ns};
use crate::correlate::{Declared, EndedRequest, Input};
use crate::event::Event;

use super::ObserverState;
use super::recording::{began_since, line_of};

/// So much of the past is kept...
const KEEP_NS: u64 = 60_000_000_000;
/// ...but at most so many inputs: about 20 MiB of memory, and as much in a file.
const MAX_INPUTS: usize = 65_536;
/// Of them at most so many that would have dropped out otherwise.
const MAX_HELD: usize = MAX_INPUTS / 2;
/// A file is written so long after its cause, for what the disk does then belongs to it.
const AFTER_NS: u64 = 2_000_000_000;
/// A request that has not ended so long after it was a cause is waited for no more.
const LONGEST_NS: u64 = 120_000_000_000;
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
    /// What belongs to the cause, and had to go from there.
    held: Vec<(u64, Input)>,
    /// What belongs to the cause, and did not fit.
    left_out: u64,
    cause: Option<Cause>,
    /// When the last cause came.
    last_ns: Option<u64>,
}

/// Why a file is to be written, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    /// Seconds since 1970, and a word: the name of the file.
    seconds: u64,
    name: String,
    at_ns: u64,
    due_ns: u64,
    /// The request that somebody will ask about; `None`: it is not known, or there is none.
    request: Option<u64>,
    /// The store of that request, or of the I/O below; `None`: it is about none.
    store: Option<usize>,
    /// The I/O that has not returned, if no request asked for it: its store and token.
    io: Option<(usize, u64)>,
    /// What was learned since this time belongs to it.
    since_ns: u64,
    /// What it is about has not ended.
    goes_on: bool,
}

impl Flight {
    pub(super) fn new(options: FlightOptions) -> Flight {
        Flight {
            options,
            armless: HashSet::new(),
            inputs: VecDeque::new(),
            held: Vec::new(),
            left_out: 0,
            cause: None,
            last_ns: None,
        }
    }

    /// Keeps an input, which may be a cause.
    pub(super) fn keep(&mut self, input: Input, now_ns: u64) {
        if matches!(input, Input::Clock { .. }) {
            return;
        }
        match &input {
            Input::Ended(ended) if self.is_slow(ended) => {
                let cause = Cause::new(cause_of(ended), now_ns);
                self.happens(cause.of((ended.store, ended.request), ended.begin_ns, false));
            }
            Input::Event(event) if event.failed && self.takes_causes(now_ns) => {
                self.failed(event, now_ns);
            }
            _ => {}
        }
        if let Some(cause) = &mut self.cause {
            cause.learn(&input, now_ns);
        }
        let too_old = |(at, _): &mut (u64, Input)| *at + KEEP_NS < now_ns;
        while let Some(gone) = self.inputs.pop_front_if(too_old) {
            self.drop_out(gone);
        }
        while self.inputs.len() + self.held.len() >= MAX_INPUTS
            && let Some(gone) = self.inputs.pop_front()
        {
            self.drop_out(gone);
        }
        self.inputs.push_back((now_ns, input));
    }

    /// What belongs to the cause is held, as much as fits.
    fn drop_out(&mut self, gone: (u64, Input)) {
        let Some(cause) = self.cause.as_ref().filter(|cause| gone.0 >= cause.since_ns) else {
            return;
        };
        let most = if cause.names(&gone.1) {
            MAX_INPUTS - 1
        } else {
            MAX_HELD
        };
        if self.held.len() < most {
            self.held.push(gone);
        } else {
            self.left_out += 1;
        }
    }

    /// The disk of a store says that it has no arm.
    pub(super) fn has_no_arm(&mut self, store: usize) {
        self.armless.insert(store);
    }

    fn is_slow(&self, ended: &EndedRequest) -> bool {
        !ended.control && ended.total_ns() >= self.slower_than_ns(ended.store)
    }

    fn slower_than_ns(&self, store: usize) -> u64 {
        match self.armless.contains(&store) {
            true => self.options.slower_than_without_arm_ns,
            false => self.options.slower_than_ns,
        }
    }

    /// Declared I/Os that have not returned.
    fn looks<'a>(&mut self, ios: impl Iterator<Item = &'a Declared>, now_ns: u64) {
        let slow =
            |io: &&Declared| now_ns.saturating_sub(io.begin_ns) >= self.slower_than_ns(io.store);
        if !self.takes_causes(now_ns) {
            return;
        }
        let Some(oldest) = ios.filter(slow).min_by_key(|io| io.begin_ns) else {
            return;
        };
        let cause = Cause::new("stall".to_owned(), now_ns);
        self.happens(match oldest.requests.first() {
            Some(request) => {
                let since_ns = self.first_of(*request, oldest.begin_ns);
                cause.of((oldest.store, *request), since_ns, true)
            }
            None => Cause {
                store: Some(oldest.store),
                io: Some((oldest.store, oldest.token)),
                goes_on: true,
                ..cause
            },
        });
    }

    /// A block request has failed, perhaps for a request that is told of already.
    fn failed(&mut self, event: &Event, now_ns: u64) {
        let cause = Cause::new("disk-error".to_owned(), now_ns);
        let known = self.inputs.iter().rev();
        let asked = event.submission.and_then(|of| {
            known.clone().find_map(|(_, input)| match input {
                Input::Declared(io) if (io.store, io.token) == (of.store, of.token) => Some(io),
                _ => None,
            })
        });
        let request = asked.and_then(|io| Some((io.store, *io.requests.first()?, io.begin_ns)));
        let Some((store, request, begin_ns)) = request else {
            return self.happens(cause);
        };
        let is_end = |input: &Input| matches!(input, Input::Ended(of) if of.request == request);
        let goes_on = !known.clone().any(|(_, input)| is_end(input));
        let since_ns = self.first_of(request, begin_ns);
        self.happens(cause.of((store, request), since_ns, goes_on));
    }

    /// When the first was learned of a request that began before this time.
    fn first_of(&self, request: u64, before_ns: u64) -> u64 {
        let asks = |(at, input): &(u64, Input)| match input {
            Input::Declared(io) if io.requests.contains(&request) => Some(*at),
            _ => None,
        };
        let first = self.inputs.iter().find_map(asks);
        first.unwrap_or(before_ns).min(before_ns)
    }

    /// Somebody will ask about this moment; `cause`: a word for the name of the file.
    pub(super) fn happened(&mut self, cause: String, now_ns: u64) {
        self.happens(Cause::new(cause, now_ns));
    }

    fn happens(&mut self, cause: Cause) {
        if self.takes_causes(cause.at_ns) {
            self.last_ns = Some(cause.at_ns);
            self.cause = Some(cause);
        }
    }

    fn takes_causes(&self, now_ns: u64) -> bool {
        let lately = |last: u64| now_ns.saturating_sub(last) < PAUSE_NS;
        self.cause.is_none() && !self.last_ns.is_some_and(lately)
    }

    /// A store is about to go: what the file is about is due, for the last time. A later one could not say
    /// where the store was.
    fn hurry(&mut self, store: usize, now_ns: u64) {
        let cause = self.cause.as_mut();
        if let Some(cause) = cause.filter(|cause| cause.store.is_none_or(|of| of == store)) {
            (cause.due_ns, cause.goes_on) = (now_ns, false);
        }
    }

    /// The cause of a file that is due, and what goes into it.
    fn due(&mut self, now_ns: u64) -> Option<(Cause, Vec<Input>)> {
        let cause = self.cause.as_mut().filter(|cause| cause.due_ns <= now_ns)?;
        let (told, again) = (cause.clone(), std::mem::take(&mut cause.goes_on));
        cause.due_ns = cause.at_ns + LONGEST_NS;
        let kept = || self.held.iter().chain(&self.inputs);
        let first_ns = kept().next().map_or(now_ns, |(at, _)| *at);
        let clock = began_since(WallClock::now(), first_ns, told.request, self.left_out);
        let kept = kept().map(|(_, input)| input.clone());
        let inputs = [clock].into_iter().chain(kept).collect();
        if !again {
            (self.cause, self.left_out) = (None, 0);
            self.held.clear();
        }
        Some((told, inputs))
    }
}

impl Cause {
    fn new(name: String, now_ns: u64) -> Cause {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Cause {
            seconds: since_1970.map_or(0, |time| time.as_secs()),
            name,
            at_ns: now_ns,
            due_ns: now_ns + AFTER_NS,
            request: None,
            store: None,
            io: None,
            since_ns: now_ns,
            goes_on: false,
        }
    }

    /// It is about this request of a store.
    fn of(self, (store, request): (usize, u64), since_ns: u64, goes_on: bool) -> Cause {
        Cause {
            store: Some(store),
            request: Some(request),
            since_ns,
            goes_on,
            ..self
        }
    }

    /// What it is about may end with this input.
    fn learn(&mut self, input: &Input, now_ns: u64) {
        let ends = match input {
            Input::Ended(ended) => Some(ended.request) == self.request,
            Input::Finished { store, token, .. } => self.io == Some((*store, *token)),
            _ => false,
        };
        if ends {
            self.goes_on = false;
            self.due_ns = now_ns + AFTER_NS;
        }
    }

    /// True: the input is of its request.
    fn names(&self, input: &Input) -> bool {
        match input {
            Input::Declared(io) => self.request.is_some_and(|id| io.requests.contains(&id)),
            Input::Ended(ended) => Some(ended.request) == self.request,
            _ => false,
        }
    }
}

impl ObserverState {
    /// Writes the file that is about a store, before that goes.
    pub(super) fn hurry_flight(&mut self, store: usize) {
        let now_ns = monotonic_ns();
        if let Some(flight) = &mut self.flight {
            flight.hurry(store, now_ns);
        }
        self.write_flight(now_ns);
    }

    /// Writes a file if one is due. `now_ns`: what ended before is known.
    pub(super) fn write_flight(&mut self, now_ns: u64) {
        let Some(flight) = &mut self.flight else {
            return;
        };
        flight.looks(self.correlator.under_way(), now_ns);
        let Some((cause, mut inputs)) = flight.due(now_ns) else {
            return;
        };
        let name = |input: &Input| match input {
            Input::Declared(io) => Some((io.store, io.token)),
            _ => None,
        };
        let told: HashSet<_> = inputs.iter().filter_map(name).collect();
        let mut standing = self.correlator.standing();
        standing.retain(|input| name(input).is_none_or(|io| !told.contains(&io)));
        inputs.splice(1..1, standing);
        let dir = flight.options.dir.clone();
        // The disk that holds the folder may be the one that hangs.
        let written = thread::Builder::new()
            .name("flight".to_owned())
            .spawn(move || match write(&dir, &cause, &inputs) {
                Ok(path) => {
                    tracing::warn!(cause.name, path = %path.display(), "the last minute is kept")
                }
                Err(error) => tracing::warn!(%error, cause.name, "the last minute is lost"),
            });
        if let Err(error) = written {
            tracing::warn!(%error, "the last minute is lost");
        }
    }
}

fn cause_of(ended: &EndedRequest) -> String {
    format!("{}-{}", ended.method.replace('_', "-"), ended.request)
}

/// Writes a recording of its own, in place of what was written for this cause before, and removes the
/// oldest ones.
fn write(dir: &Path, cause: &Cause, inputs: &[Input]) -> std::io::Result<PathBuf> {
    let name = format!("{BEGIN}{:011}-{}{END}", cause.seconds, cause.name);
    let (path, unfinished) = (dir.join(&name), dir.join(format!(".{name}")));
    let file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    let mut file = BufWriter::new(file);
    for line in inputs.iter().filter_map(line_of) {
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    fs::rename(&unfinished, &path)?;
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
    use std::time::Duration;

    use lumpscope_ebpf_common::BlockEvent;

    use super::super::Observer;
    use super::super::recording::began;
    use super::*;
    use crate::api::{GuardPolicy, ObserverOptions, Tuning, WatchedStore};
    use crate::replay::Replay;

    const SECOND: u64 = 1_000_000_000;
    /// A control call.
    const CONTROL: u64 = 999_999;

    fn flight(dir: &Path) -> Flight {
        let options = FlightOptions {
            dir: dir.to_owned(),
            slower_than_ns: SECOND,
            slower_than_without_arm_ns: SECOND / 10,
        };
        Flight::new(options)
    }

    fn ended(request: u64, took_ns: u64) -> Input {
        Input::Ended(EndedRequest {
            request,
            method: "put_small".into(),
            end_ns: took_ns,
            ok: true,
            control: request == CONTROL,
            ..EndedRequest::default()
        })
    }

    /// An I/O of a store's request.
    fn io(store: usize, token: u64, requests: &[u64], begin_ns: u64) -> Declared {
        Declared {
            store,
            token,
            requests: requests.to_vec(),
            purpose: crate::api::Purpose::Data,
            op: crate::api::Op::Write,
            offset: 0,
            len: 4096,
            begin_ns,
        }
    }

    fn looks(it: &mut Flight, stores: &[(usize, u64)], now_ns: u64) {
        let ios: Vec<Declared> = stores.iter().map(|(s, at)| io(*s, 1, &[], *at)).collect();
        it.looks(ios.iter(), now_ns);
    }

    fn due(it: &mut Flight, now_ns: u64) -> Option<String> {
        Some(it.due(now_ns)?.0.name)
    }

    #[test]
    fn a_slow_request_is_a_cause_and_the_next_minute_has_no_other() {
        let mut it = flight(Path::new("/"));
        it.keep(ended(1, SECOND - 1), 5 * SECOND);
        it.keep(ended(CONTROL, 5 * SECOND), 5 * SECOND);
        assert_eq!(due(&mut it, 10 * SECOND), None);
        it.keep(ended(2, SECOND), 10 * SECOND);
        it.keep(ended(3, SECOND), 11 * SECOND);
        assert_eq!(
            due(&mut it, 11 * SECOND),
            None,
            "what follows belongs to it"
        );
        assert_eq!(due(&mut it, 12 * SECOND).as_deref(), Some("put-small-2"));
        it.keep(ended(4, SECOND), 69 * SECOND);
        looks(&mut it, &[(0, 60 * SECOND)], 69 * SECOND);
        assert_eq!(due(&mut it, 90 * SECOND), None);
        looks(&mut it, &[(0, 99 * SECOND)], 100 * SECOND);
        assert_eq!(due(&mut it, 102 * SECOND).as_deref(), Some("stall"));
    }

    #[test]
    fn a_disk_without_an_arm_has_a_threshold_of_its_own() {
        let mut it = flight(Path::new("/"));
        it.keep(ended(1, SECOND / 10), SECOND);
        looks(&mut it, &[(1, SECOND), (0, SECOND)], SECOND + SECOND / 10);
        assert_eq!(it.cause, None);
        it.has_no_arm(1);
        it.keep(ended(2, SECOND / 10), SECOND);
        assert_eq!(it.cause, None, "it is of the other store");
        looks(&mut it, &[(0, SECOND), (1, SECOND)], SECOND + SECOND / 10);
        assert_eq!(due(&mut it, 4 * SECOND).as_deref(), Some("stall"));
        let returned = Input::Finished {
            store: 1,
            token: 1,
            end_ns: 5 * SECOND,
        };
        it.keep(returned, 5 * SECOND);
        assert_eq!(due(&mut it, 7 * SECOND).as_deref(), Some("stall"));
        it.has_no_arm(0);
        it.keep(ended(3, SECOND / 10), 90 * SECOND);
        assert_eq!(due(&mut it, 92 * SECOND).as_deref(), Some("put-small-3"));
    }

    #[test]
    fn a_block_request_that_fails_is_a_cause() {
        let mut it = flight(Path::new("/"));
        let mut event = Event::from(&BlockEvent::default());
        it.keep(Input::Event(event), SECOND);
        assert_eq!(it.cause, None);
        event.failed = true;
        it.keep(Input::Event(event), SECOND);
        assert_eq!(due(&mut it, 3 * SECOND).as_deref(), Some("disk-error"));
    }

    #[test]
    fn a_stall_is_written_at_once_and_again_when_its_request_has_ended() {
        let mut it = flight(Path::new("/"));
        let begun = [io(0, 7, &[5, 6], 10 * SECOND)];
        it.keep(Input::Declared(begun[0].clone()), 10 * SECOND);
        it.looks(begun.iter(), 11 * SECOND);
        assert_eq!(due(&mut it, 13 * SECOND).as_deref(), Some("stall"));
        assert_eq!(due(&mut it, 50 * SECOND), None);
        for number in 0..200_000 {
            it.keep(ended(100 + number, 1), 51 * SECOND);
        }
        assert!(it.inputs.len() + it.held.len() <= MAX_INPUTS);
        it.keep(ended(5, SECOND), 80 * SECOND);
        assert_eq!(due(&mut it, 81 * SECOND), None);
        let (cause, inputs) = it.due(82 * SECOND).expect("it has ended");
        assert_eq!((cause.request, cause.goes_on), (Some(5), false));
        let clock = &inputs[0];
        assert!(
            matches!(clock, Input::Clock { since_ns: Some(at), request: Some(5), left_out, .. }
                if *at == 10 * SECOND && *left_out > 0),
            "{clock:?}"
        );
        assert!(matches!(&inputs[1], Input::Declared(io) if io.token == 7));
        assert!(matches!(inputs.last(), Some(Input::Ended(ended)) if ended.request == 5));
        assert_eq!((it.cause.clone(), it.held.len()), (None, 0));
        // One that never ends is not waited for for ever.
        let begun = [io(0, 8, &[9], 200 * SECOND)];
        it.looks(begun.iter(), 201 * SECOND);
        assert!(due(&mut it, 203 * SECOND).is_some() && it.cause.is_some());
        assert_eq!(due(&mut it, 320 * SECOND), None);
        assert!(due(&mut it, 321 * SECOND).is_some() && it.cause.is_none());
    }

    #[test]
    fn a_store_that_goes_takes_no_other_s_file_with_it() {
        let mut it = flight(Path::new("/"));
        let begun = [io(1, 7, &[5], 10 * SECOND)];
        it.looks(begun.iter(), 11 * SECOND);
        assert_eq!(due(&mut it, 13 * SECOND).as_deref(), Some("stall"));
        it.hurry(0, 20 * SECOND);
        assert_eq!(due(&mut it, 20 * SECOND), None);
        it.hurry(1, 21 * SECOND);
        assert_eq!(due(&mut it, 21 * SECOND).as_deref(), Some("stall"));
        assert_eq!(it.cause, None, "it is not written again");
    }

    #[test]
    fn the_file_of_a_store_that_goes_has_its_request() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = WatchedStore {
            name: "it".to_owned(),
            path: dir.path().to_owned(),
            guard: GuardPolicy::Off,
        };
        let observer = Observer::start(ObserverOptions {
            stores: vec![store],
            tuning: Tuning {
                flight: Some(flight(dir.path()).options),
                ..Tuning::default()
            },
            ..ObserverOptions::default()
        });
        let end_ns = monotonic_ns();
        observer.request_done(EndedRequest {
            request: 7,
            method: "put".into(),
            begin_ns: end_ns.saturating_sub(2 * SECOND),
            end_ns,
            ..EndedRequest::default()
        });
        observer.remove_store(0);
        let written = || {
            thread::sleep(Duration::from_millis(10));
            let entry = fs::read_dir(dir.path()).ok()?.next()?.ok()?;
            let name = entry.file_name().into_string().ok()?;
            name.starts_with(BEGIN).then(|| entry.path())
        };
        let path = (0..6000).find_map(|_| written()).expect("it is written");
        let text = fs::read_to_string(path).expect("there");
        let mut replay = Replay::new();
        replay.read(text.as_bytes(), |_| {}).expect("it is whole");
        assert!(replay.explain(7).is_some(), "{text}");
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
        let cause = Cause::new("get-7".to_owned(), 0);
        let inputs = [began(WallClock::now()), ended(7, 1)];
        for _ in 0..2 {
            write(dir.path(), &cause, &inputs).expect("written");
        }
        let path = write(dir.path(), &cause, &inputs).expect("written");
        let text = fs::read_to_string(&path).expect("there");
        assert_eq!(text.lines().count(), 2);
        let left = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(left, MAX_FILES + 1);
    }
}
