//! An open store on a simulated disk with its model: submits requests, steps, checks every answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::device::sim::SimDisk;
use lumpscope_engine::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Driver, Durability, Error, LumpBuf,
    LumpData, LumpId, LumpRange, OnDone, PutCondition, PutGroup, PutOptions, PutOutcome,
    RequestCtx, RequestId, Store,
};

use super::Coverage;
use super::model::{Change, Model, State, Value, name};
use super::scenario::Scenario;
use super::{is_damage, is_refusal};

/// Virtual time that is given to a store which waits for nothing but time, before it counts as
/// hung.
const PATIENCE_NS: u64 = 100_000_000_000;
/// Pieces in which it is given.
const PATIENCE_STEP_NS: u64 = 500_000_000;

/// Subject of a request.
#[derive(Clone, Copy, Debug)]
enum RequestSubject {
    Change,
    Get,
    /// Changes answered when it was submitted.
    Sync(u64),
}

/// The result of a request.
enum RequestOutcome {
    Put(Result<PutOutcome, Error>),
    Delete(Result<DeleteOutcome, Error>),
    DeleteRange(Result<DeleteRangeOutcome, Error>),
    DeleteMany(Result<DeleteManyOutcome, Error>),
    Get(Result<LumpData, Error>),
    Sync(Result<(), Error>),
}

/// The id and the result of a get.
type LumpRead = (u64, Result<LumpData, Error>);

/// A lump that comes in and is written meanwhile.
struct Coming {
    id: u64,
    value: Value,
    options: PutOptions,
    /// `None`: its client has gone away.
    filled: Pin<Box<dyn Future<Output = Result<Option<LumpBuf>, Error>>>>,
}

/// How much may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Nothing: the disk keeps its promises.
    Sound,
    /// I/Os fail and say so: every error is typed, every byte is right.
    Failing,
    /// The disk lies: a lump may be an older version of itself or gone, never anything else.
    Lying,
}

/// An open store, its disk and what is known of it.
pub struct Session {
    pub disk: SimDisk,
    pub store: Store,
    pub driver: Driver,
    pub model: Model,
    pub strictness: Strictness,
    asked: BTreeMap<u64, RequestSubject>,
    coming: Vec<Coming>,
    /// Requests so far.
    pub requests: u64,
    answers: Arc<Mutex<Vec<(u64, RequestOutcome)>>>,
    /// Lumps that [`read_all`](Session::read_all) found damaged.
    pub damaged: BTreeSet<u64>,
    /// Every version an id has ever had, for disks that lie.
    versions: BTreeMap<u64, Vec<Value>>,
    /// First byte behind the journal: a write to it that fails may still come about.
    unknown_below: u64,
}

impl Session {
    /// Opens the store on a disk.
    pub fn open(scenario: &Scenario, disk: SimDisk) -> Result<Self, Error> {
        let _time = virtual_time(disk.now_ns());
        let (store, driver) = Store::open_stepped(disk.device(), scenario.store_options())?;
        Ok(Self {
            disk,
            store,
            driver,
            model: Model::default(),
            strictness: Strictness::Sound,
            asked: BTreeMap::new(),
            coming: Vec::new(),
            requests: 0,
            answers: Arc::default(),
            damaged: BTreeSet::new(),
            versions: BTreeMap::new(),
            unknown_below: scenario.data_start(),
        })
    }

    /// Requests that are not answered.
    pub fn open_requests(&self) -> usize {
        self.asked.len() + self.coming.len()
    }

    /// Those, in words.
    pub fn state(&self) -> String {
        let (state, coming) = (self.store.health(), self.coming.len());
        format!("{:?} and {coming} coming, {state:?}", self.asked)
    }

    pub fn take_versions(&mut self) -> BTreeMap<u64, Vec<Value>> {
        std::mem::take(&mut self.versions)
    }

    pub fn set_versions(&mut self, versions: BTreeMap<u64, Vec<Value>>) {
        self.versions = versions;
    }

