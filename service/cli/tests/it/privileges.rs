//! Privileges of a serving service, and notifications to the service manager.

#![expect(
    unsafe_code,
    reason = "one thread of a test becomes another user, by a plain system call"
)]

use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::process::{PROGRAM, Process, run_with};
use lumpscope_needs::{Need, available, missing};
use lumpscope_proto::v1::AddStoreRequest;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_server::privileges::{self, CapSet, ThreadStatus};
use rustix::process::Signal;

const UNIT: &str = include_str!("../../../server/systemd/lumpscope.service");
const EVENTUALLY: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;
const SHA256_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const SHA256_OF_OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";
/// Exposure of the unit in tenths, as systemd-analyze counts it from 0 to 100.
const EXPOSURE: u32 = 25;

impl Process {
    fn threads(&self) -> Vec<ThreadStatus> {
        let mut threads = privileges::threads_of(self.child.id()).unwrap();
        threads.retain(|thread| !thread.kernel_worker);
        assert!(threads.len() > 3, "{threads:?}");
        threads
    }

    async fn put_and_get(&self, id: u128) {
        let mut client = connect(&self.grpc).await;
        let bytes = body(id, 300_000);
        put(&mut client, "a", id, &bytes).await.unwrap();
        assert!(get(&mut client, "a", id).await.unwrap() == bytes);
    }
}

/// A service of one store, begun by a command of which the first words are there.
fn start(command: &mut Command, store: &Path, more: &[&str]) -> Process {
    let command = command.arg("serve").env_remove("NOTIFY_SOCKET");
    let folder = store.parent().unwrap();
    Process::with_probes(command, folder, &[("a", store)], more)
}

fn serve<'a>(command: &'a mut Command, store: &Path, more: &[&str]) -> &'a mut Command {
    command
        .args("serve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0".split(' '))
        .args(["--store", &format!("a={}", store.display())])
        .args(more)
}

