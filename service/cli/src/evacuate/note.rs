//! A note on this machine: what an evacuation left in its target. While nobody else has changed that
//! store, all lumps of the range are copies, and the next run may replace and delete them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

/// The note of one source, one target and one range.
pub(super) struct EvacuationNote {
    path: PathBuf,
    range: String,
}

impl EvacuationNote {
    /// `None`: a store has no UUID, or this user has no place for state.
    pub(super) fn of(source: &str, target: &str, range: String) -> Option<Self> {
        let is_uuid = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        };
        if !is_uuid(source) || !is_uuid(target) {
            return None;
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let state = set("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")))?;
        let path = state
            .join("lumpscope/evacuate")
            .join(format!("{source}-{target}"));
        path.is_absolute().then_some(Self { path, range })
    }

    /// True: nothing was changed in the target, whose changes are counted, since the run before.
    pub(super) fn holds(&self, changes: u64) -> bool {
        let text = fs::read_to_string(&self.path);
        text.is_ok_and(|text| text == self.text(changes))
    }

    /// Says what the target is now.
    pub(super) fn write(&self, changes: u64) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let new = self.path.with_extension(std::process::id().to_string());
        fs::write(&new, self.text(changes))?;
        fs::rename(new, &self.path)
    }

    fn text(&self, changes: u64) -> String {
        format!("lumps {}\nchanges {changes:016x}\n", self.range)
    }
}
