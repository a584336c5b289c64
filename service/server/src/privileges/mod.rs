//! What this process may still do.

mod capability;
mod status;

pub use capability::CapSet;
pub use status::{ThreadStatus, own_threads, threads_of};

/// What a process may do, all its threads together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Names of the capabilities that any thread has or may make effective.
    pub capabilities: Vec<String>,
    /// True: no thread can ever gain any.
    pub no_new_privs: bool,
}

/// What this process may still do. Reads /proc; blocks for less than a millisecond. When /proc
/// cannot be read, that is what `capabilities` says: nothing is claimed to be given up.
#[must_use]
pub fn held() -> Held {
    match own_threads() {
        Ok(threads) => of(&threads),
        Err(error) => Held {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            capabilities: vec![format!("unknown: {error}")],
            no_new_privs: false,
        },
    }
}

/// What these threads may do together.
#[must_use]
pub fn of(threads: &[ThreadStatus]) -> Held {
    let own = || threads.iter().filter(|thread| !thread.kernel_worker);
    let first = own().next();
    Held {
        uid: first.map_or(0, |thread| thread.uid),
        gid: first.map_or(0, |thread| thread.gid),
        capabilities: own()
            .fold(CapSet::NONE, |all, thread| {
                all.union(thread.permitted).union(thread.effective)
            })
            .names(),
        no_new_privs: own().all(|thread| thread.no_new_privs),
    }
}
