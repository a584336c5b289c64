//! What a request did, by the tracer and by the askers' own times.
//!
//! Tracer and probes look at the clock one after the other, and the tracer's microseconds are cut off.
//! So each time has a tolerance: how far the two are apart for this very block request.

use std::collections::HashMap;

use lumpscope_observer::{BlockOp, Declared, EndedRequest, Event, Input, Op, Purpose};

use super::clauses::{Clause, Part, Printed, of_one};
use super::ftrace::FtraceRequest;

/// Times are whole microseconds in the trace.
const CUT_NS: u64 = 1000;

/// All that happened.
pub(super) struct Truth<'a> {
    traced: &'a [FtraceRequest],
    /// How far the probes' times of each are from the tracer's.
    apart: Vec<u64>,
    /// The probes were not shown the end of each, and nobody knew whose it was until it was found.
    late: Vec<bool>,
    ios: Vec<(Declared, u64)>,
    ended: HashMap<u64, EndedRequest>,
    extents: &'a [(u64, u64, u64)],
}

/// What happened for one request.
pub(super) struct OfRequest<'a> {
    truth: &'a Truth<'a>,
    ended: &'a EndedRequest,
    /// Indices of the traced block requests of its data, and of its commit without flushes.
    data: Vec<usize>,
    commit: Vec<usize>,
}

fn union(mut all: Vec<(u64, u64)>) -> u64 {
    all.sort_unstable();
    let (mut sum, mut reached) = (0, 0);
    for (from, to) in all {
        sum += to.saturating_sub(from.max(reached));
        reached = reached.max(to);
    }
    sum
}

/// `Err` if a printed number lies outside of two others.
#[expect(
    clippy::cast_precision_loss,
    reason = "of hours, exact to a nanosecond"
)]
fn between(printed: Printed, low: u64, high: u64) -> Result<(), String> {
    let fits = printed.1 >= low as f64 && printed.0 <= high as f64;
    fits.then_some(())
        .ok_or_else(|| format!("it is {low} to {high}"))
}

fn count(said: u64, low: usize, high: usize) -> Result<(), String> {
    let fits = (low as u64..=high as u64).contains(&said);
    fits.then_some(())
        .ok_or_else(|| format!("they are {low} to {high}"))
}

