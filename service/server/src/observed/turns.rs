//! How many questions are answered at a time, and for how many callers.
//!
//! An answer takes a thread, memory, and the observer's lock in turns with everything that is
//! observed. So a few run at a time, a few callers wait for their turn, and who asks the same
//! before an answer has begun shares it. A caller that goes away leaves its place at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// Questions that are answered at a time.
const RUNNING: usize = 2;
/// Callers that have asked and have no answer yet; more are refused.
pub(crate) const MAX_ASKING: usize = 32;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// Too many have asked.
    #[error("{MAX_ASKING} callers wait for answers of the observer already: ask again later")]
    Busy,
    /// The question panicked, or the runtime ends.
    #[error("the observer did not answer: {0}")]
    Lost(#[from] JoinError),
}

/// Places for questions. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    running: Arc<Semaphore>,
    callers: Arc<Semaphore>,
}

impl Turns {
    /// Places for `running` questions at a time.
    fn new(running: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            callers: Arc::new(Semaphore::new(MAX_ASKING)),
        }
    }

    fn queue(&self) -> Result<OwnedSemaphorePermit, Unanswered> {
        let place = Arc::clone(&self.callers).try_acquire_owned();
        place.map_err(|_| Unanswered::Busy)
    }

    /// Waits for a turn; the semaphore is never closed.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).acquire_owned().await.ok()
    }

    /// Answers on a thread that may wait, when it is its turn.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let _place = self.queue()?;
        answer(self.turn().await, question).await
    }
}

/// Answers on a thread that may wait. The turn ends with the answer, even when its caller has gone.
async fn answer<T: Send + 'static>(
    turn: Option<OwnedSemaphorePermit>,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let answered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        question()
    });
    Ok(answered.await?)
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(RUNNING)
    }
}

/// Answers to questions that several callers may ask at a time.
#[derive(Debug)]
pub(crate) struct SharedAnswers<K, T> {
    turns: Turns,
    /// Those that have not begun.
    waiting: Mutex<HashMap<K, Arc<OnceCell<T>>>>,
}

impl<K, T> SharedAnswers<K, T>
where
    K: Clone + Eq + Hash,
    T: Clone + Send + 'static,
{
    /// Answers in these turns.
    pub(crate) fn new(turns: Turns) -> Self {
        Self {
            turns,
            waiting: Mutex::default(),
        }
    }

    /// The answer to `key`, which began after it was asked for.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(crate) async fn ask(
        &self,
        key: K,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let _place = self.turns.queue()?;
        let cell = Arc::clone(self.waiting().entry(key.clone()).or_default());
        let answer = cell.get_or_try_init(|| async {
            let turn = self.turns.turn().await;
            // Who asks from now on wants an answer that begins later.
            self.waiting().remove(&key);
            answer(turn, question).await
        });
        Ok(answer.await?.clone())
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<K, Arc<OnceCell<T>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Default for SharedAnswers<K, T>
where
    K: Clone + Eq + Hash,
    T: Clone + Send + 'static,
{
    /// One answer at a time.
    fn default() -> Self {
        Self::new(Turns::new(1))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn who_waits_shares_and_who_is_too_many_is_refused() {
        let shared = Arc::new(SharedAnswers::<u8, usize>::default());
        let made = Arc::new(AtomicUsize::new(0));
        let (go, gate) = mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (own, count) = (Arc::clone(&shared), Arc::clone(&made));
        let first = tokio::spawn(async move {
            let answer = own.ask(1, move || {
                let _ = begun.send(());
                let _ = gate.recv();
                count.fetch_add(1, Ordering::SeqCst)
            });
            answer.await.unwrap()
        });
        begins.await.unwrap();
        let mut callers = Vec::new();
        for _ in 1..MAX_ASKING {
            let (own, count) = (Arc::clone(&shared), Arc::clone(&made));
            callers.push(tokio::spawn(async move {
                own.ask(1, move || count.fetch_add(1, Ordering::SeqCst))
                    .await
            }));
        }
        while shared.turns.callers.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = shared.ask(1, || 99).await;
        assert!(matches!(refused, Err(Unanswered::Busy)));
        // One that goes leaves its place, and another makes the answer.
        callers.remove(0).abort();
        while shared.turns.callers.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap(), 0);
        for caller in callers {
            assert_eq!(caller.await.unwrap().unwrap(), 1);
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
