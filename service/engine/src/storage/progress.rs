//! How far the log is known to have come (FORMAT.md section 5.7).
//!
//! A disk that acknowledged a write and lost it leaves older bytes, and older bytes fit: wherever the
//! log once ended, an end with its seal stood. Other places of the image say how far the log went on.

use crate::format::checkpoint::CheckpointHeader;
use crate::format::copies::{CheckedCopy, FoundCopy};
use crate::format::seal::Seal;

/// Durable ends of the log that the checked copies and the checkpoints name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DurableEnds {
    ends: [Option<KnownEnd>; 4],
    /// The ring head is the one that this engine wrote last, so no other engine has moved it.
    head_is_ours: bool,
}

#[derive(Clone, Copy, Debug)]
struct KnownEnd {
    epoch: u64,
    log_end: u64,
    by: &'static str,
}

impl DurableEnds {
    /// `copies`: of the header block and of the journal header block.
    pub(crate) fn of_copies(copies: [FoundCopy; 2]) -> Self {
        let [first, second] = copies.map(|copy| {
            let copy = copy.intact().filter(|copy| copy.seal.epoch != 0)?;
            copy.sums.map(|_| KnownEnd {
                epoch: copy.seal.epoch,
                log_end: copy.seal.log_end,
                by: "the checked copy of the header",
            })
        });
        Self {
            ends: [first, second, None, None],
            head_is_ours: second.is_some(),
        }
    }

    /// Everything before the log end of a checkpoint was durable before its header was written.
    pub(crate) fn add_checkpoint(&mut self, header: &CheckpointHeader) {
        if let Some(free) = self.ends.iter_mut().find(|end| end.is_none()) {
            *free = Some(KnownEnd {
                epoch: header.epoch,
                log_end: header.log_end,
                by: "a checkpoint of the index",
            });
        }
    }

    /// Why the log cannot end where replay has found an end; `None`: it can.
    ///
    /// `head`: the copy that names the ring head. `used`: bytes from there to the end. `seal`: the one
    /// that stands behind the end.
    pub(crate) fn refutes(
        &self,
        head: Option<&CheckedCopy>,
        used: u64,
        seal: Option<Seal>,
    ) -> Option<String> {
        let by_head = head.map(|head| (head.seal.epoch, head.log_head + used));
        let end = match seal {
            Some(seal) => (seal.epoch, seal.log_end),
            // Another engine only ever appends.
            None => by_head.filter(|_| self.head_is_ours)?,
        };
        let ends = self.ends.iter().flatten();
        let further = ends.filter(|known| known.epoch == end.0 && known.log_end > end.1);
        if let Some(known) = further.max_by_key(|known| known.log_end) {
            return Some(format!(
                "the journal ends here at log offset {}, but {} knows that it went on to {}: the \
                 disk has lost a write",
                end.1, known.by, known.log_end
            ));
        }
        let from_head = by_head.filter(|by_head| by_head.0 == end.0 && by_head.1 != end.1)?;
        Some(format!(
            "the seal here says log offset {}, but the records from the ring head on end at {}: the \
             disk has lost a write",
            end.1, from_head.1
        ))
    }
}
