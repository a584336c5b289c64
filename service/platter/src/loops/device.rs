//! Loop devices that clear themselves.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::LoopError;

/// A loop device over an unlinked sparse image.
///
/// On drop it waits until the kernel has cleared the device, which happens when its last user has
/// closed it.
#[derive(Debug)]
pub struct LoopDevice {
    // Keeps the device configured until the drop.
    open: Option<OwnedFd>,
    path: PathBuf,
    image_name: String,
    devno: u64,
}

impl LoopDevice {
    /// A device of `bytes` (rounded up to 4 KiB) with 512-byte logical sectors and direct I/O.
    /// Its image `lumpscope-PID-NUMBER-NAME.img` was in `dir` and is unlinked already.
    ///
    /// # Errors
    /// No privilege, no loop driver, or a directory whose files cannot be used with direct I/O.
    pub fn create(dir: &Path, name: &str, bytes: u64) -> Result<LoopDevice, LoopError> {
        // Several labs may live in one process.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let image_name = format!("lumpscope-{}-{number}-{name}.img", std::process::id());
        let image = create_image(&dir.join(&image_name), bytes)?;
        let (path, open) = super::configure(&image, &image_name, true)?;
        let stat =
            rustix::fs::fstat(&open).map_err(|errno| LoopError::io("look at", &path, errno))?;
        let device = LoopDevice {
            open: Some(open.into()),
            path,
            image_name,
            devno: stat.st_rdev,
        };
        if super::attribute(&device.path, "dio").as_deref() != Some("1") {
            return Err(LoopError::NoDirectIo {
                dir: dir.to_owned(),
            });
        }
        Ok(device)
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device number as `stat` shows it (`st_rdev`).
    #[must_use]
    pub fn devno(&self) -> u64 {
        self.devno
    }

    fn is_configured(&self) -> bool {
        super::attribute(&self.path, "backing_file")
            .is_some_and(|file| file.contains(&self.image_name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        drop(self.open.take());
        let patience = Instant::now() + Duration::from_secs(10);
        while self.is_configured() {
            if Instant::now() > patience {
                // There is no other place to say it.
                let _ = writeln!(
                    io::stderr(),
                    "{} is still in use by another process; it clears itself when that ends",
                    self.path.display()
                );
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An image that has no name any more.
fn create_image(path: &Path, bytes: u64) -> Result<File, LoopError> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| LoopError::io("create image", path, error))?;
    std::fs::remove_file(path).map_err(|error| LoopError::io("unlink image", path, error))?;
    image
        .set_len(bytes.next_multiple_of(4096))
        .map_err(|error| LoopError::io("set the size of image", path, error))?;
    Ok(image)
}
