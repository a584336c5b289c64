//! A report on its way to a file.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::Report;
use crate::failure::cannot;

/// Beginning of every report. A file that begins so may be replaced by another report.
pub const MARK: &str = "<!DOCTYPE html><!-- A report of lumpscope. It needs no other file. -->";

/// Permissions of the file before the umask.
const MODE: u32 = 0o644;

/// Looks before something is measured for long whether a report can be written to this file: its
/// folder takes files, and nothing that is no report lies there.
///
/// # Errors
/// The file cannot be written.
pub fn check(path: &Path) -> anyhow::Result<()> {
    may_replace(path)?;
    // Gone again when it is dropped.
    temporary(path).map(drop)
}

impl Report {
    /// Writes the report: all of it or nothing. A report of lumpscope that is there is replaced;
    /// anything else is left alone.
    ///
    /// # Errors
    /// Something else has that name, or the folder does not take the file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let html = self.html()?;
        may_replace(path)?;
        let mut file = temporary(path)?;
        file.write_all(html.as_bytes())
            .map_err(cannot("write the report", path))?;
        file.as_file()
            .sync_all()
            .map_err(cannot("write the report", path))?;
        file.persist(path)
            .map_err(|error| cannot("name the report", path)(error.error))?;
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn temporary(path: &Path) -> anyhow::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".lumpscope-report-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder(path))
        .map_err(cannot("make a file in", folder(path)))
}

fn occupied(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is there and is no report of lumpscope, which alone would be replaced: choose another \
         name, or remove it",
        path.display()
    )
}

/// Nothing there, or a report.
fn may_replace(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("look at", path)(error)),
        // Not through a link, and nothing that blocks when it is read.
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => {
            return Err(occupied(path));
        }
    }
    let mut begin = Vec::new();
    let length = u64::try_from(MARK.len()).unwrap_or(u64::MAX);
    let mut file = File::open(path)
        .map_err(cannot("look at", path))?
        .take(length);
    file.read_to_end(&mut begin)
        .map_err(cannot("look at", path))?;
    if begin == MARK.as_bytes() {
        return Ok(());
    }
    Err(occupied(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str) -> Report {
        Report::new(title)
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
            assert!(error.to_string().contains("is no report"), "{error}");
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
        for path in [link.as_path(), Path::new("/dev/null")] {
            let error = check(path).unwrap_err();
            assert!(error.to_string().contains("is no report"), "{error}");
        }
        let missing = folder.path().join("no/report.html");
        let error = check(&missing).unwrap_err();
        assert!(error.to_string().contains("make a file in"), "{error}");
    }
}
