//! Capabilities that the service needs once its stores are open.
//!
//! | what it does then | what that needs |
//! |---|---|
//! | reads, writes and flushes of stores, also by io_uring | nothing: the files are open |
//! | drains the probes' ring, reads the histogram | nothing: they are mapped |
//! | reads and changes BPF maps by their descriptors | CAP_BPF where the kernel asks for it, else nothing |
//! | detaches the probes | nothing: their descriptors are closed |
//! | asks where a file lies (FIEMAP) | nothing: the file is open |
//! | reads /sys/block and /proc/self | nothing: everybody may |
//! | serves on its sockets | nothing: they are bound |
//!
//! The kernel asks for CAP_BPF for every call of bpf(2), also for those on descriptors, where
//! `kernel.unprivileged_bpf_disabled` is not 0 and the kernel is older than 5.19. From then on only
//! new maps and programs need it:
//! <https://git.kernel.org/torvalds/c/c8644cd0efe719608ddcb341bcf087d4bc0bf6b8>.

use super::capability::CapSet;

/// Capabilities to keep, of those held. `observing`: probes are attached.
pub(super) fn needed(observing: bool, permitted: CapSet) -> CapSet {
    let switch = std::fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    let uname = rustix::system::uname();
    let release = release(&uname.release().to_string_lossy());
    match observing && asks_for_bpf(release, switch.ok().as_deref()) {
        false => CapSet::NONE,
        // Kernels before 5.8 do not know CAP_BPF.
        true if permitted.intersection(CapSet::BPF).is_empty() => {
            permitted.intersection(CapSet::SYS_ADMIN)
        }
        true => CapSet::BPF,
    }
}

/// Whether maps need a capability although their descriptors are open. What is not known counts as
/// the worse.
fn asks_for_bpf(release: Option<(u32, u32)>, unprivileged_bpf_disabled: Option<&str>) -> bool {
    let allowed = unprivileged_bpf_disabled.is_some_and(|text| text.trim() == "0");
    !allowed && release.is_none_or(|release| release < (5, 19))
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_need_a_capability_on_older_kernels_that_are_locked() {
        assert_eq!(release("6.1.0-49-amd64"), Some((6, 1)));
        assert_eq!(release("5.10.1"), Some((5, 10)));
        assert_eq!(release("unknown"), None);
        for (release, switch, needs) in [
            (Some((5, 10)), Some("2\n"), true),
            (Some((5, 18)), Some("1\n"), true),
            (Some((5, 18)), Some("0\n"), false),
            (Some((5, 19)), Some("2\n"), false),
            (Some((6, 18)), None, false),
            (Some((5, 10)), None, true),
            (None, Some("1"), true),
        ] {
            let found = asks_for_bpf(release, switch);
            assert_eq!(found, needs, "{release:?} {switch:?}");
        }
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_observed() {
        assert_eq!(needed(false, CapSet(u64::MAX)), CapSet::NONE);
    }
}
