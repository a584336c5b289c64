//! Must not achieve: to read lumps, or to lock their file, as another user of the machine; or to have
//! the service started with settings of somebody else.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};

use lumpscope_needs::{Need, available};
use lumpscope_server::config::ServeConfig;

use crate::common::{folder, store_file};

#[test]
fn files_of_lumps_are_their_owners() {
    let folder = folder();
    let path = store_file(folder.path(), "own", 16 << 20, 4096, 0.05);
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn settings_that_others_can_write() {
    if !available(&[Need::Root]) {
        return;
    }
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let good = at("good.toml");
    std::fs::write(&good, "log = \"debug\"\n").unwrap();
    std::fs::set_permissions(&good, Permissions::from_mode(0o644)).unwrap();
    ServeConfig::of_file(&good).unwrap();
    for (name, mode) in [("group", 0o664), ("all", 0o646)] {
        std::fs::copy(&good, at(name)).unwrap();
        std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    std::fs::copy(&good, at("other")).unwrap();
    chown(at("other"), Some(4_000_000), None).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe, mode, 0).unwrap();
    std::fs::write(at("large"), vec![b'\n'; (4 << 20) + 1]).unwrap();
    for (name, word) in [
        ("group", "664"),
        ("all", "646"),
        ("other", "belongs to user 4000000"),
        ("pipe", "no regular file"),
        ("large", "larger than 4M"),
        ("none", "cannot read"),
    ] {
        let error = ServeConfig::of_file(&at(name)).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(name), "{error}");
    }
}
