//! Dates and times of day, in UTC.
//!
//! Recordings made without a wall clock count from the machine's start. Such a time lies before
//! the year 2000 and is printed as seconds.

use time::OffsetDateTime;

const SECOND: i64 = 1_000_000_000;

/// The end of 1999 in Unix time: anything earlier counts from the machine's start.
const RECORDED: i64 = 946_684_800 * SECOND;

/// `14:35:50.123456`; in a recording, seconds since the machine's start: `1.500000`.
#[must_use]
pub fn time_of_day(unix_ns: i64) -> String {
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

/// `at 2026-11-21 14:35:50.123456 UTC`; in a recording `1.500000 s after the machine's start`.
#[must_use]
pub fn date(unix_ns: i64) -> String {
    if (0..RECORDED).contains(&unix_ns) {
        let start = "after the machine's start";
        return format!("{} s {start}", time_of_day(unix_ns));
    }
    format!("at {} {} UTC", day(utc(unix_ns)), time_of_day(unix_ns))
}

/// `2026-11-21 20:58 UTC`; `None` beyond the year 9999.
#[must_use]
pub fn minute(unix_seconds: u64) -> Option<String> {
    let seconds = i64::try_from(unix_seconds).ok()?;
    let at = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    Some(format!(
        "{} {:02}:{:02} UTC",
        day(at),
        at.hour(),
        at.minute()
    ))
}

fn day(at: OffsetDateTime) -> String {
    let month = u8::from(at.month());
    format!("{:04}-{month:02}-{:02}", at.year(), at.day())
}

/// Every 64-bit count of nanoseconds has a date.
fn utc(unix_ns: i64) -> OffsetDateTime {
    let found = OffsetDateTime::from_unix_timestamp_nanos(unix_ns.into());
    found.unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_well() {
        let at = 1_795_271_750_123_456_789;
        assert_eq!(date(at), "at 2026-11-21 14:35:50.123456 UTC");
        assert_eq!(date(1_500_000_000), "1.500000 s after the machine's start");
        let expected = "at 2000-02-29 00:00:00.000000 UTC";
        assert_eq!(date(951_782_400 * SECOND), expected);
        assert_eq!(time_of_day(-1), "23:59:59.999999");
        let expected = Some("2026-11-21 14:35 UTC");
        assert_eq!(minute(1_795_271_750).as_deref(), expected);
        assert_eq!(minute(u64::MAX), None);
    }
}