    fn on_done<T: 'static>(
        &mut self,
        asked: RequestSubject,
        outcome: impl FnOnce(Result<T, Error>) -> RequestOutcome + Send + 'static,
    ) -> OnDone<T> {
        let request = self.requests;
        self.asked.insert(request, asked);
        let answers = Arc::clone(&self.answers);
        Box::new(move |result, _| {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((request, outcome(result)));
        })
    }

    /// Ends the submission of a request; one that was not accepted is as if never made.
    fn submitted(&mut self, accepted: Result<(), Error>) -> Result<(), String> {
        let request = self.requests;
        self.requests += 1;
        if let Err(error) = accepted {
            self.asked.remove(&request);
            self.model.refused(request);
            self.model.was_not_read(request);
            let out = matches!(error, Error::OutOfService { .. });
            let may_be_out = self.strictness != Strictness::Sound;
            if !(is_refusal(&error) || (out && may_be_out)) {
                return Err(format!("request {request} was not accepted: {error}"));
            }
        }
        Ok(())
    }

    fn ctx(&self) -> RequestCtx {
        RequestCtx {
            id: RequestId(self.requests + 1),
            ..RequestCtx::default()
        }
    }

    pub fn put(&mut self, id: u64, value: &Value, options: PutOptions) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let mut buf = self
            .store
            .lump_buf(value.len() as u64)
            .map_err(|error| error.to_string())?;
        buf.extend(value).map_err(|error| error.to_string())?;
        self.put_buf(id, value, buf, options)
    }

    fn put_buf(
        &mut self,
        id: u64,
        value: &Value,
        buf: LumpBuf,
        options: PutOptions,
    ) -> Result<(), String> {
        let change = Change {
            ids: id..id + 1,
            value: Some(Arc::clone(value)),
        };
        self.versions.entry(id).or_default().push(Arc::clone(value));
        self.model.submitted(self.requests, vec![change]);
        if options.condition == PutCondition::IfAbsent {
            self.model.reading(self.requests, id);
        }
        let on_done = self.on_done(RequestSubject::Change, RequestOutcome::Put);
        let accepted =
            self.store
                .submit_put_with(self.ctx(), LumpId(id.into()), buf, options, on_done);
        self.submitted(accepted)
    }

    /// Puts a lump and an embedded one, and deletes a third, all at once.
    pub fn put_group(
        &mut self,
        [(id, value), (embedded, small)]: [(u64, &Value); 2],
        deleted: u64,
        durability: Durability,
    ) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let buf = |value: &Value| -> Result<LumpBuf, String> {
            let buf = self.store.lump_buf(value.len() as u64);
            let mut buf = buf.map_err(|error| error.to_string())?;
            buf.extend(value).map_err(|error| error.to_string())?;
            Ok(buf)
        };
        let group = PutGroup {
            data: Some((LumpId(id.into()), buf(value)?)),
            embedded: (LumpId(embedded.into()), buf(small)?),
            deletes: vec![LumpId(deleted.into())],
        };
        let put = |id, value: &Value| Change {
            ids: id..id + 1,
            value: Some(Arc::clone(value)),
        };
        let delete = Change {
            ids: deleted..deleted + 1,
            value: None,
        };
        let changes = vec![put(id, value), put(embedded, small), delete];
        for (id, value) in [(id, value), (embedded, small)] {
            self.versions.entry(id).or_default().push(Arc::clone(value));
        }
        self.model.submitted(self.requests, changes);
        let on_done = self.on_done(RequestSubject::Change, RequestOutcome::Put);
        let accepted = self
            .store
            .submit_put_group(self.ctx(), group, durability, on_done);
        self.submitted(accepted)
    }

    /// Puts a lump that comes in a few bytes at a step; `lost`: its client goes away after so many.
    pub fn put_in_pieces(
        &mut self,
        id: u64,
        value: &Value,
        options: PutOptions,
        lost: Option<usize>,
    ) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let lump = (LumpId(id.into()), value.len() as u64);
        let buf = self
            .store
            .lump_buf_in_pieces(self.ctx(), lump, options.condition);
        let mut buf = buf.map_err(|error| error.to_string())?;
        let bytes = Arc::clone(value);
        self.coming.push(Coming {
            id,
            value: Arc::clone(value),
            options,
            filled: Box::pin(async move {
                for part in bytes[..lost.unwrap_or(bytes.len())].chunks(700) {
                    buf.write(part).await?;
                }
                if bytes.is_empty() {
                    buf.write(&[]).await?;
                }
                Ok(lost.is_none().then_some(buf))
            }),
        });
        Ok(())
    }

    /// Lumps that come in go on.
    fn fill(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        for mut coming in std::mem::take(&mut self.coming) {
            let filled = coming.filled.as_mut();
            match filled.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => self.coming.push(coming),
                Poll::Ready(Ok(None)) => coverage.lost_clients += 1,
                Poll::Ready(Ok(Some(buf))) => {
                    coverage.in_pieces += 1;
                    self.put_buf(coming.id, &coming.value, buf, coming.options)?;
                }
                Poll::Ready(Err(error)) => {
                    let refused = is_refusal(&error)
                        || matches!(error, Error::AlreadyExists { .. } | Error::Closed);
                    coverage.store_full += u64::from(matches!(error, Error::StoreFull { .. }));
                    let known = self.strictness != Strictness::Sound && is_damage(&error);
                    if !refused && !known {
                        return Err(format!("a piece of lump {}: {error}", coming.id));
                    }
                }
            }
        }
        Ok(())
    }

    pub fn delete(&mut self, id: u64, durability: Durability) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let ids = id..id + 1;
        let change = Change { ids, value: None };
        self.model.submitted(self.requests, vec![change]);
        let on_done = self.on_done(RequestSubject::Change, RequestOutcome::Delete);
        let id = LumpId(id.into());
        let (ctx, store) = (self.ctx(), &self.store);
        let accepted = store.submit_delete(ctx, id, durability, on_done);
        self.submitted(accepted)
    }

    pub fn delete_range(&mut self, ids: Range<u64>, durability: Durability) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let (start, end) = (LumpId(ids.start.into()), LumpId(ids.end.into()));
        let change = Change { ids, value: None };
        self.model.submitted(self.requests, vec![change]);
        let on_done = self.on_done(RequestSubject::Change, RequestOutcome::DeleteRange);
        let (ctx, store) = (self.ctx(), &self.store);
        let accepted = store.submit_delete_range(ctx, start, end, durability, on_done);
        self.submitted(accepted)
    }

    pub fn delete_many(&mut self, ids: &[u64], durability: Durability) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let changes = ids.iter().map(|id| Change {
            ids: *id..*id + 1,
            value: None,
        });
        self.model.submitted(self.requests, changes.collect());
        let on_done = self.on_done(RequestSubject::Change, RequestOutcome::DeleteMany);
        let ids = ids.iter().map(|id| LumpId((*id).into())).collect();
        let (ctx, store) = (self.ctx(), &self.store);
        let accepted = store.submit_delete_many(ctx, ids, durability, on_done);
        self.submitted(accepted)
    }

    pub fn get(&mut self, id: u64) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        self.model.reading(self.requests, id);
        let on_done = self.on_done(RequestSubject::Get, RequestOutcome::Get);
        let (ctx, id) = (self.ctx(), LumpId(id.into()));
        let accepted = self.store.submit_get(ctx, id, on_done);
        self.submitted(accepted)
    }

    pub fn sync(&mut self) -> Result<(), String> {
        let _time = virtual_time(self.disk.now_ns());
        let subject = RequestSubject::Sync(self.model.answered());
        let on_done = self.on_done(subject, RequestOutcome::Sync);
        let accepted = self.store.submit_sync(on_done);
        self.submitted(accepted)
    }

    /// Waits for a sync and all that was asked before it.
    pub fn synced(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.sync()?;
        self.run_until(coverage, "a sync", |session, _| {
            session.open_requests() == 0
        })
    }

    /// Lets the store do what it can do now and checks what it answers. False: it is closed.
    pub fn step(&mut self, coverage: &mut Coverage) -> Result<bool, String> {
        self.fill(coverage)?;
        let alive = self.driver.step(self.disk.now_ns());
        self.fill(coverage)?;
        let answers =
            std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (request, outcome) in answers {
            self.check_answer(request, outcome, coverage)?;
        }
        match self.disk.violations().first() {
            Some(violation) => Err(format!("the store misuses the disk: {violation}")),
            None => Ok(alive),
        }
    }

    /// Lets time pass until something happens. False: nothing will happen any more.
    pub fn advance(&self) -> bool {
        self.disk.advance()
    }

    /// Steps until `done`; an error when that never happens.
    pub fn run_until(
        &mut self,
        coverage: &mut Coverage,
        what: &str,
        done: impl Fn(&Self, bool) -> bool,
    ) -> Result<(), String> {
        let mut patience = PATIENCE_NS;
        loop {
            let alive = self.step(coverage)?;
            if done(self, alive) {
                return Ok(());
            }
            if self.advance() {
                patience = PATIENCE_NS;
            } else {
                patience = patience.saturating_sub(PATIENCE_STEP_NS);
                self.disk.advance_to(self.disk.now_ns() + PATIENCE_STEP_NS);
                if patience == 0 {
                    let open = self.asked.len();
                    return Err(format!("{what} hangs with {open} requests open"));
                }
            }
        }
    }

    /// All lumps, read one by one and compared with the list.
    pub fn read_all(&mut self, ids: u64, coverage: &mut Coverage) -> Result<State, String> {
        let mut found = State::new();
        let answers: Arc<Mutex<Vec<LumpRead>>> = Arc::default();
        {
            let _time = virtual_time(self.disk.now_ns());
            for id in 0..ids {
                let sink = Arc::clone(&answers);
                let on_done: OnDone<LumpData> = Box::new(move |result, _| {
                    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    sink.push((id, result));
                });
                self.store
                    .submit_get(RequestCtx::default(), LumpId(id.into()), on_done)
                    .map_err(|error| format!("get {id} was not accepted: {error}"))?;
            }
        }
        let expected = usize::try_from(ids).unwrap_or(usize::MAX);
        let counted = Arc::clone(&answers);
        self.run_until(coverage, "reading all lumps", |_, _| {
            counted.lock().unwrap_or_else(PoisonError::into_inner).len() == expected
        })?;
        let results = std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
        self.damaged.clear();
        for (id, result) in results {
            match result {
                Ok(lump) => {
                    self.check_known(id, &lump)?;
                    found.insert(id, Arc::from(&lump[..]));
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) if self.strictness != Strictness::Sound && is_damage(&error) => {
                    coverage.faults.typed_errors += 1;
                    self.damaged.insert(id);
                }
                Err(error) => return Err(format!("get of lump {id}: {error}")),
            }
        }
        self.check_list(&found, coverage)?;
        Ok(found)
    }

    fn check_list(&mut self, found: &State, coverage: &mut Coverage) -> Result<(), String> {
        let listed: Arc<Mutex<Option<Vec<LumpId>>>> = Arc::default();
        let sink = Arc::clone(&listed);
        self.store
            .submit_list(
                RequestCtx::default(),
                LumpRange::ALL,
                10_000,
                Box::new(move |result, _| {
                    let ids = result.ok().map(|outcome| outcome.ids);
                    *sink.lock().unwrap_or_else(PoisonError::into_inner) = ids;
                }),
            )
            .map_err(|error| format!("list: {error}"))?;
        let seen = Arc::clone(&listed);
        self.run_until(coverage, "a list", |_, _| {
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
        })?;
        let ids = listed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ids = ids.unwrap_or_default();
        if ids.len() != found.len() + self.damaged.len() {
            let read = found.len();
            return Err(format!("{read} lumps were read, listed are {ids:?}"));
        }
        Ok(())
    }

    /// On a disk that lies: it must be a version of this very lump.
    fn check_known(&self, id: u64, bytes: &[u8]) -> Result<(), String> {
        let versions = self.versions.get(&id).into_iter().flatten();
        let known = { versions }.any(|version| version[..] == *bytes);
        if known || self.strictness != Strictness::Lying {
            return Ok(());
        }
        let read = name(Some(bytes));
        Err(format!("lump {id} was read as {read}, which it never was"))
    }

    fn check_answer(
        &mut self,
        request: u64,
        outcome: RequestOutcome,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let asked = self.asked.remove(&request);
        let asked = asked.ok_or_else(|| format!("request {request} was answered twice"))?;
        coverage.requests += 1;
        match outcome {
            RequestOutcome::Put(Ok(put)) => self.was_put(request, put, coverage),
            RequestOutcome::Delete(Ok(DeleteOutcome {
                existed,
                durability,
            })) => {
                coverage.deletes += 1;
                let before = self.changed(request, durability, coverage)?;
                self.expect(request, "existed", &[u64::from(existed)], &before)
            }
            RequestOutcome::DeleteRange(Ok(DeleteRangeOutcome {
                deleted,
                durability,
            })) => {
                coverage.range_deletes += 1;
                let before = self.changed(request, durability, coverage)?;
                self.expect(request, "deleted", &[deleted], &before)
            }
            RequestOutcome::DeleteMany(Ok(DeleteManyOutcome {
                existed,
                durability,
            })) => {
                coverage.many_deletes += 1;
                let before = self.changed(request, durability, coverage)?;
                let existed: Vec<u64> = existed.into_iter().map(u64::from).collect();
                self.expect(request, "existed", &existed, &before)
            }
            RequestOutcome::Put(Err(Error::AlreadyExists { .. })) => {
                coverage.already_there += 1;
                self.model.refused(request);
                match self.strictness {
                    Strictness::Lying => Ok(()),
                    _ => self.model.was_there(request),
                }
            }
            RequestOutcome::Get(Ok(lump)) => {
                coverage.gets += 1;
                coverage.note_bytes(&lump);
                self.check_known_get(request, Some(&lump))
            }
            RequestOutcome::Get(Err(Error::NotFound { .. })) => {
                coverage.gets += 1;
                self.check_known_get(request, None)
            }
            RequestOutcome::Sync(Ok(())) => {
                coverage.syncs += 1;
                if let RequestSubject::Sync(answered) = asked {
                    self.model.certain(answered);
                }
                Ok(())
            }
            RequestOutcome::Put(Err(error))
            | RequestOutcome::Delete(Err(error))
            | RequestOutcome::DeleteRange(Err(error))
            | RequestOutcome::DeleteMany(Err(error))
            | RequestOutcome::Get(Err(error))
            | RequestOutcome::Sync(Err(error)) => self.check_error(request, &error, coverage),
        }
    }

    fn was_put(
        &mut self,
        request: u64,
        put: PutOutcome,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let before = self.changed(request, put.durability, coverage)?;
        self.model.was_not_read(request);
        // Of a group: its embedded lump.
        let of = usize::from(before.len() > 1);
        let created = [u64::from(!put.created)];
        self.expect(request, "not created", &created, &before[of..=of])
    }

    fn check_known_get(&mut self, request: u64, found: Option<&[u8]>) -> Result<(), String> {
        if self.strictness == Strictness::Lying {
            let id = self.model.read_id(request);
            self.model.was_not_read(request);
            return match (found, id) {
                (Some(bytes), Some(id)) => self.check_known(id, bytes),
                _ => Ok(()),
            };
        }
        self.model.was_read(request, found)
    }

    fn changed(
        &mut self,
        request: u64,
        durability: Durability,
        coverage: &mut Coverage,
    ) -> Result<Vec<u64>, String> {
        let synced = durability == Durability::Synced;
        coverage.journaled += u64::from(!synced);
        coverage.note(request);
        self.model.acknowledged(request, synced)
    }

    /// The outcome of a change must be that of the order of the answers.
    fn expect(&self, request: u64, what: &str, said: &[u64], so: &[u64]) -> Result<(), String> {
        if said == so || self.strictness == Strictness::Lying || self.model.is_unsure() {
            return Ok(());
        }
        Err(format!(
            "request {request} said {what}: {said:?}, not {so:?}"
        ))
    }

    fn check_error(
        &mut self,
        request: u64,
        error: &Error,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        self.model.was_not_read(request);
        match error {
            Error::StoreFull { .. } => coverage.store_full += 1,
            Error::JournalFull { .. } => coverage.journal_full += 1,
            _ => {}
        }
        if is_refusal(error) {
            self.model.refused(request);
            return Ok(());
        }
        if self.strictness == Strictness::Sound {
            return Err(format!("request {request} failed: {error}"));
        }
        coverage.faults.typed_errors += 1;
        match error {
            Error::Failed { .. } => self.model.failed(request),
            // Nor is it known what a write to the journal has left.
            Error::Io { offset, .. } | Error::NoSpace { offset, .. }
                if *offset < self.unknown_below =>
            {
                self.model.failed(request);
            }
            // The data of a put, or the bytes of a get; no record was written.
            error if is_damage(error) => self.model.refused(request),
            error => {
                return Err(format!(
                    "request {request} failed in an unknown way: {error}"
                ));
            }
        }
        Ok(())
    }
}
