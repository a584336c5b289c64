//! A bound on the bytes of messages in memory, so that many clients together cannot exhaust it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// Bytes a permit stands for: a semaphore counts in 32 bits.
const UNIT: u64 = 4096;

/// A budget of memory. Who asks first gets first, so a large body is not passed over for ever.
#[derive(Clone)]
pub struct Memory {
    permits: Arc<Semaphore>,
    total: u32,
    waiting: Arc<AtomicUsize>,
}

/// Part of a budget; given back when dropped.
pub struct Reservation {
    _permit: OwnedSemaphorePermit,
}

impl Memory {
    /// A budget of `bytes`, at least 4096.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = units(bytes).max(1);
        let permits = usize::try_from(total)
            .unwrap_or(Semaphore::MAX_PERMITS)
            .min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            total,
            waiting: Arc::default(),
        }
    }

    /// True: somebody waits for what others have.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until `bytes` can be had. A body larger than the whole budget waits until it is
    /// alone: it must be possible to put the largest lump whatever the budget.
    ///
    /// # Errors
    /// [`Refusal::ShuttingDown`].
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        if let Some(reserved) = self.try_reserve(bytes) {
            return Ok(reserved);
        }
        let _waits = Waits::new(&self.waiting);
        let wanted = units(bytes).min(self.total);
        Arc::clone(&self.permits)
            .acquire_many_owned(wanted)
            .await
            .map(|permit| Reservation { _permit: permit })
            .map_err(|_| Refusal::ShuttingDown)
    }

    /// `bytes` at once; `None`: others have them, or wait for them.
    #[must_use]
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        if self.is_wanted() {
            return None;
        }
        let wanted = units(bytes).min(self.total);
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(wanted);
        permit.ok().map(|permit| Reservation { _permit: permit })
    }

    /// Bytes reserved now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        let free = u64::try_from(self.permits.available_permits()).unwrap_or(u64::MAX);
        u64::from(self.total).saturating_sub(free) * UNIT
    }
}

/// Somebody who waits, until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reservations_are_bounded_and_given_back() {
        let memory = Memory::new(3 * UNIT);
        let two = memory.reserve(2 * UNIT).await.unwrap();
        assert_eq!(memory.reserved(), 2 * UNIT);
        let mut waiting = std::pin::pin!(memory.reserve(2 * UNIT));
        let early =
            std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_ready()))
                .await;
        assert!(!early, "more than the budget was handed out");
        drop(two);
        let _second = waiting.await.unwrap();
        assert_eq!(memory.reserved(), 2 * UNIT);
    }

    #[tokio::test]
    async fn a_body_larger_than_the_budget_goes_alone() {
        let memory = Memory::new(UNIT);
        let all = memory.reserve(1 << 40).await.unwrap();
        assert_eq!(memory.reserved(), UNIT);
        drop(all);
        assert_eq!(memory.reserved(), 0);
    }
}
