//! The I/O that each thread is in the kernel for: the second way to find the owner of a block
//! request.
//!
//! A thread writes the I/O into its entry of a table that it shares with the kernel side, and takes
//! it out when its system call has returned. The entry is the thread id modulo the table's size. A
//! thread that drives an io_uring only says so: the kernel side then writes the token, from the
//! user data of each entry that the io_uring submits. What kernel workers do in a thread's place
//! has no submission.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use lumpscope_ebpf_common::{SUBMISSIONS, submission};

use crate::api::Flavour;
use crate::btf::{Btf, BtfError, VMLINUX};
use crate::shared_map::SharedMap;
use crate::tracefs;

/// Words of an entry: what [`submission::pack`] makes, and the token.
const ENTRY: usize = 2;
/// Words of the whole table.
pub(crate) const WORDS: usize = SUBMISSIONS as usize * ENTRY;

/// The table, as long as the probes are attached.
#[derive(Debug, Default)]
pub(crate) struct Submissions {
    map: RwLock<Option<SharedMap>>,
    refused: AtomicU64,
}

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

impl Submissions {
    /// From now on, or no longer, the kernel side reads it.
    pub(crate) fn connect(&self, map: Option<SharedMap>) {
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
    }

    /// This thread is about to do this I/O in a system call of its own.
    pub(crate) fn entering(&self, store: usize, token: u64) {
        self.say(store, token, submission::VALID);
    }

    /// This thread is about to hand I/Os to an io_uring.
    pub(crate) fn drives_ring(&self, store: usize) {
        self.say(store, 0, submission::RING);
    }

    /// The system call has returned.
    pub(crate) fn left(&self) {
        let tid = own_tid();
        self.with_entry(tid, |word, _| {
            if word.load(Ordering::Relaxed) & submission::TID == u64::from(tid) {
                word.store(0, Ordering::Release);
            }
        });
    }

    /// Times that an entry was another thread's, which was in the kernel just then; that I/O is not
    /// checked.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn say(&self, store: usize, token: u64, bits: u64) {
        let tid = own_tid();
        let Some(full) = submission::pack(tid, store, bits) else {
            return;
        };
        self.with_entry(tid, |word, token_word| {
            let (mine, order) = (u64::from(tid), Ordering::Acquire);
            let claimed = word.compare_exchange(0, mine, order, Ordering::Relaxed);
            if claimed.is_err_and(|found| found & submission::TID != mine) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Never a token with another I/O's store.
            word.store(mine, Ordering::Release);
            token_word.store(token, Ordering::Release);
            word.store(full, Ordering::Release);
        });
    }

    fn with_entry(&self, tid: u32, act: impl FnOnce(&AtomicU64, &AtomicU64)) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let Some(map) = map.as_ref() else { return };
        let at = usize::try_from(tid % SUBMISSIONS).unwrap_or(0) * ENTRY;
        if let (Some(word), Some(token)) = (map.word(at), map.word(at + 1)) {
            act(word, token);
        }
    }
}

/// Id of this thread in the service's pid namespace, which is the one that the programs use.
fn own_tid() -> u32 {
    TID.with(|known| {
        if known.get() == 0 {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            known.set(u32::try_from(tid).unwrap_or(0));
        }
        known.get()
    })
}

/// Where the program that reads an io_uring's user data is attached, and what it has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingHook {
    pub(crate) tracepoint: &'static str,
    pub(crate) global: (&'static str, u32),
}

/// Since 6.4, and before.
const TRACEPOINTS: [&str; 2] = ["io_uring_submit_req", "io_uring_submit_sqe"];

/// Finds out how this kernel tells what an io_uring submits; an error says why it does not.
pub(crate) fn ring_hook(flavour: Flavour) -> Result<RingHook, String> {
    match flavour {
        Flavour::TpBtf | Flavour::RawTp => {
            let bytes = std::fs::read(VMLINUX).map_err(|error| format!("{VMLINUX}: {error}"))?;
            let btf = Btf::parse(&bytes).map_err(|error| error.to_string())?;
            raw_hook(&btf)
        }
        Flavour::Classic => classic_hook(),
    }
}

fn raw_hook(btf: &Btf<'_>) -> Result<RingHook, String> {
    let found = TRACEPOINTS
        .into_iter()
        .find_map(|name| Some((name, btf.tracepoint_arguments(name).ok()?)));
    let (tracepoint, arguments) = found.ok_or("this kernel does not trace io_uring")?;
    // Up to 5.19 the first of many arguments is the ring.
    if arguments > 2 {
        return Err(format!(
            "tracepoint {tracepoint} has {arguments} arguments on this kernel: the request is not \
             the first"
        ));
    }
    let inner = || -> Result<u32, BtfError> {
        let cqe = btf.member_offset("io_kiocb", "cqe")?;
        Ok(cqe + btf.member_offset("io_cqe", "user_data")?)
    };
    let offset = inner().or_else(|_| btf.member_offset("io_kiocb", "user_data"));
    Ok(RingHook {
        tracepoint,
        global: ("IO_USER_DATA", offset.map_err(|error| error.to_string())?),
    })
}

