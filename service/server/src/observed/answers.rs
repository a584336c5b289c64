//! Memory for answers about what was observed, until their clients have taken them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lumpscope_engine::Payer;
use lumpscope_proto::v1::ListSlowestRequest;

use super::asking::{DEFAULT_SLOWEST, MOST_SLOWEST};
use crate::config::ServeConfig;
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::{Bodies, BodyMemory, Readers, Reading};

/// Memory for answers.
pub(crate) const ANSWERS: u64 = 64 << 20;
/// Bytes of an explained request with 64 block requests: in the message, and in its frame.
const EXPLAINED: u64 = 128 << 10;
/// Bytes of an answer in memory and in its frame, for each that it has when it is sent.
pub(crate) const UNPACKED: usize = 8;
/// Bytes of the report of a store: five of these, and its histograms.
const REPORT: u64 = 1 << 20;

/// A question whose answer can be long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// The reports of so many stores.
    Reports(usize),
    /// One request.
    Explain,
    /// The slowest requests, at most so many.
    Slowest(usize),
}

impl Question {
    /// As many of the slowest requests as are asked for.
    pub(crate) fn slowest(asked: &ListSlowestRequest) -> (usize, Self) {
        let limit = match usize::try_from(asked.limit) {
            Ok(0) => DEFAULT_SLOWEST,
            limit => limit.unwrap_or(MOST_SLOWEST).min(MOST_SLOWEST),
        };
        (limit, Self::Slowest(limit))
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Reports(stores) => stores as u64 * REPORT,
            Self::Explain => EXPLAINED,
            Self::Slowest(limit) => limit as u64 * EXPLAINED,
        }
    }
}

/// The memory of all answers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Answers {
    memory: Bodies,
    readers: Readers,
    patience: Duration,
}

/// The memory of an answer on its way to its client, which loses its connection if it does not take
/// the answer.
pub(crate) struct AnswerMemory {
    memory: BodyMemory,
    _reading: Arc<Reading>,
}

/// Bytes of an answer.
struct AnswerBytes {
    bytes: Bytes,
    _kept: Arc<AnswerMemory>,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerMemory {
    /// The answer has so many bytes: the rest is given back.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.memory.shrink(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// These bytes, which hold the memory until the transport has sent them.
    pub(crate) fn part(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(AnswerBytes {
            bytes,
            _kept: Arc::clone(self),
        })
    }
}

impl Answers {
    pub(super) fn new(config: &ServeConfig) -> Self {
        Self {
            memory: Bodies::new(ANSWERS),
            readers: Readers::new(config.body_timeout, config.min_rate.0),
            patience: config.body_timeout,
        }
    }

    /// Waits for the memory of an answer. To be put into the extensions of the reply.
    pub(crate) async fn keep(
        &self,
        payer: Payer,
        connection: Option<&Connection>,
        question: Question,
    ) -> Result<Arc<AnswerMemory>, Refusal> {
        let bytes = question.bytes();
        let all = async {
            let mut memory = self.memory.begin(payer, bytes).await;
            memory.cover(bytes).await;
            memory
        };
        let waited = self.patience;
        let memory = tokio::time::timeout(waited, all).await;
        Ok(Arc::new(AnswerMemory {
            memory: memory.map_err(|_| Refusal::NoMemory { waited })?,
            // It is handed over whole, so it is judged by silence alone.
            _reading: self.readers.watch(connection, 0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_proto::v1;
    use prost::Message as _;

    use super::*;

    /// Bytes of an explained request on the heap, with names as long as a cluster makes them, and of
    /// its frame.
    fn bytes_of(explained: &v1::SlowRequest) -> usize {
        let blocks: usize = explained
            .blocks
            .iter()
            .map(|block| {
                let names = [&block.operation, &block.purpose, &block.previous_owner];
                let others = [&block.process, &block.cgroup, &block.container];
                let names = names
                    .into_iter()
                    .chain(others)
                    .map(String::len)
                    .sum::<usize>();
                let flags = block.flags.iter().map(|f| size_of::<String>() + f.len());
                size_of::<v1::BlockIo>() + names + flags.sum::<usize>()
            })
            .sum();
        let steps: usize = explained
            .steps
            .iter()
            .map(|step| size_of::<v1::Step>() + step.stage.len() + step.text.len())
            .sum();
        size_of::<v1::SlowRequest>() + blocks + steps + explained.encoded_len()
    }

    #[test]
    fn the_longest_answers_fit_into_their_memory() {
        let block = v1::BlockIo {
            operation: "write".to_owned(),
            purpose: "checkpoint".to_owned(),
            sector: u64::MAX,
            sectors: u32::MAX,
            own_bytes: u64::MAX,
            shared: true,
            seek_bytes: Some(i64::MIN),
            previous_owner: format!("other ({}[{}])", "x".repeat(16), i32::MAX),
            queue_ns: u64::MAX,
            device_ns: u64::MAX,
            queued_at_ns: Some(i64::MIN),
            issued_at_ns: Some(i64::MIN),
            done_at_ns: Some(i64::MIN),
            failed: true,
            uncertain: true,
            process: "x".repeat(16),
            pid: u32::MAX,
            cgroup_id: u64::MAX,
            cgroup: "x".repeat(256),
            container: "x".repeat(64),
            flags: ["preflush", "fua", "meta"].map(str::to_owned).to_vec(),
            hardware_queue: Some(u32::MAX),
            ..Default::default()
        };
        let step = v1::Step {
            from_ns: i64::MIN,
            took_ns: u64::MAX,
            stage: "journal".to_owned(),
            text: "x".repeat(160),
        };
        let longest = v1::SlowRequest {
            blocks: vec![block; 64],
            // One for each stage but two, and one for each block request.
            steps: vec![step; 9 + 64],
            sentence: "x".repeat(2048),
            incomplete: "x".repeat(1024),
            ..Default::default()
        };
        let bytes = bytes_of(&longest) as u64;
        assert!(bytes <= EXPLAINED, "{bytes}");
        let sent = longest.encoded_len();
        assert!(bytes <= (sent * UNPACKED) as u64, "{bytes} for {sent}");
        let bytes = Question::Slowest(MOST_SLOWEST).bytes();
        assert!(bytes <= ANSWERS, "{bytes}");
    }

    #[tokio::test]
    async fn who_takes_no_answer_keeps_its_memory_from_others() {
        let answers = Answers::new(&ServeConfig::default());
        let payer = Payer::default();
        let all = Question::Slowest(MOST_SLOWEST);
        let kept = answers.keep(payer, None, all).await.unwrap();
        let part = kept.part(Bytes::from_static(b"an answer"));
        drop(kept);
        let next = answers.keep(payer, None, all);
        tokio::pin!(next);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut next).await.is_err());
        drop(part);
        next.await.unwrap();
    }
}
