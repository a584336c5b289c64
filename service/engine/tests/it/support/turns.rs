//! Turns of tests: a program that a test starts has, for a moment, the open files of all other
//! tests, and so holds their devices and locks. Tests that start programs run alone; tests that
//! have real files open run beside each other, and everything in memory runs at any time.

use std::ops::Deref;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Waits until no other test has real files open or runs programs, and keeps it so.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed leaves nothing behind that concerns the next.
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// A directory on a file system with direct I/O (that of the build), removed on drop. No other
/// test starts a program meanwhile, so locks are free when the test has let go of them. One at a
/// time in a test: a second could wait for a test that waits for the first.
pub struct DiskDir {
    dir: tempfile::TempDir,
    _turn: RwLockReadGuard<'static, ()>,
}

impl DiskDir {
    pub fn new() -> Self {
        let turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new()
            .prefix("lumpscope-")
            .tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR")))
            .unwrap();
        Self { dir, _turn: turn }
    }
}

impl Deref for DiskDir {
    type Target = tempfile::TempDir;

    fn deref(&self) -> &tempfile::TempDir {
        &self.dir
    }
}
