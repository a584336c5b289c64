//! The loaded probes: load, attach, read, detach.

use std::borrow::Cow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfError, EbpfLoader};
use lumpscope_ebpf_common::{
    BlockEvent, InFlight, KEPT_ONE_IN, Last, MAX_DEVICES, MAX_IN_FLIGHT, RING_BYTES, Ranges,
    control, flag2, histogram, kernel_dev, row, stats,
};
use thiserror::Error;

use crate::api::{EVERY_EVENT, EventPolicy, Flavour, ObjectSource, Tuning};
use crate::device::Layer;
use crate::heat::{self, Cells};
use crate::kernel::{self, Hook, LoadPlan, PlanError, Release};
use crate::pins::{PinError, Pins};
use crate::report::ProbeProgram;
use crate::shared_map::{Access, SharedMap};
use crate::submission;

static PREBUILT: &[u8] = aya::include_bytes_aligned!("../../prebuilt/lumpscope-probes.o");
/// Names the object to load instead of the embedded one.
const OBJECT_VARIABLE: &str = "LUMPSCOPE_PROBE_OBJECT";

/// Disks that can be watched beside those known when the probes are loaded: the histogram takes
/// half a MiB of the kernel's memory for each.
const SPARE_DEVICES: u32 = 8;

/// Inode of the pid namespace that all others lie in: `PROC_PID_INIT_INO` of the kernel.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Counters of one disk, summed over the CPUs.
pub(crate) type Counters = [u64; stats::COUNT];

/// Why no flavour could be used.
#[derive(Debug, Error)]
pub(crate) enum ProbeError {
    /// The object cannot be read.
    #[error("cannot read the probe object {path}: {source}")]
    Object {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The kernel offers something else than the probes need.
    #[error("{}: {error}", flavour.name())]
    Plan { flavour: Flavour, error: PlanError },
    /// The kernel refused the object's maps.
    #[error("{}: cannot load: {}", flavour.name(), brief(error))]
    Load {
        flavour: Flavour,
        error: Box<EbpfError>,
    },
    /// The kernel refused a program.
    #[error("{}: program {program}: {}", flavour.name(), brief(error))]
    Program {
        flavour: Flavour,
        program: &'static str,
        error: Box<ProgramError>,
    },
    /// The object lacks something, or a map is not what it should be.
    #[error("the probe object has no usable `{name}`: rebuild it with ebpf/build-probes")]
    Part { name: &'static str },
    /// A map cannot be shared with the kernel.
    #[error("cannot map `{name}`: {error}")]
    Map {
        name: &'static str,
        error: std::io::Error,
    },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<ProbeError>),
}

/// Attached probes. Dropping them detaches.
pub(crate) struct Probes {
    pub(crate) flavour: Flavour,
    ring: RingBuf<MapData>,
    histogram: SharedMap,
    rows: SharedMap,
    pub(crate) control: SharedMap,
    counters: PerCpuArray<MapData, Counters>,
    /// The number of a disk, or of a path to one: its slot, and the disk's number.
    devices: HashMap<MapData, u32, [u32; 2]>,
    /// Those that make no requests.
    bio_devices: HashMap<MapData, u32, [u32; 2]>,
    in_flight: HashMap<MapData, [u64; 2], [u64; InFlight::WORDS]>,
    /// The last request sent to each disk.
    last: Array<MapData, [u64; Last::WORDS]>,
    slots: u32,
    /// The programs that are attached, and those that could not be.
    hooks: Vec<Hook>,
    /// Further programs for disks that make no requests; empty once they are attached.
    bio_hooks: Result<Vec<Hook>, String>,
    /// As these, for disks that paths lead to.
    path_hooks: Result<Vec<Hook>, String>,
    /// Of the kernel's BPF statistics: they are on as long as it is open.
    statistics: Option<OwnedFd>,
    /// Shared with the threads that do I/O, once somebody has taken it.
    submissions: Option<SharedMap>,
    /// Unpins what was pinned.
    _pins: Option<Pins>,
    /// Keeps programs and links alive.
    ebpf: Ebpf,
}

impl std::fmt::Debug for Probes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probes")
            .field("flavour", &self.flavour)
            .finish_non_exhaustive()
    }
}

