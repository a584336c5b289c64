//! The owner thread: one loop that holds index, journal and allocator and never waits for the disk.
//!
//! The [`Owner`] receives commands and the ends of I/Os and hands each to one of its parts, which
//! keep their state to themselves, work on the [`Ctx`] and hand out new I/Os. Puts and deletes hand
//! their changes to the commit, and the commit drives the collection. Whatever else concerns another
//! part comes back to the loop: a request to be started, blocks that came free, an error that fails
//! the store.
//! Nothing here touches payload bytes, but those of small lumps that are read.
//!
//! Parts import each other in one direction, and never this module. From the bottom:
//!
//! | part | |
//! |---|---|
//! | [`command`] | requests, puts and reads as data, and the replies to them |
//! | [`admission`] | lets requests in, or refuses them; how fast they are served |
//! | [`judge`] | judges the disk by the ends of its I/Os |
//! | [`io_table`] | the I/Os in flight |
//! | [`ctx`] | the store, its disk, and what other threads see of it |
//! | [`waiting`] | requests that are let in and not started, and their order |
//! | [`reads`] | gets, heads, lists |
//! | [`gc`] | reclaims the journal |
//! | [`checkpoint`] | copies the index to the disk |
//! | [`scrub`] | reads every lump and compares it with its checksum |
//! | [`commit`] | makes changes durable, in groups, and applies them |
//! | [`put`] | puts, from arrival to the commit |
//! | [`delete`] | deletes of one lump, a range, many, from arrival to the commit |

pub(crate) mod admission;
mod budget;
mod checkpoint;
pub(crate) mod command;
mod commit;
mod ctx;
mod delete;
pub(crate) mod finisher;
mod gc;
pub(crate) mod inbox;
pub(crate) mod io_table;
mod judge;
mod put;
mod reads;
mod scrub;
mod stepped;
pub(crate) mod waiting;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use admission::pace::Pace;
pub(crate) use checkpoint::Checkpointer;
use command::put::Misplaced;
use command::{Arrival, Stage, StoreCommand};
use commit::Commit;
use ctx::{Ctx, HeaderBlock, TargetLook, Unfinished, overload};
pub(crate) use ctx::{Limits, OwnerShared};
pub(crate) use finisher::on_engine_thread;
use finisher::{Finisher, mark_engine_thread};
use gc::Gc;
use inbox::Inbox;
use io_table::{IoTable, Tag};
use put::Puts;
use reads::Reads;
use scrub::Scrub;
pub use stepped::Driver;
use waiting::WaitingRequests;
use waiting::order::Order;

use crate::buffer::AlignedBuf;
use crate::clock::{duration_ns, monotonic_ns};
use crate::declaration::RequestId;
use crate::device::{Completion, Wait};
use crate::error::Error;
use crate::format::journal_header::ScrubMark;
use crate::health::Health;
use crate::options::StoreOptions;
use crate::storage::Storage;
use crate::storage::claim::{self, HeldClaim};
use crate::storage::journal::writer::RingWrite;

/// Commands taken up before the I/Os they cause are handed out.
const COMMANDS_AT_ONCE: usize = 64;

/// A store as recovery leaves it.
pub(crate) struct Restored {
    pub(crate) storage: Storage,
    pub(crate) scrub_mark: ScrubMark,
    /// Log offset of the journal's end in the checked copies; `None`: there are none.
    pub(crate) copied: Option<u64>,
    pub(crate) checkpoint: Checkpointer,
    /// This machine's claim; `None`: opened without.
    pub(crate) claim: Option<HeldClaim>,
}

/// The parts of a store that is open, and the loop that drives them.
pub(crate) struct Owner {
    ctx: Ctx,
    inbox: Inbox,
    waiting: WaitingRequests,
    reads: Reads,
    puts: Puts,
    commit: Commit,
    gc: Gc,
    checkpoint: Checkpointer,
    scrub: Scrub,
    /// Told when everything is done.
    closed: Vec<Sender<Result<(), Error>>>,
    /// True: the last round left commands in the channel.
    more_commands: bool,
    /// Empty; keeps its memory from round to round.
    ended: Vec<Completion>,
    /// Reads for requests that failed twice, until a trial read has ended.
    unread: Vec<(Tag, Option<AlignedBuf>, Error)>,
    /// Given back at the end, unless the store has failed.
    claim: Option<HeldClaim>,
}

