//! What the three programs do, whatever the flavour.

use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns};
use lumpscope_ebpf_common::{
    BlockEvent, InFlight, NO_SEEK, class, control, flag, flag2, histogram, op, row, stats,
};

use crate::maker::{classify, doubt_maker, owner, was_merged_away};
use crate::maps::{
    CONTROL, EVENTS, HISTOGRAM, IN_FLIGHT, Key, LAST, ROWS, add, add_sharing, count, counters,
    in_flight,
};
use crate::seek;
use crate::settings::{HAS_START, KEEP, SKIP_DONE};

/// `BPF_RB_NO_WAKEUP`: the reader polls; a wake-up costs more than all the rest.
const NO_WAKEUP: u64 = 1;
const BPF_ANY: u64 = 0;
const BPF_NOEXIST: u64 = 1;
/// The kernel's clock for requests and that for programs may differ by so much.
const CLOCKS_NS: u64 = 10_000;

/// A request as one of the hooks describes it.
#[derive(Clone, Copy)]
pub struct Request {
    pub slot: u32,
    pub dev: u32,
    pub sector: u64,
    pub sectors: u32,
    pub request_flags: u32,
    /// See [`BlockEvent::hardware_queue`]; read when the driver is given it.
    pub hardware_queue: u16,
    /// The cgroup whose pages are written back; 0: not known, or it is no such write.
    pub whose: u64,
    /// See [`InFlight::born`].
    pub born: u64,
    pub op: u8,
    /// FUA, PREFLUSH and META.
    pub flags: u8,
}

/// What a key tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Exactly one request in flight: its address.
    Exact,
    /// A place: several requests in flight may share it.
    Reused,
}

/// What becomes of an entry when its request has completed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It stays, if there is room: its key comes again.
    Keep,
    /// It goes.
    Remove,
}

/// A request was made: remember when and by whom.
///
/// The kernel hands out a request's memory again only after its completion was traced. So what is
/// still remembered under the same address has completed, and no program was shown it.
#[inline(always)]
pub unsafe fn start(key: &Key, request: &Request, keys: Keys) {
    let mut entry = blank(request);
    entry.queue_ns = bpf_ktime_get_ns();
    owner(&mut entry);
    if request.flags & (flag::PREFLUSH | flag::FUA) != 0 {
        if request.sectors == 0 {
            entry.op = op::FLUSH;
            entry.flags |= flag::FLUSH_PARENT;
            entry.sector = 0;
        }
        if let Some(last) = LAST.get_ptr_mut(request.slot) {
            (*last).flush_class = entry.class as u64;
        }
    }
    if keys == Keys::Reused {
        entry.sharing = InFlight::WAITING;
        share(key, request.slot, &entry, |shared| {
            shared.queue_ns = entry.queue_ns;
            shared.flags = entry.flags & !flag::OWN | shared.flags & flag::OWN;
        });
        return;
    }
    let old = IN_FLIGHT.get_ptr_mut(*key);
    if let Some(old) = old {
        let completes = (*old).completes();
        sequence_ended(&mut *old);
        if completes {
            found_late(&mut *old, entry.queue_ns);
        }
    }
    if !remember(key, &mut entry, old) {
        count(request.slot, stats::IN_FLIGHT_FULL, 1);
    }
}

