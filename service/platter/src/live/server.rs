//! The process that is the disk.
//!
//! It has the connection to the kernel as its standard input and a connection to its parent as its
//! standard output. It never opens the loop device: closing that may mean to write to it, and the
//! end of this process would wait for this process.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::control::{Hello, Known, send};
use super::emulation::Emulation;
use super::memory::Memory;
use super::one_file::OneFile;
use super::{LiveError, LiveOptions, safety};

/// When the parent is gone, its file systems get this long to write what they have.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Assignment of the process at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// The disk, everything filled in.
    pub(super) options: LiveOptions,
    /// Name of its file.
    pub(super) name: String,
    /// Where it listens and what else is to be removed at the end; absent: it ends with its parent.
    pub(super) daemon: Option<Daemon>,
}

/// Files of a disk that outlives its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Daemon {
    pub(super) socket: PathBuf,
    pub(super) state: PathBuf,
}

/// Is the disk that `assignment` (JSON, as [`super::attach()`] and [`super::Attached::start`] pass it to the program they
/// start) describes, until the kernel lets it go. Only for a process that these have started.
///
/// # Errors
/// Those that the parent has been told, too.
pub fn serve(assignment: &str) -> Result<(), LiveError> {
    let parent = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map(UnixStream::from)
        .map_err(LiveError::io("keep", "the connection to the parent"))?;
    let ended = prepare(assignment).and_then(|prepared| prepared.run(&parent));
    if let Err(error) = &ended {
        // If it cannot hear, it sees the end of the connection.
        let _ = send(&parent, &Hello::Failed(error.to_string()));
    }
    ended
}

#[derive(Debug)]
struct Prepared {
    assignment: Assignment,
    kernel: OwnedFd,
    known: Arc<Known>,
}

fn prepare(assignment: &str) -> Result<Prepared, LiveError> {
    let assignment: Assignment = serde_json::from_str(assignment)
        .map_err(|error| LiveError::Server(format!("does not understand its task: {error}")))?;
    // A terminal's signals are for the parent.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(LiveError::io("go to", "/"))?;
    let kernel = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(LiveError::io("keep", "the connection to the kernel"))?;
    safety::refuse_memory_limit()?;
    let options = assignment.options.checked()?;
    let disk = options.model()?;
    let (bytes, bound) = (
        options.bytes.unwrap_or(0),
        options.memory_bytes.unwrap_or(0),
    );
    let memory = Memory::new(bytes, bound).map_err(LiveError::io("make", "a file in memory"))?;
    safety::lock_memory()?;
    safety::declare_disk();
    let emulation = Emulation::new(disk, memory, Clock::start(options.scale));
    emulation.set_bad_spots(options.bad_spots.clone());
    let known = Known {
        options,
        emulation: Arc::new(emulation),
        runs_first: safety::may_run_first(),
        put_back: Mutex::new(None),
        seen_before: Mutex::default(),
    };
    Ok(Prepared {
        assignment,
        kernel,
        known: Arc::new(known),
    })
}

impl Prepared {
    fn run(self, parent: &UnixStream) -> Result<(), LiveError> {
        let Prepared {
            assignment,
            kernel,
            known,
        } = self;
        let io = |what| LiveError::io(what, "a thread of the emulated disk");
        if let Some(daemon) = &assignment.daemon {
            let listener = UnixListener::bind(&daemon.socket);
            let listener = listener.map_err(LiveError::io("listen at", &daemon.socket))?;
            known.listen(listener).map_err(io("start"))?;
        }
        let stays = assignment.daemon.is_some();
        let to_parent = parent.try_clone().map_err(io("connect"))?;
        talk(to_parent, Arc::clone(&known), stays).map_err(io("start"))?;
        // The threads before stay ordinary; those from here on answer the disk's users.
        safety::run_first();
        let emulation = Arc::clone(&known.emulation);
        thread::Builder::new()
            .name("answer".to_owned())
            .spawn(move || {
                // Users that nobody answers wait for ever: better no disk than a dumb one.
                let _ = catch_unwind(AssertUnwindSafe(|| emulation.answer_all()));
                std::process::abort();
            })
            .map_err(io("start"))?;
        let file = OneFile {
            name: assignment.name.clone(),
            bytes: known.options.bytes.unwrap_or(0),
            emulation: Arc::clone(&known.emulation),
        };
        let session = Session::from_fd(file, kernel, SessionACL::All, Config::default());
        let session = session.map_err(LiveError::io("speak with", "/dev/fuse"))?;
        send(parent, &Hello::Ready).map_err(LiveError::io("tell", "the parent"))?;
        let ended = session.run();
        put_back(&known);
        if let Some(daemon) = &assignment.daemon {
            remove(&daemon.socket);
            remove(&daemon.state);
        }
        ended.map_err(LiveError::io("speak with", "/dev/fuse"))
    }
}

/// Answers the parent's questions. When it is gone and the disk does not stay, ends this process
/// soon, should the kernel not have let the disk go before.
fn talk(parent: UnixStream, known: Arc<Known>, stays: bool) -> io::Result<()> {
    let talk = move || {
        let _ = known.converse(&parent);
        if !stays {
            thread::sleep(LAST_WRITES);
            put_back(&known);
            std::process::exit(1);
        }
    };
    thread::Builder::new()
        .name("parent".to_owned())
        .spawn(talk)?;
    Ok(())
}

fn put_back(known: &Known) {
    let before = known
        .put_back
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(before) = before {
        before.restore();
    }
}

fn remove(path: &Path) {
    // It may be gone already.
    let _ = fs::remove_file(path);
}
