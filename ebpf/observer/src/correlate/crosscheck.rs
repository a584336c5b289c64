//! Two ways to find the owner of a block request, held against each other.
//!
//! By place: the declared I/Os whose sectors it covers. By submission: the I/O that the thread or
//! the io_uring entry was at when the block request was made. The place decides, because it also
//! holds for merged requests and for what kernel workers make; among several I/Os of one place the
//! submission does. Where it names another I/O, that is counted as a conflict.

use lumpscope_units::human::counted;

use crate::event::{Class, Event, Submission};
use crate::report::AuditReport;

/// How often the two agreed on one disk.
#[derive(Debug, Default)]
pub(super) struct CrossCheck {
    agreements: u64,
    conflicts: u64,
    unknown: u64,
    /// Block requests of which the owner is not certain.
    pub(super) ambiguous: u64,
    /// The first conflict, in words.
    example: Option<String>,
}

impl CrossCheck {
    /// Counts a block request of ours. `by_place`: the I/Os that its place names.
    pub(super) fn add(&mut self, event: &Event, by_place: impl Iterator<Item = Submission>) {
        let mut by_place = by_place.peekable();
        if event.class != Class::Own && by_place.peek().is_none() {
            // A file system's own, perhaps made in the name of a thread of ours.
            return;
        }
        let Some(named) = event.submission else {
            self.unknown += 1;
            return;
        };
        let first = by_place.peek().copied();
        if by_place.any(|io| io == named) {
            self.agreements += 1;
            return;
        }
        self.conflicts += 1;
        self.example
            .get_or_insert_with(|| in_words(event, named, first));
    }

    /// Adds the counts to an audit, and a conflict to what it found.
    pub(super) fn tell(&self, audit: &mut AuditReport) {
        audit.agreements = self.agreements;
        audit.conflicts = self.conflicts;
        audit.submission_unknown = self.unknown;
        audit.ambiguous = self.ambiguous;
        if self.ambiguous > 0 {
            audit.finding += &format!(
                "; the owner of {} is not certain",
                counted(self.ambiguous, "block request")
            );
        }
        if let Some(example) = &self.example {
            let many = counted(self.conflicts, "time");
            audit.finding += &format!("; place and submission disagree {many}: {example}");
        }
    }
}

fn in_words(event: &Event, named: Submission, first: Option<Submission>) -> String {
    let name = |io: Submission| format!("I/O {} of store {}", io.token, io.store);
    let place = first.map_or_else(|| "no declared I/O".to_owned(), name);
    format!(
        "a {} of {} sectors at sector {} was submitted for {}, its place is that of {place}",
        event.op.name(),
        event.sectors,
        event.sector,
        name(named)
    )
}