/// Remembers a request under a key that others may have. `speak`: what of it an entry of theirs takes.
#[inline(always)]
unsafe fn share(key: &Key, slot: u32, entry: &InFlight, speak: impl Fn(&mut InFlight)) {
    if IN_FLIGHT.insert(*key, *entry, BPF_NOEXIST).is_ok() {
        return;
    }
    if let Some(shared) = IN_FLIGHT.get_ptr_mut(*key) {
        let shared = &mut *shared;
        if was_merged_away(shared, entry.queue_ns) {
            let _ = IN_FLIGHT.insert(*key, *entry, BPF_ANY);
            return;
        }
        add_sharing(shared, entry.sharing);
        // Where the last that shared it is just going, this stays if it came in time.
        let mut tries = 0;
        while core::ptr::read_volatile(&shared.sharing) >= InFlight::LEAVING && tries < 8 {
            let there = IN_FLIGHT.get_ptr_mut(*key);
            if !there.is_some_and(|there| core::ptr::eq(there, shared)) {
                tries = 8;
            }
            tries += 1;
        }
        if tries < 8 {
            shared.shared = 1;
            doubt_maker(shared, entry);
            speak(shared);
            return;
        }
    }
    if IN_FLIGHT.insert(*key, *entry, BPF_NOEXIST).is_err() {
        count(slot, stats::IN_FLIGHT_FULL, 1);
    }
}

/// The memory of a request is used again, so whatever wrapped it has ended.
#[inline(always)]
unsafe fn sequence_ended(old: &mut InFlight) {
    if old.flags2 & flag2::SEQUENCE != 0 {
        old.flags2 &= !flag2::SEQUENCE;
        count(old.slot as u32, stats::SEQUENCE_ENDS, 1);
    }
}

/// A request that was known by its bio until now is known by itself from now on.
///
/// Before 6.5 the kernel shows the bio that a request will be made of, not the request. What is
/// remembered under the bio's address may be of one before in the same memory, which was merged
/// into a request: only that of this request was made after the request itself.
#[inline(always)]
pub unsafe fn adopt(bio: &Key, key: &Key, request: &Request, born: u64) -> bool {
    let Some(entry) = in_flight(bio) else {
        return false;
    };
    let mut entry = *entry;
    let within = entry.sector.wrapping_sub(request.sector) < request.sectors as u64;
    let of_now = entry.queue_ns.wrapping_add(CLOCKS_NS) >= born;
    if entry.op != request.op || entry.issue_ns != 0 || !within || !of_now {
        return false;
    }
    let old = IN_FLIGHT.get_ptr_mut(*key);
    if let Some(old) = old {
        sequence_ended(&mut *old);
        if (*old).completes() {
            found_late(&mut *old, entry.queue_ns);
        }
    }
    if !remember(key, &mut entry, old) {
        count(request.slot, stats::IN_FLIGHT_FULL, 1);
    }
    let _ = IN_FLIGHT.remove(*bio);
    true
}

/// A bio was given to a disk that makes no requests: to us it is queued and sent at once.
#[inline(always)]
pub unsafe fn bio_queued(key: &Key, request: &Request, keys: Keys) {
    let mut entry = blank(request);
    entry.queue_ns = bpf_ktime_get_ns();
    entry.issue_ns = entry.queue_ns;
    owner(&mut entry);
    if request.flags & flag::PREFLUSH != 0 && request.sectors == 0 {
        entry.op = op::FLUSH;
        entry.sector = 0;
    }
    entry.seek = seek::of(&entry);
    if keys == Keys::Reused {
        entry.sharing = InFlight::SENT;
        share(key, request.slot, &entry, |shared| {
            (shared.queue_ns, shared.issue_ns) = (entry.queue_ns, entry.issue_ns);
            (shared.sectors, shared.seek) = (entry.sectors, entry.seek);
        });
        return;
    }
    let old = IN_FLIGHT.get_ptr_mut(*key);
    if let Some(old) = old
        && (*old).completes()
    {
        found_late(&mut *old, entry.queue_ns);
    }
    if !remember(key, &mut entry, old) {
        count(request.slot, stats::IN_FLIGHT_FULL, 1);
    }
}

/// A bio has ended. One that is not remembered is a part of another, which ends itself.
#[inline(always)]
pub unsafe fn bio_done(key: &Key, error: i32, error_flag: u8, refused: bool) {
    let Some(entry) = in_flight(key) else {
        return;
    };
    if !refused {
        let bytes = (*entry).sectors << 9;
        if (*entry).flags & flag::PREFLUSH != 0 {
            count((*entry).slot as u32, stats::WRAPPED, bytes as u64);
        }
        done(key, bytes, error, error_flag, After::Remove, || 0);
        return;
    }
    // It would have had to wait, and whoever gave it did not want to: it comes again. The disk
    // was sent nothing.
    seek::take_back(&*entry);
    one_ended(key, &mut *entry);
}