impl Probes {
    /// Loads and attaches the best flavour that works. Nothing is watched yet. There is room for
    /// `devices` disks and some more.
    pub(crate) fn attach(
        object: &ObjectSource,
        tuning: &Tuning,
        devices: u32,
    ) -> Result<Probes, ProbeError> {
        let bytes = read_object(object)?;
        let mut failures = Vec::new();
        for flavour in kernel::ladder(Release::running(), tuning.flavour) {
            let attempt = kernel::plan(flavour, &tuning.hidden_hooks)
                .map_err(|error| ProbeError::Plan { flavour, error })
                .and_then(|plan| Probes::attach_what_can_be(plan, &bytes, tuning, devices));
            match attempt {
                Ok(probes) => return Ok(probes),
                Err(failure) => failures.push(failure),
            }
        }
        Err(ProbeError::All(failures))
    }

    /// Begins anew without a program that the kernel refuses, if it can be done without: the others
    /// must know before they are loaded.
    fn attach_what_can_be(
        mut plan: LoadPlan,
        object: &[u8],
        tuning: &Tuning,
        devices: u32,
    ) -> Result<Probes, ProbeError> {
        loop {
            match Probes::attach_plan(&plan, object, tuning, devices) {
                Err(ProbeError::Program { program, error, .. })
                    if plan.give_up(program, &brief(&*error)) => {}
                attempt => return attempt,
            }
        }
    }

    fn attach_plan(
        plan: &LoadPlan,
        object: &[u8],
        tuning: &Tuning,
        devices: u32,
    ) -> Result<Probes, ProbeError> {
        let flavour = plan.flavour;
        let slots = devices.saturating_add(SPARE_DEVICES).min(MAX_DEVICES);
        let (tgid, namespace) = (std::process::id(), own_namespace());
        let in_flight = tuning.in_flight.unwrap_or(MAX_IN_FLIGHT);
        let keep = in_flight / KEPT_ONE_IN;
        let mut loader = EbpfLoader::new();
        for (name, value) in &plan.globals {
            loader.override_global(name, value, true);
        }
        loader
            .override_global("OWN_TGID", &tgid, true)
            .override_global("NS_DEV", &namespace.0, true)
            .override_global("NS_INO", &namespace.1, true)
            .override_global("KEEP", &keep, true)
            .override_global("SKIP_DONE", &tuning.overlook_one_in, true)
            .map_max_entries("IN_FLIGHT", in_flight)
            .map_max_entries("HISTOGRAM", slots * histogram::CELLS_PER_DEVICE)
            .map_max_entries("ROWS", slots * row::ROWS_PER_DEVICE)
            .map_max_entries("EVENTS", tuning.ring_bytes.unwrap_or(RING_BYTES));
        let mut ebpf = loader.load(object).map_err(|error| ProbeError::Load {
            flavour,
            error: Box::new(error),
        })?;
        let cells = usize::try_from(slots * histogram::CELLS_PER_DEVICE)
            .map_err(|_| ProbeError::Part { name: "HISTOGRAM" })?;
        let histogram = share(&ebpf, "HISTOGRAM", cells, Access::Read)?;
        let rows = share(&ebpf, "ROWS", heat::first_word(slots), Access::Read)?;
        let table = share(&ebpf, "SUBMISSIONS", submission::WORDS, Access::ReadWrite)?;
        let control = share(&ebpf, "CONTROL", control::WORDS, Access::ReadWrite)?;
        let pins = tuning.pin_maps.as_deref().map(|dir| Pins::new(&ebpf, dir));
        let mut probes = Probes {
            flavour,
            _pins: pins.and_then(said),
            ring: RingBuf::try_from(take(&mut ebpf, "EVENTS")?)
                .map_err(|_| ProbeError::Part { name: "EVENTS" })?,
            counters: PerCpuArray::try_from(take(&mut ebpf, "STATS")?)
                .map_err(|_| ProbeError::Part { name: "STATS" })?,
            devices: HashMap::try_from(take(&mut ebpf, "DEVICES")?)
                .map_err(|_| ProbeError::Part { name: "DEVICES" })?,
            in_flight: HashMap::try_from(take(&mut ebpf, "IN_FLIGHT")?)
                .map_err(|_| ProbeError::Part { name: "IN_FLIGHT" })?,
            last: Array::try_from(take(&mut ebpf, "LAST")?)
                .map_err(|_| ProbeError::Part { name: "LAST" })?,
            bio_devices: HashMap::try_from(take(&mut ebpf, "BIO_DEVICES")?).map_err(|_| {
                ProbeError::Part {
                    name: "BIO_DEVICES",
                }
            })?,
            histogram,
            rows,
            control,
            slots,
            hooks: Vec::new(),
            bio_hooks: plan.bio_hooks.clone(),
            path_hooks: plan.path_hooks.clone(),
            statistics: tuning.program_statistics.then(program_statistics).flatten(),
            submissions: Some(table),
            ebpf,
        };
        probes.set_events(EVERY_EVENT);
        for hook in &plan.hooks {
            probes.attach_hook(hook)?;
        }
        Ok(probes)
    }

