//! The time of a commit, divided where a phase begins or ends: waiting for the batch or flush in
//! flight, writes of its own batch, flushes that its data and its record need, and the rest.

use super::change::{Change, ChangeAnswer};
use super::{Commit, Phase, Unflushed};
use crate::clock::monotonic_ns;
use crate::declaration::RequestId;
use crate::owner::admission::pace::RequestKind;
use crate::owner::command::{Stage, Timing};
use crate::owner::ctx::Ctx;

impl Unflushed {
    pub(super) fn timing(&mut self) -> Option<&mut Timing> {
        match self {
            Self::Put(put) => Some(&mut put.reply.timing),
            Self::Header(_) | Self::Settled => None,
            Self::Sync(reply) => Some(&mut reply.timing),
        }
    }
}

impl Commit {
    /// The first request that is being committed, 0 for the store's own work; `None`: nothing is in
    /// flight.
    pub(super) fn in_flight(&self) -> Option<RequestId> {
        if self.phase == Phase::Idle {
            return None;
        }
        let of_batch = self.batch.as_ref().and_then(|batch| batch.requests.first());
        let mut puts = self.flushing.iter().filter_map(|item| match item {
            Unflushed::Put(put) => Some(put.request),
            Unflushed::Header(_) | Unflushed::Sync(_) | Unflushed::Settled => None,
        });
        let mut of_run = self.runs.requests();
        Some(
            of_batch
                .copied()
                .or_else(|| puts.next())
                .or_else(|| of_run.next())
                .unwrap_or_default(),
        )
    }

    /// A batch or flush has begun: those whom it leaves behind wait for it.
    pub(super) fn leave_behind(&mut self) {
        let behind = self.in_flight();
        for change in &mut self.ready {
            if let Some(timing) = change.timing(&mut self.many) {
                timing.wait_behind(behind);
            }
        }
        let beaten = self.batch.iter_mut().flat_map(|batch| &mut batch.beaten);
        let beaten = beaten.map(|put| &mut put.reply.timing);
        let unflushed = self.unflushed.iter_mut().filter_map(Unflushed::timing);
        let unserved = self.runs.unserved_puts();
        let unserved = unserved.map(|put| &mut put.reply.timing);
        for timing in beaten.chain(unflushed).chain(unserved) {
            timing.wait_behind(behind);
        }
    }

    /// Books the time of the phase that ends for the changes of the batch.
    pub(super) fn lap_batch(&mut self, stage: Stage) {
        let now_ns = monotonic_ns();
        let Self { batch, many, .. } = self;
        let changes = batch.iter_mut().flat_map(|batch| &mut batch.changes);
        for (change, _) in changes {
            if let Some(timing) = change.timing(many) {
                timing.lap_at(stage, now_ns);
            }
        }
    }

    /// These changes have their batch.
    pub(super) fn end_waits<'a>(&mut self, taken: impl Iterator<Item = &'a mut Change>) {
        let now_ns = monotonic_ns();
        for change in taken {
            if let Some(timing) = change.timing(&mut self.many) {
                timing.lap_waited(now_ns);
            }
        }
    }

    /// A flush has begun, for those in `flushing`.
    pub(super) fn flush_began(&mut self) {
        let now_ns = monotonic_ns();
        for timing in self.flushing.iter_mut().filter_map(Unflushed::timing) {
            timing.lap_waited(now_ns);
        }
        self.leave_behind();
    }

    /// The time of these changes ends now. They are answered when the I/Os that follow are under way:
    /// each answer wakes a thread, which may take the processor from this one.
    pub(super) fn carried_out(
        &mut self,
        ctx: &mut Ctx,
        answers: impl IntoIterator<Item = ChangeAnswer>,
    ) {
        let now_ns = monotonic_ns();
        for mut answer in answers {
            let timing = answer.timing();
            timing.lap_waited(now_ns);
            if let Some(took_ns) = timing.data_service_ns(now_ns) {
                ctx.pace.served(RequestKind::Put, took_ns);
            }
            self.answers.push(answer);
        }
    }

    /// True: changes were carried out and are not answered.
    pub(in crate::owner) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Answers the changes that were carried out, behind the I/Os that were handed out: the next batch
    /// or flush does not wait for those who are told of the one before.
    pub(in crate::owner) fn send_answers(&mut self, ctx: &mut Ctx) {
        if self.has_answers() {
            ctx.io.device.backend.start();
            self.answers.drain(..).for_each(ChangeAnswer::send);
        }
    }
}