/// A request is given to the driver. Merges may have changed its place and length.
#[inline(always)]
pub unsafe fn issue(key: &Key, request: &Request, keys: Keys) {
    let now = bpf_ktime_get_ns();
    let old = IN_FLIGHT.get_ptr_mut(*key);
    if let Some(entry) = old
        && !(*entry).is_free()
    {
        let made = keys == Keys::Reused || (*entry).born == request.born;
        let same = (*entry).op == request.op && made;
        if same && keys == Keys::Reused && request.op == op::FLUSH {
            // Sent again, or another flush: the records do not tell. User space knows how many
            // have completed.
            (*entry).issue_ns = now;
            add_sharing(&mut *entry, InFlight::SENT);
            return;
        }
        let waits = keys == Keys::Reused && (*entry).waiting() > 0;
        if same && (*entry).issue_ns != 0 && !waits {
            (*entry).flags |= flag::REISSUED;
            count((*entry).slot as u32, stats::REISSUES, 1);
            return;
        }
        if same || ((*entry).op == request.op && (*entry).issue_ns == 0) {
            let grown = (*entry).sectors != request.sectors || (*entry).sector != request.sector;
            if grown && (*entry).shared == 0 && (*entry).queue_ns != 0 && request.op <= op::WRITE {
                (*entry).flags2 |= flag2::MERGED;
            }
            // What the block layer does by flushes it no longer asks of the driver.
            let ordered = (*entry).flags & (flag::FUA | flag::PREFLUSH);
            if ordered & !request.flags != 0 && request.sectors != 0 {
                (*entry).flags2 |= flag2::WRAPPED;
            }
            if waits {
                add_sharing(&mut *entry, InFlight::SENT - InFlight::WAITING);
            }
            (*entry).issue_ns = now;
            (*entry).request_flags = request.request_flags;
            (*entry).hardware_queue = request.hardware_queue;
            (*entry).sector = request.sector;
            (*entry).sectors = request.sectors;
            (*entry).seek = seek::of(&*entry);
            return;
        }
        if keys == Keys::Exact && (*entry).completes() {
            found_late(&mut *entry, now);
        }
    }
    let mut entry = blank(request);
    entry.issue_ns = now;
    entry.born = request.born;
    entry.seek = seek::of(&entry);
    entry.flags |= flag::NO_START;
    entry.class = class::OTHER;
    if request.op == op::FLUSH {
        // The block layer makes these itself, in no particular context.
        entry.sector = 0;
        entry.sectors = 0;
        if let Some(last) = LAST.get(request.slot) {
            entry.class = last.flush_class as u8;
        }
    } else if HAS_START.load() == 0 {
        // Nothing is known of who made it, but what it says of itself.
        entry.class = classify(&entry, false);
    }
    // A request counts once: what is not remembered now has its completion counted, and what did
    // not fit when it was made was counted then.
    let fits = if keys == Keys::Reused {
        entry.sharing = InFlight::SENT;
        IN_FLIGHT.insert(*key, entry, BPF_ANY).is_ok()
    } else {
        remember(key, &mut entry, old)
    };
    if fits && request.op != op::FLUSH && HAS_START.load() != 0 {
        count(request.slot, stats::ISSUE_WITHOUT_START, 1);
    }
    if !fits && request.op == op::FLUSH {
        count(request.slot, stats::IN_FLIGHT_FULL, 1);
    }
}