impl<'a> Truth<'a> {
    /// `Err`: the tracer or the probes have not seen all.
    pub(super) fn new(
        recorded: &str,
        traced: &'a [FtraceRequest],
        extents: &'a [(u64, u64, u64)],
    ) -> Result<Truth<'a>, String> {
        let (mut ios, mut open) = (Vec::new(), HashMap::new());
        let (mut ended, mut events) = (HashMap::new(), Vec::new());
        for line in recorded.lines() {
            match serde_json::from_str(line).expect("an input") {
                Input::Declared(io) => {
                    open.insert(io.token, io);
                }
                Input::Finished { token, end_ns, .. } => {
                    let io = open.remove(&token).ok_or("an I/O was not declared")?;
                    ios.push((io, end_ns));
                }
                Input::Ended(one) => {
                    ended.insert(one.request, one);
                }
                Input::Event(event) if !event.flush_parent => events.push(event),
                _ => {}
            }
        }
        let nearest = traced.iter().map(|one| nearest(one, &events));
        let nearest = nearest.collect::<Option<Vec<(u64, bool)>>>();
        let nearest = nearest.ok_or("the probes were not shown a block request")?;
        let (apart, late) = nearest.into_iter().unzip();
        let in_trace = |event: &&Event| {
            let same = |one: &FtraceRequest| one.sector == event.sector && one.op != 'F';
            event.issue_ns.is_none() || !event.op.is_data() || traced.iter().any(same)
        };
        if let Some(unseen) = events.iter().find(|event| !in_trace(event)) {
            return Err(format!("the tracer was not shown {unseen:?}"));
        }
        Ok(Truth {
            traced,
            apart,
            late,
            ios,
            ended,
            extents,
        })
    }

    pub(super) fn of(&'a self, request: u64) -> OfRequest<'a> {
        let mut it = OfRequest {
            truth: self,
            ended: &self.ended[&request],
            data: Vec::new(),
            commit: Vec::new(),
        };
        for (at, one) in self.traced.iter().enumerate() {
            if one.op != 'F' && self.owner(at) == Some(request) {
                let is_data = it.ios(Purpose::Data).any(|(io, _)| self.asks(io, one));
                if is_data {
                    &mut it.data
                } else {
                    &mut it.commit
                }
                .push(at);
            }
        }
        it
    }

    /// The request whose place a block request has.
    fn owner(&self, at: usize) -> Option<u64> {
        let one = &self.traced[at];
        let mut ios = self.ios.iter();
        let (io, _) = ios.find(|(io, end)| {
            let early = io.begin_ns.saturating_sub(self.apart[at] + CUT_NS);
            self.asks(io, one) && early <= one.first() && one.done <= end + self.apart[at]
        })?;
        io.requests.first().copied()
    }

    fn asks(&self, io: &Declared, one: &FtraceRequest) -> bool {
        let op = if io.op == Op::Read { 'R' } else { 'W' };
        let overlaps = |(offset, sector, bytes): &(u64, u64, u64)| {
            let (from, to) = (
                io.offset.max(*offset),
                (io.offset + io.len).min(offset + bytes),
            );
            let place = |at: u64| sector + (at - offset) / 512;
            from < to && place(from) < one.end() && one.sector < place(to)
        };
        io.op != Op::Flush && op == one.op && self.extents.iter().any(overlaps)
    }

    /// Whether one block request was sent at the time of another, as far as can be said.
    fn sent_together(&self, one: usize, other: usize) -> bool {
        let apart = self.apart[one] + self.apart[other] + 2 * CUT_NS;
        let (one, other) = (&self.traced[one], &self.traced[other]);
        other.op != 'F' && one.issue.abs_diff(other.issue) <= apart
    }

    /// How many others completed between two times, at least and at most.
    fn completed(&self, own: &OfRequest<'_>, from: u64, to: u64, apart: u64) -> (usize, usize) {
        let others = (0..self.traced.len()).filter(|at| !own.has(*at));
        let done = others.map(|at| (self.traced[at].done, self.apart[at] + apart + CUT_NS));
        let (surely, perhaps): (Vec<bool>, Vec<bool>) = done
            .map(|(done, e)| {
                (
                    done > from + e && done + e <= to,
                    done + e > from && done <= to + e,
                )
            })
            .unzip();
        let of = |all: Vec<bool>| all.into_iter().filter(|fits| *fits).count();
        (of(surely), of(perhaps))
    }
}

/// How far the probes are from the tracer, and whether they were not shown its end; `None`: they have no such block
/// request.
fn nearest(one: &FtraceRequest, events: &[Event]) -> Option<(u64, bool)> {
    let fits = |event: &&Event| match event.op {
        BlockOp::Flush => one.op == 'F',
        BlockOp::Read => one.op == 'R' && event.sector == one.sector,
        BlockOp::Write => one.op == 'W' && event.sector == one.sector,
        _ => one.op != 'F' && event.sector == one.sector,
    };
    let apart = |event: &Event| {
        let issue = event.issue_ns.map_or(0, |issue| issue.abs_diff(one.issue));
        let queue = event.queue_ns.zip(one.queue);
        let queue = queue.map_or(0, |(a, b)| a.abs_diff(b));
        let apart = issue.max(queue).max(event.done_ns.abs_diff(one.done));
        (apart, event.done_unknown)
    };
    events.iter().filter(fits).map(apart).min()
}

/// The process in a name of an owner.
fn pid_of(who: &str) -> Option<&str> {
    who.rsplit_once('[')?.1.strip_suffix(']')
}

