//! The command channel into the owner thread, and its shutdown.
//!
//! A channel alone would not do: a command sent while the receiver goes is kept by the channel until
//! the last sender goes, and whoever waits for its answer waits for ever. So sending happens inside
//! a gate, and closing the gate comes before the last look into the channel.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crossbeam_channel::Receiver;

use super::admission::Admission;
use super::command::Arrival;
use crate::error::Error;

/// Open while the owner thread takes commands. Read-locked by whoever sends one.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<bool>);

impl Gate {
    /// Goes in to send a command, which must be done before the lock is dropped.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, Error> {
        let closed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Err(Error::Closed);
        }
        Ok(closed)
    }

    /// Closes it if nobody is inside; false: somebody is.
    fn try_close(&self) -> bool {
        match self.0.try_write() {
            Ok(mut closed) => *closed = true,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = true,
            Err(std::sync::TryLockError::WouldBlock) => return false,
        }
        true
    }
}

/// The owner thread's end of the channel. On drop, also by a panic, the gate closes and every
/// command that is still in the channel is refused.
pub(super) struct Inbox {
    commands: Receiver<Arrival>,
    gate: Arc<Gate>,
    admission: Arc<Admission>,
}

impl Inbox {
    pub(super) fn new(
        commands: Receiver<Arrival>,
        gate: Arc<Gate>,
        admission: Arc<Admission>,
    ) -> Inbox {
        Inbox {
            commands,
            gate,
            admission,
        }
    }

    pub(super) fn commands(&self) -> &Receiver<Arrival> {
        &self.commands
    }

    fn refuse_all(&self) {
        for arrival in self.commands.try_iter() {
            arrival.command.refuse(Error::Closed);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Who waits for room waits outside the gate.
        self.admission.close();
        while !self.gate.try_close() {
            std::thread::yield_now();
        }
        self.refuse_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::{bounded, unbounded};

    use super::{Gate, Inbox};
    use crate::error::Error;
    use crate::owner::admission::{Admission, AdmissionLimits};
    use crate::owner::command::{Arrival, StoreCommand, TimedReply};
    use crate::request::RequestCtx;

    /// Many senders while the inbox closes: everything is answered, nothing waits for ever.
    #[test]
    fn whoever_came_in_is_answered() {
        for _ in 0..200 {
            let (sender, receiver) = unbounded();
            let gate = Arc::new(Gate::default());
            let limits = AdmissionLimits {
                hard: 2,
                threshold: 9,
                recovers_at: 4,
            };
            let admission = Arc::new(Admission::new(limits, Arc::default()));
            let inbox = Inbox::new(receiver, Arc::clone(&gate), Arc::clone(&admission));
            let senders: Vec<_> = (0..4)
                .map(|_| {
                    let (sender, gate) = (sender.clone(), Arc::clone(&gate));
                    let admission = Arc::clone(&admission);
                    std::thread::spawn(move || {
                        let (tell, told) = bounded(1);
                        let reply =
                            TimedReply::new(Box::new(move |result: Result<(), Error>, _| {
                                let _ = tell.send(result);
                            }));
                        let ctx = RequestCtx::default();
                        admission.enter(&ctx)?;
                        let command = StoreCommand::Sync { reply };
                        let inside = gate.enter()?;
                        sender.send(Arrival::new(ctx, command)).expect("a receiver");
                        drop(inside);
                        told.recv().expect("an answer")
                    })
                })
                .collect();
            drop(inbox);
            for sender in senders {
                let answer = sender.join().expect("no panic");
                assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
            }
        }
    }
}