/// A request, or a part of it, has completed. `left`: its bytes that had not completed before this.
#[inline(always)]
pub unsafe fn done(
    key: &Key,
    bytes: u32,
    error: i32,
    error_flag: u8,
    after: After,
    left: impl FnOnce() -> u32,
) -> bool {
    let now = bpf_ktime_get_ns();
    let Some(entry) = in_flight(key) else {
        return false;
    };
    let slot = (*entry).slot as u32;
    if (*entry).flags2 & flag2::SEQUENCE != 0 {
        sequence_ended(&mut *entry);
        leave(key, &mut *entry, after);
        return true;
    }
    if error != 0 {
        count(slot, stats::ERRORS, 1);
        (*entry).flags |= error_flag;
    }
    let whole = ((*entry).sectors as u64) << 9;
    let bytes_done = (*entry).bytes_done.wrapping_add(bytes);
    if after == After::Remove {
        if error == 0 && (bytes_done as u64) < whole && (*entry).shared == 0 {
            // From now on it begins behind this part.
            count(slot, stats::PARTIAL, 1);
            (*entry).bytes_done = bytes_done;
            let rest = *entry;
            let _ = IN_FLIGHT.remove(*key);
            let sector = key.sector.wrapping_add((bytes >> 9) as u64);
            let _ = IN_FLIGHT.insert(Key { id: key.id, sector }, rest, BPF_ANY);
            return true;
        }
        // Several may share the key, at one time on several processors: what is told is a copy. One of
        // them has ended, not a part of the last; others are still in flight, as far as was seen.
        let mut ended = *entry;
        if error == 0 && ended.bytes_done == 0 {
            ended.sectors = bytes >> 9;
        }
        ended.bytes_done = bytes_done;
        if error == 0 && ended.born != 0 && ended.op == op::WRITE {
            count(slot, stats::SEQUENCE_ENDS, ended.born);
            (*entry).born = 0;
        }
        if ended.queue_ns > ended.issue_ns && ended.issue_ns != 0 {
            // Of one that was made after this was sent.
            ended.queue_ns = ended.issue_ns;
        }
        one_ended(key, &mut *entry);
        finish(&ended, now, error);
        return true;
    }
    if error != 0 || (bytes_done as u64) < whole {
        // SCSI ends a failed request in parts: first what could be read, which may be nothing.
        let left = left();
        if bytes < left {
            count(slot, stats::PARTIAL, 1);
            (*entry).bytes_done = bytes_done;
            return true;
        }
        if bytes == 0 && error == 0 && whole != 0 {
            // The second completion of a write that was wrapped in flushes: the first was not shown.
            found_late(&mut *entry, now);
            leave(key, &mut *entry, after);
            return true;
        }
    }
    (*entry).bytes_done = bytes_done;
    finish(&*entry, now, error);
    if (*entry).flags2 & flag2::WRAPPED != 0 {
        (*entry).issue_ns = 0;
        (*entry).flags = 0;
        (*entry).flags2 = (*entry).flags2 & flag2::KEPT | flag2::SEQUENCE;
        return true;
    }
    leave(key, &mut *entry, after);
    true
}

/// A record without a byte names the first sector of a request that was sent and has not completed:
/// SCSI says so of a request that is about to fail, the block layer of a sequence of flushes that ended
/// there. The request's own end tells.
#[inline(always)]
pub unsafe fn nothing_done(key: &Key) -> bool {
    let Some(entry) = in_flight(key).filter(|entry| (**entry).issue_ns != 0) else {
        return false;
    };
    (*entry).born += 1;
    true
}

