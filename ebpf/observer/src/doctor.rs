//! Checks kernel and privileges for everything that observation needs, and says how to get it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::api::{Finding, Level, ObjectSource, Tuning};
use crate::device::Layer;
use crate::kernel::Release;
use crate::probes::Probes;
use crate::report::ProbeProgram;
use crate::tracefs;

const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Capabilities by bit: see capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Looks at everything; loads and attaches the probes once and detaches them again.
pub(crate) fn findings() -> Vec<Finding> {
    vec![
        kernel(Release::running()),
        btf(),
        tracefs_finding(),
        lockdown(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default()),
        capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        pid_namespace(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        trial(),
        guard(crate::guard::trial()),
    ]
}

fn kernel(release: Release) -> Finding {
    let text = format!("Linux {release}");
    if release
        < (Release {
            major: 5,
            minor: 10,
        })
    {
        return Finding::lacking(
            "kernel",
            Level::Missing,
            &text,
            "the probes need 5.10 or newer: block requests are not observed",
            "use a newer kernel",
        );
    }
    Finding::good("kernel", text)
}

fn btf() -> Finding {
    if Path::new(BTF).exists() {
        return Finding::good("BTF", format!("{BTF} is there"));
    }
    Finding::lacking(
        "BTF",
        Level::Degraded,
        format!("{BTF} is missing"),
        "only the classic flavour of the probes can work, and it needs tracefs",
        "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (all current distributions are)",
    )
}

fn tracefs_finding() -> Finding {
    match tracefs::find() {
        Ok(root) => Finding::good("tracefs", format!("mounted at {}", root.display())),
        Err(_) => Finding::lacking(
            "tracefs",
            Level::Degraded,
            "not mounted, or not readable by this user",
            "the classic flavour of the probes (the best from 7.0 on, the only one without \
             BTF) cannot work; the others do not need it",
            "mount -t tracefs tracefs /sys/kernel/tracing; in a container: mount it read-only \
             from the host",
        ),
    }
}

fn lockdown(text: &str) -> Finding {
    if text.contains("[confidentiality]") {
        return Finding::lacking(
            "lockdown",
            Level::Missing,
            "the kernel is locked down for confidentiality",
            "BPF programs may not read kernel memory: block requests are not observed",
            "boot with lockdown=integrity or without it",
        );
    }
    let mode = text
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .unwrap_or("none");
    Finding::good("lockdown", mode.to_owned())
}

fn capabilities(status: &str) -> Finding {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| bits >> capability & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        return Finding::good("capabilities", "CAP_SYS_ADMIN".to_owned());
    }
    match (has(CAP_BPF), has(CAP_PERFMON)) {
        (true, true) => Finding::good("capabilities", "CAP_BPF and CAP_PERFMON".to_owned()),
        (bpf, perfmon) => Finding::lacking(
            "capabilities",
            Level::Missing,
            match (bpf, perfmon) {
                (true, _) => "CAP_BPF without CAP_PERFMON",
                (_, true) => "CAP_PERFMON without CAP_BPF",
                _ => "neither CAP_BPF and CAP_PERFMON, nor CAP_SYS_ADMIN",
            },
            "the probes cannot be loaded: requests are timed, block requests are not observed",
            "run as root, or: setcap cap_bpf,cap_perfmon+ep on the program; in docker: \
             --cap-add SYS_ADMIN (or BPF and PERFMON with an engine that knows them)",
        ),
    }
}

fn pid_namespace(status: &str) -> Finding {
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or_default();
    let nested = ids.split_whitespace().count() > 1;
    let found = if nested {
        "in a namespace of its own; the probes ask for ids in it"
    } else {
        "the outermost one that this process can see"
    };
    Finding::good("pid namespace", found.to_owned())
}

