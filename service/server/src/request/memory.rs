//! A bound on the bytes of all bodies in memory, so that many clients together cannot exhaust it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// Bytes a permit stands for: a semaphore counts in 32 bits.
const UNIT: u64 = 4096;

/// A budget of memory. Who asks first gets first, so a large body is not passed over for ever.
#[derive(Clone)]
pub struct Memory {
    permits: Arc<Semaphore>,
    total: u32,
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
        }
    }

    /// Waits until `bytes` can be had. A body larger than the whole budget waits until it is
    /// alone: it must be possible to put the largest lump whatever the budget.
    ///
    /// # Errors
    /// [`Refusal::ShuttingDown`].
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        let wanted = units(bytes).min(self.total);
        Arc::clone(&self.permits)
            .acquire_many_owned(wanted)
            .await
            .map(|permit| Reservation { _permit: permit })
            .map_err(|_| Refusal::ShuttingDown)
    }

    /// Bytes reserved now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        let free = u64::try_from(self.permits.available_permits()).unwrap_or(u64::MAX);
        u64::from(self.total).saturating_sub(free) * UNIT
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
