//! Privileges of this process, and dropping the unneeded ones.
//!
//! [`give_up`] is called when the stores are open and the probes attached, before anything is
//! served. It ends well only when /proc shows that no thread has kept more than [`plan`] says.

mod capability;
mod error;
mod forbidden;
mod plan;
mod reach;
mod status;
mod threads;
mod user;

use std::os::fd::AsRawFd as _;

use tracing::{debug, info, warn};

use threads::{Identity, Order};

pub use capability::CapSet;
pub use error::PrivilegeError;
pub use forbidden::{forbid, names as forbidden};
pub use reach::{Reach, limits_here};
pub use status::{ThreadStatus, own_threads, threads_of};

/// Privileges of a process, of all its threads together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Names of the capabilities that any thread has or may make effective.
    pub capabilities: Vec<String>,
    /// True: no thread can ever gain any.
    pub no_new_privs: bool,
}

/// Privileges of this process. Reads /proc; blocks for less than a millisecond. When /proc cannot
/// be read, `capabilities` says so: nothing is claimed to be dropped.
#[must_use]
pub fn held() -> Privileges {
    match own_threads() {
        Ok(threads) => of(&threads),
        Err(error) => Privileges {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            capabilities: vec![format!("unknown: {error}")],
            no_new_privs: false,
        },
    }
}

/// Privileges of these threads together.
#[must_use]
pub fn of(threads: &[ThreadStatus]) -> Privileges {
    let own = || threads.iter().filter(|thread| !thread.kernel_worker);
    let first = own().next();
    Privileges {
        uid: first.map_or(0, |thread| thread.uids[1]),
        gid: first.map_or(0, |thread| thread.gids[1]),
        capabilities: union_of(threads).names(),
        no_new_privs: own().all(|thread| thread.no_new_privs),
    }
}

/// Gives up what is not needed, in all threads: becomes `user` (`USER[:GROUP]`) when one is given,
/// empties the permitted, effective, inheritable and ambient sets except for what the probes need
/// on this kernel (`observing`: they are attached), the bounding set where CAP_SETPCAP allows it,
/// makes sure that nothing can be gained again, and limits files, ports and sockets to `reach` as
/// far as this kernel can. Blocks for a few milliseconds, at worst 30 seconds. Once in the life of a
/// process: what is out of reach stays so.
///
/// Without privileges there is nothing to give up, and only the last two are done.
///
/// # Errors
/// A user that is not there or cannot be changed to, and every thread that still holds more than it
/// should: the process must end then, for some of its threads may have changed already.
pub fn give_up(
    user: Option<&str>,
    observing: bool,
    reach: &Reach,
) -> Result<Privileges, PrivilegeError> {
    let threads = own_threads().map_err(PrivilegeError::Proc)?;
    let permitted = union(&threads, |thread| thread.permitted);
    let identity = match user {
        Some(given) => change_to(given, &threads, permitted)?,
        None => None,
    };
    let rules = reach.rules();
    let order = Order {
        keep: plan::needed(observing, permitted).intersection(permitted),
        identity,
        ruleset: rules.as_ref().ok().map(|rules| rules.ruleset.as_raw_fd()),
    };
    // Without this capability nobody can change the bounding set.
    let bounding = !union(&threads, |thread| thread.effective)
        .intersection(CapSet::SETPCAP)
        .is_empty();
    let had_none = permitted.is_empty() && order.identity.is_none();
    threads::carry_out(&order, |thread| is_as_wanted(thread, &order, bounding))?;
    match &rules {
        Ok(rules) => info!(
            limits = rules.limits,
            "limited what can be reached (Landlock)"
        ),
        Err(error) => warn!(error, "all files and ports stay within reach"),
    }
    let held = held();
    let kept = order.keep;
    if had_none {
        debug!(uid = held.uid, "there were no privileges to give up");
    } else {
        info!(uid = held.uid, gid = held.gid, %kept, "dropped unneeded privileges");
    }
    Ok(held)
}

/// Keeps the memory of this process from other processes of its user, and from core files. A change
/// of the user undoes it.
///
/// # Errors
/// [`PrivilegeError::Proc`]: the kernel refuses.
pub fn hide() -> Result<(), PrivilegeError> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| PrivilegeError::Proc(errno.into()))
}

/// User and group id of `USER[:GROUP]`.
///
/// # Errors
/// As [`give_up`].
pub fn ids_of(given: &str) -> Result<(u32, u32), PrivilegeError> {
    user::find(given).map(|found| (found.uid, found.gid))
}

/// `None`: that is who we are already.
fn change_to(
    given: &str,
    threads: &[ThreadStatus],
    permitted: CapSet,
) -> Result<Option<Identity>, PrivilegeError> {
    let wanted = user::find(given)?;
    if threads
        .iter()
        .all(|thread| thread.kernel_worker || is(thread, &wanted))
    {
        return Ok(None);
    }
    if permitted.intersection(CapSet::CHANGE_USER) != CapSet::CHANGE_USER {
        return Err(PrivilegeError::NotAllowed {
            given: given.to_owned(),
            uid: rustix::process::geteuid().as_raw(),
        });
    }
    Ok(Some(wanted))
}

/// Capabilities that any of these threads has or may make effective.
#[must_use]
pub fn union_of(threads: &[ThreadStatus]) -> CapSet {
    union(threads, |thread| thread.permitted.union(thread.effective))
}

/// Capabilities of `held` that a service needs on this kernel while it observes.
#[must_use]
pub fn needed_here(held: CapSet) -> CapSet {
    plan::needed(true, held)
}

fn union(threads: &[ThreadStatus], set: impl Fn(&ThreadStatus) -> CapSet) -> CapSet {
    let own = threads.iter().filter(|thread| !thread.kernel_worker);
    own.fold(CapSet::NONE, |all, thread| all.union(set(thread)))
}

fn is(thread: &ThreadStatus, wanted: &Identity) -> bool {
    let mut groups = wanted.groups.clone();
    groups.sort_unstable();
    thread.uids == [wanted.uid; 4] && thread.gids == [wanted.gid; 4] && thread.groups == groups
}

/// Whether a thread has no more than it should, and what it should.
fn is_as_wanted(thread: &ThreadStatus, order: &Order, bounding: bool) -> bool {
    thread.permitted == order.keep
        && thread.effective == order.keep
        && thread.inheritable.is_empty()
        && thread.ambient.is_empty()
        && thread.no_new_privs
        && (order.ruleset.is_none() || thread.limited)
        && (!bounding || thread.bounding.without(order.keep).is_empty())
        && order
            .identity
            .as_ref()
            .is_none_or(|wanted| is(thread, wanted))
}
