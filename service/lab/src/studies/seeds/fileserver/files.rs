//! The files of the file server: which there are, how large they are, and who has one in hand.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Gamma};

use crate::human::as_float;

/// Average size of a file when it is made, in bytes.
pub(super) const MEAN_FILE: u64 = 128 << 10;
/// Average of what is appended.
const MEAN_APPEND: u64 = 16 << 10;
/// Shape of both distributions, as filebench has it.
const SHAPE: f64 = 1.5;
/// No file grows beyond this: one lump, one message.
const LARGEST: usize = 1 << 20;
/// Share of the files that are there before the first run, in percent.
const FILLED_PERCENT: usize = 80;
const SEED: u64 = 0x6669_6c65;

/// A file: the id of its lump, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredFile {
    pub(super) id: u64,
    pub(super) len: usize,
}

/// All files. Whoever takes one has it alone until it is given back.
#[derive(Debug)]
pub(super) struct Files {
    state: Mutex<FilePool>,
}

#[derive(Debug)]
struct FilePool {
    there: Vec<StoredFile>,
    absent: Vec<u64>,
    random: StdRng,
    sizes: Gamma<f64>,
    appends: Gamma<f64>,
}

impl Files {
    /// `count` files, none of which is there yet. `None`: the distributions cannot be made, which
    /// their constants rule out.
    pub(super) fn new(count: usize) -> Option<Files> {
        let gamma = |mean: u64| Gamma::new(SHAPE, as_float(mean) / SHAPE).ok();
        Some(Files {
            state: Mutex::new(FilePool {
                there: Vec::new(),
                absent: (0..count as u64).rev().collect(),
                random: StdRng::seed_from_u64(SEED),
                sizes: gamma(MEAN_FILE)?,
                appends: gamma(MEAN_APPEND)?,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, FilePool> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are to be made before the first run.
    pub(super) fn to_fill(&self) -> usize {
        self.state().absent.len() * FILLED_PERCENT / 100
    }

    /// A file to be made, of a random size; `None`: all are there.
    pub(super) fn take_absent(&self) -> Option<StoredFile> {
        let mut state = self.state();
        let state = &mut *state;
        let id = state.absent.pop()?;
        let len = size(state.sizes.sample(&mut state.random));
        Some(StoredFile { id, len })
    }

    /// A random file that is there; `None`: none is.
    pub(super) fn take(&self) -> Option<StoredFile> {
        let mut state = self.state();
        let count = state.there.len();
        (count > 0).then(|| state.there.swap_remove(fastrand::usize(..count)))
    }

    /// The file after a random length was appended.
    pub(super) fn grown(&self, file: StoredFile) -> StoredFile {
        let mut state = self.state();
        let state = &mut *state;
        let more = size(state.appends.sample(&mut state.random));
        StoredFile {
            len: (file.len + more).min(LARGEST),
            ..file
        }
    }

    /// Gives back a file that is there.
    pub(super) fn give(&self, file: StoredFile) {
        self.state().there.push(file);
    }

    /// Gives back a file that was removed.
    pub(super) fn give_absent(&self, file: StoredFile) {
        self.state().absent.push(file.id);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and cut to the largest file"
)]
fn size(sample: f64) -> usize {
    (sample as usize).clamp(1, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_mean_of_the_model_and_nobody_shares_a_file() {
        let files = Files::new(20_000).expect("constants");
        assert_eq!(files.to_fill(), 16_000);
        let mut total = 0;
        for _ in 0..20_000 {
            let file = files.take_absent().expect("one is left");
            total += file.len;
            files.give(file);
        }
        assert_eq!(files.take_absent(), None);
        let mean = as_float(total as u64) / 20_000.0;
        assert!((mean / as_float(MEAN_FILE) - 1.0).abs() < 0.05, "{mean}");
        let (one, two) = (files.take(), files.take());
        assert_ne!(one, two);
        let one = one.expect("one is there");
        assert!(files.grown(one).len > one.len || one.len == LARGEST);
        files.give_absent(one);
        assert_eq!(files.take_absent().map(|file| file.id), Some(one.id));
    }
}
