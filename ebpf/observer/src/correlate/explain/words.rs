//! Places and owners in words.

use lumpscope_units::human::short_bytes;

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
    let far = short_bytes(seek.unsigned_abs().saturating_mul(512));
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
        Owner::Other(process) => match process.text() {
            unknown if unknown.is_empty() => "made by an unknown process".to_owned(),
            process => format!("made by process {process}"),
        },
    }
}

/// Whose batch the request waited for.
pub(super) fn waited_for(known: &Known<'_>) -> String {
    match known.ended.waited_for {
        None | Some(0) => "work of the store".to_owned(),
        Some(request) => format!("the batch of request {request}"),
    }
}
