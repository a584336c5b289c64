//! A note on this machine: what an evacuation left in its target. While nobody else has changed that
//! store, all lumps of the range are copies, and the next run may replace and delete them.
//!
//! The note is there before the first copy, and has each change while it is made: after an
//! interruption at any moment, the next run can tell its copies, too.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lumpscope_client::LumpId;
use tempfile::NamedTempFile;

/// A note is much smaller.
const MAX_NOTE: u64 = 1 << 20;

/// Of a file that is opened: a pipe in its place is not waited for.
const NO_WAIT: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The note of one source, one target and one range.
pub(super) struct EvacuationNote {
    path: PathBuf,
    range: String,
    /// The file while a run changes the target.
    run: Mutex<Option<NotedRun>>,
}

/// A change of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Of an id that was not there.
    Put,
    Replace,
    Delete,
}

impl Change {
    const ALL: [Self; 3] = [Self::Put, Self::Replace, Self::Delete];

    fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Replace => "replace",
            Self::Delete => "delete",
        }
    }
}

/// State of the target after a run, or where it was interrupted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Changes of the store, without those under way.
    pub(super) changes: u64,
    /// Changes that were made or not.
    pub(super) under_way: BTreeMap<LumpId, Change>,
}

struct NotedRun {
    file: File,
    now: Noted,
    /// Bytes that the file has.
    len: usize,
}

impl EvacuationNote {
    /// The note, or why there can be none.
    pub(super) fn of(source: &str, target: &str, range: String) -> Result<Self, &'static str> {
        let is_uuid = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        };
        if !is_uuid(source) || !is_uuid(target) {
            return Err("the service does not tell the UUID of the store");
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let state = set("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")));
        match state.filter(|state| state.is_absolute()) {
            Some(state) => Ok(Self {
                path: state
                    .join("lumpscope/evacuate")
                    .join(format!("{source}-{target}")),
                range,
                run: Mutex::default(),
            }),
            None => Err("neither XDG_STATE_HOME nor HOME names a folder"),
        }
    }

    /// State of the target that the run before has noted; `None`: nothing is known of these lumps.
    pub(super) fn read(&self) -> Option<Noted> {
        let mut text = String::new();
        let mut options = File::options();
        let options = options.read(true).custom_flags(NO_WAIT);
        let file = options.open(&self.path).ok()?;
        file.take(MAX_NOTE).read_to_string(&mut text).ok()?;
        let mut lines = text.lines().map(str::trim_end);
        let range = lines.next()?.strip_prefix("lumps ")?;
        let changes = lines.next()?.strip_prefix("changes ")?;
        let mut noted = Noted {
            changes: u64::from_str_radix(changes, 16).ok()?,
            ..Noted::default()
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let (word, id) = line.split_once(' ')?;
            let change = Change::ALL.into_iter().find(|it| it.word() == word)?;
            noted.under_way.insert(id.parse().ok()?, change);
        }
        (range == self.range).then_some(noted)
    }

    /// Says, durably, that all lumps of the range are copies now, as will be those that this run makes.
    pub(super) fn begin(&self, changes: u64) -> io::Result<()> {
        let now = Noted {
            changes,
            ..Noted::default()
        };
        let text = self.text(&now);
        let file = self.write(&text)?;
        let len = text.len();
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(NotedRun { file, now, len });
        Ok(())
    }

    /// A change is about to be made.
    pub(super) fn starts(&self, id: LumpId, change: Change) {
        self.update(|now| {
            now.under_way.insert(id, change);
        });
    }

    /// It was made, or was not necessary.
    pub(super) fn ended(&self, id: LumpId, made: bool) {
        self.update(|now| {
            now.under_way.remove(&id);
            now.changes = now.changes.wrapping_add(u64::from(made));
        });
    }

    /// The end of a run.
    pub(super) fn end(&self, changes: u64) -> io::Result<()> {
        let now = Noted {
            changes,
            ..Noted::default()
        };
        self.write(&self.text(&now)).map(drop)
    }

    /// Writes the state of the run anew, by one call. A power cut may take that back: then the counts
    /// differ, and the next run takes nothing for a copy.
    fn update(&self, change: impl FnOnce(&mut Noted)) {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = run.as_mut() else { return };
        change(&mut run.now);
        let mut text = self.text(&run.now);
        let blanks = run.len.saturating_sub(text.len());
        text.extend(std::iter::repeat_n(' ', blanks));
        run.len = text.len();
        // A note that is too old is as good as none.
        let _ = run.file.write_all_at(text.as_bytes(), 0);
    }

    fn write(&self, text: &str) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let mut new = NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        new.as_file().sync_all()?;
        let file = new.persist(&self.path)?;
        File::open(folder)?.sync_all()?;
        Ok(file)
    }

    fn text(&self, noted: &Noted) -> String {
        let mut text = format!("lumps {}\nchanges {:016x}\n", self.range, noted.changes);
        for (id, change) in &noted.under_way {
            text += &format!("{} {id}\n", change.word());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_note_has_what_is_under_way_and_what_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let note = |range: &str| EvacuationNote {
            path: folder.path().join("state/note"),
            range: range.to_owned(),
            run: Mutex::default(),
        };
        let running = note("1..9");
        assert_eq!(running.read(), None);
        running.starts(LumpId(1), Change::Put);
        assert_eq!(running.read(), None, "it has not begun");
        running.begin(7).unwrap();
        running.starts(LumpId(1), Change::Put);
        running.starts(LumpId(2), Change::Delete);
        running.starts(LumpId(3), Change::Replace);
        running.ended(LumpId(1), true);
        running.ended(LumpId(2), false);
        let read = note("1..9").read().unwrap();
        let under_way = BTreeMap::from([(LumpId(3), Change::Replace)]);
        assert_eq!((read.changes, read.under_way), (8, under_way));
        assert_eq!(note("1..8").read(), None);
        running.ended(LumpId(3), true);
        running.end(9).unwrap();
        let read = note("1..9").read().unwrap();
        assert_eq!((read.changes, read.under_way.len()), (9, 0));
        // A pipe in its place is no note, and is replaced.
        std::fs::remove_file(&running.path).unwrap();
        mknodat(CWD, &running.path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(running.read(), None);
        running.begin(3).unwrap();
        assert_eq!(running.read().unwrap().changes, 3);
    }
}
