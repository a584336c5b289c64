//! Stores that come and go while the observer watches.

use lumpscope_observer::{HeatCell, Observer, ObserverOptions};

use crate::support::{LoopDevice, Watched, owned, ready, until_complete};

fn nothing_yet() -> Observer {
    Observer::start(ObserverOptions {
        enabled: true,
        ..ObserverOptions::default()
    })
}

#[test]
fn the_probes_are_attached_with_the_first_disk() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(16 << 20);
    let report = until_complete(|| {
        let it = Watched::added(&nothing_yet(), &device.path, "it");
        it.request(1, "put", 8192, || it.write(1, 1 << 20, 8192));
        it.report()
    });
    assert!(report.observed, "{report:?}");
    assert_eq!(report.block.attributed_bytes, 8192, "{:?}", report.block);
    assert_eq!(owned(&report, "request", "write"), (1, 8192));
    assert!(report.audit.seen_requests >= 1, "{:?}", report.audit);
}

#[test]
fn what_is_gone_is_forgotten_and_what_comes_again_starts_anew() {
    let Some(_one) = ready() else { return };
    let (first, second) = (LoopDevice::new(16 << 20), LoopDevice::new(16 << 20));
    let observer = nothing_yet();
    let stays = Watched::added(&observer, &first.path, "stays");
    let goes = Watched::added(&observer, &second.path, "goes");
    assert_ne!(stays.index, goes.index);
    goes.request(1, "put", 65_536, || goes.write(1, 1 << 20, 65_536));
    assert_eq!(goes.report().block.attributed_bytes, 65_536);
    observer.remove_store(goes.index);
    assert!(observer.report("goes").is_none() && observer.store_status("goes").is_none());
    // What is still said of it concerns nobody.
    goes.request(2, "put", 4096, || goes.write(2, 1 << 20, 4096));
    assert!(observer.report("goes").is_none());
    assert!(stays.report().operations.is_empty());

    let report = until_complete(|| {
        let again = Watched::added(&observer, &second.path, "goes");
        assert!(again.index > goes.index, "an index was given out twice");
        again.request(3, "get", 4096, || again.write(3, 4 << 20, 4096));
        let report = again.report();
        observer.remove_store(again.index);
        report
    });
    assert_eq!(report.operations.len(), 1, "{:?}", report.operations);
    assert_eq!(report.operations[0].count, 1);
    assert_eq!(report.block.attributed_bytes, 4096, "{:?}", report.block);
    assert_eq!(owned(&report, "request", "write"), (1, 4096));
}

#[test]
fn two_stores_on_one_disk_share_it_until_the_last_is_gone() {
    let Some(_one) = ready() else { return };
    let disk = LoopDevice::mounted(64 << 20, "mkfs.ext4", &["-q", "-F"]);
    let (a, b) = (disk.zeroed("a", 4 << 20), disk.zeroed("b", 4 << 20));
    let observer = nothing_yet();
    let one = Watched::added(&observer, &a, "a");
    let two = Watched::added(&observer, &b, "b");
    observer.remove_store(one.index);
    two.request(1, "put", 4096, || two.write(1, 0, 4096));
    let report = two.report();
    assert!(report.observed, "{report:?}");
    assert_eq!(report.block.attributed_bytes, 4096, "{:?}", report.block);
}

/// More comings and goings than there are slots: a slot used again shows nothing of before.
#[test]
fn slots_are_used_again_and_start_from_zero() {
    let Some(_one) = ready() else { return };
    let devices = [LoopDevice::new(16 << 20), LoopDevice::new(16 << 20)];
    let observer = nothing_yet();
    for round in 0_u64..40 {
        let device = &devices[usize::from(round % 2 == 1)];
        let it = Watched::added(&observer, &device.path, "it");
        // The first request of a disk has no distance to one before, the second has.
        for offset in [1 << 20, 8 << 20] {
            let request = round * 2 + (offset >> 23) + 1;
            it.request(request, "put", 4096, || it.write(request, offset, 4096));
        }
        let report = it.report();
        assert!(report.observed, "round {round}: {report:?}");
        let ours = |cell: &&HeatCell| cell.owner == "request" && cell.operation == "write";
        let cells: u64 = report.heat.iter().filter(ours).map(|cell| cell.count).sum();
        assert!(cells <= 1, "round {round}: {:?}", report.heat);
        let (writes, bytes) = owned(&report, "request", "write");
        assert!(writes <= 2 && bytes <= 8192, "round {round}: {report:?}");
        observer.remove_store(it.index);
    }
}