/// Output of a service that must not start.
fn refused(more: &[&str], store: &Path) -> String {
    let mut command = Command::new(PROGRAM);
    let output = serve(&mut command, store, more).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn doctor(pid: u32) -> serde_json::Value {
    let output = run_with(&["doctor", "--json", "--pid", &pid.to_string()], b"");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finding<'a>(findings: &'a serde_json::Value, topic: &str) -> &'a serde_json::Value {
    let list = findings.as_array().unwrap();
    let found = list.iter().find(|finding| finding["topic"] == topic);
    found.unwrap_or_else(|| panic!("{topic} is not in {findings}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_thread_has_given_up_everything_and_is_another_user() {
    if !available(&[Need::Root]) {
        return;
    }
    let dir = folder();
    let store = store_file(dir.path(), "nobody", 16 << 20, 4096, 0.05);
    let late = store_file(dir.path(), "late", 16 << 20, 4096, 0.05);
    let socket = dir.path().join("s.sock");
    let limits = privileges::limits_here();
    if let Err(why) = &limits {
        missing(why);
    }
    // More threads, of every kind that there is.
    for backend in ["uring", "threads"] {
        let how = [
            "--no-probes",
            "--user",
            "65534:65534",
            "--io-backend",
            backend,
            "--unix-socket",
            socket.to_str().unwrap(),
        ];
        let service = start(&mut Command::new(PROGRAM), &store, &how);
        let owner = std::fs::symlink_metadata(&socket).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (NOBODY, NOBODY));
        for when in ["at the start", "after requests"] {
            for thread in service.threads() {
                let held = [thread.permitted, thread.effective, thread.ambient];
                let could_be = [thread.inheritable, thread.bounding];
                assert_eq!(held, [CapSet::NONE; 3], "{when}: {thread:?}");
                assert_eq!(could_be, [CapSet::NONE; 2], "{when}: {thread:?}");
                assert!(thread.no_new_privs, "{when}: {thread:?}");
                assert!(thread.filtered, "{when}: {thread:?}");
                assert_eq!(thread.limited, limits.is_ok(), "{when}: {thread:?}");
                assert_eq!((thread.uids, thread.gids), ([NOBODY; 4], [NOBODY; 4]));
                assert!(!thread.groups.contains(&0), "{when}: {thread:?}");
            }
            service.put_and_get(u128::from(backend == "uring")).await;
        }
        add_is_refused(&service, &late).await;
        let findings = doctor(service.child.id());
        assert_eq!(finding(&findings, "privileges held")["found"], "none");
        assert_eq!(finding(&findings, "privileges held")["level"], "good");
        assert_eq!(finding(&findings, "system calls")["level"], "good");
        let level = if limits.is_ok() { "good" } else { "degraded" };
        assert_eq!(finding(&findings, "files and ports")["level"], level);
        assert_eq!(finding(&findings, "service")["level"], "good");
        assert!(service.stop().success());
    }
}

/// Gives all rights to one token, as an administrator should: by another file in the place of the old.
fn give(tokens: &Path, sha256: &str) {
    let text = format!(
        "[[token]]\nname = \"a\"\nsha256 = \"{sha256}\"\nscopes = [\"admin\", \"observe\"]\n\
         stores = [\"*\"]\n"
    );
    let new = tokens.with_file_name("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, tokens).unwrap();
}

/// Files that are replaced, and stores that come; nothing else.
#[test]
fn what_is_needed_later_stays_within_reach() {
    if let Err(why) = privileges::limits_here() {
        return missing(&why);
    }
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    for name in ["settings", "stores", "elsewhere"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let store = store_file(dir.path(), "own", 16 << 20, 4096, 0.05);
    let named = store_file(&at("stores"), "named", 16 << 20, 4096, 0.05);
    let other = store_file(&at("elsewhere"), "other", 16 << 20, 4096, 0.05);
    let tokens = at("settings").join("tokens.toml");
    give(&tokens, SHA256_OF_TEST);
    let how = [
        "--no-probes",
        "--reload-interval=0",
        "--add-store-from",
        &at("stores").display().to_string(),
        "--tokens",
        &tokens.display().to_string(),
        "--unix-socket",
        &at("s.sock").display().to_string(),
    ];
    let service = start(&mut Command::new(PROGRAM), &store, &how);
    let ask = |token: &str, words: &[&str]| {
        std::fs::write(at("token"), token).unwrap();
        let file = at("token").display().to_string();
        service.run(&[words, &["--token-file", &file]].concat())
    };
    let add = |name: &str, path: &Path| {
        let path = path.display().to_string();
        ask("test", &["admin", "add-store", name, &path])
    };
    let added = add("named", &named);
    assert!(added.status.success(), "{added:?}");
    let refused = add("other", &other);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.contains("add-store-from"), "{said}");
    // Its own store can fail and come back.
    let removed = ask("test", &["admin", "remove-store", "a"]);
    assert!(removed.status.success(), "{removed:?}");
    let back = add("a", &store);
    assert!(back.status.success(), "{back:?}");

    give(&tokens, SHA256_OF_OTHER);
    service.signal(Signal::HUP);
    let begin = Instant::now();
    while !ask("other", &["admin", "service"]).status.success() {
        assert!(begin.elapsed() < EVENTUALLY, "the new tokens are not read");
    }
    assert!(!ask("test", &["admin", "service"]).status.success());
    assert!(service.stop().success());
    assert!(!at("s.sock").exists());
}

/// A store that only root may open cannot be added any more, and the answer says what to do.
async fn add_is_refused(service: &Process, path: &Path) {
    let mut admin = AdminClient::connect(service.grpc.clone()).await.unwrap();
    let request = AddStoreRequest {
        name: "late".to_owned(),
        path: path.display().to_string(),
        salvage: false,
    };
    let status = admin.add_store(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    for words in ["Permission denied", "group disk", "--keep-privileges"] {
        assert!(status.message().contains(words), "{words} in {status:?}");
    }
}

/// A process of the same user, without capabilities as well, cannot read the memory of the service.
fn nobody_looks_into(service: &Process) {
    let plain = ["--bounding-set", "-all", "--inh-caps", "-all"];
    let mut other = Command::new("setpriv");
    let mut other = other.args(plain).args(["sleep", "600"]).spawn().unwrap();
    let look = |pid: u32| {
        let file = format!("/proc/{pid}/environ");
        let mut cat = Command::new("setpriv");
        let cat = cat.args(plain).args(["cat", &file]);
        cat.output().unwrap().status
    };
    let begin = Instant::now();
    while !look(other.id()).success() {
        assert!(begin.elapsed() < EVENTUALLY, "none can be looked into");
    }
    assert!(!look(service.child.id()).success());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_user_capabilities_go_and_root_stays_unless_told_otherwise() {
    if !available(&[Need::Root]) {
        return;
    }
    let dir = folder();
    let store = store_file(dir.path(), "keep", 16 << 20, 4096, 0.05);
    let service = start(&mut Command::new(PROGRAM), &store, &["--no-probes"]);
    for thread in service.threads() {
        assert_eq!(thread.permitted, CapSet::NONE, "{thread:?}");
        assert_eq!(thread.uids, [0; 4], "{thread:?}");
        assert!(thread.no_new_privs, "{thread:?}");
    }
    service.put_and_get(1).await;
    nobody_looks_into(&service);
    // It has no capability left, and is root all the same: log and doctor say so, and what to do.
    let said = service.log();
    let is_it = |line: &str| {
        [" WARN ", "runs as root", "--user"]
            .iter()
            .all(|it| line.contains(it))
    };
    assert!(said.lines().any(is_it), "{said}");
    let findings = doctor(service.child.id());
    let who = finding(&findings, "service");
    assert_eq!(who["level"], "degraded", "{who}");
    let text = |key: &str| who[key].as_str().unwrap();
    assert!(text("consequence").contains("every file on this machine"));
    assert!(text("remedy").contains("--user"), "{who}");
    assert_eq!(finding(&findings, "privileges held")["level"], "good");
    assert!(service.stop().success());

    let keep = ["--no-probes", "--keep-privileges"];
    let service = start(&mut Command::new(PROGRAM), &store, &keep);
    let own = privileges::own_threads().unwrap().swap_remove(0);
    for thread in service.threads() {
        assert_eq!(thread.permitted, own.permitted, "{thread:?}");
        assert!(!thread.filtered && !thread.limited, "{thread:?}");
    }
    let findings = doctor(service.child.id());
    let held = finding(&findings, "privileges held");
    assert_eq!(held["level"], "degraded");
    let found = held["found"].as_str().unwrap();
    assert!(found.contains("CAP_SYS_ADMIN"), "{held}");
    assert_eq!(finding(&findings, "files and ports")["level"], "degraded");
    assert!(service.stop().success());
}

#[test]
fn a_user_that_cannot_be_become_keeps_it_from_starting() {
    let dir = folder();
    let store = store_file(dir.path(), "strange", 16 << 20, 4096, 0.05);
    let stranger = ["--no-probes", "--log", "off", "--user", "no-such-user"];
    let text = refused(&stranger, &store);
    assert!(text.contains("no-such-user"), "{text}");
    assert!(text.lines().count() == 1, "{text}");
    if !available(&[Need::Root, Need::Tool("setpriv")]) {
        return;
    }
    // Without the rights to change users, though as root.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-setuid,-setgid", PROGRAM]);
    let more = ["--no-probes", "--log", "off", "--user", "65534:65534"];
    let output = serve(&mut command, &store, &more).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("start as root"), "{text}");
}

/// Dropped privileges stay dropped for work that the kernel does for the service: a worker of
/// io_uring that was started before has its old capabilities in /proc, but uses those of the thread
/// that asks.
#[test]
fn workers_of_io_uring_have_the_rights_of_those_who_ask_them() {
    if !available(&[Need::Root]) {
        return;
    }
    let Ok(mut ring) = io_uring::IoUring::new(4) else {
        missing("this kernel, or its settings, allow no io_uring");
        return;
    };
    let dir = folder();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let file = std::fs::File::open(dir.path()).unwrap();
    let outcomes = std::thread::spawn(move || {
        let name = std::ffi::CString::new(secret.file_name().unwrap().as_bytes()).unwrap();
        let mut open = || {
            use io_uring::{opcode, squeue::Flags, types::Fd};
            let entry = opcode::OpenAt::new(Fd(file.as_raw_fd()), name.as_ptr())
                .build()
                .flags(Flags::ASYNC);
            // SAFETY: the name outlives the request, which is waited for.
            unsafe { ring.submission().push(&entry) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            ring.completion().next().unwrap().result()
        };
        let as_root = open();
        // SAFETY: numbers; the plain call changes this thread alone, which ends with the test.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(changed, 0);
        let workers: Vec<_> = privileges::own_threads().unwrap();
        let worker = workers.into_iter().find(|thread| thread.kernel_worker);
        (as_root, worker, open())
    })
    .join()
    .unwrap();
    let (as_root, worker, as_nobody) = outcomes;
    assert!(as_root >= 0, "{as_root}");
    // Else it would prove nothing.
    assert!(!worker.expect("a worker").effective.is_empty());
    assert_eq!(as_nobody, -libc::EACCES);
}

/// Value of a key of the unit; repeated ones are joined.
fn of_unit(key: &str) -> String {
    let value = |line: &'static str| line.strip_prefix(key)?.strip_prefix('=');
    UNIT.lines().filter_map(value).collect::<Vec<_>>().join(" ")
}

/// Waits for a message with a line that begins so, and returns the message.
fn receive(socket: &UnixDatagram, wanted: &str) -> String {
    let begin = Instant::now();
    let mut buffer = [0; 4096];
    while begin.elapsed() < EVENTUALLY {
        let len = socket.recv(&mut buffer).expect("a message in time");
        let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
        if text.lines().any(|line| line.starts_with(wanted)) {
            return text;
        }
    }
    panic!("{wanted} was not told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_with_the_capabilities_of_its_unit_and_tells_the_manager() {
    if !available(&[Need::Root, Need::Tool("setpriv")]) {
        return;
    }
    let dir = folder();
    let store = store_file(dir.path(), "unit", 16 << 20, 4096, 0.05);
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(EVENTUALLY)).unwrap();
    let bounding = of_unit("CapabilityBoundingSet");
    assert_eq!(bounding, of_unit("AmbientCapabilities"));
    let names = bounding.split_whitespace().map(|name| name.to_lowercase());
    let bounding = names.fold("-all".to_owned(), |all, name| all + ",+" + &name[4..]);
    // As systemd does: the program itself becomes the main process. The watchdog's time is counted
    // for a process id, which is only known in the shell that is replaced.
    let script = "WATCHDOG_PID=$$ exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", "env"])
        .arg(format!("NOTIFY_SOCKET={}", path.display()))
        .args(["WATCHDOG_USEC=1000000", "setpriv", "--no-new-privs"])
        .args(["--bounding-set", &bounding, PROGRAM]);
    let service = start(&mut command, &store, &[]);
    let told = receive(&socket, "READY=1");
    let is_serving = told.lines().any(|line| line == "STATUS=serving a");
    assert!(is_serving, "{told}");
    for thread in service.threads() {
        assert_eq!(thread.permitted, CapSet::NONE, "{thread:?}");
    }
    service.put_and_get(1).await;
    receive(&socket, "WATCHDOG=1");
    service.signal(Signal::HUP);
    receive(&socket, "RELOADING=1");
    receive(&socket, "READY=1");
    service.put_and_get(2).await;
    receive(&socket, "WATCHDOG=1");
    for (command, status) in [
        ("drain", "STATUS=serving no store; a is draining: "),
        ("resume", "STATUS=serving a"),
    ] {
        assert!(service.run(&["admin", command, "a"]).status.success());
        receive(&socket, status);
    }
    service.signal(Signal::TERM);
    receive(&socket, "STOPPING=1");
    assert!(service.stop().success());
}

#[test]
fn a_second_signal_ends_it_without_waiting_for_requests() {
    let dir = folder();
    let store = store_file(dir.path(), "twice", 16 << 20, 4096, 0.05);
    let how = ["--no-probes", "--drain-timeout", "600"];
    let mut service = start(&mut Command::new(PROGRAM), &store, &how);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut client = runtime.block_on(connect(&service.grpc));
    // A put that never ends keeps the service from ending.
    let (sender, messages) = tokio::sync::mpsc::channel(1);
    let put = runtime.spawn(async move {
        let stream = tokio_stream::wrappers::ReceiverStream::new(messages);
        client.put(stream).await
    });
    for message in [first(header("a", 1, 1 << 20)), chunk(vec![1; 4096])] {
        runtime.block_on(sender.send(message)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    service.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    let ended = service.child.try_wait().unwrap();
    assert!(ended.is_none(), "it did not wait for the put");
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success());
    assert!(runtime.block_on(put).unwrap().is_err());
}

#[test]
fn the_unit_is_sound_and_exposes_little() {
    if !available(&[Need::Tool("systemd-analyze")]) {
        return;
    }
    let dir = folder();
    let unit = dir.path().join("lumpscope.service");
    // The program that is checked for is the one that was built.
    std::fs::write(&unit, UNIT.replace("/usr/bin/lumpscope", PROGRAM)).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(arguments).arg(&unit).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.success(), text)
    };
    let (good, text) = analyze(&["verify", "--man=no"]);
    assert!(good && text.is_empty(), "{text}");
    let threshold = format!("--threshold={EXPOSURE}");
    let (good, text) = analyze(&["security", "--offline=true", "--no-pager", &threshold]);
    assert!(good, "{text}");
    // The threshold means something.
    let (good, text) = analyze(&["security", "--offline=true", "--no-pager", "--threshold=1"]);
    assert!(!good, "{text}");
    let seconds = |key| of_unit(key).parse::<u64>().unwrap();
    let drain = lumpscope_server::config::ServeConfig::default().drain_timeout;
    assert!(seconds("TimeoutStopSec") >= 2 * drain.as_secs());
    assert_eq!(of_unit("Type"), "notify");
}
