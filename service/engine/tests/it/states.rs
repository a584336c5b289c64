//! The state of a store follows its disk.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::sim::SimDisk;
use crate::support::stepped::{self, Stepped, steady};
use crate::support::{
    Shape, but, content, ctx, disk_dir, get, options, put, try_put, until, until_true,
};
use lumpscope_engine::device::sim::{Fault, FaultKind};
use lumpscope_engine::device::{Completion, Io, IoBackend, Wait, Waker};
use lumpscope_engine::{
    CommitMode, Error, IoBackendChoice, IoBackendKind, IoOp, LumpId, LumpRange, Placement, Store,
    StoreOptions, StoreState,
};

const SHAPE: Shape = Shape::new(512, 16, 400);

fn refused(store: &Store) -> String {
    let error = store.get(ctx(), LumpId(1)).unwrap_err();
    assert!(matches!(error, Error::OutOfService { .. }), "{error}");
    let change = try_put(store, 7, b"x", Placement::Embedded).unwrap_err();
    assert!(matches!(change, Error::OutOfService { .. }), "{change}");
    assert!(matches!(store.sync(), Err(Error::OutOfService { .. })));
    // What needs no disk is answered.
    let listed = store.list(LumpRange::ALL, 10).unwrap();
    assert_eq!(listed.ids, [LumpId(1)]);
    error.to_string()
}

#[test]
fn a_disk_without_any_i_o_takes_its_store_out_of_service_until_it_is_back() {
    for (errno, state) in [
        (libc::EIO, StoreState::Failed),
        (libc::ENODEV, StoreState::Gone),
        (libc::ENXIO, StoreState::Gone),
    ] {
        let disk = SimDisk::new(SHAPE.image());
        let store = disk.open().unwrap();
        put(&store, 1, b"one");
        store.close().unwrap();
        // A store that was only opened writes nothing.
        let store = disk.open().unwrap();
        assert_eq!(store.health().state, StoreState::Serving);
        disk.break_down(errno);
        let error = store.get(ctx(), LumpId(1)).unwrap_err();
        match state {
            StoreState::Gone => assert!(matches!(error, Error::Io { .. }), "{error}"),
            _ => assert!(matches!(error, Error::OutOfService { .. }), "{error}"),
        }
        until(&store, state);
        let why = store.health().reason;
        assert!(refused(&store).contains(&*why), "{why}");
        disk.heal();
        until(&store, StoreState::Serving);
        assert_eq!(&*store.health().reason, "");
        assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
        put(&store, 2, b"two");
        store.close().unwrap();
    }
}

#[test]
fn a_lump_that_cannot_be_read_is_no_failure_of_the_disk() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    put(&store, 1, &content(1, 1, 3000));
    put(&store, 2, &content(2, 1, 3000));
    let data = 512 * 18;
    disk.make_unreadable(data..data + 512);
    for _ in 0..20 {
        let error = store.get(ctx(), LumpId(1)).unwrap_err();
        let Error::Unreadable { id: LumpId(1), .. } = error else {
            panic!("{error}")
        };
        until(&store, StoreState::Degraded);
    }
    let range = store.get_range(ctx(), LumpId(1), 0, 100).unwrap_err();
    assert!(matches!(range, Error::Unreadable { .. }), "{range}");
    assert_eq!(get(&store, 2), Some(content(2, 1, 3000)));
    until(&store, StoreState::Serving);
    // An error that does not come again is none.
    let errors = store.stats().io_errors;
    disk.fail_once(IoOp::Read);
    assert_eq!(get(&store, 2), Some(content(2, 1, 3000)));
    assert_eq!(store.stats().io_errors, errors + 1);
}

#[test]
fn a_write_of_the_store_that_fails_makes_it_read_only_until_it_is_opened_again() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open_as(CommitMode::Ordered).unwrap();
    put(&store, 1, b"one");
    disk.refuse_writes(0..512 * 18);
    try_put(&store, 2, b"two", Placement::Data).unwrap_err();
    until(&store, StoreState::ReadOnly);
    disk.heal();
    assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
    assert_eq!(store.health().state, StoreState::ReadOnly);
    drop(store);
    let options = but(options(), |it| it.read_only = true);
    let store = disk.open_with(options).unwrap();
    assert_eq!(store.health().state, StoreState::ReadOnly);
    drop(store);
    assert_eq!(disk.open().unwrap().health().state, StoreState::Serving);
}

