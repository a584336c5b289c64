//! Times, sizes, places and owners in words.

use crate::api::Purpose;
use crate::correlate::owner::Owner;
use crate::correlate::requests::Block;

use super::Known;

pub(super) fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Data => "data",
        Purpose::Journal => "journal",
        Purpose::Header => "header",
        Purpose::Flush => "flush",
        Purpose::Recovery => "recovery",
        Purpose::Scrub => "scrub",
        Purpose::Checkpoint => "checkpoint",
    }
}

/// How far from the request before, and whose that was.
pub(super) fn place_text(known: &Known<'_>, block: &Block) -> String {
    let Some(seek) = block.event.seek else {
        return "seek distance unknown".to_owned();
    };
    let whose = match known.previous(block) {
        Some(previous) => whose_text(known, previous),
        None => "whose owner is unknown".to_owned(),
    };
    let far = bytes_text(seek.unsigned_abs().saturating_mul(512));
    match seek {
        0 => format!("right after the previous request, {whose}"),
        1.. => format!("{far} ahead of the previous request, {whose}"),
        _ => format!("{far} back from the previous request, {whose}"),
    }
}

fn whose_text(known: &Known<'_>, owner: &Owner) -> String {
    let system = if known.file_system.is_empty() {
        "file system's"
    } else {
        known.file_system
    };
    match owner {
        Owner::Request(id) if *id == known.ended.request => "its own".to_owned(),
        Owner::Request(id) => format!("made for request {id}"),
        Owner::Requests(ids) if ids.contains(&known.ended.request) => {
            "made for it and others".to_owned()
        }
        Owner::Requests(ids) => match ids.first() {
            Some(id) => format!("made for request {id} and others"),
            None => "made for several requests".to_owned(),
        },
        Owner::Store => "made by the store for itself".to_owned(),
        Owner::FsJournal => format!("made by the {system} journal"),
        Owner::FsMetadata => format!("made for {system} metadata"),
        Owner::Writeback => "made by the kernel's writeback".to_owned(),
        Owner::Other(name) if name.is_empty() => "made by an unknown process".to_owned(),
        Owner::Other(name) => format!("made by process {}", name.text()),
    }
}

/// A time with one decimal in the unit that suits it.
pub(super) fn time_text(ns: u64) -> String {
    scaled(
        ns,
        &[
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ],
    )
}

/// A size with one decimal in the unit that suits it.
pub(super) fn bytes_text(bytes: u64) -> String {
    scaled(
        bytes,
        &[
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("B", 1),
        ],
    )
}

fn scaled(n: u64, units: &[(&str, u64)]) -> String {
    let &(name, unit) = units
        .iter()
        .find(|(_, unit)| n >= *unit)
        .unwrap_or(&units[units.len() - 1]);
    let tenths = (u128::from(n) * 10 + u128::from(unit) / 2) / u128::from(unit);
    match (unit, tenths % 10) {
        (1, _) | (_, 0) => format!("{} {name}", tenths / 10),
        (_, tenth) => format!("{}.{tenth} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_well() {
        assert_eq!(bytes_text(1 << 20), "1 MiB");
        assert_eq!(bytes_text(0), "0 B");
        assert_eq!(bytes_text(1_610_612_736), "1.5 GiB");
        assert_eq!(time_text(9_100_000), "9.1 ms");
        assert_eq!(time_text(950), "950 ns");
    }
}
