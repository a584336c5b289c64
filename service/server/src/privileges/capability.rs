//! Capabilities by number and name.

use std::fmt;

/// Names by number, as capability.h has them.
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// A set of capabilities, one bit each, as /proc/PID/status has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSet(pub u64);

impl CapSet {
    /// None at all.
    pub const NONE: Self = Self(0);
    /// May change the bounding set.
    pub const SETPCAP: Self = Self(1 << 8);
    /// May become another user, with other groups.
    pub const CHANGE_USER: Self = Self(1 << 6 | 1 << 7);
    /// Nearly everything.
    pub const SYS_ADMIN: Self = Self(1 << 21);
    /// BPF maps and programs.
    pub const BPF: Self = Self(1 << 39);

    /// Capabilities in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Capabilities in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Capabilities here and not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True: nothing is in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Names, by number; one that is newer than this program is called by its number.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        (0..64_usize)
            .filter(|bit| self.0 >> bit & 1 == 1)
            .map(|bit| {
                NAMES
                    .get(bit)
                    .map_or_else(|| format!("CAP_{bit}"), |name| (*name).to_owned())
            })
            .collect()
    }
}

impl fmt::Display for CapSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&self.names().join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_bits() {
        let set = CapSet::BPF.union(CapSet::SYS_ADMIN).union(CapSet(1 << 60));
        assert_eq!(set.names(), ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_60"]);
        assert_eq!(CapSet::NONE.to_string(), "none");
        assert_eq!(CapSet::SETPCAP.to_string(), "CAP_SETPCAP");
        let expected = CapSet::NONE;
        assert_eq!(set.without(CapSet::BPF).intersection(CapSet::BPF), expected);
    }
}