/// Whether a store's device can be guarded; an error is the reason why not.
fn guard(tried: Result<(), String>) -> Finding {
    match tried {
        Ok(()) => Finding::good(
            "guard",
            "foreign opens for writing can be denied: tried on a device of its own".to_owned(),
        ),
        Err(why) => Finding::lacking(
            "guard",
            Level::Degraded,
            &why,
            "guard = audit or deny has no effect: devices are claimed with O_EXCL only, which keeps \
             out mount and mkfs, but not dd",
            "use a kernel with CONFIG_BPF_LSM=y and `bpf` in its list of security modules (boot with \
             lsm=LIST,bpf; the list is in /sys/kernel/security/lsm), and CAP_BPF and CAP_PERFMON",
        ),
    }
}

/// The only proof that the probes work is to attach them.
fn trial() -> Finding {
    let begin = Instant::now();
    match Probes::attach(&ObjectSource::Prebuilt, &Tuning::default(), 1) {
        Ok(mut probes) => {
            let name = probes.flavour.name();
            let found = format!("loaded and attached as {name} in {:?}", begin.elapsed());
            let more = [Layer::Bios, Layer::Paths].map(|layer| probes.attach_layer(layer));
            let bios = more.into_iter().collect();
            attached(found, &probes.programs(), bios)
        }
        Err(error) => Finding::lacking(
            "probes",
            Level::Missing,
            error.to_string(),
            "block requests are not observed: no attribution, no seek distances, no heatmap",
            "see the findings above; the first that is not good is usually the reason",
        ),
    }
}

/// A program that cannot be attached leaves the others working.
fn attached(found: String, programs: &[ProbeProgram], bios: Result<(), String>) -> Finding {
    let mut absent: Vec<String> = programs
        .iter()
        .filter(|program| !program.attached)
        .map(|program| format!("without {}: {}", program.name, program.not_attached_because))
        .collect();
    absent.extend(bios.err().map(|why| format!("without bios: {why}")));
    if absent.is_empty() {
        return Finding::good("probes", found);
    }
    Finding::lacking(
        "probes",
        Level::Degraded,
        format!("{found}, {}", absent.join("; ")),
        "start: time in the queue and who made a request are unknown; submit: block requests of an \
         io_uring name no submission; bios: disks that make no requests (device mapper, md, zram) \
         are not observed; all else works",
        "use a newer kernel",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let level = |bits: &str| capabilities(&format!("CapEff:\t{bits}\n")).level;
        assert_eq!(level("000001fffeffffff"), Level::Good);
        assert_eq!(level("000000c000000000"), Level::Good);
        assert_eq!(level("0000008000000000"), Level::Missing);
        assert_eq!(level("0000000000000000"), Level::Missing);
        assert_eq!(capabilities("").level, Level::Missing);
    }

    #[test]
    fn a_program_that_is_not_attached_is_named() {
        let program = |name: &str, why_not: &str| ProbeProgram {
            name: name.to_owned(),
            attached: why_not.is_empty(),
            not_attached_because: why_not.to_owned(),
            ..ProbeProgram::default()
        };
        let all = [
            program("done_btf", ""),
            program("start_btf", "no such thing"),
        ];
        let found = attached("attached".to_owned(), &all, Ok(()));
        assert_eq!(found.level, Level::Degraded);
        let words = "without start_btf: no such thing";
        assert!(found.found.ends_with(words), "{found:?}");
        let found = attached("attached".to_owned(), &all[..1], Ok(()));
        assert_eq!(found.level, Level::Good);
        let found = attached("attached".to_owned(), &[], Err("none".to_owned()));
        assert!(found.found.contains("without bios: none"), "{found:?}");
    }

    #[test]
    fn what_is_not_good_says_what_fails_and_what_to_do() {
        let old = kernel(Release { major: 5, minor: 4 });
        assert_eq!(old.level, Level::Missing);
        let lock = lockdown("none integrity [confidentiality]\n");
        for finding in [
            old,
            lock,
            capabilities(""),
            guard(Err("no BPF LSM".to_owned())),
        ] {
            assert!(!finding.consequence.is_empty(), "{finding:?}");
            assert!(!finding.remedy.is_empty(), "{finding:?}");
        }
        let expected = "integrity";
        assert_eq!(lockdown("none [integrity] confidentiality").found, expected);
        assert_eq!(lockdown("").found, "none");
    }
}