#[test]
fn a_disk_that_hangs_takes_its_store_out_of_service_until_it_answers() {
    let second = Duration::from_secs(1).as_nanos() as u64;
    let options = StoreOptions {
        io_timeout: Duration::from_secs(3),
        queue_depth: 1,
        ..StoreOptions::new("sim")
    };
    let mut it = Stepped::open(stepped::disk(64, 512, steady(1000, 1000)), options);
    it.put(1, 3000, Placement::Data);
    it.until(|it| it.driver.due_ns().is_none());
    it.disk.hang(true);
    let (first, waits) = (it.submit_get(1), it.submit_get(1));
    let begun = it.disk.now_ns();
    it.step();
    assert_eq!(it.store.health().state, StoreState::Serving);
    assert_eq!(it.driver.due_ns(), Some(begun + 3 * second));
    it.disk.advance_to(begun + 3 * second);
    it.step();
    let health = it.store.health();
    assert_eq!(health.state, StoreState::Failed);
    let why = &health.reason;
    assert!(why.contains("has not ended within 3 s"), "{why}");
    // What waits is answered, what the disk has is not.
    let answer = waits.try_recv().unwrap();
    assert!(matches!(answer, Err(Error::OutOfService { .. })));
    assert!(first.try_recv().is_err());
    let (on_done, _) = stepped::answer();
    let late = it.store.submit_get(ctx(), LumpId(1), on_done);
    assert!(matches!(late, Err(Error::OutOfService { .. })), "{late:?}");
    assert_eq!(it.driver.due_ns(), None, "nothing is done again and again");
    it.disk.hang(false);
    it.wait(&first).unwrap();
    it.until(|it| it.store.health().state == StoreState::Serving);
    it.check_all();
    it.close();
}

/// A backend whose calls block, as system calls on a disk that hangs may.
struct Blocking {
    inner: Box<dyn IoBackend>,
    blocked: Arc<(Mutex<bool>, Condvar)>,
}

impl IoBackend for Blocking {
    fn kind(&self) -> IoBackendKind {
        self.inner.kind()
    }

    fn submit(&mut self, io: Io) {
        let (blocked, changed) = &*self.blocked;
        let free = changed.wait_while(blocked.lock().unwrap(), |blocked| *blocked);
        drop(free.unwrap());
        self.inner.submit(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.inner.wait(ended, wait);
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }
}

#[test]
fn a_disk_that_holds_up_the_owner_thread_is_noticed_by_others() {
    let disk = SimDisk::new(SHAPE.image());
    let blocked = Arc::new((Mutex::new(false), Condvar::new()));
    let set = |on| {
        *blocked.0.lock().unwrap() = on;
        blocked.1.notify_all();
    };
    let mut device = disk.device();
    device.backend = Box::new(Blocking {
        inner: device.backend,
        blocked: Arc::clone(&blocked),
    });
    let options = but(options(), |it| it.io_timeout = Duration::from_secs(1));
    let store = Store::open_on(device, options).unwrap();
    put(&store, 1, b"one");
    set(true);
    let (on_done, answer) = stepped::answer();
    store.submit_get(ctx(), LumpId(1), on_done).unwrap();
    until(&store, StoreState::Failed);
    let error = store.get(ctx(), LumpId(1)).unwrap_err();
    assert!(matches!(error, Error::OutOfService { .. }), "{error}");
    set(false);
    assert_eq!(&answer.recv().unwrap().unwrap()[..], b"one");
    until(&store, StoreState::Serving);
    assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
    store.close().unwrap();
}

#[test]
fn a_disk_that_refuses_every_write_makes_its_store_read_only_until_it_takes_one() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        refuses_every_write(commit);
    }
}

fn refuses_every_write(commit: CommitMode) {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open_as(commit).unwrap();
    put(&store, 1, b"one");
    put(&store, 2, b"two");
    let used = store.stats().data_used_bytes;
    disk.refuse_writes(0..u64::MAX);
    let error = try_put(&store, 3, b"three", Placement::Data).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    until(&store, StoreState::ReadOnly);
    let why = store.health().reason;
    let said = match commit {
        CommitMode::Ordered => "refuses every write",
        _ => "refuses",
    };
    assert!(why.contains(said), "{why}");
    assert_eq!(store.failed(), None);
    for placement in [Placement::Data, Placement::Embedded] {
        let refused = try_put(&store, 3, b"three", placement).unwrap_err();
        assert!(matches!(refused, Error::OutOfService { .. }), "{refused}");
    }
    assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
    // Trial writes harm nothing, and take a block only while they last.
    std::thread::sleep(Duration::from_millis(50));
    disk.heal();
    until(&store, StoreState::Serving);
    until_true(&store, || store.stats().data_used_bytes == used);
    put(&store, 3, b"three");
    store.close().unwrap();
    let store = disk.open().unwrap();
    for (id, bytes) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        assert_eq!(get(&store, id).as_deref(), Some(bytes));
    }
    assert_eq!(store.stats().bad_places, 0);
}

