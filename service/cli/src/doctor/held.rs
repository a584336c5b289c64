//! Privileges of a running service.

use lumpscope_observer::{Finding, Level};
use lumpscope_server::privileges::{self, CapSet, ThreadStatus};

use lumpscope_units::human;

/// Findings about the process `pid`.
pub(super) fn findings(pid: u32) -> Vec<Finding> {
    let threads = match privileges::threads_of(pid) {
        Ok(threads) => threads,
        Err(error) => {
            return vec![Finding::lacking(
                "service",
                Level::Missing,
                format!("process {pid}: {error}"),
                "its privileges are unknown",
                "give the process id of a service that runs on this machine; where /proc hides \
                 other users' processes, run as root",
            )];
        }
    };
    vec![
        who(pid, &threads),
        capabilities(&threads),
        gain(&threads),
        calls(&threads),
        reach(&threads),
    ]
}

fn who(pid: u32, threads: &[ThreadStatus]) -> Finding {
    let held = privileges::of(threads);
    let workers = threads.iter().filter(|thread| thread.kernel_worker).count();
    let own = human::counted((threads.len() - workers) as u64, "thread");
    let found = format!(
        "process {pid}: user {}, group {}, {own} and {workers} of the kernel",
        held.uid, held.gid
    );
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() != env!("CARGO_PKG_NAME") {
        let found = format!("{found}; named {:?}", name.trim());
        return Finding::lacking(
            "service",
            Level::Degraded,
            found,
            "this may be another program",
            "give the process id of `lumpscope serve`",
        );
    }
    if held.uid == 0 {
        return Finding::lacking(
            "service",
            Level::Degraded,
            found,
            "if compromised, it can read and write every file on this machine, even without capabilities",
            "start it with --user USER, or by systemd with User=",
        );
    }
    Finding::good("service", found)
}

fn capabilities(threads: &[ThreadStatus]) -> Finding {
    let topic = "privileges held";
    let held = privileges::union_of(threads);
    let needed = privileges::needed_here(held);
    if held.without(needed).is_empty() {
        let why = match held.is_empty() {
            true => "",
            false => ", which this kernel asks for to read the probes' maps",
        };
        return Finding::good(topic, format!("{held}{why}"));
    }
    Finding::lacking(
        topic,
        Level::Degraded,
        held.to_string(),
        &format!("not needed to serve: {}", held.without(needed)),
        "start it without --keep-privileges",
    )
}

fn gain(threads: &[ThreadStatus]) -> Finding {
    let topic = "privileges to gain";
    if privileges::of(threads).no_new_privs {
        return Finding::good(topic, "none (no_new_privs)");
    }
    let own = threads.iter().filter(|thread| !thread.kernel_worker);
    let bounding = own.fold(CapSet::NONE, |all, thread| all.union(thread.bounding));
    Finding::lacking(
        topic,
        Level::Degraded,
        format!(
            "no_new_privs is not set; the bounding set has {}",
            bounding.names().len()
        ),
        "a program that it starts may gain privileges from its file",
        "start it without --keep-privileges, or by systemd with NoNewPrivileges=yes",
    )
}

fn calls(threads: &[ThreadStatus]) -> Finding {
    let topic = "system calls";
    let mut own = threads.iter().filter(|thread| !thread.kernel_worker);
    if own.all(|thread| thread.filtered) {
        let names: Vec<_> = privileges::forbidden().collect();
        return Finding::good(topic, format!("a filter forbids {}", names.join(", ")));
    }
    Finding::lacking(
        topic,
        Level::Degraded,
        "no filter (seccomp)",
        "code that gets into the service can start programs",
        "start it without --keep-privileges, where the container allows filters",
    )
}

fn reach(threads: &[ThreadStatus]) -> Finding {
    let topic = "files and ports";
    let mut own = threads.iter().filter(|thread| !thread.kernel_worker);
    let limits = privileges::limits_here();
    match limits {
        Ok(limits) if own.all(|thread| thread.limited) => {
            Finding::good(topic, format!("limited by Landlock: {limits}"))
        }
        limits => Finding::lacking(
            topic,
            Level::Degraded,
            match limits {
                Ok(_) => "not limited (Landlock)".to_owned(),
                Err(error) => format!("not limited: {error}"),
            },
            "code that gets into the service can open every file and device that its user may open",
            "start it without --keep-privileges, on Linux 5.13 or newer with Landlock (lsm= of the \
             kernel's command line), where the container allows it",
        ),
    }
}
