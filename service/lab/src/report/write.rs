//! A report on its way to a file.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::data::Page;

/// What every report begins with. A file that begins so may be replaced by another report.
pub const MARK: &str = "<!DOCTYPE html><!-- A report of lumpscope. It needs no other file. -->";

/// Permissions of the file before the umask.
const MODE: u32 = 0o644;

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is something else.
    #[error(
        "{} is there and is no report of lumpscope, which alone would be replaced: choose another \
         name, or remove it",
        path.display()
    )]
    Occupied {
        /// File.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A chart could not be drawn.
    #[error("cannot draw the chart \"{caption}\": {why}")]
    Draw {
        /// Its caption.
        caption: String,
        /// What plotters said.
        why: String,
    },
}

/// Looks before something is measured for long whether a report can be written to this file: its
/// folder takes files, and nothing that is no report lies there.
///
/// # Errors
/// What keeps it from being written.
pub fn check(path: &Path) -> Result<(), ReportError> {
    may_replace(path)?;
    // Gone again when it is dropped.
    temporary(path).map(drop)
}

impl Page {
    /// Writes the report: all of it or nothing. A report of lumpscope that is there is replaced;
    /// anything else is left alone.
    ///
    /// # Errors
    /// Something else has that name, the folder does not take the file, or a chart cannot be drawn.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let html = self.html()?;
        may_replace(path)?;
        let failed = |what| {
            move |source| ReportError::Io {
                what,
                path: path.to_owned(),
                source,
            }
        };
        let mut file = temporary(path)?;
        file.write_all(html.as_bytes())
            .map_err(failed("write the report"))?;
        file.as_file()
            .sync_all()
            .map_err(failed("write the report"))?;
        file.persist(path)
            .map_err(|error| failed("name the report")(error.error))?;
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn temporary(path: &Path) -> Result<tempfile::NamedTempFile, ReportError> {
    tempfile::Builder::new()
        .prefix(".lumpscope-report-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder(path))
        .map_err(|source| ReportError::Io {
            what: "make a file in",
            path: folder(path).to_owned(),
            source,
        })
}

/// Nothing there, or a report.
fn may_replace(path: &Path) -> Result<(), ReportError> {
    let failed = |source| ReportError::Io {
        what: "look at",
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        // Not through a link, and nothing that blocks when it is read.
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => {
            return Err(ReportError::Occupied {
                path: path.to_owned(),
            });
        }
    }
    let mut begin = Vec::new();
    let length = u64::try_from(MARK.len()).unwrap_or(u64::MAX);
    let mut file = File::open(path).map_err(failed)?.take(length);
    file.read_to_end(&mut begin).map_err(failed)?;
    if begin == MARK.as_bytes() {
        return Ok(());
    }
    Err(ReportError::Occupied {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Setup;

    fn page(title: &str) -> Page {
        Page::new(title, Setup::default())
    }

    #[test]
    fn a_report_replaces_a_report_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        check(&path).unwrap();
        page("first").write(&path).unwrap();
        page("second").write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(MARK) && text.contains("second"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        for other in ["", "<!DOCTYPE html><p>mine"] {
            fs::write(&path, other).unwrap();
            let error = page("third").write(&path).unwrap_err();
            assert!(matches!(error, ReportError::Occupied { .. }), "{error}");
            assert!(check(&path).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_devices_and_missing_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("a.html"), folder.path().join("b.html"));
        page("target").write(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(check(&link), Err(ReportError::Occupied { .. })));
        assert!(matches!(
            check(Path::new("/dev/null")),
            Err(ReportError::Occupied { .. })
        ));
        let missing = folder.path().join("no/report.html");
        assert!(matches!(check(&missing), Err(ReportError::Io { .. })));
    }
}