    fn attach_hook(&mut self, hook: &Hook) -> Result<(), ProbeError> {
        if hook.is_there() {
            let program = hook.program;
            let found = self
                .ebpf
                .program_mut(program)
                .ok_or(ProbeError::Part { name: program })?;
            attach_one(found, hook).map_err(|error| ProbeError::Program {
                flavour: self.flavour,
                program,
                error: Box::new(error),
            })?;
        }
        self.hooks.push(hook.clone());
        Ok(())
    }

    /// Attaches what a disk of this layer needs, once. Not before there is one: these programs run for
    /// every bio of the machine.
    pub(crate) fn attach_layer(&mut self, layer: Layer) -> Result<(), String> {
        let hooks = match layer {
            Layer::Requests => return Ok(()),
            Layer::Bios => self.bio_hooks.clone()?,
            Layer::Paths => self.path_hooks.clone()?,
        };
        for hook in hooks {
            self.attach_hook(&hook).map_err(|error| error.to_string())?;
            for left in [&mut self.bio_hooks, &mut self.path_hooks]
                .into_iter()
                .flatten()
            {
                left.retain(|other| other.program != hook.program);
            }
        }
        Ok(())
    }

    /// False: what such a hook shows is not seen on this kernel.
    pub(crate) fn sees(&self, such: impl Fn(&Hook) -> bool) -> bool {
        self.hooks.iter().any(|hook| hook.is_there() && such(hook))
    }

    /// The table of submissions, once.
    pub(crate) fn take_submissions(&mut self) -> Option<SharedMap> {
        self.submissions.take()
    }

    /// Each program: whether it is attached, and its cost.
    pub(crate) fn programs(&self) -> Vec<ProbeProgram> {
        self.hooks.iter().map(|hook| self.program(hook)).collect()
    }

    fn program(&self, hook: &Hook) -> ProbeProgram {
        let attached = hook.is_there();
        let info = attached.then(|| self.info(hook.program)).flatten();
        let of = |field| info.as_deref().and_then(|info| number_in(info, field));
        let counted = self.statistics.is_some();
        ProbeProgram {
            name: hook.program.to_owned(),
            hook: hook.tracepoint.to_owned(),
            attached,
            not_attached_because: hook.why_not.clone(),
            needed: hook.needed,
            runs: of("run_cnt").filter(|_| counted).unwrap_or(0),
            run_ns: of("run_time_ns").filter(|_| counted).unwrap_or(0),
            recursion_misses: of("recursion_misses").unwrap_or(0),
        }
    }

    /// The kernel's counts of a program.
    fn info(&self, name: &str) -> Option<String> {
        let fd = program_fd(self.ebpf.program(name)?)?;
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()
    }

    /// Begins to watch a disk; its events, counters and cells are those of `slot`.
    pub(crate) fn watch(
        &mut self,
        dev: u32,
        slot: u32,
        layer: Layer,
    ) -> Result<(), aya::maps::MapError> {
        match layer {
            Layer::Requests | Layer::Paths => self.devices.insert(dev, [slot, dev], 0),
            Layer::Bios => self.bio_devices.insert(dev, [slot, dev], 0),
        }
    }

    pub(crate) fn unwatch(&mut self, dev: u32, layer: Layer) -> Result<(), aya::maps::MapError> {
        match layer {
            Layer::Requests => self.devices.remove(&dev),
            Layer::Bios => self.bio_devices.remove(&dev),
            Layer::Paths => {
                self.devices.remove(&dev)?;
                let all: Vec<(u32, [u32; 2])> = self.devices.iter().flatten().collect();
                let mut paths = all.iter().filter(|(_, [_, disk])| *disk == dev);
                paths.try_for_each(|(path, _)| self.devices.remove(path))
            }
        }
    }

    /// How many disks can be watched at once.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Makes a slot ready for a disk that was sent nothing yet.
    pub(crate) fn prepare(
        &mut self,
        slot: u32,
        ranges: &Ranges,
    ) -> Result<(), aya::maps::MapError> {
        self.last.set(slot, Last::nothing(ranges), 0)
    }

