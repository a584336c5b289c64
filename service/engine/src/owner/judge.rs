//! Judges the disk by the ends of its I/Os, as the table of [`crate::health`] says. Pure: no clock,
//! no I/O.

use std::sync::Arc;

use crate::clock::duration_ns;
use crate::declaration::IoOp;
use crate::error::Error;
use crate::health::{ERRORS, Health, StoreState, TRIAL_EVERY};

/// What the I/Os of a store have said of its disk.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    reads: Streak,
    /// Of writes and flushes.
    writes: Streak,
    /// Failed or gone, by errors.
    out: Option<Health>,
    trial: Trial,
    /// Why the disk refuses every write, by trial writes.
    refuses: Option<Arc<str>>,
    trial_write: Trial,
}

/// Errors since the last success.
#[derive(Debug, Default)]
struct Streak {
    errors: u32,
    last: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trial {
    /// None is needed.
    #[default]
    None,
    /// At this time.
    Due(u64),
    UnderWay,
}

impl Trial {
    fn due_ns(self) -> Option<u64> {
        match self {
            Self::Due(due_ns) => Some(due_ns),
            Self::None | Self::UnderWay => None,
        }
    }
}

impl Judge {
    /// An I/O of a request or of the store's own has ended.
    pub(super) fn ended(&mut self, op: IoOp, result: &Result<(), Error>, now_ns: u64) {
        let streak = match op {
            IoOp::Read => &mut self.reads,
            IoOp::Write | IoOp::Flush => &mut self.writes,
        };
        let error = match result {
            Ok(()) => {
                if streak.last.is_some() {
                    *streak = Streak::default();
                }
                if op == IoOp::Write {
                    self.refuses = None;
                }
                return;
            }
            // The disk is well.
            Err(Error::NoSpace { .. }) => return,
            Err(error) => error,
        };
        let reason: Arc<str> = error.to_string().into();
        streak.errors += 1;
        streak.last = Some(Arc::clone(&reason));
        if error.is_device_gone() {
            self.go_out(Health::new(StoreState::Gone, &reason), now_ns);
        } else if streak.errors.is_multiple_of(ERRORS) && self.trial == Trial::None {
            self.trial = Trial::Due(now_ns);
        }
    }

    /// A trial read has ended.
    pub(super) fn trial_ended(&mut self, result: &Result<(), Error>, now_ns: u64) {
        self.trial = Trial::None;
        match result {
            Ok(()) => {
                if self.out.take().is_some() {
                    self.reads = Streak::default();
                }
                self.reads.errors = 0;
                if self.writes.errors >= ERRORS && self.trial_write == Trial::None {
                    self.trial_write = Trial::Due(now_ns);
                }
            }
            Err(error) => {
                let state = if error.is_device_gone() {
                    StoreState::Gone
                } else {
                    StoreState::Failed
                };
                self.go_out(Health::new(state, &error.to_string().into()), now_ns);
            }
        }
    }

    /// When a trial write is due; `None`: none is needed, or one is under way.
    pub(super) fn trial_write_due_ns(&self) -> Option<u64> {
        self.trial_write.due_ns()
    }

    /// A trial write begins, or cannot be made: there is no free block.
    pub(super) fn trial_write_begins(&mut self, can: bool) {
        self.trial_write = if can { Trial::UnderWay } else { Trial::None };
    }

    /// A trial write has ended.
    pub(super) fn trial_write_ended(&mut self, result: &Result<(), Error>, now_ns: u64) {
        self.trial_write = Trial::None;
        match result {
            Ok(()) | Err(Error::NoSpace { .. }) => {
                self.refuses = None;
                self.writes = Streak::default();
            }
            Err(error) => {
                self.refuses = Some(error.to_string().into());
                self.trial_write = Trial::Due(now_ns.saturating_add(duration_ns(TRIAL_EVERY)));
            }
        }
    }

    /// Why no put is taken; `None`: the disk takes writes, as far as is known.
    pub(super) fn refuses_writes(&self) -> Option<&Arc<str>> {
        self.refuses.as_ref()
    }

    /// The first reason is kept: what comes later is its consequence.
    fn go_out(&mut self, health: Health, now_ns: u64) {
        if self.out.as_ref().is_none_or(|out| out.state < health.state) {
            self.out = Some(health);
        }
        if self.trial == Trial::None {
            self.trial = Trial::Due(now_ns.saturating_add(duration_ns(TRIAL_EVERY)));
        }
    }

    /// When a trial read is due; `None`: none is needed, or one is under way.
    pub(super) fn trial_due_ns(&self) -> Option<u64> {
        self.trial.due_ns()
    }

    /// A trial read begins; false: one is under way.
    pub(super) fn trial_begins(&mut self) -> bool {
        let before = std::mem::replace(&mut self.trial, Trial::UnderWay);
        before != Trial::UnderWay
    }

    /// Failed or gone, by errors; `None`: neither.
    pub(super) fn out(&self) -> Option<&Health> {
        self.out.as_ref()
    }

