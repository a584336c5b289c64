//! Figures and names that may be missing: a dash stands for what is not known.

use lumpscope_units::human;

/// Printed in place of an unknown number.
pub(super) const NONE: &str = "-";

/// `+1.50 GiB`, `-512 B`, `0`, or [`NONE`].
pub(super) fn distance(bytes: Option<i64>) -> String {
    bytes.map_or_else(|| NONE.to_owned(), human::signed_bytes)
}

/// `4.56 ms`, or [`NONE`].
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), human::duration_ns)
}

/// `+4.56 ms`, `-12.3 µs`, `0`, or [`NONE`].
pub(super) fn moment(ns: Option<i64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), human::signed_ns)
}

/// `dd[4711]`, or [`NONE`].
pub(super) fn process(name: &str, pid: u32) -> String {
    match (name, pid) {
        ("", 0) => NONE.to_owned(),
        (name, 0) => name.to_owned(),
        (name, pid) => format!("{name}[{pid}]"),
    }
}

/// Flags of a block request, and its hardware queue where that is not the first, which may be the
/// only one; `None`: neither.
pub(super) fn beside(flags: &[String], hardware_queue: Option<u32>) -> Option<String> {
    let queue = hardware_queue.filter(|queue| *queue > 0);
    let queue = queue.map(|queue| format!("hardware queue {queue}"));
    let flags = (!flags.is_empty()).then(|| flags.join(" "));
    match (flags, queue) {
        (Some(flags), Some(queue)) => Some(format!("{flags}, {queue}")),
        (flags, queue) => flags.or(queue),
    }
}

/// That a block request failed, and why.
pub(super) fn failed(why: &str) -> String {
    match why {
        "" => "FAILED".to_owned(),
        why => format!("FAILED: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hardware_queue_is_not_told() {
        let flags = ["fua".to_owned(), "meta".to_owned()];
        assert_eq!(beside(&[], Some(0)), None);
        assert_eq!(beside(&flags, None).unwrap(), "fua meta");
        let expected = "fua meta, hardware queue 3";
        assert_eq!(beside(&flags, Some(3)).unwrap(), expected);
    }

    #[test]
    fn unknown_figures_are_dashes() {
        assert_eq!(distance(Some(-(3 << 30))), "-3.00 GiB");
        assert_eq!(
            (distance(None), time(None), moment(None)),
            ("-".into(), "-".into(), "-".into())
        );
        assert_eq!((&*process("dd", 7), &*process("", 0)), ("dd[7]", "-"));
    }
}
