//! The name of a store in its image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::peer::{self, CannylsImage};
use crate::support::turns::DiskDir;
use crate::support::{self, disk_dir};
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::format::label;
use lumpscope_engine::guard::FormatError;
use lumpscope_engine::{Error, Store, StoreOptions, rename};

const BLOCK: u64 = 4096;

struct StorePlace(DiskDir);

impl StorePlace {
    fn new(name: Option<&str>) -> Self {
        let place = Self(disk_dir());
        let options = CreateOptions {
            capacity: Some(4 << 20),
            name,
            ..CreateOptions::default()
        };
        format(&place.path(), &options).unwrap();
        place
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store.lusf")
    }

    /// The names in header block and journal header block.
    fn names(&self) -> [Option<String>; 2] {
        let bytes = fs::read(self.path()).unwrap();
        [0, 4096].map(|at| label::decode(&bytes[at..]))
    }

    fn zero(&self, at: u64, len: usize) {
        let file = File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(&vec![0; len], at).unwrap();
    }
}

/// As a service does: an image with another name is refused.
fn open(path: &Path, name: &'static str) -> Result<Store, Error> {
    let options = StoreOptions {
        admission: Some(Arc::new(move |image| match image.name.as_deref() {
            Some(other) if other != name => Err(format!("it is {other}")),
            _ => Ok(()),
        })),
        name: name.to_owned(),
        ..support::options()
    };
    Store::open(path, options)
}

fn both(name: &str) -> [Option<String>; 2] {
    [Some(name.to_owned()), Some(name.to_owned())]
}

#[test]
fn an_image_has_the_name_it_was_formatted_with_and_no_other_store_gets_it() {
    let place = StorePlace::new(Some("fast"));
    assert_eq!(place.names(), both("fast"));
    let before = fs::read(place.path()).unwrap();
    let refused = open(&place.path(), "cold").map(drop).unwrap_err();
    assert!(matches!(&refused, Error::WrongImage { .. }), "{refused}");
    assert!(refused.to_string().ends_with("it is fast"), "{refused}");
    assert_eq!(fs::read(place.path()).unwrap(), before, "it was changed");
    let store = open(&place.path(), "fast").unwrap();
    assert_eq!(store.info().image_name.as_deref(), Some("fast"));
    support::put(&store, 1, b"a lump");
    store.close().unwrap();
    assert_eq!(place.names(), both("fast"));
}

#[test]
fn an_image_without_a_name_gets_that_of_the_first_store_and_only_then() {
    let place = StorePlace::new(None);
    assert_eq!(place.names(), [None, None]);
    // Whoever asks for nothing changes nothing.
    Store::open(&place.path(), support::options())
        .unwrap()
        .close()
        .unwrap();
    assert_eq!(place.names(), [None, None]);
    let store = open(&place.path(), "cold").unwrap();
    assert_eq!(place.names(), both("cold"), "before anything is put");
    store.close().unwrap();
    open(&place.path(), "fast").map(drop).unwrap_err();
}

#[test]
fn a_name_is_kept_by_either_block_and_changed_by_rename_alone() {
    let place = StorePlace::new(Some("fast"));
    // What CannyLS does when it moves the ring's head.
    place.zero(BLOCK + 8, 4000);
    open(&place.path(), "cold").map(drop).unwrap_err();
    // The one in the header block is damaged.
    assert_eq!(
        rename(&place.path(), "fast", None).unwrap().as_deref(),
        Some("fast")
    );
    place.zero(u64::try_from(label::LABEL_OFFSET).unwrap() + 6, 1);
    open(&place.path(), "cold").map(drop).unwrap_err();
    let before = rename(&place.path(), "cold", None).unwrap();
    assert_eq!(before.as_deref(), Some("fast"));
    assert_eq!(place.names(), both("cold"));
    open(&place.path(), "cold").unwrap().close().unwrap();
    rename(&place.path(), "no name", None).unwrap_err();
}

#[test]
fn cannyls_works_on_an_image_with_a_name_and_leaves_it() {
    let place = StorePlace::new(Some("fast"));
    let peer = CannylsImage::new(fs::read(place.path()).unwrap());
    let mut canny = peer.open();
    canny.put(&peer::id(7), &peer::plain(b"theirs")).unwrap();
    drop(canny);
    fs::write(place.path(), peer.image()).unwrap();
    open(&place.path(), "cold").map(drop).unwrap_err();
    let store = open(&place.path(), "fast").unwrap();
    assert_eq!(support::get(&store, 7).unwrap(), b"theirs");
    store.close().unwrap();
}

#[test]
fn an_image_of_an_earlier_version_named_like_an_option_is_renamed() {
    let place = StorePlace::new(Some("fast"));
    let mut bytes = fs::read(place.path()).unwrap();
    for at in [0, 4096] {
        label::put_into(&mut bytes[at..], Some("--help"));
    }
    fs::write(place.path(), bytes).unwrap();
    open(&place.path(), "fast").map(drop).unwrap_err();
    open(&place.path(), "--help").unwrap().close().unwrap();
    for name in ["--force", "..", "."] {
        rename(&place.path(), name, None).unwrap_err();
    }
    let before = rename(&place.path(), "fast", None).unwrap();
    assert_eq!(before.as_deref(), Some("--help"));
    open(&place.path(), "fast").unwrap().close().unwrap();
}

#[test]
fn a_name_that_no_store_can_have_is_not_written() {
    let folder = disk_dir();
    let path = folder.path().join("store.lusf");
    let options = CreateOptions {
        capacity: Some(4 << 20),
        name: Some("a=b"),
        ..CreateOptions::default()
    };
    let refused = format(&path, &options).unwrap_err();
    assert!(matches!(&refused, FormatError::Name(_)), "{refused}");
    assert!(!path.exists());
}
