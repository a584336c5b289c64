//! Attaches the probes, and starts and stops watching disks.

use lumpscope_ebpf_common::{MAX_DEVICES, MAX_RANGES};

use crate::api::{ObjectSource, ObserverOptions, StoreObservation, Tuning, WatchedStore};
use crate::audit::WatchedDisk;
use crate::correlate::Input;
use crate::device::{self, Layer, StoreDisk};
use crate::probes::Probes;
use crate::slots::Slots;

use super::{ObservedStore, ObserverState};

/// Where the probes come from, and how they are attached.
#[derive(Debug, Clone)]
pub(super) struct Loading {
    object: ObjectSource,
    tuning: Tuning,
    enabled: bool,
}

impl Loading {
    pub(super) fn new(options: &ObserverOptions) -> Loading {
        Loading {
            object: options.object.clone(),
            tuning: options.tuning.clone(),
            enabled: options.enabled,
        }
    }

    /// Finds the disk of a store.
    fn resolve(&self, store: &WatchedStore) -> Resolved {
        let mut target = device::resolve(&store.path).map_err(|error| error.to_string())?;
        if !self.tuning.access_ranges.is_empty() {
            target
                .placement
                .ranges
                .clone_from(&self.tuning.access_ranges);
        }
        Ok(target)
    }
}

type Resolved = Result<StoreDisk, String>;

impl ObserverState {
    /// Finds the stores' disks, attaches the probes and arms the disks.
    pub(super) fn watch(&mut self, stores: &[WatchedStore]) -> Vec<ObservedStore> {
        let resolved = stores.iter().map(|store| self.loading.resolve(store));
        let resolved: Vec<Resolved> = resolved.collect();
        let why_no_probes = self.attach(resolved.iter().flatten());
        for (index, watched) in stores.iter().enumerate() {
            self.guard.arm(index, watched);
        }
        let all = stores.iter().zip(resolved).enumerate();
        all.map(|(index, (watched, target))| {
            self.admit(index, watched, target, why_no_probes.as_deref())
        })
        .collect()
    }

    /// As [`ObserverState::watch`], for one more store.
    pub(super) fn watch_more(&mut self, index: usize, watched: &WatchedStore) -> ObservedStore {
        let resolved = self.loading.resolve(watched);
        self.guard.arm(index, watched);
        let why_no_probes = self.attach(resolved.iter());
        self.admit(index, watched, resolved, why_no_probes.as_deref())
    }

    /// Attaches the probes, once there is a disk to be watched; returns why not.
    fn attach<'a>(&mut self, targets: impl Iterator<Item = &'a StoreDisk>) -> Option<String> {
        if !self.loading.enabled {
            return Some("the probes are switched off".to_owned());
        }
        let mut devs: Vec<u32> = targets.map(|target| target.placement.dev).collect();
        devs.sort_unstable();
        devs.dedup();
        if self.probes.is_some() || devs.is_empty() {
            return None;
        }
        let count = u32::try_from(devs.len()).unwrap_or(u32::MAX);
        match Probes::attach(&self.loading.object, &self.loading.tuning, count) {
            Ok(mut probes) => {
                self.submissions.connect(probes.take_submissions());
                self.slots = Slots::new(probes.slots());
                self.probes = Some(probes);
                None
            }
            Err(error) => Some(format!("{error}; `lumpscope doctor` says how to get it")),
        }
    }

    /// Arms the disk of a store, and says how the store is observed.
    fn admit(
        &mut self,
        index: usize,
        watched: &WatchedStore,
        target: Resolved,
        why_no_probes: Option<&str>,
    ) -> ObservedStore {
        let mut status = StoreObservation::default();
        if let Ok(target) = &target {
            status.device = Some(target.disk.clone());
            status.devno = Some(target.devno);
            status.armless = has_no_arm(&target.disk);
        }
        if let Some(flight) = self.flight.as_mut().filter(|_| status.armless) {
            flight.has_no_arm(index);
        }
        status.why_not = match (why_no_probes, &target) {
            (Some(why), _) => why.to_owned(),
            (None, Err(why)) => why.clone(),
            (None, Ok(target)) => self.arm(target).err().unwrap_or_default(),
        };
        status.observed = status.why_not.is_empty();
        let flavour = self.probes.as_ref().filter(|_| status.observed);
        status.mode = flavour
            .map_or("none", |probes| match &target {
                Ok(target) if target.layer == Layer::Bios => "bio",
                _ => probes.flavour.name(),
            })
            .to_owned();
        if !status.observed {
            // Whoever started the observer says so, with what follows from it.
            tracing::debug!(store = watched.name, why = status.why_not, "not observed");
        }
        let target = target.ok();
        if let (true, Some(target)) = (status.observed, &target) {
            self.learn(Input::Placed {
                store: index,
                placement: target.placement.clone(),
                disk: target.disk.clone(),
            });
        }
        ObservedStore {
            name: watched.name.clone(),
            path: watched.path.clone(),
            status,
            target,
        }
    }

    /// Watches a store's disk, once; an error says why not.
    fn arm(&mut self, target: &StoreDisk) -> Result<(), String> {
        let dev = target.placement.dev;
        if self.disks.iter().any(|disk| disk.dev == dev) {
            return Ok(());
        }
        let probes = self.probes.as_mut().ok_or("the probes are not attached")?;
        let why = |why| {
            let disk = &target.disk;
            format!("cannot watch {disk}, which makes no requests: {why}")
        };
        probes.attach_layer(target.layer).map_err(why)?;
        let slot = self.slots.take().ok_or_else(|| no_slot(&self.slots))?;
        match WatchedDisk::arm(probes, target, slot) {
            Ok(disk) => {
                tell_ranges(&target.disk, target.placement.ranges.len());
                self.disks.push(disk);
                Ok(())
            }
            Err(error) => {
                self.slots.give_back(slot.number);
                Err(format!("cannot watch {}: {error}", target.disk))
            }
        }
    }

    /// Watches a disk no longer.
    pub(super) fn release(&mut self, dev: u32) {
        let Some(at) = self.disks.iter().position(|disk| disk.dev == dev) else {
            return;
        };
        let disk = self.disks.swap_remove(at);
        let Some(probes) = &mut self.probes else {
            return;
        };
        match probes.unwatch(dev, disk.layer) {
            Ok(()) => self.slots.give_back(disk.slot),
            // The slot stays taken: its counters still move.
            Err(error) => tracing::warn!(%error, disk = disk.name, "it is still watched"),
        }
    }
}

/// Says how seek distances are measured on a disk with several access ranges.
fn tell_ranges(disk: &str, ranges: usize) {
    if ranges > MAX_RANGES {
        tracing::warn!(
            disk,
            ranges,
            "the last of its access ranges count as one: seek distances in them are not exact"
        );
    } else if ranges > 1 {
        tracing::info!(
            disk,
            ranges,
            "seek distances are those within an access range"
        );
    }
}

fn no_slot(slots: &Slots) -> String {
    let limit = slots.limit();
    if limit < MAX_DEVICES {
        format!("{limit} disks are watched already: restart the service to watch more")
    } else {
        format!("more than {MAX_DEVICES} disks are watched already")
    }
}

/// False where the disk does not say.
fn has_no_arm(disk: &str) -> bool {
    let rotational = std::fs::read(format!("/sys/block/{disk}/queue/rotational"));
    rotational.is_ok_and(|text| text.starts_with(b"0"))
}
