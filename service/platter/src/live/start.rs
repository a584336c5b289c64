//! Makes an emulated disk: a connection, the process behind it, the loop device over it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Mode, OFlags};

use super::connect::{Ends, connect};
use super::control::{Connection, Status};
use super::log::Log;
use super::queue_settings::{self, Before};
use super::server::{Assignment, Daemon};
use super::way::Way;
use super::{LiveError, LiveOptions};
use crate::loops;

/// Arguments by which the program that is started becomes a disk; the assignment follows.
pub const SERVE_ARGUMENTS: [&str; 2] = ["platter", "serve-disk"];
/// The kernel and the process of the disk get this long to let go.
const GONE_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// A disk that has just been made.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) connection: Connection,
    /// Keeps a device that clears itself.
    pub(super) device: File,
    pub(super) path: PathBuf,
    /// Number of the FUSE connection.
    pub(super) fuse: u32,
    /// Settings of its queue to be put back.
    pub(super) before: Before,
}

/// A name that no other disk of this machine has had.
pub(super) fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let pid = std::process::id();
    format!(
        "lumpscope-{pid}-{number}-{:x}.platter",
        since.unwrap_or_default().as_nanos()
    )
}

/// Starts `exe` as the disk and makes the loop device. Nothing is left when it fails.
pub(super) fn start(
    exe: &Path,
    options: &LiveOptions,
    name: &str,
    daemon: Option<Daemon>,
) -> Result<Started, LiveError> {
    let options = options.checked()?;
    let autoclear = daemon.is_none();
    let Ends { server, mount } = connect()?;
    let assignment = Assignment {
        options,
        name: name.to_owned(),
        daemon,
    };
    let (child, mut connection) = spawn(exe, &assignment, server)?;
    // From here on a child that is killed ends everything.
    let mut child = KilledUnlessKept(Some(child));
    connection.hello()?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let image = rustix::fs::openat(&mount, name, flags, Mode::empty())
        .map_err(LiveError::io("open the file of", "the emulated disk"))?;
    let stat = rustix::fs::fstat(&image).map_err(LiveError::io("look at", name))?;
    let (path, device) = loops::configure(&image, name, autoclear)?;
    let before = match finish(&device, &path, &mut connection) {
        Ok(before) => before,
        Err(error) => {
            // A device that does not clear itself would stay.
            let _ = loops::clear(&device, &path);
            return Err(error);
        }
    };
    Ok(Started {
        child: child
            .0
            .take()
            .ok_or_else(|| LiveError::Server("it is gone".to_owned()))?,
        connection,
        device,
        path,
        fuse: rustix::fs::minor(stat.st_dev),
        before,
    })
}

fn finish(device: &File, path: &Path, connection: &mut Connection) -> Result<Before, LiveError> {
    if loops::attribute(path, "dio").as_deref() != Some("1") {
        return Err(LiveError::Server(
            "this kernel's loop driver has no direct I/O over FUSE".to_owned(),
        ));
    }
    // A disk of platters knows nothing of discards.
    loops::forget_discard(device);
    let before = queue_settings::apply(path)?;
    let told = connection
        .put_back(before.clone())
        .and_then(|()| tell_way(path, connection));
    if told.is_err() {
        before.restore();
    }
    told.map(|()| before)
}

/// Measures how long requests are under way, and has the disk make up for it.
fn tell_way(path: &Path, connection: &mut Connection) -> Result<(), LiveError> {
    connection.way(None)?;
    let way = Way::measure(path).map_err(LiveError::io("read from", path))?;
    connection.way(Some(way))
}

fn spawn(
    exe: &Path,
    assignment: &Assignment,
    server: OwnedFd,
) -> Result<(Child, Connection), LiveError> {
    let (ours, theirs) = UnixStream::pair().map_err(LiveError::io("make", "a socket"))?;
    let task = serde_json::to_string(assignment)
        .map_err(|error| LiveError::io("write", "the task")(io::Error::from(error)))?;
    let mut command = Command::new(exe);
    if assignment.daemon.is_some() {
        // Whoever reads what the parent says shall not wait for the disk's end.
        command.stderr(Stdio::null());
    }
    let child = command
        .args(SERVE_ARGUMENTS)
        .arg(task)
        .stdin(Stdio::from(server))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .map_err(LiveError::io("run", exe))?;
    Ok((child, Connection::new(ours, exe.to_owned())?))
}

struct KilledUnlessKept(Option<Child>);

impl Drop for KilledUnlessKept {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An emulated disk that ends with its holder: on drop, or, however the holding process ends, when
/// the kernel closes what it had open. Nothing of it stays.
///
/// The process that is the disk is a child. It ends when the kernel has let the disk go, at the
/// latest ten seconds after its parent. A file system that is still mounted then sees errors.
#[derive(Debug)]
pub struct Attached {
    // Keeps the device configured until the drop.
    device: Option<File>,
    path: PathBuf,
    name: String,
    devno: u64,
    child: Child,
    connection: Connection,
}

impl Attached {
    /// Makes the disk. `exe` is the `lumpscope` program (its process becomes the disk).
    ///
    /// # Errors
    /// No privilege, no FUSE, no loop driver, an option out of range, limited memory, or memory
    /// that cannot be locked. Nothing is left.
    pub fn start(exe: &Path, options: &LiveOptions) -> Result<Attached, LiveError> {
        let name = new_name();
        let started = start(exe, options, &name, None)?;
        let stat = rustix::fs::fstat(&started.device);
        let stat = stat.map_err(LiveError::io("look at", &started.path))?;
        Ok(Attached {
            device: Some(started.device),
            path: started.path,
            name,
            devno: stat.st_rdev,
            child: started.child,
            connection: started.connection,
        })
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

    /// Process id of the disk.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status from the disk.
    ///
    /// # Errors
    /// Its process is gone.
    pub fn status(&mut self) -> Result<Status, LiveError> {
        self.connection.status()
    }

    /// Requests of the disk.
    ///
    /// # Errors
    /// Its process is gone.
    pub fn log(&mut self) -> Result<Log, LiveError> {
        self.connection.log()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        drop(self.device.take());
        let patience = Instant::now() + GONE_WITHIN;
        while Instant::now() < patience {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(LOOK);
        }
        if loops::attribute(&self.path, "backing_file")
            .is_some_and(|file| file.contains(&self.name))
        {
            // There is no other place to say it.
            let _ = writeln!(
                io::stderr(),
                "{} is still in use by another process, which sees errors from now on; it clears \
                 itself when that ends",
                self.path.display()
            );
        }
        // It may end just now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
