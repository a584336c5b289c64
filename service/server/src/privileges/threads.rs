//! The system calls that change what a thread may do, carried out in every thread of the process.
//!
//! Capabilities, the bounding set, `no_new_privs` and the rules of Landlock belong to a thread, and no
//! thread can change those of another. So each thread is sent a signal whose handler makes the calls, as libpsx does,
//! and /proc is read until it shows that no thread is left. Users and groups are changed in the same
//! handler, by the plain system calls: those of the C library change all threads by the same means,
//! but one after the other call, and what must be kept would be lost between them.

#![expect(unsafe_code, reason = "system calls on threads, and a signal handler")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::capability::CapSet;
use super::error::PrivilegeError;
use super::status::{ThreadStatus, own_threads, signal};

/// Longest that a thread may take to run the handler; one that waits for a disk cannot before.
const WITHIN: Duration = Duration::from_secs(30);
/// A thread that has run the handler so often and still is not as wanted was refused something.
const ROUNDS: usize = 3;
/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// User and groups to switch to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Supplementary groups.
    pub(super) groups: Vec<u32>,
}

/// Target state of every thread.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// All others are given up.
    pub(super) keep: CapSet,
    /// `None`: stay who we are.
    pub(super) identity: Option<Identity>,
    /// Descriptor of the rules of Landlock; `None`: files and ports are not limited.
    pub(super) ruleset: Option<RawFd>,
}

/// Order to the signal handler; null: none.
static ORDER: AtomicPtr<Order> = AtomicPtr::new(ptr::null_mut());
/// Times the handler has run to its end.
static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// The first refusal: which call and with which error.
static REFUSED_CALL: AtomicI32 = AtomicI32::new(0);
static REFUSED_ERROR: AtomicI32 = AtomicI32::new(0);
/// One order at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The calls of the handler, by the number under which a refusal is noted.
const CALLS: [&str; 8] = [
    "nothing",
    "setgroups",
    "setresgid",
    "setresuid",
    "capget",
    "capset",
    "prctl(PR_SET_NO_NEW_PRIVS)",
    "landlock_restrict_self",
];

/// Has every thread carry out `order`, until `done` is true of all of them.
///
/// # Errors
/// A privilege that could not be given up, and the thread. Some threads may have changed by then: the
/// process must not go on.
pub(super) fn carry_out(
    order: &Order,
    done: impl Fn(&ThreadStatus) -> bool,
) -> Result<(), PrivilegeError> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    REFUSED_CALL.store(0, Ordering::SeqCst);
    // Never freed: a handler may still look at it. It is small, and there is one in a process's life.
    ORDER.store(Box::into_raw(Box::new(order.clone())), Ordering::SeqCst);
    let signal = signal();
    install(signal, handler()).map_err(PrivilegeError::Signal)?;
    let result = until_all(signal, done);
    ORDER.store(ptr::null_mut(), Ordering::SeqCst);
    // A thread may have been sent one more than it needed: that one must do no harm.
    install(signal, libc::SIG_IGN).map_err(PrivilegeError::Signal)?;
    result
}

/// Signals every thread that is not done, until two complete lists in a row show none.
///
/// Two, because a thread that is not done may start another one after the first list was made. All
/// that are in that list are done when it has been looked at, so whatever they have started before
/// is in the second; and what a thread starts that is done is done too. That each list is complete
/// is checked by the kernel's count of threads.
fn until_all(signal: i32, done: impl Fn(&ThreadStatus) -> bool) -> Result<(), PrivilegeError> {
    let begin = Instant::now();
    let (mut clean, mut rounds) = (0, 0);
    while clean < 2 {
        let threads = own_threads().map_err(PrivilegeError::Proc)?;
        let open = |thread: &&ThreadStatus| !thread.kernel_worker && !done(thread);
        let left: Vec<&ThreadStatus> = threads.iter().filter(open).collect();
        let Some(first) = left.first() else {
            clean += 1;
            continue;
        };
        clean = 0;
        let name = format!("{} ({})", first.name, first.tid);
        if begin.elapsed() >= WITHIN {
            return Err(PrivilegeError::Deaf { thread: name });
        }
        if rounds >= ROUNDS {
            return Err(refusal(name));
        }
        let wanted = HANDLED.load(Ordering::SeqCst) + left.len();
        for thread in &left {
            tell(thread.tid, signal).map_err(PrivilegeError::Signal)?;
        }
        // Fewer may answer: threads end. Then the next list shows it.
        let sent = Instant::now();
        while HANDLED.load(Ordering::SeqCst) < wanted && sent.elapsed() < Duration::from_millis(100)
        {
            std::thread::sleep(Duration::from_micros(200));
        }
        rounds += usize::from(HANDLED.load(Ordering::SeqCst) >= wanted);
    }
    Ok(())
}

