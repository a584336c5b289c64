//! The power goes under the real service, at thousands of moments: a disk below it remembers every
//! write and flush, and gives itself back as a cut at any of them would have left it. Every
//! acknowledged change is there, with its bytes, on each of these disks.

mod disk;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions, Survivors};
use lumpscope_engine::{Driver, Error, LumpId, RequestCtx, Store, StoreOptions};
use lumpscope_proto::v1::{DeleteRequest, Durability, Placement, PutRequest, put_request};
use lumpscope_tests::client::{Client, content, id};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, run_ok, serve_file};
use tonic::{Code, Status};

use disk::{DiskEvent, Fate, History, RecordingDisk, SharedDisk, Walk};

const DISK_BYTES: usize = 12 << 20;
/// Clients; each owns ids of its own, so that changes of one lump have an order.
const CLIENTS: u64 = 3;
/// Ids a client uses: few, so that most puts replace a lump and most blocks are used again.
const IDS: u64 = 6;
/// Services that are killed one after the other in each case; the power goes while they run.
const LIVES: usize = 3;
/// Changes acknowledged in each life.
const CHANGES: usize = 60;
/// Cuts of each case.
const CUTS: usize = 150;
/// The same in the long form.
const SOAK_CUTS: usize = 12_500;
/// Every so many cuts the power goes a second time, while the store opens.
const SECOND_CUT: usize = 3;
/// Every so many cuts the program itself looks at the image, too.
const CHECKED: usize = 50;

/// One version of a lump: seed and length of its bytes. `None`: there is no lump.
type Version = Option<(u64, usize)>;

/// Notes of the clients between the writes and flushes of the disk.
#[derive(Debug, Clone, Copy)]
enum Note {
    /// A change was sent.
    Sent(u128, Version),
    /// Its answer came; or the lump was read and this was there.
    Told(u128, Version),
}

type Recorded = SharedDisk<Note>;

/// How the service uses the disk.
#[derive(Debug, Clone, Copy)]
struct Case {
    raw: bool,
    backend: &'static str,
    commit: &'static str,
}

/// Changes lumps until the service dies.
async fn change(url: String, client: u64, seed: u64, disk: Arc<Recorded>, told: Arc<AtomicUsize>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = Client::connect(&url).await.expect("the service is up");
    loop {
        let key = u128::from(client) << 64 | u128::from(random.u64(..IDS));
        let length = match random.u8(..8) {
            0 => random.usize(..200_000),
            1 | 2 => random.usize(..600),
            _ => random.usize(..20_000),
        };
        let version = (random.u8(..8) > 0).then(|| (random.u64(..1 << 20), length));
        disk.note(Note::Sent(key, version));
        let answer = match version {
            Some((seed, length)) => {
                let embedded = length < 2000 && random.bool();
                put(&mut connection, key, content(key, seed, length), embedded).await
            }
            None => {
                let request = DeleteRequest {
                    store: "disk".to_owned(),
                    id: Some(id(key)),
                    durability: Durability::Synced.into(),
                    ..DeleteRequest::default()
                };
                connection.raw().delete(request).await.map(drop)
            }
        };
        match answer {
            Ok(()) => disk.note(Note::Told(key, version)),
            // The connection broke: it may have happened.
            Err(status)
                if matches!(
                    status.code(),
                    Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
                ) =>
            {
                return;
            }
            Err(status) => panic!("a change was refused: {status}"),
        }
        told.fetch_add(1, Ordering::Relaxed);
    }
}

async fn put(to: &mut Client, key: u128, body: Bytes, embedded: bool) -> Result<(), Status> {
    let mut messages: Vec<PutRequest> = to.put_request("disk", key, body);
    if let Some(put_request::Part::Header(header)) = &mut messages[0].part {
        header.durability = Durability::Synced.into();
        if embedded {
            header.placement = Placement::Embedded.into();
        }
    }
    let sent = to.raw().put(tokio_stream::iter(messages)).await;
    sent.map(drop)
}

