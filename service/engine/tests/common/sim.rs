//! A disk in memory that remembers every write and flush and can fail on demand.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, unbounded};
use lumpscope_engine::device::{
    Completion, Device, Io, IoBackend, Mailbox, MailboxSender, Wait, Waker,
};
use lumpscope_engine::{Error, IoBackendKind, IoOp, Store, StoreOptions};

pub const SECTOR: usize = 512;

/// What happened, in order.
#[derive(Clone, Debug)]
pub enum Event {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    Flush,
    /// Something the test wants to find again.
    Mark(usize),
}

/// Which I/O fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub op: IoOp,
    /// The n-th I/O of this kind fails, 0 = the next; all later ones too.
    pub after: usize,
    pub errno: i32,
    /// Only I/Os that begin before this byte; the journal lies before the data.
    pub below: u64,
}

#[derive(Debug, Default)]
pub struct State {
    pub bytes: Vec<u8>,
    pub events: Vec<Event>,
    pub record: bool,
    pub fault: Option<Fault>,
}

/// The disk; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    pub state: Arc<Mutex<State>>,
    pub unit: u32,
    /// I/Os run on a thread of their own in random order, from this seed.
    pub shuffle: Option<u64>,
}

impl SimDisk {
    pub fn new(bytes: Vec<u8>) -> Self {
        let state = State {
            bytes,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            unit: SECTOR as u32,
            shuffle: None,
        }
    }

    pub fn recording(bytes: Vec<u8>) -> Self {
        let disk = Self::new(bytes);
        disk.state.lock().unwrap().record = true;
        disk
    }

    pub fn mark(&self, mark: usize) {
        self.state.lock().unwrap().events.push(Event::Mark(mark));
    }

    pub fn fail(&self, fault: Option<Fault>) {
        self.state.lock().unwrap().fault = fault;
    }

    pub fn device(&self) -> Device {
        let mailbox = Mailbox::default();
        let sender = mailbox.sender();
        let state = Arc::clone(&self.state);
        let backend: Box<dyn IoBackend> = match self.shuffle {
            None => Box::new(SimBackend { state, mailbox }),
            Some(seed) => {
                let (queue, ios) = unbounded();
                std::thread::spawn(move || run_shuffled(seed, &ios, &state, &sender));
                Box::new(ShuffledBackend { queue, mailbox })
            }
        };
        Device {
            path: PathBuf::from("sim"),
            size: self.state.lock().unwrap().bytes.len() as u64,
            is_block_device: true,
            alignment: self.unit,
            memory_alignment: 512,
            backend,
        }
    }

    pub fn open(&self) -> Result<Store, Error> {
        Store::open_on(self.device(), StoreOptions::new("sim"))
    }
}

struct SimBackend {
    state: Arc<Mutex<State>>,
    mailbox: Mailbox,
}

impl IoBackend for SimBackend {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, mut io: Io) {
        let result = self.state.lock().unwrap().transfer(&mut io);
        self.mailbox.sender().send(Completion {
            token: io.token,
            buf: io.buf,
            result,
        });
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.mailbox.wait(ended, wait);
    }

    fn waker(&self) -> Waker {
        self.mailbox.waker()
    }
}

struct ShuffledBackend {
    queue: Sender<Io>,
    mailbox: Mailbox,
}

impl IoBackend for ShuffledBackend {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, io: Io) {
        let _ = self.queue.send(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.mailbox.wait(ended, wait);
    }

    fn waker(&self) -> Waker {
        self.mailbox.waker()
    }
}

fn run_shuffled(seed: u64, ios: &Receiver<Io>, state: &Mutex<State>, sender: &MailboxSender) {
    let mut random = Random(seed);
    let mut waiting = Vec::new();
    loop {
        waiting.extend(ios.try_iter());
        if waiting.is_empty() {
            match ios.recv() {
                Ok(io) => waiting.push(io),
                Err(_) => return,
            }
        }
        let mut io: Io = waiting.swap_remove(random.below(waiting.len()));
        if io.op == IoOp::Flush {
            // A flush takes long: what arrives meanwhile may be done before it.
            while let Ok(more) = ios.recv_timeout(std::time::Duration::from_micros(200)) {
                waiting.push(more);
                let at = random.below(waiting.len() + 1);
                if at < waiting.len() {
                    io = std::mem::replace(&mut waiting[at], io);
                    break;
                }
            }
        }
        let result = state.lock().unwrap().transfer(&mut io);
        sender.send(Completion {
            token: io.token,
            buf: io.buf,
            result,
        });
    }
}

/// Small reproducible random numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

impl State {
    fn transfer(&mut self, io: &mut Io) -> io::Result<()> {
        if let Some(fault) = self.fault.as_mut()
            && fault.op == io.op
            && io.offset < fault.below
        {
            if fault.after == 0 {
                return Err(io::Error::from_raw_os_error(fault.errno));
            }
            fault.after -= 1;
        }
        let from = usize::try_from(io.offset).unwrap();
        match (io.op, io.buf.as_mut()) {
            (IoOp::Read, Some(buf)) => {
                let to = from + buf.len();
                buf.copy_from_slice(&self.bytes[from..to]);
            }
            (IoOp::Write, Some(buf)) => {
                assert!(
                    from % SECTOR == 0 && buf.len() % SECTOR == 0,
                    "whole sectors"
                );
                self.bytes[from..from + buf.len()].copy_from_slice(buf);
                if self.record {
                    self.events.push(Event::Write {
                        offset: from,
                        bytes: buf.to_vec(),
                    });
                }
            }
            _ => {
                if self.record {
                    self.events.push(Event::Flush);
                }
            }
        }
        Ok(())
    }
}