impl Owner {
    pub(crate) fn new(
        restored: Restored,
        io: IoTable,
        finisher: Finisher,
        commands: Receiver<Arrival>,
        shared: Arc<OwnerShared>,
        limits: Limits,
        options: &StoreOptions,
    ) -> Self {
        let Restored {
            storage,
            scrub_mark,
            copied,
            checkpoint,
            claim,
        } = restored;
        let (gate, admission) = (Arc::clone(&shared.gate), Arc::clone(&shared.admission));
        let order = Order::new(options.queue_policy, options.max_overtakes);
        let (base, end) = (storage.geometry.base().0, storage.journal.end_seal());
        let mut owner = Self {
            inbox: Inbox::new(commands, gate, Arc::clone(&admission)),
            waiting: WaitingRequests::new(order, overload(options), admission),
            reads: Reads::default(),
            puts: Puts::default(),
            commit: Commit::default(),
            gc: Gc::new(&storage.journal, limits.gc_rate),
            checkpoint,
            scrub: Scrub::new(scrub_mark, base, duration_ns(options.scrub_interval)),
            closed: Vec::new(),
            more_commands: true,
            ended: Vec::new(),
            unread: Vec::new(),
            claim,
            ctx: Ctx {
                storage,
                io,
                finisher,
                shared,
                limits,
                pace: Pace::default(),
                unfinished: Unfinished::default(),
                header: HeaderBlock::new(scrub_mark, copied, end),
                health: Health::default(),
                closing: false,
                freed: false,
                journal_refused: None,
                target: TargetLook::default(),
            },
        };
        owner.ctx.report_bad_places();
        owner.publish();
        owner.judge();
        owner
    }

    /// Runs until the store is closed.
    pub(crate) fn run(mut self) {
        mark_engine_thread();
        while self.turn(Wait::Forever) {}
        self.end();
    }

    /// One round: hands out I/Os, waits, deals with what has ended and with new commands. False:
    /// the store is closed and everything is done.
    fn turn(&mut self, wait: Wait) -> bool {
        if self.is_done() {
            return false;
        }
        let wait = match (wait, self.wakes_ns()) {
            _ if self.more_commands => Wait::No,
            (Wait::Forever, Some(due_ns)) => Wait::Until(due_ns),
            (wait, _) => wait,
        };
        let mut ended = std::mem::take(&mut self.ended);
        self.ctx.io.wait(&mut ended, wait);
        for completion in ended.drain(..) {
            self.on_completion(completion);
        }
        self.ended = ended;
        self.ctx.let_go();
        self.use_freed();
        if self.commit.has_answers() {
            self.write();
            self.commit.send_answers(&mut self.ctx);
        }
        // First: nobody has looked at the target while nothing was to be done.
        self.judge();
        self.more_commands = self.take_commands();
        self.start_waiting();
        self.write();
        self.scrub.step(&mut self.ctx, !self.waiting.is_empty());
        self.ctx.unfinished.settle();
        self.publish();
        true
    }

    /// When there is something to do though no I/O ends and no command comes.
    fn wakes_ns(&self) -> Option<u64> {
        let due = [self.due_ns(), self.waiting.due_ns()];
        due.into_iter().flatten().min()
    }

    /// When there is something to do though nothing happens: the work in the background has a
    /// budget to wait for.
    fn due_ns(&self) -> Option<u64> {
        if self.commit.rests(&self.ctx) {
            return self.ctx.judged_ns();
        }
        let due = [
            self.scrub.due_ns(),
            self.gc.due_ns(),
            self.checkpoint.due_ns(),
            self.commit.due_ns(&self.ctx),
            self.copies_due_ns(),
            self.ctx.judged_ns(),
        ];
        due.into_iter().flatten().min()
    }

    /// When the checked copies are to be written though nothing happens.
    fn copies_due_ns(&self) -> Option<u64> {
        let can_be = self.commit.is_between_batches() && !self.ctx.header.busy;
        let due = self.ctx.copies_due_ns();
        due.filter(|_| can_be && !self.ctx.writes_nothing())
    }