/// Says what is there of each lump whose last change had no answer: whoever has read it relies on it.
async fn look(url: &str, disk: &Recorded, versions: &BTreeMap<u128, Vec<Version>>) {
    let mut connection = Client::connect(url).await.expect("the service is up");
    for (key, possible) in versions {
        let found = match connection.get("disk", *key).await {
            Ok(bytes) => Some(bytes),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => panic!("lump {key:032x} cannot be read after the kill: {status}"),
        };
        let is = |version: &&Version| is(*key, **version, found.as_deref());
        let version = possible.iter().find(is);
        let version = version.unwrap_or_else(|| panic!("{key:032x} is none of {possible:?}"));
        disk.note(Note::Told(*key, *version));
    }
}

fn is(key: u128, version: Version, found: Option<&[u8]>) -> bool {
    match (version, found) {
        (None, None) => true,
        (Some((seed, length)), Some(bytes)) => content(key, seed, length) == bytes,
        _ => false,
    }
}

/// What each lump may be: the acknowledged version first, then those that had no answer.
#[derive(Debug, Default)]
struct PossibleVersions(BTreeMap<u128, Vec<Version>>);

impl PossibleVersions {
    fn learn(&mut self, note: Note) {
        match note {
            Note::Sent(key, version) => self.0.entry(key).or_insert(vec![None]).push(version),
            Note::Told(key, version) => drop(self.0.insert(key, vec![version])),
        }
    }
}

/// Serves the disk a few times over, each time until it is killed under load.
async fn live(path: &Path, case: Case, disk: &Arc<Recorded>) {
    let mut unknown = BTreeMap::new();
    for life in 0..LIVES {
        let service = serve(path, case);
        look(&service.grpc, disk, &unknown).await;
        let told = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let seed = client + CLIENTS * life as u64;
                let (url, disk) = (service.grpc.clone(), disk.clone());
                tokio::spawn(change(url, client, seed, disk, told.clone()))
            })
            .collect();
        while told.load(Ordering::Relaxed) < CHANGES {
            assert!(!clients.iter().any(tokio::task::JoinHandle::is_finished));
            tokio::task::yield_now().await;
        }
        service.kill9();
        for client in clients {
            client.await.expect("no client met a wrong answer");
        }
        let mut known = PossibleVersions::default();
        disk.each_note(|note| known.learn(*note));
        unknown = known.0;
    }
}

fn serve(path: &Path, case: Case) -> Service {
    let more = ["--io-backend", case.backend, "--commit", case.commit];
    serve_file(path.to_str().expect("UTF-8"), &more)
}

/// Cuts the power at moments all over the history, and opens every disk that this leaves.
fn cut(history: &History<Note>, case: Case, cuts: usize, folder: &Path) {
    let mut random = fastrand::Rng::with_seed(7);
    let at = (0..cuts).map(|_| random.usize(..=history.events.len()));
    let mut at: Vec<usize> = at.collect();
    at.sort_unstable();
    let mut walk = Walk::new(&history.before);
    let mut known = PossibleVersions::default();
    let mut uncertain = 0;
    let mut done = 0;
    for (number, at) in at.into_iter().enumerate() {
        for event in &history.events[done..at] {
            walk.step(event, &history.writes);
            if let DiskEvent::Noted(note) = event {
                known.learn(*note);
            }
        }
        done = at;
        uncertain += walk.volatile();
        let fate = Fate::ALL[number % Fate::ALL.len()];
        let image = walk.cut(&history.writes, fate, &mut random);
        let told = format!("{case:?}, cut {number} before event {at}, {fate:?}");
        let again = (number % SECOND_CUT == 0).then(|| random.u64(..));
        verify(&image, case, again, &known, &told);
        if number % CHECKED == 0 {
            let path = folder.join("image");
            std::fs::write(&path, &image).expect("an image can be written");
            run_ok(&["check", path.to_str().expect("a plain path")]);
        }
    }
    let decided = uncertain > cuts / 10;
    assert!(
        decided,
        "the cuts decided the fate of {uncertain} writes only"
    );
}

