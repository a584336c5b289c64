//! What an evacuation has done, and what it has not.

use lumpscope_client::LumpId;
use lumpscope_units::human;
use serde_json::{Value, json};

use super::EvacuateArgs;
use crate::output;

/// Lumps that differ and are listed as text.
const LISTED: usize = 20;

/// Lumps that were evacuated, and those that were not.
#[derive(Default)]
pub(super) struct EvacuationReport {
    pub(super) lumps: u64,
    pub(super) bytes: u64,
    pub(super) there: u64,
    pub(super) replaced: u64,
    /// Deleted from the target.
    pub(super) deleted: u64,
    /// Removed from the source meanwhile.
    pub(super) gone: u64,
    /// Lumps that are not in the other store, and why.
    pub(super) missing: Vec<(LumpId, String)>,
    /// Lumps of the target that differ.
    pub(super) differing: Vec<LumpId>,
    /// Lumps of the target that the source has not.
    pub(super) extra: Vec<LumpId>,
    /// Why the stores may differ all the same.
    pub(super) doubts: Vec<String>,
    /// The last line if they do not.
    pub(super) equal: String,
}

impl EvacuationReport {
    pub(super) fn is_clean(&self) -> bool {
        let lists = [&self.differing, &self.extra];
        self.missing.is_empty()
            && lists.iter().all(|list| list.is_empty())
            && self.doubts.is_empty()
    }

    /// Notes what may have been missed: the source is what it was, or the target has other changes than
    /// those that were made here.
    pub(super) fn doubt(&mut self, (is_same, only_made): (bool, bool), args: &EvacuateArgs) {
        let (from, to) = (&args.from, &args.to);
        if !is_same {
            self.doubts.push(format!(
                "store {from:?} was changed meanwhile, or opened again: run this command again, and \
                 refuse changes before its last run (`lumpscope admin drain {from} --changes-only`)"
            ));
        }
        if !only_made {
            self.doubts.push(format!(
                "store {to:?} was changed by somebody else meanwhile, or an answer was lost: let no \
                 client write to it, and run this command again"
            ));
        }
    }
}

pub(super) fn as_json(done: &EvacuationReport) -> Value {
    let missing = done.missing.iter();
    let missing: Vec<Value> = missing
        .map(|(id, why)| json!({"id": id.to_string(), "why": why}))
        .collect();
    json!({
        "lumps": done.lumps,
        "bytes": done.bytes,
        "already_there": done.there,
        "replaced": done.replaced,
        "deleted": done.deleted,
        "removed_meanwhile": done.gone,
        "missing": missing,
        "differing": ids(&done.differing),
        "extra": ids(&done.extra),
        "doubts": done.doubts,
        "equal": done.is_clean(),
    })
}

fn ids(lumps: &[LumpId]) -> Vec<String> {
    lumps.iter().map(ToString::to_string).collect()
}

pub(super) fn text(done: &EvacuationReport, args: &EvacuateArgs) -> String {
    let mut text = format!(
        "copied and verified {}, {}; {} already present; {} replaced, {} deleted\n",
        human::counted(done.lumps + done.replaced, "lump"),
        human::bytes(done.bytes),
        human::count(done.there),
        human::count(done.replaced),
        human::count(done.deleted),
    );
    if done.gone > 0 {
        let gone = human::counted(done.gone, "lump");
        text.push_str(&format!("{gone} removed from the source meanwhile\n"));
    }
    text += &lost_text(done.missing.iter().map(|(id, why)| (id.to_string(), why)));
    let (from, to) = (&args.from, &args.to);
    for (lumps, what) in [
        (
            &done.differing,
            format!("{to:?} that differ from those of {from:?}"),
        ),
        (&done.extra, format!("{to:?} that {from:?} has not")),
    ] {
        if !lumps.is_empty() {
            text += &format!(
                "{} in {what}; --replace makes {to:?} equal:\n",
                human::counted(lumps.len() as u64, "lump")
            );
            text += &listed_text(lumps);
        }
    }
    for doubt in &done.doubts {
        text += &format!("{doubt}\n");
    }
    if done.is_clean() {
        text += &format!("{}\n", done.equal);
    }
    text
}

/// Some of these lumps.
fn listed_text(lumps: &[LumpId]) -> String {
    let some = lumps.iter().take(LISTED);
    let mut text: String = some.map(|id| format!("{id}\n")).collect();
    if let Some(more) = lumps.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text += &format!(
            "and {} more (--json lists all)\n",
            human::count(more as u64)
        );
    }
    text
}

/// The lumps that could not be read, and why.
fn lost_text<'a>(lumps: impl Iterator<Item = (String, &'a String)>) -> String {
    let mut text = String::new();
    let mut count: u64 = 0;
    for (id, why) in lumps {
        count += 1;
        text.push_str(&format!("{id}\n{}", output::indented(why)));
    }
    if count > 0 {
        let lumps = human::counted(count, "lump");
        let are = if count == 1 { "is" } else { "are" };
        text.insert_str(0, &format!("{lumps} {are} missing:\n"));
    }
    text
}