/// One of the requests that share an entry has completed; the entry goes with the last.
#[inline(always)]
unsafe fn one_ended(key: &Key, entry: &mut InFlight) {
    if entry.sent() > 0 {
        add_sharing(entry, InFlight::SENT.wrapping_neg());
    } else if entry.waiting() > 0 {
        add_sharing(entry, InFlight::WAITING.wrapping_neg());
    }
    // Volatile: another processor may add meanwhile.
    let left = core::ptr::read_volatile(&entry.sharing);
    if left >= InFlight::SENT {
        return;
    }
    // Only where it changes something: another processor may be changing the maker's flags.
    if entry.flags & flag::REISSUED != 0 {
        entry.flags &= !flag::REISSUED;
    }
    if entry.flags2 & (flag2::MERGED | flag2::WRAPPED) != 0 {
        entry.flags2 &= !(flag2::MERGED | flag2::WRAPPED);
    }
    (entry.issue_ns, entry.seek) = (0, NO_SEEK);
    if left != 0 {
        return;
    }
    add_sharing(entry, InFlight::LEAVING);
    if core::ptr::read_volatile(&entry.sharing) % InFlight::LEAVING != 0 {
        add_sharing(entry, InFlight::LEAVING.wrapping_neg());
        return;
    }
    leave(key, entry, After::Remove);
}

/// The request of an entry has completed.
///
/// The kernel uses the memory of the same few requests again and again. An entry that stays until
/// then costs a store now and none of the table's locks and lists, neither now nor at the start of
/// the next request.
#[inline(always)]
unsafe fn leave(key: &Key, entry: &mut InFlight, after: After) {
    // The table may refuse a removal; what stays must not look as if it had never completed.
    entry.issue_ns = 0;
    entry.flags = 0;
    if after == After::Keep && (entry.flags2 & flag2::KEPT != 0 || may_keep()) {
        entry.flags2 = flag2::KEPT | flag2::FREE;
        return;
    }
    let _ = IN_FLIGHT.remove(*key);
}

/// Whether one more entry may stay; if so, it is counted.
#[inline(always)]
unsafe fn may_keep() -> bool {
    let Some(control) = CONTROL.get_ptr_mut(0) else {
        return false;
    };
    let kept = control.cast::<u64>().add(control::KEPT);
    // On two processors at once one too many may stay: it is a bound, not a promise.
    if kept.read_volatile() >= KEEP.load() as u64 {
        return false;
    }
    add(kept, 1);
    true
}

/// For tests: whether this completion is to be overlooked.
#[inline(always)]
pub unsafe fn overlooks() -> bool {
    let one_in = SKIP_DONE.load();
    one_in != 0 && bpf_get_prandom_u32() % one_in == 0
}

/// Counts a request that has completed although no program was shown it.
#[inline(always)]
unsafe fn found_late(entry: &mut InFlight, now: u64) {
    entry.flags2 |= flag2::DONE_UNKNOWN;
    entry.bytes_done = entry.sectors << 9;
    finish(entry, now, 0);
}

/// A completion of a request that is not remembered.
#[inline(always)]
pub unsafe fn done_unknown(request: &Request, bytes: u32, error: i32, error_flag: u8) {
    let mut entry = blank(request);
    if bytes == 0 && request.op == op::WRITE {
        if HAS_START.load() != 0 || request.sector != 0 {
            // The block layer wrapped a write in flushes: its data part completed before.
            count(request.slot, stats::SEQUENCE_ENDS, 1);
            return;
        }
        // The sector of a write with data has moved on to its end: this one had none.
        entry.op = op::FLUSH;
        entry.flags |= flag::FLUSH_PARENT;
    } else {
        count(request.slot, stats::DONE_WITHOUT_START, 1);
    }
    entry.flags |= flag::NO_START;
    entry.class = class::OTHER;
    entry.bytes_done = bytes;
    entry.sectors = bytes >> 9;
    if request.op == op::FLUSH {
        entry.sector = 0;
    }
    if error != 0 {
        count(request.slot, stats::ERRORS, 1);
        entry.flags |= error_flag;
    }
    finish(&entry, bpf_ktime_get_ns(), error);
}

