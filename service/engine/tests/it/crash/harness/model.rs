//! Allowed contents of a store, now and after a crash.
//!
//! Answers come in the order of the log: this is checked by the outcomes (`created`, `existed`,
//! number deleted), which must be those of the changes carried out one after the other in the
//! order of their answers. So the state after a crash is that after a prefix of the answered
//! changes, which contains all that are certain; or after all of them, and then of those that were
//! not answered, or answered with "may be on the disk", any may be there too. With runs any may be
//! there that was made when no more than the prefix was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use lumpscope_engine::device::sim::Random;

/// The bytes of a lump.
pub type Value = Arc<[u8]>;
/// All lumps.
pub type State = BTreeMap<u64, Value>;

/// A change of some ids: one for puts and deletes, several for a range delete.
#[derive(Clone, Debug)]
pub struct Change {
    pub ids: Range<u64>,
    /// `None`: they are removed.
    pub value: Option<Value>,
}

impl Change {
    fn apply(&self, state: &mut State) {
        match &self.value {
            Some(value) => {
                state.insert(self.ids.start, Arc::clone(value));
            }
            None => {
                for id in self.ids.clone() {
                    state.remove(&id);
                }
            }
        }
    }
}

/// Kind of crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Unflushed writes may be lost.
    PowerCut,
    /// Completed writes stay.
    ProcessDeath,
}

/// A get that is not answered yet.
#[derive(Clone, Debug)]
struct PendingGet {
    id: u64,
    /// The values the id has had since the get was submitted.
    seen: Vec<Option<Value>>,
}

/// Expected state of a store while it runs.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// After all changes that survive a power cut.
    durable: State,
    /// Answered, in order, and not certain to survive a power cut.
    uncertain: Vec<Change>,
    /// After all that were answered.
    now: State,
    /// Changes answered so far; `uncertain` are the last of them.
    answered: u64,
    /// Submitted, not answered; or answered so that they may be on the disk. Beside them: changes
    /// answered when they were.
    pending: BTreeMap<u64, (u64, Vec<Change>)>,
    readings: BTreeMap<u64, PendingGet>,
    /// Lumps of deletes of many that have failed.
    in_part: BTreeSet<u64>,
    /// Changes that have failed and may be on the disk.
    failed: BTreeSet<u64>,
    /// True: a change that was not answered may be there though some that were answered before, and
    /// are not certain, are not.
    pub overtakes: bool,
}

impl Model {
    /// A store that was just opened, flushed, and looked at.
    pub fn of(state: State) -> Self {
        Self {
            durable: state.clone(),
            now: state,
            ..Self::default()
        }
    }