impl OfRequest<'_> {
    fn ios(&self, purpose: Purpose) -> impl Iterator<Item = &(Declared, u64)> {
        let own = self.truth.ios.iter();
        own.filter(move |(io, _)| io.requests == [self.ended.request] && io.purpose == purpose)
    }

    fn asked(&self, purposes: &[Purpose]) -> Vec<(u64, u64)> {
        let ios = purposes.iter().flat_map(|purpose| self.ios(*purpose));
        ios.map(|(io, end)| (io.begin_ns, *end)).collect()
    }

    fn has(&self, at: usize) -> bool {
        self.data.contains(&at) || self.commit.contains(&at)
    }

    fn traced<'b>(&'b self, own: &'b [usize]) -> impl Iterator<Item = &'b FtraceRequest> {
        own.iter().map(|at| &self.truth.traced[*at])
    }

    fn device(&self, own: &[usize]) -> Vec<(u64, u64)> {
        self.traced(own).map(|one| (one.issue, one.done)).collect()
    }

    fn made(&self, own: &[usize]) -> Vec<(u64, u64)> {
        let own = self.traced(own);
        own.map(|one| (one.first(), one.done)).collect()
    }

    /// What the times of these may be wrong by.
    fn apart(&self, own: &[usize]) -> u64 {
        let each = own.iter().map(|at| self.truth.apart[*at] + CUT_NS);
        2 * each.sum::<u64>()
    }

    /// Flushes that the disk did while this request waited for one.
    fn flushes(&self) -> Vec<usize> {
        let asked = self.asked(&[Purpose::Flush]);
        let meanwhile = |at: &usize| {
            let one = &self.truth.traced[*at];
            let mut asked = asked.iter();
            one.op == 'F' && asked.any(|(from, to)| *from <= one.done && one.issue <= *to)
        };
        (0..self.truth.traced.len()).filter(meanwhile).collect()
    }

    pub(super) fn holds(&self, clause: &Clause) -> Result<(), String> {
        let [recv, sched, index, data, _, reply] = self.ended.stages_ns;
        let exactly = |said: &Printed, ns: u64| between(*said, ns, ns);
        match clause {
            Clause::Took(said) => exactly(said, self.ended.total_ns()),
            Clause::Turn(said) => exactly(said, sched),
            Clause::Index(said) => exactly(said, index),
            Clause::Replying(said) => exactly(said, reply),
            Clause::Receiving(said, meanwhile) => {
                exactly(said, recv)?;
                let end = self.ended.begin_ns + recv;
                let device = self.device(&self.data).into_iter();
                let device = device.map(|(from, to)| (from, to.min(end).max(from)));
                let most = union(device.collect()) + self.apart(&self.data);
                meanwhile.map_or(Ok(()), |said| between(said, 0, most))
            }
            Clause::Data(part, said, least) => self.holds_data(*part, *said, *least, data),
            Clause::Queued(said, behind) => self.holds_queued(*said, *behind),
            Clause::Blocks(reads, writes, bytes, sector, seek, device) => {
                let of = |op: char| self.traced(&self.data).filter(|one| one.op == op).count();
                count(*reads, of('R'), of('R'))?;
                count(*writes, of('W'), of('W'))?;
                let apart = self.apart(&self.data);
                let ns = union(self.device(&self.data));
                between(*device, ns.saturating_sub(apart), ns + apart)?;
                self.holds_place(*sector, *bytes, seek.as_ref())
            }
            Clause::Commit(said, reads, writes, flushes) => {
                exactly(said, self.ended.commit_ns.iter().sum())?;
                count(*reads, 0, 0)?;
                count(*writes, self.commit.len(), self.commit.len())?;
                count(*flushes, 0, self.flushes().len())
            }
            Clause::InCommit(part, said, least) => self.holds_commit(*part, *said, *least),
            Clause::Served(who, said, least) => self.holds_served(who, *said, *least),
        }
    }

    /// Its I/Os' time without a block request: before their first, and else.
    fn holds_data(&self, part: Part, said: Printed, least: bool, data: u64) -> Result<(), String> {
        let asked = self.asked(&[Purpose::Data]);
        let apart = self.apart(&self.data);
        let begun = self.ended.begin_ns + self.ended.stages_ns[0];
        let late = asked.iter();
        let late = late.map(|(from, to)| (*from.max(&begun), *to.max(&begun)));
        let service = data - union(late.collect()).min(data);
        let (mut before, mut after) = (0, 0);
        for (from, to) in &asked {
            let within = |at: &&usize| (*from..=*to).contains(&self.truth.traced[**at].done);
            let own: Vec<usize> = self.data.iter().filter(within).copied().collect();
            let first = self.traced(&own).map(FtraceRequest::first).min();
            let way = first.map_or(to - from, |first| first.saturating_sub(*from));
            let rest = to - from - way.min(to - from);
            before += way;
            after += rest.saturating_sub(union(self.made(&own)));
        }
        match part {
            Part::Service if least => between(said, 0, service + apart),
            Part::Service => between(said, service.saturating_sub(apart), service + apart),
            Part::Asked => between(said, before.saturating_sub(apart), before + apart),
            Part::Back => between(said, after.saturating_sub(apart), after + apart),
            _ => Err("no part of the data".to_owned()),
        }
    }

    fn holds_queued(&self, said: Printed, behind: Option<(u64, bool)>) -> Result<(), String> {
        let ns = union(self.made(&self.data)) - union(self.device(&self.data));
        let apart = self.apart(&self.data);
        between(said, ns.saturating_sub(apart), ns + apart)?;
        let each = self.data.iter().map(|at| self.behind(*at));
        let (low, high) = each.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
        let (said, least) = behind.unwrap_or((0, false));
        count(said, if least { 0 } else { low }, high)
    }

    fn behind(&self, at: usize) -> (usize, usize) {
        let one = &self.truth.traced[at];
        let apart = self.truth.apart[at];
        self.truth.completed(self, one.first(), one.issue, apart)
    }

    fn holds_commit(&self, part: Part, said: Printed, least: bool) -> Result<(), String> {
        let commit: u64 = self.ended.commit_ns.iter().sum();
        let asked = union(self.asked(&[Purpose::Journal, Purpose::Flush]));
        let device = self.device(&self.commit);
        let low = union(device.clone());
        let flushes = self.flushes();
        let high = union(device.into_iter().chain(self.device(&flushes)).collect());
        let apart = self.apart(&self.commit) + self.apart(&flushes) + CUT_NS * 100;
        let service = commit.saturating_sub(asked);
        match part {
            Part::Service if least => between(said, 0, service),
            Part::Service => between(said, service.saturating_sub(apart), service + apart),
            Part::Disk => between(said, low.saturating_sub(apart), high + apart),
            Part::Queued | Part::Asked | Part::Back => {
                between(said, 0, asked - low.min(asked) + apart)
            }
            Part::Waiting => Err("it did not wait".to_owned()),
        }
    }

    /// The head's way to a block request, and from whose end.
    fn holds_place(
        &self,
        sector: u64,
        bytes: Printed,
        seek: Option<&(i8, Printed, String)>,
    ) -> Result<(), String> {
        let is_there = |at: &&usize| self.truth.traced[**at].sector == sector;
        let own = self.data.iter().find(is_there);
        let at = *own.ok_or("there is none at that sector")?;
        let one = &self.truth.traced[at];
        between(bytes, one.sectors * 512, one.sectors * 512)?;
        let Some((side, far, who)) = seek else {
            return Ok(());
        };
        // Of two that were at the disk at once, either may have been seen first by the probes.
        let at_once = |other: usize| {
            let apart = self.truth.apart[other] + self.truth.apart[at] + 2 * CUT_NS;
            let other = &self.truth.traced[other];
            other.op != 'F' && other.issue <= one.done + apart && one.issue <= other.done + apart
        };
        let is_before = |other: &usize| !at_once(*other) && self.truth.traced[*other].op != 'F';
        let before = (0..at).rev().find(is_before);
        let candidates = (0..self.truth.traced.len()).filter(|other| *other != at);
        let sent_with =
            |other: usize| before.is_some_and(|before| self.truth.sent_together(before, other));
        let mut candidates = candidates.filter(|other| at_once(*other) || sent_with(*other));
        let fits = |other: &usize| {
            let end = self.truth.traced[*other].end();
            let distance = one.sector.abs_diff(end) * 512;
            let way = one.sector.cast_signed() - end.cast_signed();
            i64::from(*side) == way.signum()
                && between(*far, distance, distance).is_ok()
                && self.names(at, *other, who)
        };
        if candidates.any(|other| fits(&other)) {
            return Ok(());
        }
        let sent = before.map(|at| &self.truth.traced[at]);
        Err(format!("the disk was sent {before:?} before: {sent:?}"))
    }

    /// Whether a block request, which the disk was sent before one of this request, is whose the sentence says.
    fn names(&self, at: usize, other: usize, who: &str) -> bool {
        let pid = pid_of(who);
        match (self.truth.owner(other), pid) {
            (Some(_), _) if who == "by an unknown owner" => {
                // An owner is known once the block request has ended, and has been seen to, and if it is certain
                // which one was sent before.
                let truth = self.truth;
                let is_tied = |with| {
                    let mut all = (0..truth.traced.len()).filter(|one| *one != with);
                    all.any(|one| truth.sent_together(with, one))
                };
                truth.late[other]
                    || truth.traced[other].done > self.ended.end_ns
                    || is_tied(at)
                    || is_tied(other)
            }
            (Some(request), _) if request == self.ended.request => who == "its own",
            (Some(request), _) => who == format!("by request {request}"),
            (None, Some(pid)) => pid == self.truth.traced[other].tid.to_string(),
            // A file system's own.
            (None, None) => who != "its own" && !who.starts_with("by request"),
        }
    }

    /// Others at the disk while a block request of this one was under way.
    fn holds_served(&self, who: &str, said: Printed, least: bool) -> Result<(), String> {
        let pid = pid_of(who);
        let is_meant = |at: usize| match (pid, self.truth.owner(at)) {
            // What a file system reads and writes for itself counts as its own, whoever waited.
            (Some(pid), _) => {
                let one = &self.truth.traced[at];
                one.tid.to_string() == pid && !one.metadata
            }
            (None, Some(_)) => who == "other requests",
            (None, None) => true,
        };
        let all = 0..self.truth.traced.len();
        let others: Vec<usize> = all.filter(|at| !self.has(*at) && is_meant(*at)).collect();
        let own = self.traced(&self.data).chain(self.traced(&self.commit));
        let own: Vec<(u64, u64)> = own.map(|one| (one.first(), one.done)).collect();
        let flushes = self.asked(&[Purpose::Flush]);
        let meanwhile = |times: &[(u64, u64)], strictly: bool| {
            let mut lost = Vec::new();
            for (from, to) in times {
                for other in self.traced(&others) {
                    let before = other.done < *to || !strictly && other.issue < *to;
                    if before && other.done > *from {
                        lost.push((other.issue.max(*from), other.done.min(*to)));
                    }
                }
            }
            union(lost)
        };
        // Each by a little at most, but for those that something came between: in emulation, milliseconds.
        let is_slow = |at: &&usize| self.truth.apart[**at] > 20 * CUT_NS;
        let slow: Vec<usize> = others.iter().filter(is_slow).copied().collect();
        let most = self.apart(&self.data) + self.apart(&self.commit) + 50 * CUT_NS;
        let apart = self.apart(&slow) + self.apart(&others).min(most);
        let low = match pid {
            Some(_) if !least => meanwhile(&own, true),
            _ => 0,
        };
        let longer: Vec<(u64, u64)> = own.iter().chain(&flushes).copied().collect();
        let high = meanwhile(&longer, false) + apart;
        between(said, low.saturating_sub(apart), high)
    }

    /// A step about one block request, as the timeline tells it.
    pub(super) fn holds_step(&self, block: &str, times: &str) -> Result<(), String> {
        let (queued, behind, device) = of_one(times).ok_or("nobody checks it")?;
        if block.starts_with("flush") {
            return Ok(());
        }
        let (_, place) = block.split_once(" at sector ").ok_or("it has no place")?;
        let sector = place.split(", ").next().unwrap_or_default();
        let sector: u64 = sector.parse().map_err(|_| place)?;
        let mut own = self.data.iter().chain(&self.commit);
        let at = own.find(|at| self.truth.traced[**at].sector == sector);
        let at = *at.ok_or("there is none at that sector")?;
        let (one, apart) = (&self.truth.traced[at], self.apart(&[at]));
        let (waited, took) = (one.issue - one.first(), one.done - one.issue);
        between(queued, waited.saturating_sub(apart), waited + apart)?;
        between(device, took.saturating_sub(apart), took + apart)?;
        let (low, high) = self.behind(at);
        let (said, least) = behind.unwrap_or((0, false));
        count(said, if least { 0 } else { low }, high)
    }
}
