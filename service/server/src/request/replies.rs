//! Replies that stay in memory as a whole until their clients have received them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lumpscope_engine::Payer;

use super::{Budget, Readers, Reading, Reserved};
use crate::door::Connection;
use crate::refusal::Refusal;

/// Memory for replies. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replies {
    memory: Budget,
    readers: Readers,
    patience: Duration,
}

/// The memory of a reply in flight. A client that does not read the reply loses its connection.
pub(crate) struct ReplyMemory {
    memory: Reserved,
    _reading: Arc<Reading>,
}

/// Bytes, and an owner that lives until the transport has sent them.
struct OwnedBytes<B, O> {
    bytes: B,
    _owner: O,
}

impl<B: AsRef<[u8]>, O> AsRef<[u8]> for OwnedBytes<B, O> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// `bytes`, which keep `owner` until the transport has sent or dropped the last of them.
pub(crate) fn with_owner<B, O>(bytes: B, owner: O) -> Bytes
where
    B: AsRef<[u8]> + Send + 'static,
    O: Send + 'static,
{
    Bytes::from_owner(OwnedBytes {
        bytes,
        _owner: owner,
    })
}

impl ReplyMemory {
    /// Releases the memory beyond `bytes`, the length of the reply.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.memory.shrink(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// `bytes`, which hold the memory until the transport has sent them.
    pub(crate) fn part(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        with_owner(bytes, Arc::clone(self))
    }
}

impl Replies {
    /// A budget of `bytes` for replies. A reply waits at most `patience` for memory.
    pub(crate) fn new(bytes: u64, readers: Readers, patience: Duration) -> Self {
        Self {
            memory: Budget::new(bytes),
            readers,
            patience,
        }
    }

    /// Reserves memory for a reply of at most `bytes`.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`].
    pub(crate) async fn reserve(
        &self,
        payer: Payer,
        connection: Option<&Connection>,
        bytes: u64,
    ) -> Result<Arc<ReplyMemory>, Refusal> {
        let waited = self.patience;
        let memory = self.memory.within(waited, payer, bytes).await;
        Ok(Arc::new(ReplyMemory {
            memory: memory.ok_or(Refusal::NoMemory { waited })?,
            // It is handed over whole, so it is judged by silence alone.
            _reading: self.readers.watch(connection, 0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_takes_no_answer_keeps_its_memory_from_others() {
        let patience = Duration::from_secs(30);
        let replies = Replies::new(64 << 20, Readers::new(patience, 1), patience);
        let payer = Payer::default();
        let kept = replies.reserve(payer, None, 64 << 20).await.unwrap();
        let part = kept.part(Bytes::from_static(b"an answer"));
        drop(kept);
        let next = replies.reserve(payer, None, 64 << 20);
        tokio::pin!(next);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut next).await.is_err());
        drop(part);
        next.await.unwrap();
    }
}
