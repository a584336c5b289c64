//! kill -9 of the service under load, again and again: every acknowledged lump is there with its bytes, on a raw disk, on
//! ext4 and on xfs; a change that was not acknowledged happened wholly or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lumpscope_lab::disks::{Lab, StoreKind};
use lumpscope_tests::client::{Client, content, id};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use tonic::Code;

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("mkfs.xfs")];
/// Rounds of load and kill.
const ROUNDS: u64 = 20;
/// Clients a store; each owns ids of its own, so it always knows what must be there.
const CLIENTS: u64 = 3;
/// Ids a client uses: few, so that most puts replace a lump and most blocks are used again.
const IDS: u64 = 6;

/// One version of a lump: what its bytes are made from.
type Version = (u64, usize);

/// Expected state of one client's lumps.
#[derive(Debug, Default, Clone)]
struct Knowledge {
    /// Acknowledged state of each id that was ever touched; `None`: deleted.
    acked: BTreeMap<u128, Option<Version>>,
    /// The change that had no answer when the service died.
    pending: Option<(u128, Option<Version>)>,
    random: u64,
}

impl Knowledge {
    fn draw(&mut self, below: u64) -> u64 {
        let product = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = product.wrapping_add(1);
        (self.random >> 33) % below
    }
}

fn lump_id(client: u64, slot: u64) -> u128 {
    u128::from(client) << 64 | u128::from(slot)
}

/// Changes lumps until the service dies.
async fn load(
    url: String,
    store: String,
    client: u64,
    mut known: Knowledge,
    acks: Arc<AtomicUsize>,
) -> Knowledge {
    let mut connection = Client::connect(&url).await.expect("the service is up");
    loop {
        let key = lump_id(client, known.draw(IDS));
        let (seed, length) = (known.draw(u64::MAX), known.draw(300_000));
        let version = (seed, usize::try_from(length).expect("small"));
        let change = (known.draw(8) > 0).then_some(version);
        known.pending = Some((key, change));
        let answer = match change {
            Some((seed, length)) => {
                let body = content(key, seed, length);
                connection.put(&store, key, body).await.map(drop)
            }
            None => {
                let request = lumpscope_proto::v1::DeleteRequest {
                    store: store.clone(),
                    id: Some(id(key)),
                    ..Default::default()
                };
                connection.raw().delete(request).await.map(drop)
            }
        };
        match answer {
            Ok(()) => {
                known.acked.insert(key, change);
                known.pending = None;
                acks.fetch_add(1, Ordering::Relaxed);
            }
            // The connection broke: the change stays pending, it may have happened.
            Err(status)
                if matches!(
                    status.code(),
                    Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
                ) =>
            {
                return known;
            }
            Err(status) => panic!("{store}: a change was refused: {status}"),
        }
    }
}

/// Compares what is stored with what was acknowledged.
async fn verify(connection: &mut Client, store: &str, known: &mut Knowledge) {
    let pending = known.pending.take();
    let mut keys: Vec<u128> = known.acked.keys().copied().collect();
    keys.extend(pending.iter().map(|(key, _)| *key));
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let found = match connection.get(store, key).await {
            Ok(bytes) => Some(bytes),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => panic!("{store}: lump {key:032x} cannot be read: {status}"),
        };
        let matches = |state: &Option<Version>| match (state, &found) {
            (None, None) => true,
            (Some((seed, length)), Some(bytes)) => content(key, *seed, *length) == bytes[..],
            _ => false,
        };
        let acked = known.acked.get(&key).copied().unwrap_or(None);
        if matches(&acked) {
            continue;
        }
        match pending {
            Some((changed, state)) if changed == key && matches(&state) => {
                known.acked.insert(key, state);
            }
            _ => panic!(
                "{store}: lump {key:032x} is neither what was acknowledged ({acked:?}) nor the change in flight \
                 ({pending:?}); found {:?} bytes",
                found.map(|bytes| bytes.len())
            ),
        }
    }
}

type Everything = BTreeMap<(String, u64), Knowledge>;

async fn one_round(round: u64, lab: &Lab, mut all: Everything) -> Everything {
    let service = Service::start(lab, &["--no-probes"]);
    let connection = Client::connect(&service.grpc).await;
    let mut connection = connection.expect("the service is up");
    for ((store, _), known) in &mut all {
        verify(&mut connection, store, known).await;
    }
    let acks = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for ((store, client), known) in all {
        let (url, acks) = (service.grpc.clone(), acks.clone());
        let task = tokio::spawn(load(url, store.clone(), client, known, acks));
        tasks.push(((store, client), task));
    }
    // A different moment each round, counted in acknowledgements so that a slow machine does the same work.
    let enough = usize::try_from(20 + round * 37 % 150).expect("small");
    let acked = || acks.load(Ordering::Relaxed);
    while acked() < enough && !tasks.iter().any(|(_, task)| task.is_finished()) {
        tokio::task::yield_now().await;
    }
    service.kill9();
    let mut after = Everything::new();
    for (key, task) in tasks {
        after.insert(key, task.await.expect("no client met a wrong answer"));
    }
    assert!(acked() >= enough, "the load stopped before the kill");
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&StoreKind::ALL, 512 << 20, "48M");
    let mut all = Everything::new();
    for store in lab.stores() {
        for client in 0..CLIENTS {
            let random = client * 7919 + u64::from(store.name.as_bytes()[0]);
            let known = Knowledge {
                random,
                ..Knowledge::default()
            };
            all.insert((store.name.to_owned(), client), known);
        }
    }
    for round in 0..ROUNDS {
        all = one_round(round, &lab, all).await;
    }
    let service = Service::start(&lab, &["--no-probes"]);
    let connection = Client::connect(&service.grpc).await;
    let mut connection = connection.expect("the service is up");
    let mut lumps = 0;
    for ((store, _), known) in &mut all {
        verify(&mut connection, store, known).await;
        lumps += known.acked.values().filter(|state| state.is_some()).count();
    }
    assert!(lumps > 10, "only {lumps} lumps: the test proves little");
}
