//! Where I/Os end that other threads carry out: a queue of completions that can also be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{Completion, Wait, Waker};
use crate::clock::monotonic_ns;

#[derive(Debug)]
enum Letter {
    Ended(Completion),
    Wake,
}

/// The receiving side; for backends whose I/Os do not end on the owner thread.
#[derive(Debug)]
pub struct Mailbox {
    letters: Receiver<Letter>,
    sender: MailboxSender,
}

/// The sending side; any thread.
#[derive(Clone, Debug)]
pub struct MailboxSender {
    letters: Sender<Letter>,
    /// True: a wake lies in the queue, and another would add nothing.
    woken: Arc<AtomicBool>,
}

impl Default for Mailbox {
    fn default() -> Self {
        // Bounded by the I/Os in flight and one wake.
        let (sender, letters) = unbounded();
        let sender = MailboxSender {
            letters: sender,
            woken: Arc::default(),
        };
        Self { letters, sender }
    }
}

impl Mailbox {
    /// A new way in.
    #[must_use]
    pub fn sender(&self) -> MailboxSender {
        self.sender.clone()
    }

    /// For [`IoBackend::waker`](super::IoBackend::waker).
    #[must_use]
    pub fn waker(&self) -> Waker {
        let sender = self.sender();
        Waker::new(move || {
            if !sender.woken.swap(true, Ordering::SeqCst) {
                let _ = sender.letters.send(Letter::Wake);
            }
        })
    }

    /// For [`IoBackend::wait`](super::IoBackend::wait).
    pub fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        let first = match wait {
            Wait::No => None,
            Wait::Forever => self.letters.recv().ok(),
            Wait::Until(time) => {
                let left = Duration::from_nanos(time.saturating_sub(monotonic_ns()));
                self.letters.recv_timeout(left).ok()
            }
        };
        for letter in first.into_iter().chain(self.letters.try_iter()) {
            match letter {
                Letter::Ended(completion) => ended.push(completion),
                Letter::Wake => self.sender.woken.store(false, Ordering::SeqCst),
            }
        }
    }
}

impl MailboxSender {
    /// Hands over the end of an I/O. False: nobody waits for it any more.
    pub fn send(&self, completion: Completion) -> bool {
        self.letters.send(Letter::Ended(completion)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(token: u64) -> Completion {
        Completion {
            token,
            buf: None,
            result: Ok(()),
        }
    }

    #[test]
    fn a_wake_before_the_wait_is_not_lost() {
        let mut mailbox = Mailbox::default();
        let waker = mailbox.waker();
        waker.wake();
        waker.wake();
        let mut got = Vec::new();
        mailbox.wait(&mut got, Wait::Forever);
        assert!(got.is_empty());
        waker.wake();
        mailbox.wait(&mut got, Wait::Forever);
        assert!(mailbox.sender().send(ended(4)));
        mailbox.wait(&mut got, Wait::Until(u64::MAX));
        mailbox.wait(&mut got, Wait::No);
        mailbox.wait(&mut got, Wait::Until(0));
        assert_eq!(got.iter().map(|end| end.token).collect::<Vec<_>>(), [4]);
    }
}
