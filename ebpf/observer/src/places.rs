//! Where any number of files lie on their disks.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::device;
use crate::extents::Extent;
use crate::fiemap;

/// Tells where files lie. A file system is looked up once.
#[derive(Debug, Default)]
pub struct Places {
    /// Disk and first sector by device number; `None`: it is on no disk.
    below: BTreeMap<u64, Option<(Arc<str>, u64)>>,
}

impl Places {
    /// Name in /sys/block of a file's disk, and where the file lies on it now. What is not written
    /// back yet has no place. `None`: it lies on no disk, or its file system does not tell.
    pub fn of(&mut self, file: &File) -> Option<(Arc<str>, Vec<Extent>)> {
        let found = file.metadata().ok()?;
        let below = self.below.entry(found.dev()).or_insert_with(|| {
            let target = device::below(Path::new("a file"), &found).ok()?;
            Some((Arc::from(target.disk), target.start_sector))
        });
        let (disk, start_sector) = below.as_ref()?;
        let extents = fiemap::extents_of(file, *start_sector).ok()?;
        Some((Arc::clone(disk), extents))
    }
}
