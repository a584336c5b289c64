//! Gives memory that is free back to the kernel, and not before it is worth it.
//!
//! The C library gives back at once what is free at the end of its heap, and keeps all else for ever.
//! Both are wrong here. Bodies come in frames of half a MiB, and the kernel would clear their pages
//! anew for each; after a flood the service would hold what the flood has needed. So the library is
//! told to keep everything, and, when much has become free since the last look, to give back the
//! pages that it does not use.

use std::time::Duration;

use crate::telemetry::status_bytes;

/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(5);
/// Free memory that is worth the time: for each GiB it takes some milliseconds.
const MUCH: u64 = 32 << 20;

/// Largest allocation that the library takes from its heap: the most that it can be told.
#[cfg(target_env = "gnu")]
const FROM_HEAP: libc::c_int = 32 << 20;

/// Has the library keep what is freed, so that nobody but [`watch`] gives it back.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's own")]
fn keep() {
    // SAFETY: it takes the locks of the heap itself. What it does not accept stays as it was.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, FROM_HEAP) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX) };
}

#[cfg(not(target_env = "gnu"))]
fn keep() {}

/// Looks for ever.
pub(crate) async fn watch() {
    keep();
    let mut kept = HeapHistory {
        least: resident(),
        gone: 0,
    };
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(resident) = resident() else { return };
        if !kept.has_grown(resident) {
            continue;
        }
        // It takes the locks of the heap, and may take a while.
        let looked = tokio::task::spawn_blocking(move || {
            kept.look(free(), give_back);
            kept
        });
        let Ok(looked) = looked.await else { return };
        kept = looked;
    }
}

/// The state from the looks before.
#[derive(Clone, Copy, Debug, Default)]
struct HeapHistory {
    /// Least memory of the process.
    least: Option<u64>,
    /// Least free memory of the heap since it gave some back: that much is not resident.
    gone: u64,
}

impl HeapHistory {
    /// True: the process is larger than it must be, so a look at its heap may be worth it.
    fn has_grown(&mut self, resident: u64) -> bool {
        let least = self.least.map_or(resident, |least| least.min(resident));
        self.least = Some(least);
        resident - least >= MUCH
    }

    /// Has free memory given back, if there is much that is not given back yet.
    fn look(&mut self, free: u64, give_back: impl FnOnce()) {
        self.gone = self.gone.min(free);
        if free - self.gone >= MUCH {
            give_back();
            self.gone = free;
        }
    }
}

/// Resident memory of this process in bytes; `None`: there is no `/proc`.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status_bytes(&status, "VmRSS:")
}

/// Bytes that the heap has and nobody uses.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's own")]
fn free() -> u64 {
    // SAFETY: it takes the locks of the heap itself, and only reads.
    let heap = unsafe { libc::mallinfo2() };
    heap.fordblks as u64
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's own")]
fn give_back() {
    // SAFETY: it takes the locks of the heap itself, and touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

/// Other libraries give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn free() -> u64 {
    0
}

#[cfg(not(target_env = "gnu"))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_given_back_once_and_again_when_it_was_used() {
        let mut kept = HeapHistory::default();
        let mut looked = |free: u64| {
            let mut gave = false;
            kept.look(free << 20, || gave = true);
            gave
        };
        assert!(!looked(10), "little");
        assert!(looked(200));
        assert!(!looked(200), "it is not resident any more");
        assert!(!looked(20), "it is used again");
        assert!(!looked(40));
        assert!(looked(200));
    }

    /// Pages that the kernel has given this thread.
    #[cfg(target_env = "gnu")]
    fn given() -> u64 {
        let usage = std::fs::read_to_string("/proc/thread-self/stat").expect("of this thread");
        // Behind the name in parentheses: state, six numbers, flags, minor faults.
        let fields = usage.rsplit(')').next().expect("fields");
        let faults = fields.split_whitespace().nth(7);
        faults.expect("minor faults").parse().expect("a number")
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn what_is_freed_is_used_again() {
        keep();
        let frames = || {
            let all: Vec<_> = (0..8).map(|n| vec![n; 1 << 20]).collect();
            std::hint::black_box(all);
        };
        frames();
        let before = given();
        for _ in 0..10 {
            frames();
        }
        let pages = (8 << 20) / 4096;
        assert!(given() - before < pages, "{} pages", given() - before);
    }

    #[test]
    fn a_process_that_has_not_grown_is_left_alone() {
        let mut kept = HeapHistory::default();
        assert!(!kept.has_grown(900 << 20));
        assert!(!kept.has_grown(920 << 20));
        assert!(!kept.has_grown(100 << 20));
        assert!(kept.has_grown(200 << 20));
    }
}
