//! Images written by CannyLS: every lump is read, and the store goes on from there.

use crate::support;
use crate::support::{delete, disk_dir, get, options, testdata, try_put};
use lumpscope_engine::{LumpId, LumpRange, Placement, Store, StoreOptions};

struct SampleLump {
    id: u128,
    len: usize,
    placement: Placement,
    salt: u64,
}

impl SampleLump {
    /// The rule by which the images' contents were made.
    fn content(&self) -> Vec<u8> {
        let mut x =
            (self.id as u64) ^ ((self.id >> 64) as u64) ^ (self.salt << 56) ^ 0x9E37_79B9_7F4A_7C15;
        (0..self.len)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005);
                x = x.wrapping_add(1_442_695_040_888_963_407);
                (x >> 33) as u8
            })
            .collect()
    }
}

fn lumps(name: &str) -> Vec<SampleLump> {
    let text = std::fs::read_to_string(testdata(&format!("{name}.want.txt"))).unwrap();
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        SampleLump {
            id: u128::from_str_radix(fields[0], 16).unwrap(),
            len: fields[1].parse().unwrap(),
            placement: if fields[2] == "e" {
                Placement::Embedded
            } else {
                Placement::Data
            },
            salt: fields[3].parse().unwrap(),
        }
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(parse)
        .collect()
}

fn check(store: &Store, lumps: &[SampleLump]) {
    for lump in lumps {
        let id = LumpId(lump.id);
        let head = store.head(support::ctx(), id).unwrap();
        assert_eq!(head.length, lump.len as u64, "{id}");
        assert_eq!(head.placement, lump.placement, "{id}");
        assert_eq!(get(store, lump.id), Some(lump.content()), "{id}");
        // Now the size is known without a read.
        assert_eq!(store.head(support::ctx(), id).unwrap(), head);
    }
}

#[test]
fn every_lump_of_every_sample_is_read_and_the_store_goes_on() {
    for name in ["basic", "bs4096", "wrap", "wrap2"] {
        let dir = disk_dir();
        let path = dir.path().join("sample.lusf");
        std::fs::copy(testdata(&format!("{name}.lusf")), &path).unwrap();
        let mut lumps = lumps(name);
        let open = || Store::open(&path, options()).unwrap();
        let store = open();
        check(&store, &lumps);
        let expected = lumps.len() as u64;
        assert_eq!(store.usage(LumpRange::ALL).unwrap().lumps, expected);
        // Overwrites that make the ring go round, an embedded lump, a delete.
        let scratch = 0xabcd_0000;
        let len = 200;
        for salt in 0..300 {
            let lump = SampleLump {
                id: scratch,
                len,
                placement: Placement::Data,
                salt,
            };
            try_put(&store, scratch, &lump.content(), Placement::Data).unwrap();
        }
        lumps.push(SampleLump {
            id: scratch,
            len,
            placement: Placement::Data,
            salt: 299,
        });
        let gone = lumps.swap_remove(0);
        assert!(delete(&store, gone.id));
        check(&store, &lumps);
        store.close().unwrap();
        let store = open();
        check(&store, &lumps);
        assert_eq!(get(&store, gone.id), None);
    }
}

#[test]
fn padding_of_more_than_a_block_is_read() {
    let dir = disk_dir();
    let path = dir.path().join("sample.lusf");
    std::fs::copy(testdata("foreign_align.lusf"), &path).unwrap();
    let store = Store::open(&path, StoreOptions::new("foreign")).unwrap();
    let ids = store.list(LumpRange::ALL, 100).unwrap().ids;
    assert!(!ids.is_empty());
    for id in ids {
        let length = store.head(support::ctx(), id).unwrap().length;
        let lump = store.get(support::ctx(), id).unwrap();
        assert_eq!((lump.len() as u64, lump.verified), (length, false));
    }
}
