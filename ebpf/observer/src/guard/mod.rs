//! The guard: only this process opens the stores' block devices for writing, where the kernel can
//! see to it (BPF LSM).
//!
//! A help against mistakes, no security boundary: it fails open, and whoever may load programs may
//! also take it away. It lives as long as this process, however that ends. What is said to be
//! effective was tried: see [`proof`].

mod devices;
mod program;
mod proof;
mod telling;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lumpscope_ebpf_common::guard::{MAX_GUARDED, OpenCounts};

use crate::api::{GuardPolicy, WatchedStore};
use crate::report::GuardReport;
use program::{GuardError, GuardProgram};
use proof::{TestNode, Verdict};
use telling::Telling;

/// How often the partitions are looked at again, and foreign opens are told in the log.
const PERIOD: Duration = Duration::from_secs(1);
/// The kernel's security modules, in the order in which they are asked.
const MODULES: &str = "/sys/kernel/security/lsm";

/// The guards of all stores.
#[derive(Debug)]
pub(crate) struct Guard {
    program: Option<GuardProgram>,
    node: Option<TestNode>,
    /// Only those whose policy is not `Off`.
    stores: Vec<Guarded>,
    tended: Instant,
}

/// The guard of one store.
#[derive(Debug)]
struct Guarded {
    index: usize,
    path: PathBuf,
    /// The store's own device; `None`: it has none.
    dev: Option<u32>,
    /// Guarded devices that lead to its bytes; empty: none.
    armed: Vec<Armed>,
    /// Counted on devices that are gone.
    gone: OpenCounts,
    report: GuardReport,
    telling: Telling,
}

/// A guarded device of a store.
#[derive(Debug, Clone, Copy)]
struct Armed {
    dev: u32,
    /// Counts before it was guarded for this store: another store may be on the same disk.
    before: OpenCounts,
}

impl Guard {
    /// Guards nothing.
    pub(crate) fn new() -> Guard {
        Guard {
            program: None,
            node: None,
            stores: Vec::new(),
            tended: Instant::now(),
        }
    }

    /// Guards the device of a store as it asks, and tries whether that works. Never fails: the
    /// report says what came of it. Blocks for some milliseconds, for the first store longer.
    pub(crate) fn arm(&mut self, index: usize, store: &WatchedStore) {
        if store.guard == GuardPolicy::Off {
            return;
        }
        let mut guarded = Guarded {
            index,
            path: store.path.clone(),
            dev: None,
            armed: Vec::new(),
            gone: OpenCounts::default(),
            report: GuardReport {
                policy: store.guard,
                ..GuardReport::default()
            },
            telling: Telling::new(&store.name),
        };
        match devices::device_at(&store.path) {
            Ok(dev) => guarded.dev = Some(dev),
            Err(why) => guarded.report.why_not = why,
        }
        self.stores.push(guarded);
        let at = self.stores.len() - 1;
        let Some(dev) = self.stores[at].dev else {
            return;
        };
        let done = self.begin(at, dev);
        let report = &mut self.stores[at].report;
        match done {
            Ok(()) => report.effective = true,
            Err(why) => report.why_not = why,
        }
        let (store, policy) = (&store.name, store.guard);
        match report.effective {
            true => tracing::info!(store, ?policy, "the device is guarded"),
            // Whoever started the observer says so, with what follows from it.
            false => tracing::debug!(store, ?policy, why = report.why_not, "not guarded"),
        }
    }

    /// Guards and tries; an error says in words what is not as it should be.
    fn begin(&mut self, at: usize, dev: u32) -> Result<(), String> {
        self.load().map_err(|error| explained(&error))?;
        let wanted = devices::overlapping(dev)
            .map_err(|error| format!("sysfs does not tell which devices lead to it: {error}"))?;
        if let Err(error) = self.cover(at, &wanted) {
            self.uncover(at);
            return Err(format!(
                "{error}; at most {MAX_GUARDED} devices can be guarded"
            ));
        }
        let why = match self.prove(at, dev) {
            Ok(Verdict::Proved) => return Ok(()),
            Ok(Verdict::Disproved) => never_asked(),
            Ok(Verdict::Unknown(code)) => format!(
                "whether the guard works cannot be tried: {}",
                std::io::Error::from_raw_os_error(code)
            ),
            Err(error) => error.to_string(),
        };
        // What is not said to be effective must not be in anybody's way.
        self.uncover(at);
        Err(why)
    }

    fn load(&mut self) -> Result<(), GuardError> {
        if self.program.is_none() {
            self.program = Some(GuardProgram::attach()?);
            self.node = match TestNode::new() {
                Ok(node) => Some(node),
                Err(error) => {
                    tracing::debug!(%error, "no node to try the guard on: the device itself is used");
                    None
                }
            };
        }
        Ok(())
    }