/// Opens the store on an image, after a second cut during the first opening if `again`, and
/// compares every lump.
fn verify(image: &[u8], case: Case, again: Option<u64>, known: &PossibleVersions, told: &str) {
    let options = SimOptions {
        is_block_device: case.raw,
        ..SimOptions::default()
    };
    let mut disk = SimDisk::new(image, options);
    if let Some(seed) = again {
        let mut random = Random::new(seed);
        drop(open(&disk, told));
        let survivors = fastrand::Rng::with_seed(seed).choice(Survivors::ALL);
        let survivors = survivors.expect("there are some");
        disk = disk.power_cut(survivors, &mut random);
    }
    let (store, mut driver) = open(&disk, told);
    for (key, possible) in &known.0 {
        let found = match get(&store, &mut driver, &disk, *key) {
            Ok(bytes) => Some(bytes),
            Err(Error::NotFound { .. }) => None,
            Err(error) => panic!("{told}: lump {key:032x} cannot be read: {error}"),
        };
        let is = |version: &Version| is(*key, *version, found.as_deref());
        let length = found.as_ref().map(Vec::len);
        let place = format!("{told}: lump {key:032x} of {length:?} bytes");
        assert!(possible.iter().any(is), "{place} is none of {possible:?}");
    }
}

fn open(disk: &SimDisk, told: &str) -> (Store, Driver) {
    let opened = Store::open_stepped(disk.device(), StoreOptions::new("cut"));
    opened.unwrap_or_else(|error| panic!("{told}: the store does not open: {error}"))
}

fn get(store: &Store, driver: &mut Driver, disk: &SimDisk, key: u128) -> Result<Vec<u8>, Error> {
    let (tell, told) = std::sync::mpsc::channel();
    let on_done = Box::new(move |got: Result<_, Error>, _| drop(tell.send(got)));
    store.submit_get(RequestCtx::default(), LumpId(key), on_done)?;
    for _ in 0..100_000 {
        driver.step(disk.now_ns());
        if let Ok(got) = told.try_recv() {
            return got.map(|data| data.to_vec());
        }
        let next = [disk.next_due_ns(), driver.due_ns()];
        let next = next.into_iter().flatten().min();
        disk.advance_to(next.expect("the get goes on"));
    }
    panic!("a get never ends");
}

/// A store on a recording disk: on the file itself, or on a loop device over it.
struct RecordedStore {
    path: PathBuf,
    // Ends before the disk below it.
    _device: Option<File>,
    disk: RecordingDisk<Note>,
    folder: tempfile::TempDir,
}

fn place(case: Case) -> RecordedStore {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).expect("a folder");
    let plain = |path: &Path| path.to_str().expect("a plain path").to_owned();
    if case.raw {
        let disk = RecordingDisk::new(&mount, vec![0; DISK_BYTES]);
        let opened = OpenOptions::new().read(true).write(true).open(&disk.path);
        let image = opened.expect("the disk's file opens");
        let made = lumpscope_platter::loops::configure(&image, "lumpscope-power", true);
        let (path, device) = made.expect("a loop device");
        run_ok(&["format", &plain(&path)]);
        return RecordedStore {
            path,
            _device: Some(device),
            disk,
            folder,
        };
    }
    let made = folder.path().join("made");
    run_ok(&["format", "--capacity", "10M", &plain(&made)]);
    let bytes = std::fs::read(&made).expect("the store can be read");
    let disk = RecordingDisk::new(&mount, bytes);
    let path = disk.path.clone();
    RecordedStore {
        path,
        _device: None,
        disk,
        folder,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_moment_loses_nothing_acknowledged() {
    let Some(_alone) = alone(&[Need::LoopDevices, Need::Fuse]) else {
        return;
    };
    let soak = std::env::var_os("LUMPSCOPE_SOAK").is_some();
    let cuts = if soak { SOAK_CUTS } else { CUTS };
    for raw in [true, false] {
        for (backend, commit) in [
            ("uring", "ordered"),
            ("uring", "runs"),
            ("threads", "ordered"),
            ("threads", "runs"),
        ] {
            let case = Case {
                raw,
                backend,
                commit,
            };
            let place = place(case);
            place.disk.shared.begin();
            live(&place.path, case, &place.disk.shared).await;
            let history = place.disk.shared.take();
            cut(&history, case, cuts, place.folder.path());
        }
    }
}
