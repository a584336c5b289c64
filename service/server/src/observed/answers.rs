//! Sizes of answers about what was observed, which have memory until their clients have taken them.

use lumpscope_proto::v1::ListSlowestRequest;

use super::asking::{DEFAULT_SLOWEST, MOST_SLOWEST};

/// Memory for answers.
pub(crate) const ANSWERS: u64 = 64 << 20;
/// Bytes of an explained request with 64 block requests: in the message, and in its frame.
const EXPLAINED: u64 = 128 << 10;
/// Bytes of an answer in memory and in its frame, for each that it has when it is sent.
pub(crate) const UNPACKED: usize = 8;
/// Bytes of the report of a store: five of these, and its histograms.
const REPORT: u64 = 1 << 20;

/// Most bytes of an answer with the reports of so many stores.
pub(crate) fn bytes_of_reports(stores: usize) -> u64 {
    stores as u64 * REPORT
}

/// Most bytes of an answer with so many explained requests.
pub(crate) fn bytes_of_explained(requests: usize) -> u64 {
    requests as u64 * EXPLAINED
}

/// As many of the slowest requests as are asked for.
pub(crate) fn slowest_limit(asked: &ListSlowestRequest) -> usize {
    match usize::try_from(asked.limit) {
        Ok(0) => DEFAULT_SLOWEST,
        limit => limit.unwrap_or(MOST_SLOWEST).min(MOST_SLOWEST),
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
        let bytes = bytes_of_explained(MOST_SLOWEST);
        assert!(bytes <= ANSWERS, "{bytes}");
    }
}