    fn prove(&mut self, at: usize, dev: u32) -> Result<Verdict, GuardError> {
        let strictest = self.policy_of(dev);
        let Some(program) = &mut self.program else {
            return Ok(Verdict::Disproved);
        };
        let store = &self.stores[at];
        if let Some(node) = &self.node {
            let verdict = node.prove(program, store.report.policy)?;
            if !matches!(verdict, Verdict::Unknown(_)) {
                return Ok(verdict);
            }
        }
        let verdict = proof::prove_on(program, &store.path, dev, strictest);
        // The trial is no foreign open.
        self.stores[at].rebase(self.program.as_ref());
        Ok(verdict)
    }

    /// Makes `wanted` the devices that are guarded for a store.
    fn cover(&mut self, at: usize, wanted: &[u32]) -> Result<(), GuardError> {
        let before: Vec<u32> = self.stores[at].armed.iter().map(|a| a.dev).collect();
        for &dev in before.iter().filter(|dev| !wanted.contains(dev)) {
            self.let_go(at, dev)?;
        }
        for &dev in wanted.iter().filter(|dev| !before.contains(dev)) {
            let policy = self.policy_of(dev).max(self.stores[at].report.policy);
            let Some(program) = &mut self.program else {
                return Ok(());
            };
            program.arm(dev, policy)?;
            let before = program.counts(dev);
            self.stores[at].armed.push(Armed { dev, before });
        }
        Ok(())
    }

    /// One device of a store need not be guarded any more, unless another store wants it.
    fn let_go(&mut self, at: usize, dev: u32) -> Result<(), GuardError> {
        let Some(position) = self.stores[at].armed.iter().position(|a| a.dev == dev) else {
            return Ok(());
        };
        let armed = self.stores[at].armed.swap_remove(position);
        let policy = self.policy_of(dev);
        if let Some(program) = &mut self.program {
            let counted = since(program.counts(dev), armed.before);
            let gone = &mut self.stores[at].gone;
            *gone = sum(*gone, counted);
            program.arm(dev, policy)?;
        }
        Ok(())
    }

    /// Nothing is guarded for this store any more; when nothing is at all, the program goes too.
    fn uncover(&mut self, at: usize) {
        if let Err(error) = self.cover(at, &[]) {
            tracing::warn!(%error, "a device is still guarded until the service ends");
        }
        if self.stores.iter().all(|store| store.armed.is_empty()) {
            (self.program, self.node) = (None, None);
        }
    }

    /// The strictest policy that any store has for a device.
    fn policy_of(&self, dev: u32) -> GuardPolicy {
        let of_it = |store: &&Guarded| store.armed.iter().any(|armed| armed.dev == dev);
        let policies = self.stores.iter().filter(of_it).map(|s| s.report.policy);
        policies.max().unwrap_or_default()
    }

    /// The store is gone: its device is free.
    pub(crate) fn disarm(&mut self, index: usize) {
        if let Some(at) = self.stores.iter().position(|store| store.index == index) {
            self.uncover(at);
            self.stores.remove(at);
        }
    }

    /// Looks at the partitions again and tells of foreign opens, once a second.
    pub(crate) fn tend(&mut self) {
        if self.program.is_none() || self.tended.elapsed() < PERIOD {
            return;
        }
        self.tended = Instant::now();
        self.take_opens();
        for at in 0..self.stores.len() {
            self.follow_partitions(at);
            let now = self.stores[at].counted(self.program.as_ref());
            let store = &mut self.stores[at];
            store.telling.tell(now);
        }
    }

    fn follow_partitions(&mut self, at: usize) {
        let store = &self.stores[at];
        let Some(dev) = store.dev.filter(|_| !store.armed.is_empty()) else {
            return;
        };
        // A disk that is just being unplugged keeps what it had.
        let Ok(wanted) = devices::overlapping(dev) else {
            return;
        };
        if let Err(error) = self.cover(at, &wanted) {
            let store = &self.stores[at].telling.store;
            tracing::warn!(store, %error, "a new partition is not guarded");
        }
    }

    fn take_opens(&mut self) {
        let Some(program) = &mut self.program else {
            return;
        };
        let trial = self.node.as_ref().map(TestNode::dev);
        while let Some(open) = program.next_open() {
            if Some(open.dev) == trial {
                continue;
            }
            for store in &mut self.stores {
                if store.armed.iter().any(|armed| armed.dev == open.dev) {
                    store.telling.keep(&open);
                }
            }
        }
    }

