//! `lumpscope watch` by file: what is written under each file's name is what was written to it, also
//! where blocks of removed files are used again.
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser as _;
use lumpscope_lab::disks::{Lab, LabOptions, StoreKind};
use lumpscope_lab::watch::WatchArgs;
use lumpscope_needs::{Need, alone};
use serde_json::Value;

const MIB: u64 = 1 << 20;

#[derive(clap::Parser)]
struct WatchCli {
    #[command(flatten)]
    args: WatchArgs,
}

/// What `lumpscope watch` says of a command on a folder.
pub(crate) fn report(folder: &Path, command: &[&OsStr]) -> Value {
    let out = tempfile::NamedTempFile::new().unwrap();
    let options = ["watch", "--output"].map(OsStr::new).into_iter();
    let path = [
        out.path().as_os_str(),
        OsStr::new("--path"),
        folder.as_os_str(),
        OsStr::new("--"),
    ];
    let all = options.chain(path).chain(command.iter().copied());
    let code = lumpscope_lab::watch::run(&WatchCli::parse_from(all).args).unwrap();
    assert_eq!(
        format!("{code:?}"),
        format!("{:?}", ExitCode::SUCCESS),
        "{command:?}"
    );
    serde_json::from_slice(&fs::read(out.path()).unwrap()).unwrap()
}

/// Bytes written by name: of the files in this folder, and of all kinds.
struct BytesWritten(Vec<(String, u64)>, Vec<(String, u64)>, Value);

impl BytesWritten {
    /// By a shell's script in this folder, once what was there before has been written back.
    fn by(folder: &Path, script: &str) -> BytesWritten {
        rustix::fs::syncfs(fs::File::open(folder).unwrap()).unwrap();
        let script = format!("cd \"$1\"; {WRITE}{script}");
        let command = ["bash", "-ec", &script, "bash"].map(OsStr::new);
        let report = report(folder, &[&command[..], &[folder.as_os_str()]].concat());
        let disk = &report["disks"][0];
        let rows = |of: &str| {
            let rows = disk[of].as_array().unwrap().iter();
            let row = |row: &Value| {
                let name = Path::new(row["name"].as_str().unwrap());
                let name = name.strip_prefix(folder).unwrap_or(name).to_owned();
                let bytes = row["written_bytes"].as_u64().unwrap();
                (name.to_str().unwrap().to_owned(), bytes)
            };
            rows.map(row).collect::<Vec<_>>()
        };
        BytesWritten(rows("files"), rows("rows"), report.clone())
    }

    fn to(&self, file: &str) -> u64 {
        let of = self.0.iter().filter(|(name, _)| name == file);
        of.map(|(_, bytes)| bytes).sum()
    }

    fn kind(&self, kind: &str) -> u64 {
        let of = self.1.iter().filter(|(name, _)| name == kind);
        of.map(|(_, bytes)| bytes).sum()
    }

    /// Every file in the folder has its bytes, none has more than this, and all that was written is there.
    fn check(&self, files: &[(&str, u64)], most: u64, sum: u64) {
        for (name, bytes) in files {
            assert_eq!(self.to(name), *bytes, "{name}: {:#}", self.2);
        }
        for (name, bytes) in &self.0 {
            assert!(*bytes <= most, "{name}: {:#}", self.2);
        }
        let kinds = ["files", "files that are gone", "unknown"];
        let all: u64 = kinds.map(|kind| self.kind(kind)).into_iter().sum();
        assert_eq!(all, sum, "{:#}", self.2);
    }
}

/// `w FILE MIB [SKIP]`: writes to a file and waits for it.
const WRITE: &str = "w() { dd if=/dev/zero of=$1 bs=1M count=$2 seek=${3:-0} conv=fsync,notrunc \
                     status=none; }\n";

fn on_file_systems(check: impl Fn(&Path)) {
    let tools = ["bash", "tar", "mkfs.ext4", "mkfs.xfs"].map(Need::Tool);
    let Some(_alone) = alone(&[&[Need::LoopDevices][..], &tools].concat()) else {
        return;
    };
    let lab = Lab::create(&LabOptions {
        dir: Some(PathBuf::from("/var/tmp")),
        ..LabOptions::new(320 << 20)
    })
    .unwrap();
    lab.enter_current_thread().unwrap();
    for kind in [StoreKind::Ext4, StoreKind::Xfs] {
        let folder = lab.store(kind).unwrap().store_path.parent().unwrap();
        let folder = folder.join("watched");
        fs::create_dir(&folder).unwrap();
        check(&folder);
    }
}

#[test]
fn a_file_is_not_credited_with_those_that_were_there_before() {
    on_file_systems(|folder| {
        for pause in ["", "sleep 0.1;"] {
            // Also where the file is older than those before it.
            for made in ["", "touch final; sleep 0.2;"] {
                let script = format!(
                    "{made} for i in $(seq 12); do w tmp.$i 4; {pause} rm tmp.$i; sync -f .; done; w final 4"
                );
                let written = BytesWritten::by(folder, &script);
                written.check(&[("final", 4 * MIB)], 4 * MIB, 52 * MIB);
                fs::remove_file(folder.join("final")).unwrap();
            }
        }
    });
}

#[test]
fn each_file_of_an_archive_has_its_own_bytes() {
    let source = tempfile::tempdir().unwrap();
    let files = (0..465_u64).map(|n| (format!("{n}"), 1 + n * n * 37 % 70_000));
    let files: Vec<(String, u64)> = files.collect();
    for (name, len) in &files {
        let bytes = vec![1; usize::try_from(*len).unwrap()];
        fs::write(source.path().join(name), bytes).unwrap();
    }
    let archive = source.path().join("all.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(source.path()).arg("-cf").arg(&archive);
    tar.args(files.iter().map(|file| &file.0));
    assert!(tar.status().unwrap().success());
    on_file_systems(|folder| {
        let written = BytesWritten::by(folder, &format!("tar -xf {}", archive.display()));
        let block = fs::metadata(folder.join("0")).unwrap().blksize();
        let whole = |len: u64| len.next_multiple_of(block);
        let expected = files.iter().map(|(name, len)| (&**name, whole(*len)));
        let expected: Vec<(&str, u64)> = expected.collect();
        let sum = expected.iter().map(|file| file.1).sum();
        written.check(&expected, 72 * 1024, sum);
        assert_eq!(written.0.len(), files.len());
    });
}

#[test]
fn a_place_that_changes_hands_is_each_file_s_in_its_time() {
    on_file_systems(|folder| {
        for pause in ["", "sleep 0.2;"] {
            // Of what is overwritten, cut, or punched, all was written to it.
            let shares =
                "w f 8; P fallocate -p -o 2M -l 4M f; sync -f .; w g 4; P truncate -s 0 f; \
                          sync -f .; w h 4; P w f 4"
                    .replace('P', pause);
            let written = BytesWritten::by(folder, &shares);
            written.check(&[("g", 4 * MIB), ("h", 4 * MIB)], 12 * MIB, 20 * MIB);
            // What it lost before anybody looked is under files that are gone.
            let kept = written.to("f");
            assert!((4 * MIB..=12 * MIB).contains(&kept), "{kept}");
            let renamed =
                "w a.tmp 4; P mv a.tmp a; sync -f .; w a.tmp 2; P mv a.tmp a; sync -f .; w b 4"
                    .replace('P', pause);
            let written = BytesWritten::by(folder, &renamed);
            written.check(&[("b", 4 * MIB)], 4 * MIB, 10 * MIB);
            for file in fs::read_dir(folder).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
    });
}