    pub fn now(&self) -> &State {
        &self.now
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// A request was made, for one change or for several one after the other.
    pub fn submitted(&mut self, request: u64, changes: Vec<Change>) {
        self.pending.insert(request, (self.answered, changes));
    }

    pub fn reading(&mut self, request: u64, id: u64) {
        let seen = vec![self.now.get(&id).cloned()];
        self.readings.insert(request, PendingGet { id, seen });
    }

    /// The change was refused and is on no disk.
    pub fn refused(&mut self, request: u64) {
        self.pending.remove(&request);
    }

    /// The change has failed, and may be on the disk: it stays open for ever. A part of several may
    /// have been carried out.
    pub fn failed(&mut self, request: u64) {
        self.failed.insert(request);
        let changes = self.pending.get(&request).map(|(_, changes)| changes);
        for change in changes.filter(|all| all.len() > 1).into_iter().flatten() {
            self.in_part.extend(change.ids.clone());
        }
    }

    /// The changes took effect now. Returns for each how many of its ids were there before.
    pub fn acknowledged(&mut self, request: u64, synced: bool) -> Result<Vec<u64>, String> {
        let pending = self.pending.remove(&request);
        let (_, changes) =
            pending.ok_or_else(|| format!("request {request} was answered twice"))?;
        let mut before = Vec::with_capacity(changes.len());
        for change in changes {
            before.push(self.now.range(change.ids.clone()).count() as u64);
            change.apply(&mut self.now);
            for reading in self.readings.values_mut() {
                if change.ids.contains(&reading.id) {
                    reading.seen.push(self.now.get(&reading.id).cloned());
                }
            }
            self.uncertain.push(change);
            self.answered += 1;
        }
        if synced {
            self.certain(self.answered);
        }
        Ok(before)
    }

    /// The first `answered` changes survive power cuts from now on.
    pub fn certain(&mut self, answered: u64) {
        let known = self.answered - self.uncertain.len() as u64;
        let more = usize::try_from(answered.saturating_sub(known)).unwrap_or(usize::MAX);
        for change in self.uncertain.drain(..more.min(self.uncertain.len())) {
            change.apply(&mut self.durable);
        }
    }

    /// A get was answered: the id must have had this value since it was submitted.
    pub fn was_read(&mut self, request: u64, found: Option<&[u8]>) -> Result<(), String> {
        let Some(PendingGet { id, seen }) = self.readings.remove(&request) else {
            return Err(format!("get {request} was answered twice"));
        };
        let is_part = found.is_none() && self.may_be_gone(id);
        let is_found = |value: Option<&Value>| value.map(|value| &value[..]) == found;
        let is_unsure = self.unsure(id).any(is_found);
        if is_part || is_unsure || seen.iter().any(|value| value.as_deref() == found) {
            return Ok(());
        }
        let (found, seen) = (name(found), names(seen.iter().map(Option::as_deref)));
        Err(format!(
            "a get of lump {id} returned {found}, while it was {seen}"
        ))
    }

    /// A put was refused because the lump is there: it must have been there at some time since.
    pub fn was_there(&mut self, request: u64) -> Result<(), String> {
        match self.readings.remove(&request) {
            Some(reading)
                if reading.seen.iter().all(Option::is_none)
                    && self.unsure(reading.id).next().is_none() =>
            {
                Err(format!(
                    "put {request} was refused because of lump {}, which was never there",
                    reading.id
                ))
            }
            _ => Ok(()),
        }
    }

    /// The id that a get asked for.
    pub fn read_id(&self, request: u64) -> Option<u64> {
        self.readings.get(&request).map(|reading| reading.id)
    }

    /// A get was answered with an error that is no statement about the lump.
    pub fn was_not_read(&mut self, request: u64) {
        self.readings.remove(&request);
    }

    /// True: a change of this id is open, or may not survive a power cut.
    pub fn is_uncertain(&self, id: u64) -> bool {
        self.uncertain
            .iter()
            .chain(self.pending.values().flat_map(|(_, changes)| changes))
            .any(|change| change.ids.contains(&id))
    }

    /// Values that changes which have failed may have given a lump.
    pub fn unsure(&self, id: u64) -> impl Iterator<Item = Option<&Value>> {
        let failed = self.failed.iter();
        let changes = failed.filter_map(|request| self.pending.get(request));
        let changes = changes.flat_map(|(_, changes)| changes);
        let of_it = changes.filter(move |change| change.ids.contains(&id));
        of_it.map(|change| change.value.as_ref())
    }

    /// True: changes that have failed may be on the disk.
    pub fn is_unsure(&self) -> bool {
        !self.failed.is_empty()
    }

    /// True: a delete of many that has failed may have removed it.
    pub fn may_be_gone(&self, id: u64) -> bool {
        self.in_part.contains(&id)
    }

    /// Checks the lumps found after a crash.
    pub fn check(&self, found: &State, crash: Crash) -> Result<(), String> {
        self.check_readable(found, &BTreeSet::new(), crash)
    }

    /// Checks the store when some lumps cannot be read.
    pub fn check_readable(
        &self,
        found: &State,
        damaged: &BTreeSet<u64>,
        crash: Crash,
    ) -> Result<(), String> {
        let mut state = self.durable.clone();
        let known = self.answered - self.uncertain.len() as u64;
        let mut result = Ok(());
        for lost in (0..=self.uncertain.len()).rev() {
            let kept = self.uncertain.len() - lost;
            if let Some(change) = kept.checked_sub(1).and_then(|at| self.uncertain.get(at)) {
                change.apply(&mut state);
            }
            if lost > 0 && crash == Crash::ProcessDeath {
                continue;
            }
            result = self.check_state(&state, known + kept as u64, found, damaged);
            if result.is_ok() {
                return Ok(());
            }
        }
        result.map_err(|why| format!("after a {crash:?} {why}"))
    }

    /// Checks what was found against the state after so many answered changes.
    fn check_state(
        &self,
        state: &State,
        answered: u64,
        found: &State,
        damaged: &BTreeSet<u64>,
    ) -> Result<(), String> {
        // One that has failed may stand in the log before some that were answered later.
        let may_be_there = |request: &u64, made| {
            if self.overtakes || self.failed.contains(request) {
                made <= answered
            } else {
                answered == self.answered
            }
        };
        let pending = self.pending.iter();
        let pending = pending.filter(|(request, (made, _))| may_be_there(request, *made));
        let pending: Vec<&Change> = pending.flat_map(|(_, (_, changes))| changes).collect();
        let ids: BTreeSet<u64> = state.keys().chain(found.keys()).copied().collect();
        for id in ids.difference(damaged) {
            let value = found.get(id).map(|value| &value[..]);
            let changes = pending.iter().filter(|change| change.ids.contains(id));
            let changes = changes.map(|change| change.value.as_ref());
            let allowed = std::iter::once(state.get(id)).chain(changes);
            let allowed = allowed.map(|value| value.map(|value| &value[..]));
            let allowed: Vec<Option<&[u8]>> = allowed.collect();
            if !allowed.contains(&value) {
                let (value, allowed) = (name(value), names(allowed));
                let (open, uncertain) = (self.pending.len(), self.uncertain.len());
                return Err(format!(
                    "lump {id} is {value}, but it must be {allowed} ({} changes were answered, \
                     {uncertain} of them not certain, {open} open)",
                    self.answered,
                ));
            }
        }
        Ok(())
    }
}

/// A value in a message: its length and its first bytes tell versions apart.
pub fn name(value: Option<&[u8]>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(bytes) => {
            let (len, first) = (bytes.len(), &bytes[..bytes.len().min(6)]);
            format!("{len} bytes {first:02x?}")
        }
    }
}

fn names<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>) -> String {
    let names: Vec<String> = values.into_iter().map(name).collect();
    names.join(" or ")
}

/// Bytes that depend on the id and the version in every place, so that a mixture is found.
pub fn content(id: u64, version: u64, len: u64) -> Value {
    let mut random = Random::derive(id, &[version]);
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0) + 8);
    while (bytes.len() as u64) < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(usize::try_from(len).unwrap_or(0));
    Arc::from(bytes)
}
