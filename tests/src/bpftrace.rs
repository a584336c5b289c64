//! The independent tracer: `ebpf/bpftrace/block-count.bt`, run as a person would run it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running count of the block requests of one disk.
#[derive(Debug)]
pub struct BlockCount {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// What was counted: operation to (requests, bytes).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counted(BTreeMap<String, (u64, u64)>);

impl Counted {
    /// Requests and bytes of `read`, `write`, `flush`, `flush-asked`, `discard` or `other`.
    pub fn total(&self, operation: &str) -> (u64, u64) {
        self.0.get(operation).copied().unwrap_or_default()
    }
}

impl BlockCount {
    /// Starts to count on the disk with this device number (as `stat` shows it); returns when it counts.
    ///
    /// # Panics
    /// When bpftrace does not start.
    pub fn start(devno: u64) -> BlockCount {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebpf/bpftrace/block-count.bt");
        // A mount namespace of its own: where tracefs is not mounted, nothing stays mounted.
        let shell = "[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace -B none \"$@\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", shell, "sh"])
            .arg(&script)
            .args([
                rustix::fs::major(devno).to_string(),
                rustix::fs::minor(devno).to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare starts");
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let count = output.read_line(&mut line).expect("bpftrace prints text");
            assert!(
                count > 0,
                "bpftrace ended before it counted: run ebpf/bpftrace/block-count.bt by hand"
            );
        }
        BlockCount { child, output }
    }

    /// Stops it as Ctrl-C would, and reads what it prints.
    ///
    /// # Panics
    /// When bpftrace fails or prints something else.
    pub fn finish(mut self) -> Counted {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .expect("bpftrace can be signalled");
        let mut text = String::new();
        self.output
            .read_to_string(&mut text)
            .expect("bpftrace prints text");
        self.child.wait().expect("bpftrace can be waited for");
        let mut counted = Counted::default();
        for line in text.lines().filter(|line| line.starts_with('@')) {
            let (name, rest) = line.split_once('[').expect("@name[keys]: value");
            let (keys, value) = rest.split_once("]: ").expect("@name[keys]: value");
            let operation = keys.rsplit(", ").next().expect("a key").to_owned();
            let value: u64 = value.trim().parse().expect("a number");
            let entry = counted.0.entry(operation).or_default();
            match name {
                "@requests" => entry.0 = value,
                "@bytes" => entry.1 = value,
                _ => panic!("an unknown map: {line}"),
            }
        }
        counted
    }
}

impl Drop for BlockCount {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
