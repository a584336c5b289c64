//! Places and owners in words.

use lumpscope_units::human::{counted, short_bytes};

use crate::api::Purpose;
use crate::correlate::lost::Culprit;
use crate::correlate::owner::{Owner, UNKNOWN};
use crate::correlate::requests::{Block, BlocksAhead};

use super::RequestFacts;

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

/// Distance from the end of the previous access, and who made that.
pub(super) fn place_text(known: &RequestFacts<'_>, block: &Block) -> String {
    let Some(seek) = block.event.seek else {
        return "seek distance unknown".to_owned();
    };
    let whose = match known.previous(block) {
        Some(previous) => whose_text(known, previous),
        None => "by an unknown owner".to_owned(),
    };
    let far = short_bytes(seek.unsigned_abs().saturating_mul(512));
    match seek {
        0 => format!("right after the previous access, {whose}"),
        1.. => format!("{far} past the end of the previous access, {whose}"),
        _ => format!("{far} before the end of the previous access, {whose}"),
    }
}

fn system<'a>(known: &RequestFacts<'a>) -> &'a str {
    match known.file_system {
        "" => "file system's",
        name => name,
    }
}

/// Whom the disk served.
pub(super) fn culprit_text(known: &RequestFacts<'_>, culprit: &Culprit<'_>) -> String {
    match culprit {
        Culprit::Process(process) if process.name.is_empty() => format!("process {}", process.pid),
        Culprit::Process(process) => process.text(),
        Culprit::Class(0) => "other requests".to_owned(),
        Culprit::Class(1) => "the store's own work".to_owned(),
        Culprit::Class(2) => format!("the {} journal", system(known)),
        Culprit::Class(3) => format!("{} metadata", system(known)),
        Culprit::Class(4) => "the kernel's writeback".to_owned(),
        Culprit::Class(UNKNOWN) => "the service, in no known place".to_owned(),
        Culprit::Class(_) => "others".to_owned(),
    }
}

/// As `behind 2 other block requests`; `None`: it was behind none.
pub(super) fn behind(ahead: BlocksAhead, each: &str) -> Option<String> {
    let least = if ahead.at_least { "at least " } else { each };
    let others = counted(ahead.count.into(), "other block request");
    (ahead.count > 0).then(|| format!("behind {least}{others}"))
}

fn whose_text(known: &RequestFacts<'_>, owner: &Owner) -> String {
    let system = system(known);
    match owner {
        Owner::Request(id) if *id == known.ended.request => "its own".to_owned(),
        Owner::Request(id) => format!("by request {id}"),
        Owner::Requests(ids) if ids.contains(&known.ended.request) => {
            "by this request and others".to_owned()
        }
        Owner::Requests(ids) => match ids.first() {
            Some(id) => format!("by request {id} and others"),
            None => "by several requests".to_owned(),
        },
        Owner::Store => "by the store itself".to_owned(),
        Owner::Unknown => "by the service, in no known place".to_owned(),
        Owner::FsJournal => format!("by the {system} journal"),
        Owner::FsMetadata => format!("for {system} metadata"),
        Owner::Writeback => "by the kernel's writeback".to_owned(),
        Owner::Other(process) => match process.text() {
            unknown if unknown.is_empty() => "by an unknown process".to_owned(),
            process => format!("by process {process}"),
        },
    }
}

/// Whose batch the request waited for.
pub(super) fn waited_for(known: &RequestFacts<'_>) -> String {
    match known.ended.waited_for {
        None | Some(0) => "work of the store".to_owned(),
        Some(request) => format!("the batch of request {request}"),
    }
}
