//! Protocol between an emulated disk and its clients: one JSON document a line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bad_spots::BadSpot;
use super::emulation::Emulation;
use super::log::{Counts, Lateness, Log};
use super::queue_settings::Before;
use super::seen::Seen;
use super::way::Way;
use super::{LiveError, LiveOptions};

/// The disk must say that it is ready, or why not, within this time.
pub(super) const START_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A question, or something that the disk shall know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// How are you?
    Status,
    /// Asks for the log of requests.
    Log,
    /// Requests and answers are so long under way; nothing: answer at once, for it to be measured.
    Way(Option<Way>),
    /// These settings of the queue are to be put back at the end.
    PutBack(Before),
    /// Requests that touch these places are to fail, and no others.
    BadSpots(Vec<BadSpot>),
}

/// First thing that is said on the connection to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Hello {
    /// It can be opened.
    Ready,
    /// It cannot be.
    Failed(String),
}

/// Status of an emulated disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Options, with all defaults filled in.
    pub options: LiveOptions,
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// Counts of its work.
    pub counts: Counts,
    /// How late its answers were, in real time.
    pub lateness: Lateness,
    /// Its requests and their time as the kernel counts; `None`: it does not say.
    pub seen: Option<Seen>,
    /// How long requests and answers are under way, which the answers make up for.
    pub way: Way,
    /// Bytes of memory that its data take.
    pub memory_used: u64,
    /// Bound on them.
    pub memory_bound: u64,
    /// Its threads run before ordinary ones (`SCHED_FIFO`); if not, a busy machine makes it late.
    pub runs_first: bool,
}

/// State shared with the threads that answer queries.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) options: LiveOptions,
    pub(super) emulation: Arc<Emulation>,
    pub(super) runs_first: bool,
    pub(super) put_back: Mutex<Option<Before>>,
    /// What the kernel had counted when the disk was made.
    pub(super) seen_before: Mutex<Seen>,
}

impl Known {
    fn status(&self) -> Status {
        let (counts, lateness) = self.emulation.counts();
        Status {
            options: LiveOptions {
                bad_spots: self.emulation.bad_spots(),
                ..self.options.clone()
            },
            age_seconds: self.emulation.age().as_secs(),
            counts,
            lateness,
            seen: self.seen(),
            way: self.emulation.way(),
            memory_used: self.emulation.memory.used(),
            memory_bound: self.emulation.memory.bound(),
            runs_first: self.runs_first,
        }
    }

    /// What the kernel has counted since the disk was made.
    fn seen(&self) -> Option<Seen> {
        let kept = self.put_back.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = Seen::of(kept.as_ref()?.device())?;
        let before = self.seen_before.lock();
        Some(seen.since(*before.unwrap_or_else(PoisonError::into_inner)))
    }

    /// Answers questions until the other side closes.
    pub(super) fn converse(&self, stream: &UnixStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream);
        while let Some(ask) = receive::<Ask>(&mut lines)? {
            match ask {
                Ask::Status => send(stream, &self.status())?,
                Ask::Log => send(stream, &self.emulation.log())?,
                Ask::Way(way) => {
                    self.emulation.set_way(way);
                    // What was asked to measure the way was answered at once.
                    if let Some(seen) = self.seen() {
                        let before = self.seen_before.lock();
                        let mut before = before.unwrap_or_else(PoisonError::into_inner);
                        before.requests += seen.requests;
                        before.ns += seen.ns;
                    }
                    send(stream, &())?;
                }
                Ask::PutBack(before) => {
                    let mut kept = self.put_back.lock().unwrap_or_else(PoisonError::into_inner);
                    *kept = Some(before);
                    send(stream, &())?;
                }
                Ask::BadSpots(spots) => {
                    self.emulation.set_bad_spots(spots);
                    send(stream, &())?;
                }
            }
        }
        Ok(())
    }

    /// Answers whoever connects, one after the other, for ever.
    pub(super) fn listen(self: &Arc<Known>, listener: UnixListener) -> io::Result<()> {
        let known = Arc::clone(self);
        let listen = move || {
            for stream in listener.incoming().flatten() {
                // Who says nothing, or does not listen, shall not keep others away.
                let _ = stream.set_read_timeout(Some(ANSWER_WITHIN));
                let _ = stream.set_write_timeout(Some(ANSWER_WITHIN));
                let _ = known.converse(&stream);
            }
        };
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(listen)?;
        Ok(())
    }
}

/// A connection to an emulated disk.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, path: PathBuf) -> Result<Connection, LiveError> {
        let io = |error| LiveError::io("set up", &path)(error);
        stream.set_read_timeout(Some(START_WITHIN)).map_err(io)?;
        stream.set_write_timeout(Some(ANSWER_WITHIN)).map_err(io)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            path,
        })
    }

    /// To the disk that listens here.
    pub(super) fn open(path: &Path) -> Result<Connection, LiveError> {
        let stream = UnixStream::connect(path).map_err(LiveError::io("connect to", path))?;
        Connection::new(stream, path.to_owned())
    }

    /// Waits until the disk is ready.
    pub(super) fn hello(&mut self) -> Result<(), LiveError> {
        match self.receive()? {
            Hello::Ready => Ok(()),
            Hello::Failed(why) => Err(LiveError::Server(why)),
        }
    }

    pub(super) fn status(&mut self) -> Result<Status, LiveError> {
        self.ask(&Ask::Status)
    }

    pub(super) fn log(&mut self) -> Result<Log, LiveError> {
        self.ask(&Ask::Log)
    }

    /// Tells the disk how long requests and answers are under way, or to answer at once.
    pub(super) fn way(&mut self, way: Option<Way>) -> Result<(), LiveError> {
        self.ask(&Ask::Way(way))
    }

    pub(super) fn put_back(&mut self, before: Before) -> Result<(), LiveError> {
        self.ask(&Ask::PutBack(before))
    }

    pub(super) fn bad_spots(&mut self, spots: Vec<BadSpot>) -> Result<(), LiveError> {
        self.ask(&Ask::BadSpots(spots))
    }

    fn ask<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<T, LiveError> {
        send(self.stream.get_ref(), ask).map_err(LiveError::io("ask", &self.path))?;
        self.receive()
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T, LiveError> {
        let received = receive(&mut self.stream).map_err(LiveError::io("hear from", &self.path))?;
        received.ok_or_else(|| LiveError::Server("it ended without a word".to_owned()))
    }
}

pub(super) fn send(mut stream: &UnixStream, said: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive<T: DeserializeOwned>(lines: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
