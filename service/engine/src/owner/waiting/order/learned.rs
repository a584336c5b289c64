//! Which of the waiting requests costs the disk least, by the [`Curve`] it was learnt to have.
//!
//! The next request is the nearest one up or the nearest one down. Which of the two is told by
//! where they lead: for each side, the mean predicted time of the next one, the next two, and so
//! on up to [`AHEAD`]; the side with the smallest such mean is taken. A single far request does
//! not lure the arm away from many near ones, and an arm that sweeps mostly goes on.
//!
//! Why so few are enough, however many wait: with a curve that does not fall with the distance
//! nobody beyond the nearest of a side can come first at less cost, since the arm passes the
//! nearest on its way; and what lies farther than [`AHEAD`] counts for little in a choice that is
//! made again after every request. Where the curve does fall (on a disk that has just missed a
//! sector and waits a turn for it), this loses at most that fall, once.
//!
//! Requests that many have overtaken count as cheaper, so that the arm comes back for them long
//! before the bound, which it could only keep by going to each of them alone.

use super::curve::Curve;
use crate::owner::pairs::distance;

/// Requests looked at on each side.
pub(crate) const AHEAD: usize = 8;

/// A request that has been overtaken this many times as often as there are requests waiting counts
/// as cheaper by the longest way on the disk.
const PATIENCE: u64 = 8;

/// Where a waiting request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// First byte in the device.
    pub(crate) position: u64,
    /// Bytes, 0 if it is not known.
    pub(crate) len: u64,
    pub(crate) number: u64,
    /// Others that have come since and do not wait any more, at least.
    pub(crate) overtaken: u64,
}

/// The smallest mean of the predicted times of the first one, the first two, and so on, in
/// nanoseconds; `None`: there are none.
fn least_mean(curve: &Curve, head: u64, spots: &[Spot], waiting: u64) -> Option<i64> {
    let patience = PATIENCE.saturating_mul(waiting.max(1));
    let longest = curve.longest_ns();
    let (mut from, mut sum, mut count) = (head, 0_i64, 0);
    let means = spots.iter().map(|spot| {
        let cost = curve.positioning_ns(distance(from, spot.position));
        let credit = longest.saturating_mul(spot.overtaken) / patience;
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        from = spot.position.saturating_add(spot.len);
        sum = sum.saturating_add(signed(cost).saturating_sub(signed(credit)));
        count += 1;
        sum / count
    });
    means.min()
}

/// The number of the request to start: the first of `up` or the first of `down`, which lie on
/// either side of `head`, the nearest first. `None`: there are none, or it makes no difference.
pub(crate) fn choose(
    curve: &Curve,
    head: u64,
    (up, down): (&[Spot], &[Spot]),
    waiting: u64,
) -> Option<u64> {
    if curve.is_flat() {
        return None;
    }
    let of = |spots| least_mean(curve, head, spots, waiting);
    let chosen = match (of(up), of(down)) {
        (Some(up_mean), Some(down_mean)) if down_mean < up_mean => down,
        (None, Some(_)) => down,
        _ => up,
    };
    chosen.first().map(|spot| spot.number)
}

#[cfg(test)]
mod tests;
