//! Block requests as the kernel's own tracer writes them down.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::PathBuf;

/// One block request.
#[derive(Debug, Clone)]
pub(crate) struct FtraceRequest {
    /// First letter of the operation: R, W, or F of a flush that was sent to the disk.
    pub(crate) op: char,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    /// In nanoseconds, whole microseconds of them.
    pub(crate) queue: Option<u64>,
    pub(crate) issue: u64,
    pub(crate) done: u64,
    /// Thread that made it; 0: not seen.
    pub(crate) tid: u32,
    /// For the file system itself.
    pub(crate) metadata: bool,
}

impl FtraceRequest {
    pub(crate) fn end(&self) -> u64 {
        self.sector + self.sectors
    }

    /// When it is known to have existed first.
    pub(crate) fn first(&self) -> u64 {
        self.queue.unwrap_or(self.issue)
    }
}

/// Of a disk that makes requests, and of one that is given bios.
const EVENTS: [&[&str]; 2] = [
    &["block_io_start", "block_rq_issue", "block_rq_complete"],
    &["block_bio_queue", "block_bio_complete"],
];

/// An instance of the tracer for one disk; gone when dropped.
pub(crate) struct Ftrace {
    dir: PathBuf,
}

impl Ftrace {
    /// `None`: the kernel lacks one of the tracepoints.
    pub(crate) fn start((major, minor): (u32, u32)) -> Option<Ftrace> {
        let name = format!("lumpscope-test-{}", std::process::id());
        let dir = PathBuf::from("/sys/kernel/tracing/instances").join(name);
        let at = |event: &str| format!("events/block/{event}");
        fs::create_dir(&dir).expect("an instance");
        let it = Ftrace { dir };
        let disk = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let disk = disk.canonicalize().expect("a disk");
        let events = EVENTS[usize::from(!disk.join("mq").exists())];
        if events.iter().any(|event| !it.dir.join(at(event)).exists()) {
            return None;
        }
        it.tell("trace_clock", "mono");
        it.tell("buffer_size_kb", "16384");
        for event in events {
            let filter = format!("dev == {}", (major << 20) | minor);
            it.tell(&format!("{}/filter", at(event)), &filter);
            it.tell(&format!("{}/enable", at(event)), "1");
        }
        Some(it)
    }

    fn tell(&self, file: &str, text: &str) {
        let told = fs::write(self.dir.join(file), text);
        told.unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// All block requests that have completed, in the order in which they were sent.
    pub(crate) fn finish(&self) -> Vec<FtraceRequest> {
        self.tell("tracing_on", "0");
        let text = fs::read_to_string(self.dir.join("trace")).expect("a trace");
        let mut requests = Pending::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            requests.line(line);
        }
        requests.done.sort_by_key(|request| request.issue);
        requests.done
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        // Nobody reads it any more; it is removed with all that was told it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Those that have not completed.
#[derive(Default)]
struct Pending {
    made: HashMap<(char, u64), VecDeque<(u64, u32)>>,
    sent: HashMap<(char, u64), VecDeque<FtraceRequest>>,
    done: Vec<FtraceRequest>,
}

impl Pending {
    /// As `dd-712 [001] d..1. 14.000001: block_rq_issue: 7,0 W 4096 () 2048 + 8 none,0,0 [dd]`.
    fn line(&mut self, line: &str) {
        let (head, what) = line.split_once(": block_").expect("an event of a disk");
        let (task, at) = head.rsplit_once(' ').expect("a time");
        let (seconds, micros) = at.split_once('.').expect("microseconds");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let at = number(seconds) * 1_000_000_000 + number(micros) * 1000;
        let task = task.split(" [").next().expect("a task").trim();
        let tid = task.rsplit_once('-').expect("its number").1;
        let (event, what) = what.split_once(": ").expect("what it was");
        let words: Vec<&str> = what.split_whitespace().collect();
        let plus = words
            .iter()
            .position(|word| *word == "+")
            .expect("a length");
        let (sector, sectors) = (number(words[plus - 1]), number(words[plus + 1]));
        let flags = words[1];
        let op = match flags {
            flush if flush.starts_with("FF") => 'F',
            // A bio that asks for nothing else.
            _ if sectors == 0 && event.starts_with("bio_") => 'F',
            other => other.trim_start_matches('F').chars().next().unwrap_or('N'),
        };
        if sectors == 0 && op != 'F' {
            // It asked for a flush, which is an event of its own.
            return;
        }
        let key = (op, if op == 'F' { 0 } else { sector });
        if matches!(event, "io_start" | "bio_queue") {
            let made = (at, tid.parse().expect("a number"));
            self.made.entry(key).or_default().push_back(made);
        }
        match event {
            "io_start" => {}
            "rq_issue" | "bio_queue" => {
                let made = self.made.entry(key).or_default().pop_front();
                self.sent.entry(key).or_default().push_back(FtraceRequest {
                    op,
                    sector: key.1,
                    sectors,
                    queue: made.map(|(at, _)| at),
                    issue: at,
                    done: 0,
                    tid: made.map_or(0, |(_, tid)| tid),
                    metadata: flags.contains('M'),
                });
            }
            _ => {
                if let Some(sent) = self.sent.entry(key).or_default().pop_front() {
                    self.done.push(FtraceRequest { done: at, ..sent });
                }
            }
        }
    }
}
