//! Places of an emulated disk that can be neither read nor written.

use serde::{Deserialize, Serialize};

use super::LiveError;
use crate::disk::Request;
use crate::drive::SECTOR;

/// Most bad spots of a disk: each request looks at all of them.
pub const MAX_BAD_SPOTS: usize = 1024;

/// A place that answers EIO to every read and write that touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSpot {
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Number of bytes, a multiple of 512.
    pub bytes: u64,
}

impl BadSpot {
    /// A request touches it. A flush, which has no sectors, never does.
    pub(super) fn is_hit_by(&self, request: &Request) -> bool {
        let begin = request.sector * SECTOR;
        let end = begin + u64::from(request.sectors) * SECTOR;
        begin.max(self.offset) < end.min(self.offset + self.bytes)
    }

    fn fits(&self, disk_bytes: u64) -> bool {
        let whole = self.offset.is_multiple_of(SECTOR) && self.bytes.is_multiple_of(SECTOR);
        let end = self.offset.checked_add(self.bytes);
        whole && self.bytes > 0 && end.is_some_and(|end| end <= disk_bytes)
    }
}

/// Looks whether a disk of `disk_bytes` can have these spots.
pub(super) fn check(spots: &[BadSpot], disk_bytes: u64) -> Result<(), LiveError> {
    let wrong = |given, allowed| LiveError::Option {
        option: "--bad-spots",
        given,
        allowed,
    };
    if spots.len() > MAX_BAD_SPOTS {
        let allowed = format!("at most {MAX_BAD_SPOTS}");
        return Err(wrong(format!("{} spots", spots.len()), allowed));
    }
    match spots.iter().find(|spot| !spot.fits(disk_bytes)) {
        None => Ok(()),
        Some(spot) => Err(wrong(
            format!("{}+{}", spot.offset, spot.bytes),
            format!("whole sectors of {SECTOR} bytes within the {disk_bytes} bytes of the disk"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    const SPOT: BadSpot = BadSpot {
        offset: 4096,
        bytes: 1024,
    };

    #[test]
    fn requests_that_touch_a_spot_are_known() {
        for (sector, sectors, hit) in [
            (0, 8, false),
            (0, 9, true),
            (8, 1, true),
            (9, 8, true),
            (10, 8, false),
            (0, 64, true),
            (0, 0, false),
            (9, 0, false),
        ] {
            let request = Request {
                op: Op::Read,
                fua: false,
                sector,
                sectors,
            };
            assert_eq!(SPOT.is_hit_by(&request), hit, "{sector}+{sectors}");
        }
    }

    #[test]
    fn spots_are_whole_sectors_of_the_disk() {
        check(&[SPOT], 5120).unwrap();
        let spots = |offset, bytes| [BadSpot { offset, bytes }];
        for wrong in [
            spots(4096, 1536),
            spots(1, 512),
            spots(0, 511),
            spots(0, 0),
            spots(u64::MAX - 511, 512),
        ] {
            let said = check(&wrong, 5120).unwrap_err().to_string();
            assert!(said.contains("--bad-spots"), "{said}");
        }
        assert!(check(&[SPOT; MAX_BAD_SPOTS + 1], 5120).is_err());
    }
}