    /// Judges the disk by what it has done up to now, tells the state of the store, and tries the
    /// disk if it is time.
    fn judge(&mut self) {
        let now_ns = monotonic_ns();
        let due_ns = self.ctx.io.judge.trial_due_ns();
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.ctx.try_disk();
        }
        self.ctx.try_write(now_ns);
        self.ctx.look_at_target(now_ns);
        let health = self.ctx.judged(now_ns);
        if health != self.ctx.health {
            self.ctx.shared.condition.tell(health.clone());
            self.ctx.health = health;
        }
        if let Some(error) = self.ctx.health.refusal() {
            self.waiting.refuse_all(&error);
        }
    }

    /// Takes up commands from the channel. True: more may be waiting, and nothing would announce
    /// them.
    fn take_commands(&mut self) -> bool {
        for _ in 0..COMMANDS_AT_ONCE {
            if self.ctx.closing {
                return false;
            }
            match self.inbox.commands().try_recv() {
                Ok(Arrival {
                    command: StoreCommand::Close { closed },
                    ..
                }) => {
                    self.closed.push(closed);
                    self.begin_close();
                }
                Ok(arrival) => {
                    if let Some(arrival) = self.waiting.arrive(&mut self.ctx, arrival) {
                        self.start(arrival);
                    }
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => self.begin_close(),
            }
        }
        true
    }

    /// Starts what can be started.
    fn start_waiting(&mut self) {
        let mut round = self.waiting.begin(&self.ctx);
        while let Some(arrival) = self.waiting.next(&mut self.ctx, &mut round) {
            self.start(arrival);
        }
        self.waiting.end(&mut self.ctx, &round);
    }

    fn start(&mut self, arrival: Arrival) {
        if let Some((request, command)) = self.waiting.started(&self.ctx, arrival) {
            self.on_command(request, command);
        }
        // What was set aside for its read and is not used.
        self.ctx.io.reservation = None;
    }

    fn on_command(&mut self, request: RequestId, command: StoreCommand) {
        if command.needs_disk()
            && let Some(error) = self.ctx.health.refusal()
        {
            return command.refuse(error);
        }
        let (ctx, reads) = (&mut self.ctx, &mut self.reads);
        match command {
            StoreCommand::Get { id, reply } => reads.get(ctx, request, id, reply),
            StoreCommand::GetRange { id, wanted, reply } => {
                reads.get_range(ctx, request, id, wanted, reply);
            }
            StoreCommand::GetPiece {
                lump,
                wanted,
                reply,
            } => reads.piece(ctx, request, (lump, wanted), reply),
            StoreCommand::Head { id, sum, reply } => reads.head(ctx, request, (id, sum), reply),
            StoreCommand::List {
                range,
                limit,
                reply,
            } => reads.list(ctx, range, limit, reply),
            StoreCommand::Usage { range, reply } => reads.usage(ctx, range, reply),
            StoreCommand::Embedded { range, from, reply } => {
                reads.embedded(ctx, range, from, reply)
            }
            StoreCommand::Settle { reply } => ctx.unfinished.settling.push(reply),
            change => match ctx.refuses(&change) {
                Some(error) => change.refuse(error),
                None => self.on_change(request, change),
            },
        }
    }

    fn on_change(&mut self, request: RequestId, command: StoreCommand) {
        let (ctx, commit) = (&mut self.ctx, &mut self.commit);
        match command {
            StoreCommand::Put(put) => {
                if let Some(bytes) = self.puts.accept(ctx, commit, put) {
                    self.waiting.put_placed(&bytes);
                }
            }
            StoreCommand::PutPiece(piece) => {
                if let Some(bytes) = self.puts.piece(ctx, commit, piece) {
                    self.waiting.put_placed(&bytes);
                }
            }
            StoreCommand::Delete {
                id,
                durability,
                reply,
            } => delete::one(ctx, commit, (request, durability), id, reply),
            StoreCommand::DeleteRange {
                start,
                end,
                durability,
                reply,
            } => delete::range(ctx, commit, (request, durability), (start, end), reply),
            StoreCommand::DeleteMany {
                ids,
                durability,
                reply,
            } => delete::many(ctx, commit, (request, durability), &ids, reply),
            StoreCommand::Sync { mut reply } => {
                reply.timing.lap(Stage::Sched);
                ctx.unfinished.begin();
                commit.await_flush_for_sync(reply);
            }
            StoreCommand::Collect { reply } => self.gc.collect(ctx, reply),
            other => other.refuse(Error::Closed),
        }
    }

    /// An I/O has ended.
    fn on_completion(&mut self, completion: Completion) {
        let ctx = &mut self.ctx;
        if let Some((kind, took_ns)) = ctx.io.read_time(completion.token) {
            ctx.pace.served(kind, took_ns);
        }
        let Some((tag, buf, result)) = ctx.io.ended(completion) else {
            return;
        };
        match result {
            // Whether these bytes are bad or the disk is, other bytes tell.
            Err(error) if tag.is_asked_for() && error.is_bad_spot() => {
                self.unread.push((tag, buf, error));
                ctx.try_disk();
            }
            result => self.ended(tag, buf, result),
        }
    }

    /// A trial read has ended.
    fn tried(&mut self, result: &Result<(), Error>) {
        self.ctx.io.judge.trial_ended(result, monotonic_ns());
        for (tag, buf, error) in std::mem::take(&mut self.unread) {
            let out = self.ctx.io.judge.out().and_then(Health::refusal);
            self.ended(tag, buf, Err(out.unwrap_or(error)));
        }
    }

    fn ended(&mut self, tag: Tag, buf: Option<AlignedBuf>, result: Result<(), Error>) {
        let ctx = &mut self.ctx;
        let mut done = Ok(());
        match tag {
            Tag::Get(read) => self.reads.get_read(ctx, read, buf, result),
            Tag::Range(key, piece) => self.reads.range_read(ctx, (key, piece), buf, result),
            Tag::Piece(read) => self.reads.piece_read(ctx, *read, buf, result),
            Tag::Head { lump, reply } => self.reads.head_read(ctx, lump, reply, buf, result),
            Tag::Embedded(read) => self.reads.embedded_read(ctx, *read, buf, result),
            Tag::PutData(put) => {
                let commit = &mut self.commit;
                if let Some(bytes) = self.puts.written(ctx, commit, put, buf, result) {
                    self.waiting.put_placed(&bytes);
                }
            }
            Tag::PutPiece(piece) => self.puts.piece_written(ctx, *piece, buf, result),
            Tag::Ring(piece, position) => match (result, buf) {
                (Err(error), Some(buf)) => {
                    let refused = (piece, RingWrite { position, buf });
                    done = self.commit.ring_refused(ctx, refused, error.clone());
                    if ctx.journal_refused.is_some() {
                        self.puts.refuse_all(ctx, &error);
                    }
                }
                (Err(error), None) => done = Err(error),
                (Ok(()), _) => self.commit.ring_written(ctx, piece),
            },
            Tag::Flush => done = self.flushed(result),
            Tag::Header(head) => match result {
                Ok(()) => self.commit.await_flush_for_header(head),
                Err(error) => done = Err(error),
            },
            Tag::ScrubMark => {
                ctx.header.busy = false;
                done = result;
                if ctx.closing && done.is_ok() {
                    ctx.io.flush_as(Tag::CopiesFlush, Vec::new());
                }
            }
            Tag::CopiesFlush => done = result,
            Tag::Claim(write, copied) => {
                let sector = buf.filter(|_| result.is_ok());
                done = ctx.claim_read(*write, copied, sector.as_ref());
            }
            Tag::Collect(start) => self.gc.chunk_read(start, buf, result),
            Tag::ScrubJournal(position) => {
                if self.scrub.journal_read(ctx, position, buf, result) {
                    self.gc.go_round(ctx);
                }
            }
            Tag::Checkpoint => self.checkpoint.written(ctx, buf, result),
            Tag::CheckpointFlush => done = self.checkpoint.flushed(ctx, result),
            Tag::Scrub => self.scrub.ended(ctx, buf, result),
            Tag::Trial => self.tried(&result),
            Tag::TrialWrite(portion) => ctx.tried_write(portion, &result),
        }
        if let Err(error) = done {
            self.fail(&error);
        }
        self.use_freed();
    }

    fn flushed(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        let records = self.commit.flushed(&mut self.ctx, &mut self.gc, result)?;
        self.appended(records);
        Ok(())
    }

    /// A batch of so many records may be durable, and puts may have to go elsewhere.
    fn appended(&mut self, records: u64) {
        self.checkpoint.appended(records);
        let misplaced = self.commit.take_misplaced();
        self.place_again(misplaced);
    }

    /// The device refused the places of these puts.
    fn place_again(&mut self, misplaced: Vec<Misplaced>) {
        for put in misplaced {
            let (ctx, commit) = (&mut self.ctx, &mut self.commit);
            if let Some(bytes) = self.puts.misplaced(ctx, commit, put) {
                self.waiting.put_placed(&bytes);
            }
        }
    }

    /// Blocks may have come free: puts may be waiting for them.
    fn use_freed(&mut self) {
        if std::mem::take(&mut self.ctx.freed)
            && let Some(bytes) = self.puts.retry(&mut self.ctx, &mut self.commit)
        {
            self.waiting.put_placed(&bytes);
        }
    }

    /// Starts the writes of the store itself that can be started now.
    fn write(&mut self) {
        if self.ctx.writes_nothing() || self.commit.rests(&self.ctx) {
            return;
        }
        self.write_headers();
        // Before a batch begins: until its end the index lags behind the journal.
        if self.checkpoint.wants_to_begin(&self.ctx)
            && (!self.ctx.closing || self.is_quiet())
            && self.commit.is_between_batches()
        {
            self.checkpoint.begin(&self.ctx);
        }
        self.checkpoint.go_on(&mut self.ctx);
        self.commit.start(&mut self.ctx, &mut self.gc);
        if let Some(error) = self.gc.take_failure() {
            return self.fail(&error);
        }
        self.gc.read_next(&mut self.ctx);
    }

    /// Writes both header blocks when they lack bad places or the checked copies, and at close.
    fn write_headers(&mut self) {
        let at_rest = self.commit.is_between_batches() && !self.ctx.header.busy;
        let is_time = !self.ctx.closing || (self.is_quiet() && self.checkpoint.is_at_rest());
        if self.ctx.headers_are_old() && at_rest && is_time {
            let head = self.ctx.storage.journal.head_and_sums();
            self.ctx.write_header(Tag::ScrubMark, head);
        }
    }

    /// Takes no changes any more: what is on the disk is uncertain. Everything that waits for the
    /// journal is answered with the reason.
    fn fail(&mut self, error: &Error) {
        let reason = self
            .ctx
            .shared
            .failed
            .get_or_init(|| Arc::from(error.to_string()));
        let error = Error::Failed {
            reason: Arc::clone(reason),
        };
        self.commit.refuse_all(&mut self.ctx, &error);
        self.gc.refuse_all(&error);
        self.puts.refuse_all(&mut self.ctx, &error);
    }

    /// Takes no more commands; what was accepted is finished.
    fn begin_close(&mut self) {
        self.ctx.closing = true;
    }

    /// True: there is something to do without waiting.
    fn has_more_commands(&self) -> bool {
        self.more_commands || self.ctx.io.has_spared()
    }

    /// True: the store is closed; nothing is in flight and nothing waits.
    fn is_done(&self) -> bool {
        let ctx = &self.ctx;
        let writes_nothing = ctx.writes_nothing();
        ctx.closing
            && self.is_quiet()
            && (writes_nothing
                || (self.checkpoint.rests(true, &ctx.storage) && !ctx.headers_are_old()))
    }

    /// True: nothing is in flight and no request waits.
    fn is_quiet(&self) -> bool {
        self.ctx.io.len() == 0
            && self.waiting.is_empty()
            && self.puts.is_idle()
            && self.scrub.is_idle()
            && (self.ctx.shared.failed.get().is_some() || self.commit.is_at_rest(&self.ctx))
    }

    /// Shows the present numbers to other threads.
    fn publish(&mut self) {
        self.ctx.publish(self.commit.spare_blocks());
        self.waiting.publish(&self.ctx);
        self.checkpoint.publish(&self.ctx);
    }

    /// Everything is flushed: gives the claim back, ends the threads below and tells who waits.
    fn end(self) {
        let result = self.ctx.failure().map_or(Ok(()), Err);
        let Self {
            ctx,
            inbox,
            closed,
            mut gc,
            claim,
            ..
        } = self;
        gc.refuse_all(&Error::Closed);
        // The device first: who waits for the end may open it again at once.
        let Ctx {
            mut io, finisher, ..
        } = ctx;
        let claim = claim.filter(|_| result.is_ok());
        let result = io.when_idle(|io| claim::release(io, claim, result));
        drop(io);
        drop(finisher);
        drop(inbox);
        for closed in closed {
            let _ = closed.send(result.clone());
        }
    }
}
