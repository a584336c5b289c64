//! Must not achieve: to read lumps, or to lock their file, as another user of the machine.

use std::os::unix::fs::PermissionsExt as _;

use crate::common::{folder, store_file};

#[test]
fn files_of_lumps_are_their_owners() {
    let folder = folder();
    let path = store_file(folder.path(), "own", 16 << 20, 4096, 0.05);
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