fn refusal(thread: String) -> PrivilegeError {
    let call = usize::try_from(REFUSED_CALL.load(Ordering::SeqCst)).unwrap_or(0);
    PrivilegeError::Refused {
        thread,
        call: CALLS.get(call).copied().unwrap_or("nothing"),
        source: io::Error::from_raw_os_error(REFUSED_ERROR.load(Ordering::SeqCst)),
    }
}

fn handler() -> libc::sighandler_t {
    let function: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    function as libc::sighandler_t
}

fn install(signal: i32, handler: libc::sighandler_t) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid sigaction: numbers, and an empty set of signals.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
    // SAFETY: `action` is complete, and what it had before is not asked for.
    match unsafe { libc::sigaction(signal, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to a thread of this process; one that has ended needs none.
fn tell(tid: i32, signal: i32) -> io::Result<()> {
    let own = std::process::id();
    // SAFETY: three numbers; at worst the call fails.
    if unsafe { libc::syscall(libc::SYS_tgkill, own, tid, signal) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(()),
        _ => Err(error),
    }
}

/// Runs in each thread, wherever it happens to be: only system calls and atomics.
extern "C" fn on_signal(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: a pointer to this thread's own errno, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: null, or a box that is never freed.
    if let Some(order) = unsafe { ORDER.load(Ordering::SeqCst).as_ref() } {
        obey(order);
        if order.ruleset.is_some_and(limit) {
            leave_blocked(signal, context);
        }
    }
    HANDLED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above. Whoever was interrupted finds its error again.
    unsafe { *errno = before };
}

fn obey(order: &Order) {
    drop_bounding(order.keep);
    if let Some(identity) = &order.identity {
        // Else the change of user would take away what is to be kept.
        prctl(libc::PR_SET_KEEPCAPS, u64::from(!order.keep.is_empty()), 0);
        become_user(identity);
    }
    prctl(libc::PR_CAP_AMBIENT, 4, 0); // PR_CAP_AMBIENT_CLEAR_ALL; unknown before Linux 4.3.
    restrict(order.keep);
    prctl(libc::PR_SET_KEEPCAPS, 0, 0);
    note(6, prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0));
}

/// True: the rules of Landlock hold for this thread and for those that it starts.
fn limit(ruleset: RawFd) -> bool {
    // SAFETY: numbers only.
    let code = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) };
    note(7, code);
    code == 0
}

/// Has the thread block `signal` when the handler has ended.
fn leave_blocked(signal: i32, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel hands a handler with SA_SIGINFO the state of the thread that it resumes.
    let mask = unsafe { &raw mut (*context).uc_sigmask };
    // SAFETY: a set of signals that lives until the handler ends; the call is safe in handlers.
    unsafe { libc::sigaddset(mask, signal) };
}

/// Needs CAP_SETPCAP. Whether it must have worked is for /proc to say.
fn drop_bounding(keep: CapSet) {
    for bit in 0..64_u64 {
        if keep.0 >> bit & 1 == 0 && prctl(libc::PR_CAPBSET_DROP, bit, 0) != 0 {
            // No right to, or no capability has this number or a higher one.
            return;
        }
    }
}

fn become_user(identity: &Identity) {
    let (uid, gid) = (identity.uid, identity.gid);
    // SAFETY: a pointer to as many groups as the length says.
    note(1, unsafe {
        libc::syscall(
            libc::SYS_setgroups,
            identity.groups.len(),
            identity.groups.as_ptr(),
        )
    });
    // SAFETY: numbers only.
    note(2, unsafe {
        libc::syscall(libc::SYS_setresgid, gid, gid, gid)
    });
    // SAFETY: numbers only.
    note(3, unsafe {
        libc::syscall(libc::SYS_setresuid, uid, uid, uid)
    });
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Permitted and effective become what is to be kept of what was permitted; inheritable nothing.
fn restrict(keep: CapSet) {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 writes two of these structures, to this thread's own memory.
    let code = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    note(4, code);
    if code != 0 {
        return;
    }
    let halves = [keep.0 & 0xffff_ffff, keep.0 >> 32];
    for (data, half) in data.iter_mut().zip(halves) {
        data.permitted &= u32::try_from(half).unwrap_or(0);
        data.effective = data.permitted;
        data.inheritable = 0;
    }
    // SAFETY: version 3 reads two of these structures.
    note(5, unsafe {
        libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr())
    });
}

fn prctl(option: i32, first: u64, second: u64) -> i64 {
    // SAFETY: the options used here take numbers only; unused ones must be 0.
    unsafe { libc::syscall(libc::SYS_prctl, option, first, second, 0_u64, 0_u64) }
}

/// Remembers the first call that was refused.
fn note(call: i32, code: i64) {
    if code == 0 {
        return;
    }
    // SAFETY: a pointer to this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let error = unsafe { *errno };
    let first = REFUSED_CALL.compare_exchange(0, call, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_ok() {
        REFUSED_ERROR.store(error, Ordering::SeqCst);
    }
}
