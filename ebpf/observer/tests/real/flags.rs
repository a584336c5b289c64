//! Flags of block requests, and the hardware queues they are sent to.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use lumpscope_observer::{BlockLine, Flavour, StoreReport, TraceRequest};

use crate::support::{LoopDevice, Watched, forced, mount_tracefs, ready, sh, until_complete};

const MIB: u64 = 1 << 20;

/// Metadata is written to a file system, and a file of it is read ahead, beside a store on it.
fn on_a_file_system(flavour: Flavour) -> (StoreReport, Vec<BlockLine>) {
    let mounted = LoopDevice::mounted(256 * MIB, "mkfs.ext4", &["-q"]);
    let store = mounted.zeroed("store", 1 << 20);
    let read = mounted.zeroed("read", 8 << 20);
    sh("sync", &["-f", mounted.at.to_str().expect("UTF-8")]);
    let it = Watched::new(&store, forced(flavour));
    let watch = it.observer.watch_blocks(TraceRequest::default(), 100_000);
    for name in 0..50 {
        let made = mounted.at.join(format!("folder-{name}"));
        std::fs::create_dir(made).expect("made");
    }
    sh("sync", &["-f", mounted.at.to_str().expect("UTF-8")]);
    let file = std::fs::File::open(&read).expect("opened");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
    let mut page = vec![0; 4096];
    for at in (0..8 * MIB).step_by(4096) {
        file.read_exact_at(&mut page, at).expect("read");
    }
    let report = it.report();
    assert_eq!(watch.dropped(), 0);
    (report, watch.take().into())
}

fn flags_are_seen(flavour: Flavour) {
    let mut lines = Vec::new();
    let report = until_complete(|| {
        let (report, seen) = on_a_file_system(flavour);
        lines = seen;
        report
    });
    let mut told: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.device_ns.is_some()) {
        for flag in &line.flags {
            *told.entry(flag).or_default() += 1;
        }
    }
    // A loop device cannot force a write: flushes come instead.
    assert!(told.remove("fua") > Some(0), "{told:?}");
    assert!(told.remove("preflush") > Some(0), "{told:?}");
    let counted = report.flagged.iter().map(|of| {
        let requests = of.device.iter().map(|bucket| bucket.count).sum();
        let (least, most) = of.device.iter().fold((0, 0), |(least, most), bucket| {
            let to = bucket.to.min(1 << 40);
            (least + bucket.from * bucket.count, most + to * bucket.count)
        });
        assert!((least..=most).contains(&of.device_ns), "{of:?}");
        (&*of.flag, requests)
    });
    assert_eq!(counted.collect::<BTreeMap<_, u64>>(), told, "{flavour:?}");
    let (classic, raw) = (["meta"], ["ahead", "meta"]);
    let expected = match flavour {
        Flavour::Classic => &classic[..],
        _ => &raw[..],
    };
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), expected);
    let ahead = |line: &BlockLine| line.flags.contains(&"ahead".to_owned());
    assert!(
        lines
            .iter()
            .filter(|l| ahead(l))
            .all(|l| l.operation == "read")
    );
    let queues = std::fs::read_dir(format!("/sys/block/{}/mq", report.device));
    let queues = queues.expect("it has queues").count();
    for line in lines.iter().filter(|line| line.device_ns.is_some()) {
        let queue = line.hardware_queue;
        match flavour {
            Flavour::Classic => assert_eq!(queue, None, "{line:?}"),
            _ => assert!(
                queue.is_some_and(|queue| (queue as usize) < queues),
                "{line:?}"
            ),
        }
    }
}

#[test]
fn flags_and_hardware_queues_are_seen_by_each_flavour() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        flags_are_seen(flavour);
    }
}
