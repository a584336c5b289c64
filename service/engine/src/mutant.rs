//! Safeguards of runs (FORMAT.md section 8.2), of the judgement of an unsettled batch (8.1) and of lumps in pieces,
//! that a test can take away on its own thread, to see that its checks notice: what is not missed is
//! not tested. Without the feature `mutants` they are always there, and cost nothing.

#[cfg(feature = "mutants")]
use std::cell::Cell;

/// A safeguard that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None is.
    #[default]
    Sound,
    /// Opening does not look at the data of an unsettled batch.
    TrustsData,
    /// Nonces and samples prove nothing: checksums are enough.
    ForgetsNonces,
    /// Blocks are free as soon as the record that frees them is visible.
    ReusesEarly,
    /// Whatever does not fit was torn.
    CutsRot,
    /// Bits of the data of an unsettled batch are not flipped back.
    LeavesRot,
    /// A lump is put while pieces of it are still being written.
    PutsEarly,
    /// A link of another run counts, too.
    ForgetsKeys,
    /// A put of a run counts though a batch before it was lost.
    ForgetsLog,
    /// A put that was not to replace a lump replaces it when it is found in a run.
    ForgetsConditions,
    /// Puts of a run are answered before those that were placed before them are durable.
    LeavesHoles,
    /// A batch leaves out the records of puts that are durable already.
    LeavesRecords,
    /// A put of a run that was given up can be refused while the journal names that run.
    LeavesRun,
    /// Opening closes the run before the records of its puts are written.
    ClosesEarly,
}

#[cfg(feature = "mutants")]
thread_local! {
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::Sound) };
}

/// True: this safeguard is missing on this thread.
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

/// True: this safeguard is missing; none is.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Does the work without a safeguard.
#[cfg(feature = "mutants")]
pub fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    struct Sound;
    impl Drop for Sound {
        fn drop(&mut self) {
            MUTANT.set(Mutant::Sound);
        }
    }
    MUTANT.set(mutant);
    let _sound = Sound;
    work()
}