/// Counts a completed request and offers its event to the ring.
#[inline(always)]
unsafe fn finish(entry: &InFlight, now: u64, error: i32) {
    let slot = entry.slot as u32;
    // Volatile: the compiler knows the range and would drop the check that the verifier needs.
    // The mask is for verifiers before 6.2: they follow it where they lose a comparison.
    let op = core::ptr::read_volatile(&entry.op) & 7;
    let op = if op < op::OTHER { op } else { op::OTHER };
    let late = entry.flags2 & flag2::DONE_UNKNOWN != 0;
    // A disk that is watched has its slot.
    let Some(counters) = counters(slot) else {
        return;
    };
    if entry.flags & flag::FLUSH_PARENT != 0 {
        add(counters.add(stats::FLUSH_PARENTS), 1);
    } else {
        let bytes = entry.bytes_done as u64;
        add(counters.add(stats::SEEN_REQUESTS + op as usize), 1);
        add(counters.add(stats::SEEN_BYTES + op as usize), bytes);
        if !late {
            if entry.flags2 & flag2::WRAPPED != 0 {
                add(counters.add(stats::WRAPPED), 1);
            }
            let device_ns = if entry.issue_ns == 0 {
                add(counters.add(stats::UNSENT), 1);
                0
            } else {
                now.wrapping_sub(entry.issue_ns)
            };
            let cell = histogram::cell(slot, op, entry.class, entry.seek, device_ns);
            if let Some(cell) = HISTOGRAM.get_ptr_mut(cell) {
                add(cell, 1);
            }
            if let Some(words) = ROWS.get_ptr_mut(row::row(slot, op, entry.class)) {
                measure(words.cast::<u64>(), entry, device_ns);
            }
            if device_ns != 0 {
                measure_flagged(slot, entry.request_flags, device_ns);
            }
        }
    }
    if late {
        add(counters.add(stats::FOUND_LATE), 1);
    }
    if !wanted(entry, now) {
        add(counters.add(stats::NOT_SAMPLED), 1);
        untold(counters, entry, op);
        return;
    }
    add(counters.add(stats::EVENTS), 1);
    let Some(mut event) = EVENTS.reserve::<BlockEvent>(0) else {
        add(counters.add(stats::RING_LOST), 1);
        untold(counters, entry, op);
        return;
    };
    event.write(BlockEvent {
        queue_ns: entry.queue_ns,
        issue_ns: entry.issue_ns,
        done_ns: now,
        sector: entry.sector,
        seek: entry.seek,
        token: entry.token,
        cgroup: entry.cgroup,
        sectors: entry.sectors,
        bytes_done: entry.bytes_done,
        dev: entry.dev,
        tgid: entry.tgid,
        tid: entry.tid,
        error,
        request_flags: entry.request_flags,
        store: entry.store,
        hardware_queue: entry.hardware_queue as u32,
        op,
        class: entry.class,
        flags: entry.flags,
        flags2: entry.flags2 & !flag2::OF_ENTRY,
        comm: entry.comm,
    });
    event.submit(NO_WAKEUP);
}

/// Adds a completed request to the row of its operation and class.
#[inline(always)]
unsafe fn measure(words: *mut u64, entry: &InFlight, device_ns: u64) {
    // Volatile and masked: see the operation in `finish`.
    let at = |first: usize, bucket: u32, mask: usize| {
        let bucket = core::ptr::read_volatile(&bucket) as usize & mask;
        words.add(first + bucket)
    };
    let seek = histogram::seek_bucket(entry.seek);
    if device_ns != 0 {
        // To add nothing the compiler would use an operation that kernels before 5.12 do not know.
        add(at(row::DEVICE_NS, seek, 127), device_ns);
    }
    add(words.add(row::SECTORS), entry.sectors as u64);
    add(at(row::SIZE, row::size_bucket(entry.sectors), 31), 1);
    if entry.seek != NO_SEEK {
        add(words.add(row::TRAVEL), entry.seek.unsigned_abs());
    }
    if entry.queue_ns != 0 && entry.issue_ns > entry.queue_ns {
        let queue_ns = entry.issue_ns - entry.queue_ns;
        add(words.add(row::QUEUE_NS), queue_ns);
        add(at(row::QUEUE, histogram::time_bucket(queue_ns), 31), 1);
    }
}

