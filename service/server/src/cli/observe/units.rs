//! Times and distances as people read them.

use lumpscope_lab::human;
use time::OffsetDateTime;

/// What stands for a number that is not known, or that there is none of.
pub(super) const NONE: &str = "-";

/// `+1.50 GiB`, `-512 B`, `0`; [`NONE`] when it is not known.
pub(super) fn distance(bytes: Option<i64>) -> String {
    match bytes {
        None => NONE.to_owned(),
        Some(0) => "0".to_owned(),
        Some(bytes) => {
            let sign = if bytes < 0 { '-' } else { '+' };
            format!("{sign}{}", human::bytes(bytes.unsigned_abs()))
        }
    }
}

/// `4.56 ms`; [`NONE`] when it was not seen.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), human::duration_ns)
}

/// A moment after another, or before it: `+4.56 ms`, `-12.3 µs`.
pub(super) fn moment(ns: Option<i64>) -> String {
    match ns {
        None => NONE.to_owned(),
        Some(0) => "0".to_owned(),
        Some(ns) => {
            let sign = if ns < 0 { '-' } else { '+' };
            format!("{sign}{}", human::duration_ns(ns.unsigned_abs()))
        }
    }
}

const SECOND: i64 = 1_000_000_000;

/// What is earlier, the end of 1999, comes from a recording and counts from the machine's start.
const RECORDED: i64 = 946_684_800 * SECOND;

/// `14:35:50.123456`, in UTC; of a recording the seconds since the machine's start.
pub(super) fn time_of_day(unix_ns: i64) -> String {
    if (0..RECORDED).contains(&unix_ns) {
        let us = unix_ns % SECOND / 1000;
        return format!("{}.{us:06}", unix_ns / SECOND);
    }
    let at = utc(unix_ns);
    let us = at.microsecond();
    format!(
        "{:02}:{:02}:{:02}.{us:06}",
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// Every time that fits into 64 bits has a date.
fn utc(unix_ns: i64) -> OffsetDateTime {
    let found = OffsetDateTime::from_unix_timestamp_nanos(unix_ns.into());
    found.unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `at 2026-11-21 14:35:50.123456 UTC`; of a recording the time since the machine's start.
pub(in crate::cli) fn date(unix_ns: i64) -> String {
    if (0..RECORDED).contains(&unix_ns) {
        let start = "after the machine's start";
        return format!("{} s {start}", time_of_day(unix_ns));
    }
    let day = utc(unix_ns).date();
    let month = u8::from(day.month());
    format!(
        "at {:04}-{month:02}-{:02} {} UTC",
        day.year(),
        day.day(),
        time_of_day(unix_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_distances_read_well() {
        assert_eq!(distance(Some(-(3 << 30))), "-3.00 GiB");
        assert_eq!(distance(Some(512)), "+512 B");
        assert_eq!(
            (distance(Some(0)), distance(None)),
            ("0".into(), "-".into())
        );
        assert_eq!(moment(Some(-12_300)), "-12.3 µs");
        assert_eq!(time(None), "-");
        let at = 1_795_271_750_123_456_789;
        assert_eq!(date(at), "at 2026-11-21 14:35:50.123456 UTC");
        assert_eq!(date(1_500_000_000), "1.500000 s after the machine's start");
        assert_eq!(
            date(951_782_400 * SECOND),
            "at 2000-02-29 00:00:00.000000 UTC"
        );
        assert_eq!(time_of_day(-1), "23:59:59.999999");
    }
}
