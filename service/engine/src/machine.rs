//! The machine that opens a store: its claim keeps other machines away (FORMAT.md section 4.5).

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use crate::format::claim::{self, Claim};

/// From the write of a claim to the second look at it. Another machine that has read the header
/// block before that write has this long to write its own claim.
const PAUSE: Duration = Duration::from_millis(100);
/// Digits of a machine id; a file with anything else has none yet.
const ID_DIGITS: usize = 32;

/// A machine, as its claims name it.
#[derive(Clone)]
pub struct Machine {
    /// Hash of `/etc/machine-id`, or of another name; 0: there is none, e.g. in a container.
    pub id: u64,
    /// Hash of the boot id of the kernel, which all containers of a machine share; 0: unknown.
    pub boot: u64,
    /// Host name, for the message on another machine.
    pub host: String,
    /// Waits between the write of a claim and the second look at it. A test can change the disk
    /// meanwhile.
    pub pause: Arc<dyn Fn() + Send + Sync>,
}

impl Machine {
    /// The machine that this process runs on.
    #[must_use]
    pub fn this() -> Self {
        let text = |path| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let id = text("/etc/machine-id");
        Self {
            id: if id.len() == ID_DIGITS { hash(&id) } else { 0 },
            boot: hash(&text("/proc/sys/kernel/random/boot_id")),
            host: text("/proc/sys/kernel/hostname"),
            pause: Arc::new(|| std::thread::sleep(PAUSE)),
        }
    }

    /// The machine under a name that stands for its id.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            id: hash(name),
            ..self
        }
    }

    /// The claim in a header block, if another machine has made it.
    pub(crate) fn foreign_claim(&self, block: &[u8]) -> Option<Claim> {
        let is_same = |own: u64, other: u64| own != 0 && own == other;
        claim::decode(block)
            .filter(|it| !is_same(self.id, it.machine) && !is_same(self.boot, it.boot))
    }
}

/// FNV-1a: an id of a machine is not to be shown outside it. 0 of an empty text.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    match text {
        "" => 0,
        _ => text.bytes().fold(0xcbf2_9ce4_8422_2325, step),
    }
}

/// Minute of a time in seconds since 1970, as `2026-02-28 23:59 UTC`; one beyond the year 9999 counts as 0.
pub(crate) fn utc(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, hour, minute) = (at.date(), at.hour(), at.minute());
    format!("{date} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(utc(1_772_323_200), "2026-03-01 00:00 UTC");
        utc(u64::MAX);
    }

    #[test]
    fn this_machine_has_a_boot_and_a_name() {
        let this = Machine::this();
        assert!(this.boot != 0 && !this.host.is_empty());
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
