//! Ceph's BlueStore, which owns a raw disk as our engine does: one monitor and one OSD of Debian's packages, started
//! by us, with a pool that keeps one copy. As it is, but for what one machine needs; without authentication.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::server::free_ports;
use crate::disks::fill;
use crate::failure::{cannot, peer_failed};
use crate::load::runner::{RadosPool, Target};
use crate::process::{Children, Interrupt, in_path};
use crate::studies::host::Host;

/// Programs of Ceph that are run.
const PROGRAMS: [&str; 4] = ["ceph-osd", "ceph-mon", "monmaptool", "ceph"];
/// How long one of its commands may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the pool, and its placement groups.
const POOL: [&str; 2] = ["lumps", "32"];

/// Why it cannot be measured.
pub(super) fn missing() -> Option<String> {
    let lacking = PROGRAMS.iter().find(|name| in_path(name).is_none())?;
    Some(format!(
        "{lacking} is not in PATH: apt-get install --no-install-recommends ceph-osd ceph-mon ceph-common"
    ))
}

/// First line of its version.
pub(super) fn version(interrupt: &Interrupt) -> anyhow::Result<String> {
    let mut command = Command::new(PROGRAMS[0]);
    command.arg("--version");
    let printed = interrupt.run(command, PATIENCE)?;
    // "ceph version 16.2.15 (commit) name (state)"
    let words: Vec<&str> = printed.split_whitespace().take(3).collect();
    Ok(words.join(" "))
}

/// Starts it on a device that is ours.
pub(super) fn start(device: &Path, interrupt: &Interrupt) -> anyhow::Result<Host> {
    let failed = |error: io::Error| peer_failed("ceph", error.to_string());
    let folder =
        tempfile::tempdir().map_err(cannot("make a directory in", &std::env::temp_dir()))?;
    let at = |name: &str| folder.path().join(name);
    let configuration = at("ceph.conf");
    let [v2, v1] = free_ports().map_err(failed)?;
    let monitor = format!("[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]");
    let word = || fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(failed);
    let (cluster, osd) = (word()?.trim().to_owned(), word()?.trim().to_owned());
    for name in ["mon", "osd"] {
        fs::create_dir(at(name)).map_err(failed)?;
    }
    // It takes a disk that carries its label for one that is ready.
    fill(device, 1, interrupt)?;
    symlink(device, at("osd").join("block")).map_err(failed)?;
    let text = configured(folder.path(), &cluster, &monitor);
    fs::write(&configuration, text).map_err(failed)?;
    let of = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--conf").arg(&configuration);
        command
    };
    let run = |mut command: Command, words: &[&str]| {
        command.args(words);
        interrupt.run(command, PATIENCE)
    };

    let map = at("monmap").display().to_string();
    let words = [
        "--create", "--fsid", &cluster, "--addv", "a", &monitor, &map,
    ];
    run(Command::new("monmaptool"), &words)?;
    run(of("ceph-mon"), &["--mkfs", "-i", "a", "--monmap", &map])?;
    let mut children = Children::default();
    let mut daemon = |program: &str, words: &[&str]| {
        let mut command = of(program);
        command.args(words);
        let log = at(&format!("{program}.log"));
        children.start(command, &log).map_err(failed)
    };
    daemon("ceph-mon", &["-f", "-i", "a", "--public-addr", &monitor])?;
    run(of("ceph"), &["osd", "new", &osd])?;
    run(of("ceph-osd"), &["-i", "0", "--mkfs", "--osd-uuid", &osd])?;
    daemon("ceph-osd", &["-f", "-i", "0"])?;
    let [pool, groups] = POOL;
    run(of("ceph"), &["osd", "pool", "create", pool, groups])?;
    let log = at("ceph-osd.log");
    // It waits until the pool takes changes.
    let open = || RadosPool::open(&configuration, pool);
    let opened = children.wait(("ceph-osd", &log), interrupt, open)?;
    Ok(Host::children(Target::Rados(opened), children, folder))
}

/// Everything in one folder and on loopback, one copy of each object, and nobody has to log in.
fn configured(folder: &Path, cluster: &str, monitor: &str) -> String {
    let folder = folder.display();
    format!(
        "[global]\nfsid = {cluster}\nmon_host = {monitor}\nmon_initial_members = a\n\
         auth_cluster_required = none\nauth_service_required = none\nauth_client_required = none\n\
         osd_pool_default_size = 1\nosd_pool_default_min_size = 1\nmon_allow_pool_size_one = true\n\
         osd_crush_chooseleaf_type = 0\nosd_pool_default_pg_autoscale_mode = off\n\
         public_addr = 127.0.0.1\ncluster_addr = 127.0.0.1\nms_bind_ipv6 = false\n\
         run_dir = {folder}\ncrash_dir = {folder}\nadmin_socket = {folder}/$name.$pid.asok\npid_file =\n\
         keyring = {folder}/keyring\nmon_data = {folder}/mon\nosd_data = {folder}/osd\n\
         log_file =\nmon_cluster_log_file =\nlog_to_stderr = true\nerr_to_stderr = true\n\
         rados_mon_op_timeout = 30\nrados_osd_op_timeout = 60\n"
    )
}
