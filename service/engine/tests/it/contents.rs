//! What `format` finds on a device that carries no signature: it is left alone.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::support;
use crate::support::disks::{Image, Loop, forced, plain, refusal, require, run};
use lumpscope_engine::Store;
use lumpscope_engine::create::format;
use lumpscope_engine::device::sim::Random;
use lumpscope_engine::guard::FormatError;

const MIB: u64 = 1024 * 1024;

fn write(image: &Image, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(image.path());
    let file = file.expect("the image opens");
    file.write_all_at(bytes, at).expect("written");
    file.sync_all().expect("written");
}

fn random(len: u64) -> Vec<u8> {
    let mut random = Random::new(7);
    let words = (0..len / 8).flat_map(|_| random.next().to_le_bytes());
    words.collect()
}

/// Refused with these words, and made by force.
fn assert_found(image: &Image, device: &Loop, words: &str) {
    let error = refusal(image, device.path(), &plain());
    assert!(matches!(&error, FormatError::Signatures { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(words), "{words:?} in {text:?}");
    assert!(text.contains("at byte "), "{text}");
    assert!(text.contains("--force"), "{text}");
    format(device.path(), &forced()).expect("forced");
}

#[test]
fn data_without_a_signature_is_found() {
    require!();
    // Encrypted without a header: all of it is random.
    let image = Image::new(16 * MIB);
    write(&image, 0, &random(16 * MIB));
    assert_found(&image, &image.attach(&[]), "random bytes");
    // A hundredth of a disk, somewhere in the middle.
    let image = Image::new(800 * MIB);
    write(
        &image,
        333 * MIB + 512,
        &b"a line of text\n".repeat(8 << 16)[..],
    );
    assert_found(&image, &image.attach(&[]), "text at byte 349");
    // Its last sector.
    let image = Image::new(800 * MIB);
    write(&image, 800 * MIB - 512, &[1; 512]);
    assert_found(&image, &image.attach(&[]), "data at byte 838860288");
}

#[test]
fn file_systems_without_their_first_blocks_are_found() {
    require!("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs");
    let tools: [(&str, &[&str], &str, u64); 4] = [
        (
            "mkfs.ext4",
            &["-qF", "-b", "1024"],
            "ext2/3/4 file system",
            4096,
        ),
        (
            "mkfs.ext4",
            &["-qF", "-b", "4096"],
            "ext2/3/4 file system",
            MIB,
        ),
        ("mkfs.xfs", &["-qf"], "xfs file system", 4096),
        ("mkfs.btrfs", &["-qf"], "btrfs file system", MIB),
    ];
    for (tool, options, words, lost) in tools {
        let image = Image::new(400 * MIB);
        let path = image.path();
        let path = path.to_str().expect("a path of ASCII letters");
        run(tool, &[options, &[path]].concat());
        write(&image, 0, &vec![0; usize::try_from(lost).unwrap()]);
        assert_found(&image, &image.attach(&[]), words);
    }
}

#[test]
fn a_store_without_its_header_is_found() {
    require!();
    let image = Image::new(64 * MIB);
    let device = image.attach(&[]);
    format(device.path(), &plain()).expect("an empty disk");
    let store = Store::open(device.path(), support::options()).unwrap();
    for id in 0..40 {
        support::put(&store, id, &support::content(id, 0, 500_000));
    }
    store.close().unwrap();
    drop(device);
    write(&image, 0, &[0; 64 << 10]);
    assert_found(&image, &image.attach(&[]), "lusf lump store");
}

#[test]
fn a_disk_of_zeros_or_of_ones_is_empty() {
    require!();
    let image = Image::new(16 * MIB);
    format(image.attach(&[]).path(), &plain()).expect("zeros");
    let image = Image::new(8 * MIB);
    write(&image, 0, &vec![0xff; 8 << 20]);
    format(image.attach(&[]).path(), &plain()).expect("erased flash");
}