    /// What the disk before had in flight in a slot is forgotten. Answers what the slot's cells and
    /// rows hold from before.
    pub(crate) fn renew(&mut self, slot: u32) -> Cells {
        let left: Vec<[u64; 2]> = self
            .in_flight
            .iter()
            .filter_map(Result::ok)
            .filter(|(_, entry)| u32::from(InFlight::decode(entry).slot) == slot)
            .map(|(key, _)| key)
            .collect();
        for key in left {
            // One that completed meanwhile is gone, or it waits for another request: then it is
            // another disk's by now, or still to be removed.
            let now = self.in_flight.get(&key, 0).map(|e| InFlight::decode(&e));
            if let Ok(entry) = now
                && u32::from(entry.slot) == slot
            {
                self.remove(&key, &entry);
            }
        }
        self.cells(slot)
    }

    /// Takes the next event; `None`: there is none now. Records of another size are skipped.
    pub(crate) fn next_event(&mut self) -> Option<BlockEvent> {
        loop {
            let item = self.ring.next()?;
            if let Some(event) = BlockEvent::decode(&item) {
                return Some(event);
            }
        }
    }

    /// Counters of a disk, summed over the CPUs.
    pub(crate) fn counters(&self, slot: u32) -> Counters {
        let mut sum = [0; stats::COUNT];
        if let Ok(per_cpu) = self.counters.get(&slot, 0) {
            for cpu in per_cpu.iter() {
                for (total, value) in sum.iter_mut().zip(cpu) {
                    *total += value;
                }
            }
        }
        sum
    }

    /// Cells and rows of a slot.
    pub(crate) fn cells(&self, slot: u32) -> Cells {
        let all = |map: &SharedMap, first: usize, len: usize| {
            (first..first.saturating_add(len))
                .map(|index| map.get(index))
                .collect()
        };
        Cells {
            heat: all(&self.histogram, heat::first_cell(slot), heat::CELLS),
            rows: all(&self.rows, heat::first_word(slot), heat::ROW_WORDS),
        }
    }

    /// What a slot's disk has in flight as far as is remembered, oldest first.
    pub(crate) fn in_flight(&self, slot: u32) -> Vec<InFlight> {
        let mut found: Vec<InFlight> = self
            .in_flight
            .iter()
            .filter_map(Result::ok)
            .map(|(_, words)| InFlight::decode(&words))
            .filter(|entry| u32::from(entry.slot) == slot && !entry.is_free() && entry.completes())
            .collect();
        found.sort_by_key(heat::began_ns);
        found
    }

    /// Times the kernel skipped one of the programs because it was already running.
    pub(crate) fn recursion_misses(&self) -> u64 {
        self.misses_of(|_| true)
    }

    /// Those of the program that sees requests being made.
    pub(crate) fn start_misses(&self) -> u64 {
        self.misses_of(|hook| hook.tells_start)
    }

    fn misses_of(&self, of: impl Fn(&Hook) -> bool) -> u64 {
        let misses = |name: &str| number_in(&self.info(name)?, "recursion_misses");
        let attached = self.hooks.iter().filter(|hook| hook.is_there() && of(hook));
        attached.filter_map(|hook| misses(hook.program)).sum()
    }