/// Adds the time of a completed request at the device to the row of each flag that it has.
#[inline(always)]
unsafe fn measure_flagged(slot: u32, request_flags: u32, device_ns: u64) {
    let [fua, meta, ahead] = row::FLAGS;
    if request_flags & (fua.0 | meta.0 | ahead.0) == 0 {
        return;
    }
    let bucket = histogram::time_bucket(device_ns);
    let mut flag = 0;
    while flag < row::FLAGS.len() {
        if request_flags & row::FLAGS[flag].0 != 0
            && let Some(words) = ROWS.get_ptr_mut(row::flagged(slot, flag as u32))
        {
            let words = words.cast::<u64>();
            add(words.add(row::QUEUE_NS), device_ns);
            // Volatile and masked: see the operation in `finish`.
            let bucket = core::ptr::read_volatile(&bucket) as usize & 31;
            add(words.add(row::QUEUE + bucket), 1);
        }
        flag += 1;
    }
}

/// Counts a request that user space is not told of.
#[inline(always)]
unsafe fn untold(counters: *mut u64, entry: &InFlight, op: u8) {
    if entry.flags & flag::FLUSH_PARENT != 0 {
        return;
    }
    let bytes = entry.bytes_done as u64;
    add(counters.add(stats::UNTOLD_REQUESTS + op as usize), 1);
    add(counters.add(stats::UNTOLD_BYTES + op as usize), bytes);
    if op > op::WRITE {
        return;
    }
    if entry.class == class::OWN {
        add(counters.add(stats::UNTOLD_OWN_BYTES), bytes);
    }
    if entry.seek != NO_SEEK {
        add(counters.add(stats::UNTOLD_PLACED), 1);
        if entry.seek == 0 {
            add(counters.add(stats::UNTOLD_SEQUENTIAL), 1);
        } else {
            let travel = entry.seek.unsigned_abs();
            add(counters.add(stats::UNTOLD_TRAVEL), travel);
        }
    }
}

/// Whether the event policy asks for the event of a request that ends now.
#[inline(always)]
unsafe fn wanted(entry: &InFlight, now: u64) -> bool {
    let Some(policy) = CONTROL.get_ptr(0) else {
        return true;
    };
    let policy = policy.cast::<u64>();
    let one_in = policy.add(control::ONE_IN).read_volatile() as u32;
    if one_in == 1 || (one_in > 1 && bpf_get_prandom_u32() % one_in == 0) {
        return true;
    }
    let slower_than = policy.add(control::SLOWER_THAN_NS).read_volatile();
    let begin = if entry.queue_ns != 0 {
        entry.queue_ns
    } else {
        entry.issue_ns
    };
    slower_than != 0 && begin != 0 && now.wrapping_sub(begin) >= slower_than
}

/// Remembers the one request that has this memory now. `old`: what is remembered under its key, free
/// entries too. False: the table is full.
#[inline(always)]
unsafe fn remember(key: &Key, entry: &mut InFlight, old: Option<*mut InFlight>) -> bool {
    if let Some(old) = old {
        entry.flags2 |= (*old).flags2 & flag2::KEPT;
        *old = *entry;
        return true;
    }
    IN_FLIGHT.insert(*key, *entry, BPF_ANY).is_ok()
}

#[inline(always)]
fn blank(request: &Request) -> InFlight {
    InFlight {
        queue_ns: 0,
        issue_ns: 0,
        sector: request.sector,
        seek: NO_SEEK,
        token: 0,
        cgroup: request.whose,
        born: 0,
        sectors: request.sectors,
        bytes_done: 0,
        slot: request.slot as u8,
        shared: 0,
        hardware_queue: request.hardware_queue,
        dev: request.dev,
        tgid: 0,
        tid: 0,
        request_flags: request.request_flags,
        store: 0,
        sharing: 0,
        op: request.op,
        class: class::OTHER,
        flags: request.flags,
        flags2: 0,
        comm: [0; 16],
    }
}