    /// The error that the last read, or the last write or flush, ended with; `None`: both succeeded.
    pub(super) fn last_error(&self) -> Option<&Arc<str>> {
        self.reads.last.as_ref().or(self.writes.last.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn error(errno: i32) -> Result<(), Error> {
        let source = io::Error::from_raw_os_error(errno);
        Err(Error::from_io(IoOp::Read, 0, 512, source))
    }

    fn state(judge: &Judge) -> Option<StoreState> {
        judge.out().map(|out| out.state)
    }

    #[test]
    fn three_errors_in_a_row_ask_for_a_trial_and_it_decides() {
        let mut judge = Judge::default();
        for _ in 0..2 {
            judge.ended(IoOp::Read, &error(libc::EIO), 5);
        }
        judge.ended(IoOp::Write, &Ok(()), 5);
        assert!(judge.last_error().is_some());
        judge.ended(IoOp::Read, &Ok(()), 5);
        assert_eq!((judge.last_error(), judge.trial_due_ns()), (None, None));
        for _ in 0..3 {
            judge.ended(IoOp::Read, &error(libc::EIO), 6);
        }
        assert_eq!((state(&judge), judge.trial_due_ns()), (None, Some(6)));
        assert!(judge.trial_begins());
        assert_eq!(judge.trial_due_ns(), None);
        judge.trial_ended(&error(libc::EIO), 7);
        assert_eq!(state(&judge), Some(StoreState::Failed));
        let due_ns = 7 + duration_ns(TRIAL_EVERY);
        assert_eq!(judge.trial_due_ns(), Some(due_ns));
        assert!(judge.trial_begins());
        judge.trial_ended(&Ok(()), due_ns);
        assert_eq!((state(&judge), judge.trial_due_ns()), (None, None));
        assert_eq!(judge.last_error(), None);
    }

    #[test]
    fn bad_spots_on_a_disk_that_can_be_read_are_no_failure() {
        let mut judge = Judge::default();
        for _ in 0..3 {
            judge.ended(IoOp::Write, &error(libc::EIO), 5);
        }
        assert!(judge.trial_begins());
        judge.trial_ended(&Ok(()), 6);
        assert_eq!((state(&judge), judge.trial_due_ns()), (None, None));
        assert!(judge.last_error().is_some(), "no write has succeeded");
        assert_eq!(judge.trial_write_due_ns(), Some(6));
        judge.trial_write_begins(true);
        judge.trial_write_ended(&Ok(()), 6);
        assert_eq!(judge.trial_write_due_ns(), None);
        assert_eq!(judge.last_error(), None);
        judge.ended(IoOp::Write, &error(libc::EIO), 7);
        judge.ended(IoOp::Write, &Ok(()), 7);
        assert_eq!(judge.last_error(), None);
        judge.ended(IoOp::Read, &error(libc::EIO), 8);
        assert!(judge.trial_begins());
        judge.trial_ended(&Ok(()), 9);
        assert!(
            judge.last_error().is_some(),
            "no read but the trial has succeeded"
        );
        judge.ended(IoOp::Read, &Ok(()), 10);
        assert_eq!(judge.last_error(), None);
    }

    #[test]
    fn a_disk_that_refuses_every_write_is_tried_until_it_takes_one() {
        let mut judge = Judge::default();
        for _ in 0..ERRORS {
            judge.ended(IoOp::Write, &error(libc::EIO), 5);
        }
        judge.trial_begins();
        judge.trial_ended(&Ok(()), 6);
        judge.trial_write_begins(true);
        assert!(judge.refuses_writes().is_none(), "nothing is known yet");
        judge.trial_write_ended(&error(libc::EIO), 7);
        assert!(judge.refuses_writes().is_some());
        let due_ns = 7 + duration_ns(TRIAL_EVERY);
        assert_eq!(judge.trial_write_due_ns(), Some(due_ns));
        // A write of somebody else is as good as a trial.
        judge.ended(IoOp::Write, &Ok(()), 8);
        assert_eq!((judge.refuses_writes(), judge.last_error()), (None, None));
        judge.trial_write_begins(false);
        assert_eq!(judge.trial_write_due_ns(), None);
    }

    #[test]
    fn a_device_that_is_gone_is_so_at_once() {
        for errno in [libc::ENODEV, libc::ENXIO, libc::ENOMEDIUM] {
            let mut judge = Judge::default();
            judge.ended(IoOp::Write, &error(errno), 5);
            assert_eq!(state(&judge), Some(StoreState::Gone));
            assert!(judge.trial_begins());
            judge.trial_ended(&error(libc::EIO), 6);
            assert_eq!(state(&judge), Some(StoreState::Gone), "it is worse");
        }
    }

    #[test]
    fn a_full_file_system_says_nothing_of_the_disk() {
        let mut judge = Judge::default();
        for _ in 0..9 {
            judge.ended(IoOp::Write, &error(libc::ENOSPC), 5);
        }
        assert_eq!((state(&judge), judge.trial_due_ns()), (None, None));
        assert_eq!(judge.last_error(), None);
    }
}
