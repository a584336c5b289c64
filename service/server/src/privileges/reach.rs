//! Files, ports and sockets that the service can still reach once it serves (Landlock).
//!
//! Only what is opened from then on is limited: stores, listening sockets and maps of the probes are
//! open already and stay as they are. A request of io_uring has the limits of the thread that submits
//! it. The kernel keeps to as many of the limits as it knows; what it does not know is not limited.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Erratum, LandlockStatus, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

const ABSTRACT: &str = "abstract sockets";
const SIGNALS: &str = "signals";
/// What Landlock can limit, and the version of its interface from which on it does.
const LIMITS: [(ABI, &str); 7] = [
    (ABI::V1, "files"),
    (ABI::V4, "TCP ports"),
    (ABI::V5, "controls of devices"),
    (ABI::V6, ABSTRACT),
    (ABI::V6, SIGNALS),
    (ABI::V9, "UNIX sockets"),
    (ABI::V10, "UDP ports"),
];
/// Folders and files from which names of other machines are looked up.
const NAMES: [&str; 4] = [
    "/etc",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];
/// UNIX sockets of services that look names up.
const RESOLVERS: [&str; 4] = [
    "/run/systemd/resolve",
    "/run/nscd",
    "/run/avahi-daemon",
    "/var/lib/sss",
];
const DNS: u16 = 53;

/// What the service can reach once it serves; all else is refused. Paths that are not there are left
/// out.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Read, with all below.
    pub read: Vec<PathBuf>,
    /// Devices and files, and folders of them: read, written and controlled, neither made nor
    /// removed.
    pub stores: Vec<PathBuf>,
    /// Folders in which files are made, written and removed.
    pub written: Vec<PathBuf>,
    /// Folders in which files are removed.
    pub removed: Vec<PathBuf>,
    /// UNIX sockets to connect to.
    pub sockets: Vec<PathBuf>,
    /// TCP ports to connect to.
    pub ports: Vec<u16>,
    /// True: other machines are called by their names.
    pub names: bool,
    /// True: abstract UNIX sockets of other processes can be connected to.
    pub abstract_sockets: bool,
}

/// A set of rules that holds for each thread that asks for it.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) ruleset: OwnedFd,
    /// What the kernel limits by it, for the log.
    pub(super) limits: String,
}

impl Reach {
    /// Makes the rules, and tries them on a thread that ends with this.
    ///
    /// # Errors
    /// The reason why this kernel, or the container, allows none.
    pub(super) fn rules(&self) -> Result<Rules, String> {
        let created = self.create().map_err(|error| error.to_string())?;
        let tried = created.try_clone().map_err(|error| error.to_string())?;
        let status = std::thread::spawn(|| tried.restrict_self()).join();
        let status = status
            .map_err(|_| "the attempt has panicked".to_owned())?
            .map_err(|error| error.to_string())?;
        let limits = self.limits(status.landlock)?;
        let ruleset: Option<OwnedFd> = created.into();
        let ruleset = ruleset.ok_or("the kernel has made no rules")?;
        Ok(Rules { ruleset, limits })
    }

    fn create(&self) -> Result<RulesetCreated, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let store = read | AccessFs::WriteFile | AccessFs::IoctlDev;
        let written = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::RemoveFile;
        let mut made = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V9))?
            .handle_access(AccessNet::from_all(ABI::V10))?;
        if !self.abstract_sockets {
            made = made.scope(Scope::AbstractUnixSocket)?;
        }
        if can_limit_signals() {
            made = made.scope(Scope::Signal)?;
        }
        let mut made = made.create()?;
        for (paths, access) in [
            (&self.read, read),
            (&self.stores, store),
            (&self.written, written),
            (&self.removed, AccessFs::RemoveFile.into()),
            (&self.sockets, AccessFs::ResolveUnix.into()),
        ] {
            for path in paths {
                made = allow(made, path, access)?;
            }
        }
        for port in &self.ports {
            made = made.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
        if self.names {
            for path in NAMES {
                made = allow(made, Path::new(path), read)?;
            }
            for path in RESOLVERS {
                made = allow(made, Path::new(path), read | AccessFs::ResolveUnix)?;
            }
            made = made
                .add_rule(NetPort::new(
                    DNS,
                    AccessNet::ConnectTcp | AccessNet::ConnectSendUdp,
                ))?
                .add_rule(NetPort::new(0, AccessNet::BindUdp))?;
        }
        Ok(made)
    }

    /// What a kernel limits, in words.
    fn limits(&self, status: LandlockStatus) -> Result<String, String> {
        let LandlockStatus::Available { effective_abi, .. } = status else {
            return Err("this kernel has no Landlock, or a container hides it".to_owned());
        };
        let limited = |from: ABI, name: &str| match name {
            ABSTRACT if self.abstract_sockets => false,
            SIGNALS if !can_limit_signals() => false,
            _ => from <= effective_abi,
        };
        let words = |had: bool| {
            let limits = LIMITS
                .iter()
                .filter(|(from, name)| limited(*from, name) == had);
            limits.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
        };
        let lacking = words(false);
        Ok(match lacking.is_empty() {
            true => words(true),
            false => format!("{}; not limited: {lacking}", words(true)),
        })
    }
}

/// Kernels in which this is not mended would forbid the threads of the service to signal each other.
fn can_limit_signals() -> bool {
    Erratum::current().contains(Erratum::ScopedSignalHandling)
}

/// Allows `access` to a file, or to all below a folder.
fn allow(
    made: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(found) = PathFd::new(path) else {
        return Ok(made);
    };
    // A file is in no need of the rights that only folders have.
    let access = match path.is_dir() {
        true => access,
        false => access & !(AccessFs::ReadDir | AccessFs::MakeReg | AccessFs::RemoveFile),
    };
    match access.is_empty() {
        true => Ok(made),
        false => made.add_rule(PathBeneath::new(found, access)),
    }
}

/// What Landlock limits on this kernel, and what it cannot. Blocks for less than a millisecond.
///
/// # Errors
/// The reason why it limits nothing.
pub fn limits_here() -> Result<String, String> {
    Reach::default().rules().map(|rules| rules.limits)
}
