//! Must not achieve: to start programs, to look into other processes, or to change mounts and
//! namespaces, with code that runs inside the service.

use std::process::Command;

use lumpscope_server::privileges;

/// Tells the process that it is the one inside.
const INSIDE: &str = "LUMPSCOPE_CONFINED";

#[test]
fn code_inside_the_service_starts_nothing() {
    let inside = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "attacks::confined::the_inside_itself",
            "--ignored",
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(inside.status.success(), "{inside:?}");
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "it is the process that the test starts"]
fn the_inside_itself() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    // It was there before the filter.
    let thread = std::thread::spawn(move || {
        asked.recv().unwrap();
        Command::new("/bin/true").status()
    });
    assert!(Command::new("/bin/true").status().unwrap().success());
    privileges::forbid().unwrap();
    ask.send(()).unwrap();
    let denied = std::io::ErrorKind::PermissionDenied;
    assert_eq!(thread.join().unwrap().unwrap_err().kind(), denied);
    assert_eq!(
        Command::new("/bin/true").status().unwrap_err().kind(),
        denied
    );
    let mounted = rustix::mount::mount_bind("/proc", "/proc").unwrap_err();
    assert_eq!(mounted, rustix::io::Errno::PERM);
    for thread in privileges::own_threads().unwrap() {
        assert!(thread.filtered, "{thread:?}");
    }
}