/// The disk refuses a write of the journal a few times: the store waits for it.
#[test]
fn a_disk_that_refuses_the_journal_gets_it_again() {
    let errors = [libc::EIO, libc::ENOSPC].map(|errno| [1, 2, 5].map(|times| (errno, times)));
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        for (errno, times) in errors.concat() {
            let options = but(options(), |it| it.commit = commit);
            let mut it = Stepped::open(stepped::disk(64, 512, steady(1000, 1000)), options);
            it.put(1, 3000, Placement::Data);
            it.settle();
            it.disk.inject(Fault {
                within: 0..64 * 512,
                times,
                ..Fault::always(IoOp::Write, FaultKind::Errno(errno))
            });
            let first = it.submit_put(2, 300, Placement::Embedded);
            it.until(|it| it.store.health().state == StoreState::ReadOnly);
            let health = it.store.health();
            assert!(health.reason.contains("refuses the journal"), "{health:?}");
            let late = it.submit_put(3, 3000, Placement::Data);
            let late = it.wait(&late);
            assert!(matches!(late, Err(Error::OutOfService { .. })), "{late:?}");
            it.until(|it| it.store.health().state == StoreState::Serving);
            let first = it.wait(&first);
            assert!(matches!(first, Err(Error::Io { .. })), "{first:?}");
            it.settle();
            // The first has come about all the same.
            it.model.remove(&3);
            it.put(4, 3000, Placement::Data);
            it.check_all();
            it.close();
        }
    }
}

#[test]
fn opening_a_store_on_a_disk_that_hangs_ends_and_the_disk_can_be_had_when_it_answers() {
    let disk = SimDisk::new(SHAPE.image());
    put(&disk.open().unwrap(), 1, b"one");
    disk.hang(true);
    let options = but(options(), |it| it.io_timeout = Duration::from_millis(50));
    let error = disk.open_with(options).unwrap_err().to_string();
    assert!(error.contains("has not ended within 0.05 s"), "{error}");
    disk.hang(false);
    assert_eq!(get(&disk.open().unwrap(), 1).as_deref(), Some(&b"one"[..]));
}

/// Lumps in a file that nobody can open again are lost when it is closed.
#[test]
fn a_file_that_is_removed_or_replaced_takes_no_more_changes() {
    for backend in [IoBackendChoice::Uring, IoBackendChoice::Threads] {
        let dir = disk_dir();
        let (path, away) = (dir.path().join("in/named.lusf"), dir.path().join("away"));
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, SHAPE.image()).unwrap();
        let options = but(StoreOptions::new("named"), |it| it.io_backend = backend);
        let store = Store::open(&path, options).unwrap();
        put(&store, 1, &content(1, 0, 3000));
        let becomes = |state| {
            until_true(&store, || {
                // Something is to be done.
                let _ = store.get(ctx(), LumpId(2));
                store.health().state == state
            });
        };
        std::fs::rename(&path, &away).unwrap();
        std::fs::write(&path, SHAPE.image()).unwrap();
        becomes(StoreState::ReadOnly);
        let reason = store.health().reason;
        assert!(reason.contains("was removed or replaced"), "{reason}");
        let refused = try_put(&store, 2, b"x", Placement::Data).unwrap_err();
        assert!(matches!(refused, Error::OutOfService { .. }), "{refused}");
        assert_eq!(get(&store, 1).unwrap(), content(1, 0, 3000));
        std::fs::rename(&away, &path).unwrap();
        becomes(StoreState::Serving);
        put(&store, 2, b"x");
        // Its folder becomes a file.
        let (folder, moved) = (path.parent().unwrap(), dir.path().join("moved"));
        std::fs::rename(folder, &moved).unwrap();
        std::fs::write(folder, b"").unwrap();
        becomes(StoreState::ReadOnly);
        std::fs::remove_file(folder).unwrap();
        std::fs::rename(&moved, folder).unwrap();
        becomes(StoreState::Serving);
        std::fs::remove_file(&path).unwrap();
        // The first change after a time without any.
        std::thread::sleep(Duration::from_millis(1100));
        let refused = try_put(&store, 3, b"x", Placement::Data).unwrap_err();
        assert!(matches!(refused, Error::OutOfService { .. }), "{refused}");
        becomes(StoreState::ReadOnly);
        store.close().unwrap();
    }
}

/// What was behind the new end would be read as zeros, and written as a hole.
#[test]
fn a_file_that_becomes_shorter_takes_its_store_out_of_service() {
    for backend in [IoBackendChoice::Uring, IoBackendChoice::Threads] {
        let dir = disk_dir();
        let path = dir.path().join("short.lusf");
        std::fs::write(&path, SHAPE.image()).unwrap();
        let options = but(StoreOptions::new("short"), |it| it.io_backend = backend);
        let store = Store::open(&path, options).unwrap();
        put(&store, 1, &content(1, 0, 3000));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(20 * 512).unwrap();
        // The first change after a time without any.
        std::thread::sleep(Duration::from_millis(1100));
        let refused = try_put(&store, 2, b"x", Placement::Data).unwrap_err();
        assert!(matches!(refused, Error::OutOfService { .. }), "{refused}");
        until_true(&store, || {
            // Something is to be done.
            let _ = store.get(ctx(), LumpId(2));
            store.health().state == StoreState::Failed
        });
        let reason = store.health().reason;
        let shorter = "has become shorter: 10240 bytes";
        assert!(reason.contains(shorter), "{reason}");
        let refused = try_put(&store, 2, b"x", Placement::Data).unwrap_err();
        assert!(matches!(refused, Error::OutOfService { .. }), "{refused}");
        file.set_len(SHAPE.image().len() as u64).unwrap();
        until(&store, StoreState::Serving);
        store.close().unwrap();
    }
}