fn classic_hook() -> Result<RingHook, String> {
    let root = tracefs::find().map_err(|error| error.to_string())?;
    let events = root.join("events/io_uring");
    let found = TRACEPOINTS.into_iter().find_map(|name| {
        let format = std::fs::read_to_string(events.join(name).join("format")).ok()?;
        Some((name, format))
    });
    let (tracepoint, format) = found.ok_or("this kernel does not trace io_uring")?;
    let offset = tracefs::field_offset(&format, tracepoint, "user_data");
    Ok(RingHook {
        tracepoint,
        global: ("TP_USER_DATA", offset.map_err(|error| error.to_string())?),
    })
}

/// Tells that an io_uring hands an I/O to a worker.
pub(crate) const PUNTED: &str = "io_uring_queue_async_work";

/// What the program that counts such I/Os has to be told; an error says why it cannot count.
pub(crate) fn punt_globals(flavour: Flavour) -> Result<Vec<(&'static str, u32)>, String> {
    if flavour == Flavour::Classic {
        let root = tracefs::find().map_err(|error| error.to_string())?;
        let format = root.join("events/io_uring").join(PUNTED).join("format");
        let format = std::fs::read_to_string(format)
            .map_err(|_| "this kernel does not trace io_uring".to_owned())?;
        // Before 5.19 the record does not say what the I/O is.
        let opcode = tracefs::field_offset(&format, PUNTED, "opcode").unwrap_or(0);
        return Ok(vec![("TP_OPCODE", opcode)]);
    }
    let bytes = std::fs::read(VMLINUX).map_err(|error| format!("{VMLINUX}: {error}"))?;
    let btf = Btf::parse(&bytes).map_err(|error| error.to_string())?;
    let told = || -> Result<_, BtfError> {
        let opcode = btf.member_offset("io_kiocb", "opcode")?;
        Ok((btf.tracepoint_arguments(PUNTED)?, opcode))
    };
    let (arguments, opcode) = told().map_err(|error| error.to_string())?;
    // Since 6.0; in 5.19; before.
    let argument = match arguments {
        2 => 0,
        7 => 1,
        5 => 2,
        _ => {
            return Err(format!(
                "tracepoint {PUNTED} has {arguments} arguments on this kernel"
            ));
        }
    };
    Ok(vec![("PUNTED_ARGUMENT", argument), ("IO_OPCODE", opcode)])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::shared_map::Access;

    /// A table, and a second view of it as the kernel side's.
    fn table() -> (Submissions, SharedMap) {
        let memory = memfd_create("submissions", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, WORDS as u64 * 8).expect("its length");
        let view = || SharedMap::new(memory.as_fd(), WORDS, Access::ReadWrite).expect("mapped");
        let table = Submissions::default();
        table.connect(Some(view()));
        (table, view())
    }

    fn own_entry() -> usize {
        usize::try_from(own_tid() % SUBMISSIONS).expect("small") * ENTRY
    }

    #[test]
    fn an_entry_is_there_as_long_as_the_thread_is_in_the_kernel() {
        let (table, kernel) = table();
        let at = own_entry();
        table.entering(3, 77);
        assert_eq!(submission::store_of(kernel.get(at), own_tid()), Some(3));
        assert_eq!(kernel.get(at + 1), 77);
        table.entering(4, 78);
        assert_eq!(submission::store_of(kernel.get(at), own_tid()), Some(4));
        table.left();
        assert_eq!(kernel.get(at), 0);
        table.drives_ring(5);
        assert_eq!(submission::store_of(kernel.get(at), own_tid()), None);
        assert_ne!(kernel.get(at) & submission::RING, 0);
        table.left();
        assert_eq!((kernel.get(at), table.refused()), (0, 0));
    }

    #[test]
    fn an_entry_that_another_thread_holds_is_left_alone_and_counted() {
        let (table, kernel) = table();
        let at = own_entry();
        let other = submission::pack(own_tid() + SUBMISSIONS, 1, submission::VALID);
        kernel.set(at, other.expect("fits"));
        table.entering(3, 77);
        table.left();
        assert_eq!(kernel.get(at), other.expect("fits"));
        assert_eq!(table.refused(), 1);
    }

    #[test]
    fn without_probes_nothing_happens() {
        let (table, kernel) = table();
        table.connect(None);
        table.entering(3, 77);
        assert_eq!(kernel.get(own_entry()), 0);
    }
}