    /// Removes from the table of requests in flight those that are wanted, at most `limit`, oldest
    /// first. One that the kernel side has changed or removed meanwhile is left alone.
    pub(crate) fn take_in_flight(
        &mut self,
        limit: usize,
        wanted: impl Fn(&InFlight) -> bool,
    ) -> Vec<InFlight> {
        let mut found: Vec<([u64; 2], InFlight)> = self
            .in_flight
            .iter()
            .filter_map(Result::ok)
            .map(|(key, words)| (key, InFlight::decode(&words)))
            .filter(|(_, entry)| !entry.is_free() && wanted(entry))
            .collect();
        found.sort_by_key(|(_, entry)| entry.queue_ns.max(entry.issue_ns));
        found.truncate(limit);
        found.retain(|(key, entry)| {
            let now = self.in_flight.get(key, 0);
            let same = now.is_ok_and(|words| InFlight::decode(&words) == *entry);
            same && self.remove(key, entry)
        });
        found.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Removes an entry from the table of requests in flight; false: it is gone.
    fn remove(&mut self, key: &[u64; 2], entry: &InFlight) -> bool {
        let removed = self.in_flight.remove(key).is_ok();
        if removed
            && entry.flags2 & flag2::KEPT != 0
            && let Some(kept) = self.control.word(control::KEPT)
        {
            kept.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Changes which events are handed out. Takes effect at once, without a system call.
    pub(crate) fn set_events(&self, policy: EventPolicy) {
        self.control
            .set(control::SLOWER_THAN_NS, policy.slower_than_ns);
        self.control.set(control::ONE_IN, policy.one_in.into());
    }

    /// The event policy in force.
    pub(crate) fn events(&self) -> EventPolicy {
        EventPolicy {
            one_in: u32::try_from(self.control.get(control::ONE_IN)).unwrap_or(u32::MAX),
            slower_than_ns: self.control.get(control::SLOWER_THAN_NS),
        }
    }
}

/// An error with its causes, each shortened to its first line: a refused program's message holds
/// the verifier's whole log, of which the last line before the summary says what was wrong.
pub(crate) fn brief(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // The log is empty when the kernel refused before it looked.
        let text = text.trim_end().trim_end_matches(". Verifier output:");
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        // Most errors repeat their cause.
        let first = lines
            .next()
            .filter(|line| !parts.iter().any(|part| part.contains(line)));
        parts.extend(first.map(str::to_owned));
        let said = lines.rfind(|l| l.contains("invalid") || l.contains("not allowed"));
        parts.extend(said.map(str::to_owned));
        cause = error.source();
    }
    parts.join(": ")
}

fn attach_one(program: &mut Program, hook: &Hook) -> Result<(), ProgramError> {
    match program {
        Program::BtfTracePoint(_) => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(hook.tracepoint, &aya::Btf::from_sys_fs()?)?;
            program.attach()?;
        }
        Program::RawTracePoint(_) => {
            let program: &mut RawTracePoint = program.try_into()?;
            program.load()?;
            program.attach(hook.tracepoint)?;
        }
        _ => {
            let program: &mut TracePoint = program.try_into()?;
            program.load()?;
            program.attach(hook.system, hook.tracepoint)?;
        }
    }
    Ok(())
}

/// A number of a file in `/proc/PID/fdinfo`; `None`: the descriptor has no such field.
#[must_use]
pub fn number_in(info: &str, field: &str) -> Option<u64> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| *name == field)?;
    value.trim().parse().ok()
}

/// Has the kernel time all programs until the descriptor is closed; `None`: the log says why not.
#[must_use]
pub fn program_statistics() -> Option<OwnedFd> {
    match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
        Ok(fd) => Some(fd),
        Err(error) => {
            tracing::warn!(%error, "the kernel does not count what the probes cost");
            None
        }
    }
}

/// A map that cannot be pinned must not stop observation.
fn said(pins: Result<Pins, PinError>) -> Option<Pins> {
    pins.inspect_err(|error| tracing::warn!(%error, "the probes' maps are not pinned"))
        .ok()
}

fn program_fd(program: &Program) -> Option<BorrowedFd<'_>> {
    program.fd().ok().map(|fd| fd.as_fd())
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, ProbeError> {
    ebpf.take_map(name).ok_or(ProbeError::Part { name })
}

fn share(
    ebpf: &Ebpf,
    name: &'static str,
    words: usize,
    access: Access,
) -> Result<SharedMap, ProbeError> {
    let Some(Map::Array(map)) = ebpf.map(name) else {
        return Err(ProbeError::Part { name });
    };
    SharedMap::new(map.fd().as_fd(), words, access).map_err(|error| ProbeError::Map { name, error })
}

fn read_object(source: &ObjectSource) -> Result<Cow<'static, [u8]>, ProbeError> {
    let path = match source {
        ObjectSource::Path(path) => path.clone(),
        ObjectSource::Prebuilt => match std::env::var_os(OBJECT_VARIABLE) {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => return Ok(Cow::Borrowed(PREBUILT)),
        },
    };
    std::fs::read(&path)
        .map(Cow::Owned)
        .map_err(|source| ProbeError::Object { path, source })
}

/// Device (as the kernel encodes it) and inode of this process's pid namespace; zeroes when they
/// cannot be read, and in the first of all: then global process ids are used, which are those of
/// the first.
pub(crate) fn own_namespace() -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata("/proc/self/ns/pid") {
        Ok(found) if found.ino() == FIRST_NAMESPACE => (0, 0),
        Ok(found) => {
            let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
            (u64::from(kernel_dev(major, minor)), found.ino())
        }
        Err(_) => (0, 0),
    }
}