    /// State and counts of a store's guard; `None`: none was asked for.
    pub(crate) fn report(&mut self, index: usize) -> Option<GuardReport> {
        self.take_opens();
        let program = self.program.as_ref();
        let store = self.stores.iter().find(|store| store.index == index)?;
        let counted = store.counted(program);
        Some(GuardReport {
            denied: counted.denied,
            allowed: counted.allowed,
            recent: store.telling.recent(),
            ..store.report.clone()
        })
    }

    /// Lets every device go. Reports stay readable.
    pub(crate) fn end(&mut self) {
        self.take_opens();
        for store in &mut self.stores {
            store.gone = store.counted(self.program.as_ref());
            store.telling.tell(store.gone);
            store.armed.clear();
            if store.report.effective {
                store.report.effective = false;
                store.report.why_not = "the observer has ended".to_owned();
            }
        }
        (self.program, self.node) = (None, None);
    }
}

impl Guarded {
    fn counted(&self, program: Option<&GuardProgram>) -> OpenCounts {
        let Some(program) = program else {
            return self.gone;
        };
        let counts = self.armed.iter();
        let counts = counts.map(|armed| since(program.counts(armed.dev), armed.before));
        counts.fold(self.gone, sum)
    }

    /// Forgets what was counted so far.
    fn rebase(&mut self, program: Option<&GuardProgram>) {
        let Some(program) = program else { return };
        for armed in &mut self.armed {
            armed.before = program.counts(armed.dev);
        }
        self.gone = OpenCounts::default();
    }
}

fn since(now: OpenCounts, before: OpenCounts) -> OpenCounts {
    OpenCounts {
        denied: now.denied.saturating_sub(before.denied),
        allowed: now.allowed.saturating_sub(before.allowed),
    }
}

fn sum(a: OpenCounts, b: OpenCounts) -> OpenCounts {
    OpenCounts {
        denied: a.denied.saturating_add(b.denied),
        allowed: a.allowed.saturating_add(b.allowed),
    }
}

/// The kernel's security modules; `None`: it does not say.
fn modules() -> Option<String> {
    let text = fs::read_to_string(MODULES).ok()?;
    Some(text.trim().to_owned())
}

fn has_bpf(modules: &str) -> bool {
    modules.split(',').any(|module| module == "bpf")
}

/// Why the program is not there, with the reason behind it where that is known.
fn explained(error: &GuardError) -> String {
    match modules() {
        Some(list) if !has_bpf(&list) => format!("{error}; {}", lacks_bpf(&list)),
        _ => error.to_string(),
    }
}

/// Why an attached program does nothing.
fn never_asked() -> String {
    let why = match modules() {
        Some(list) if !has_bpf(&list) => lacks_bpf(&list),
        _ => "why is not known".to_owned(),
    };
    format!("it attaches, but an open by another process was not denied or seen: {why}")
}

fn lacks_bpf(list: &str) -> String {
    format!("`bpf` is not among the kernel's security modules ({list})")
}

/// Whether this kernel can guard at all; an error says in words why not.
pub(crate) fn trial() -> Result<(), String> {
    let mut program = GuardProgram::attach().map_err(|error| explained(&error))?;
    let node = TestNode::new()
        .map_err(|error| format!("it attaches; there is no node to try it on: {error}"))?;
    match node.prove(&mut program, GuardPolicy::Deny) {
        Ok(Verdict::Proved) => Ok(()),
        Ok(Verdict::Disproved) => Err(never_asked()),
        Ok(Verdict::Unknown(code)) => Err(format!(
            "it attaches; the open that was to try it was refused before: {}",
            std::io::Error::from_raw_os_error(code)
        )),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_asks_for_nothing_has_no_report_and_loads_nothing() {
        let mut guard = Guard::new();
        let store = |guard, path: &str| WatchedStore {
            name: "a".to_owned(),
            path: path.into(),
            guard,
        };
        guard.arm(0, &store(GuardPolicy::Off, "/dev/null"));
        assert_eq!(guard.report(0), None);
        assert!(guard.program.is_none());
        // Neither does one that is a file.
        guard.arm(1, &store(GuardPolicy::Deny, "/proc/self/status"));
        let report = guard.report(1).expect("a report");
        assert!(!report.effective && guard.program.is_none());
        assert!(report.why_not.contains("not a block device"), "{report:?}");
        guard.disarm(1);
        assert_eq!(guard.report(1), None);
    }

    #[test]
    fn the_list_of_modules_is_read_by_whole_names() {
        assert!(has_bpf("lockdown,capability,bpf"));
        assert!(!has_bpf("lockdown,ebpf,yama"));
        assert!(!has_bpf(""));
    }
}
