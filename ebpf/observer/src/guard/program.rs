//! The guard's program and its maps: load, attach, arm devices, read, detach.

use std::borrow::Cow;
use std::path::PathBuf;

use aya::maps::{HashMap, MapData, MapError, RingBuf};
use aya::programs::{Lsm, Program, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader};
use lumpscope_ebpf_common::guard::{ForeignOpen, OpenCounts, policy};
use thiserror::Error;

use crate::api::GuardPolicy;
use crate::btf::{Btf, BtfError, VMLINUX};
use crate::probes::{brief, own_namespace};

static PREBUILT: &[u8] = aya::include_bytes_aligned!("../../../prebuilt/lumpscope-guard.o");
/// Names the object to load instead of the embedded one.
const OBJECT_VARIABLE: &str = "LUMPSCOPE_GUARD_OBJECT";
const HOOK: &str = "file_open";
const PROGRAM: &str = "guard_file_open";

/// Why the guard's program is not there.
#[derive(Debug, Error)]
pub(crate) enum GuardError {
    /// The object cannot be read.
    #[error("cannot read the guard's object {path}: {source}")]
    Object {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The kernel does not publish its types.
    #[error("no type information of the kernel ({VMLINUX}): {0}")]
    NoBtf(std::io::Error),
    /// The types are not as expected.
    #[error("{0}")]
    Btf(#[from] BtfError),
    /// The kernel refused the maps.
    #[error("the kernel refuses the guard's maps: {}", brief(.0))]
    Maps(Box<EbpfError>),
    /// The kernel refused the program.
    #[error("the kernel refuses programs for its security hooks (BPF LSM): {}", brief(.0))]
    Program(Box<ProgramError>),
    /// The object lacks something, or a map is not what it should be.
    #[error("the guard's object has no usable `{name}`: rebuild it with ebpf/build-probes")]
    Part { name: &'static str },
    /// The kernel refused a change of a map.
    #[error("cannot tell the guard of a device: {0}")]
    Arm(#[from] MapError),
}

/// An attached guard that guards nothing yet. Dropping it detaches: nothing is pinned, so the end
/// of the process, however it comes, does the same.
pub(super) struct GuardProgram {
    guarded: HashMap<MapData, u32, u32>,
    counts: HashMap<MapData, u32, PodCounts>,
    opens: RingBuf<MapData>,
    /// Keeps program and link alive.
    _ebpf: Ebpf,
}

/// [`OpenCounts`], as a type of this crate.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
struct PodCounts(OpenCounts);

#[expect(unsafe_code, reason = "a promise to the map's reader")]
// SAFETY: two u64 in repr(C): every pattern of bits is a value, and nothing is padding.
unsafe impl aya::Pod for PodCounts {}

impl std::fmt::Debug for GuardProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardProgram").finish_non_exhaustive()
    }
}

impl GuardProgram {
    /// Loads and attaches it. That it is attached does not mean that the kernel calls it: see
    /// [`super::proof`].
    pub(super) fn attach() -> Result<GuardProgram, GuardError> {
        let object = read_object()?;
        let (tgid, namespace) = (std::process::id(), own_namespace());
        let mut loader = EbpfLoader::new();
        let offsets = offsets()?;
        for (name, offset) in &offsets {
            loader.override_global(name, offset, true);
        }
        loader
            .override_global("OWN_TGID", &tgid, true)
            .override_global("NS_DEV", &namespace.0, true)
            .override_global("NS_INO", &namespace.1, true);
        let mut ebpf = loader
            .load(&object)
            .map_err(|error| GuardError::Maps(Box::new(error)))?;
        let program = ebpf.program_mut(PROGRAM);
        let program = program.ok_or(GuardError::Part { name: PROGRAM })?;
        attach_lsm(program).map_err(|error| GuardError::Program(Box::new(error)))?;
        let mut take = |name| ebpf.take_map(name).ok_or(GuardError::Part { name });
        Ok(GuardProgram {
            guarded: HashMap::try_from(take("GUARDED")?)?,
            counts: HashMap::try_from(take("COUNTS")?)?,
            opens: RingBuf::try_from(take("OPENS")?)?,
            _ebpf: ebpf,
        })
    }

    /// Guards a device from now on, or changes its policy. Its counts begin at zero when it was
    /// not guarded before.
    pub(super) fn arm(&mut self, dev: u32, policy: GuardPolicy) -> Result<(), GuardError> {
        let code = match policy {
            GuardPolicy::Off => return self.disarm(dev),
            GuardPolicy::Audit => policy::AUDIT,
            GuardPolicy::Deny => policy::DENY,
        };
        if self.guarded.get(&dev, 0).is_err() {
            // First the counts: what is counted must have a place.
            self.counts
                .insert(dev, PodCounts(OpenCounts::default()), 0)?;
        }
        self.guarded.insert(dev, code, 0)?;
        Ok(())
    }

    pub(super) fn disarm(&mut self, dev: u32) -> Result<(), GuardError> {
        match self.guarded.remove(&dev) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        // One that is not there does no harm.
        let _ = self.counts.remove(&dev);
        Ok(())
    }

    /// How often others opened a guarded device for writing; zeroes: it is not guarded.
    pub(super) fn counts(&self, dev: u32) -> OpenCounts {
        let found = self.counts.get(&dev, 0);
        found.map_or_else(|_| OpenCounts::default(), |counts| counts.0)
    }

    /// Takes the next such open; `None`: there is none now.
    pub(super) fn next_open(&mut self) -> Option<ForeignOpen> {
        loop {
            let item = self.opens.next()?;
            if let Some(open) = ForeignOpen::decode(&item) {
                return Some(open);
            }
        }
    }
}

fn attach_lsm(program: &mut Program) -> Result<(), ProgramError> {
    let program: &mut Lsm = program.try_into()?;
    program.load(HOOK, &aya::Btf::from_sys_fs()?)?;
    program.attach()?;
    Ok(())
}

/// Where the members lie that the program reads.
fn offsets() -> Result<[(&'static str, u32); 4], GuardError> {
    let bytes = std::fs::read(VMLINUX).map_err(GuardError::NoBtf)?;
    let btf = Btf::parse(&bytes)?;
    Ok([
        ("FILE_INODE", btf.member_offset("file", "f_inode")?),
        ("FILE_MODE", btf.member_offset("file", "f_mode")?),
        ("INODE_MODE", btf.member_offset("inode", "i_mode")?),
        ("INODE_RDEV", btf.member_offset("inode", "i_rdev")?),
    ])
}

fn read_object() -> Result<Cow<'static, [u8]>, GuardError> {
    let path = match std::env::var_os(OBJECT_VARIABLE) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => return Ok(Cow::Borrowed(PREBUILT)),
    };
    std::fs::read(&path)
        .map(Cow::Owned)
        .map_err(|source| GuardError::Object { path, source })
}
