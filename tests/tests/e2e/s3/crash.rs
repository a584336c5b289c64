//! kill -9 in the middle of puts, uploads, copies and deletes, again and again: what was acknowledged is there with its
//! bytes, nothing is half there, lists agree with gets, and the store has no lump that nothing names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lumpscope_tests::s3::{ACCESS, BucketClient, SECRET, keys};
use lumpscope_tests::service::{Service, run_ok};

use super::{file_store, folder, gauge, serve};

/// Rounds of load and kill; with `LUMPSCOPE_SOAK` as many as in the long form.
const ROUNDS: usize = 4;
const ROUNDS_LONG: usize = 60;
/// How long each goes on.
const LOAD: Duration = Duration::from_millis(900);
/// Longest until something of each kind has been done.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);
/// Lumps that are being freed have so long to go.
const FREED_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a piece of an object.
const PIECE: u64 = 4 << 20;
/// The first part of an upload, and how many lumps its bytes and those of the second have.
const PART: usize = 5 << 20;
const PIECES_OF_PARTS: u64 = 3;

/// Allowed values of each key: the last acknowledged one (`None`: no object), and the later ones.
type Known = BTreeMap<String, Vec<Option<Vec<u8>>>>;

/// The low bits of a number.
fn low(number: usize) -> u8 {
    u8::try_from(number % 256).expect("it is small")
}

fn body(seed: u8, len: usize) -> Vec<u8> {
    let bytes = (0..len).map(|at| seed.wrapping_add(low(at / 4096)));
    bytes.collect()
}

/// Does something to a key that makes this of it; false: the service has died, and it may be either.
fn change(
    known: &mut Known,
    key: &str,
    new: Option<Vec<u8>>,
    act: impl FnOnce() -> Option<(u16, Vec<u8>)>,
) -> bool {
    let versions = known.entry(key.to_owned()).or_insert_with(|| vec![None]);
    versions.push(new.clone());
    let done = matches!(act(), Some((200 | 204, _)));
    if done {
        *versions = vec![new];
    }
    done
}

/// Overwrites a few keys, and deletes one of them now and then.
fn puts(client: &BucketClient, known: &mut Known, turn: usize) -> bool {
    let key = format!("puts/{}", turn % 4);
    if turn % 9 == 8 {
        return change(known, &key, None, || client.delete(&key));
    }
    let new = body(low(turn * 7), [0, 100, 70_000, PART][turn % 3]);
    change(known, &key, Some(new.clone()), || client.put(&key, &new))
}

/// Makes objects of parts, one of which is uploaded twice; gives every third upload up.
fn uploads(client: &BucketClient, known: &mut Known, turn: usize) -> bool {
    let key = format!("parts/{}", turn % 2);
    let parts = [body(low(turn), PART), body(low(turn + 1), 100)];
    let send = || {
        let upload = client.create_upload(&key)?;
        client.upload_part(&key, &upload, 2, b"replaced")?;
        let mut tags = Vec::new();
        for (number, part) in (1..).zip(&parts) {
            tags.push(client.upload_part(&key, &upload, number, part)?);
        }
        Some((upload, tags))
    };
    let Some((upload, tags)) = send() else {
        return false;
    };
    if turn % 3 == 2 {
        return client.abort(&key, &upload).is_some();
    }
    let done = || client.complete(&key, &upload, &tags);
    change(known, &key, Some(parts.concat()), done)
}

/// Copies an object over others.
fn copies(client: &BucketClient, known: &mut Known, turn: usize) -> bool {
    let (from, to) = ("copies/from", format!("copies/{}", turn % 3));
    if turn.is_multiple_of(5) {
        let new = body(low(turn * 3), [PART, 3000][turn % 2]);
        return change(known, from, Some(new.clone()), || client.put(from, &new));
    }
    // It was acknowledged, so there is one version.
    let source = known[from][0].clone();
    change(known, &to, source, || client.copy(from, &to))
}

/// Makes some objects and deletes them all with one request.
fn deletes(client: &BucketClient, known: &mut Known, turn: usize) -> bool {
    let keys: Vec<String> = (0..4).map(|n| format!("deletes/{n}")).collect();
    for key in &keys {
        let new = body(low(turn), 5000);
        if !change(known, key, Some(new.clone()), || client.put(key, &new)) {
            return false;
        }
    }
    for key in &keys {
        known.entry(key.clone()).or_default().push(None);
    }
    let done = matches!(client.delete_many(&keys), Some((200, _)));
    if done {
        known.extend(keys.into_iter().map(|key| (key, vec![None])));
    }
    done
}

const LOADS: [fn(&BucketClient, &mut Known, usize) -> bool; 4] = [puts, uploads, copies, deletes];

/// Every value is an acknowledged one or a later one; the list agrees.
fn check(client: &BucketClient, known: &mut Known) {
    let mut there = Vec::new();
    for (key, versions) in known.iter_mut() {
        let found = match client.get(key).expect("an answer") {
            (200, found) => Some(found),
            (404, _) => None,
            (status, _) => panic!("{key}: {status}"),
        };
        let len = found.as_ref().map(Vec::len);
        let good = versions.contains(&found);
        assert!(good, "{key} has {len:?} bytes of something else");
        there.extend(len.map(|len| (key.clone(), len as u64)));
        *versions = vec![found];
    }
    let (listed, _) = client.list_all("", 7).expect("a list");
    let listed: Vec<(String, u64)> = listed.into_iter().map(|it| (it.key, it.size)).collect();
    there.sort_unstable();
    assert_eq!(listed, there);
}

/// Lumps that the catalogue names: one for the bucket, one for each object, and their pieces.
fn named(client: &BucketClient) -> u64 {
    let (listed, _) = client.list_all("", 1000).expect("a list");
    let lumps = listed.iter().map(|it| match it.etag.contains('-') {
        true => 1 + PIECES_OF_PARTS,
        false => 1 + it.size.div_ceil(PIECE),
    });
    1 + lumps.sum::<u64>()
}

fn lumps(service: &Service) -> u64 {
    gauge(service, "lumpscope_store_lumps")
}

/// No lump is there that nothing names, once those that are on their way out are gone.
fn no_leaks(service: &Service, named: u64) {
    let until = Instant::now() + FREED_WITHIN;
    while lumps(service) != named {
        let found = lumps(service);
        assert!(Instant::now() < until, "{found} lumps, {named} are named");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn all_have_begun(turns: &[AtomicUsize]) -> bool {
    turns.iter().all(|turns| turns.load(Ordering::Relaxed) > 0)
}

#[test]
fn what_was_acknowledged_survives_kill_9_in_the_middle_of_everything() {
    let rounds = match std::env::var_os("LUMPSCOPE_SOAK") {
        Some(_) => ROUNDS_LONG,
        None => ROUNDS,
    };
    let folder = folder();
    let store = file_store(folder.path());
    let keys = keys(folder.path(), "");
    let mut known = vec![Known::new(); LOADS.len()];
    let turns = [const { AtomicUsize::new(0) }; LOADS.len()];
    for round in 0..=rounds {
        let service = serve(&store, &keys, &[]);
        let client = BucketClient::new(&service.s3, "kept", ACCESS, SECRET);
        assert!(client.create().is_some());
        let all = known.iter().flatten();
        let mut all: Known = all.map(|(k, v)| (k.clone(), v.clone())).collect();
        check(&client, &mut all);
        for known in &mut known {
            for (key, versions) in known {
                versions.clone_from(&all[key]);
            }
        }
        for (key, upload) in client.uploads().expect("a list") {
            let ended = client.abort(&key, &upload);
            assert_eq!(ended.map(|(status, _)| status), Some(204));
        }
        no_leaks(&service, named(&client));
        if round == rounds {
            let all: Vec<String> = all.into_keys().collect();
            let deleted = client.delete_many(&all);
            assert_eq!(deleted.map(|(status, _)| status), Some(200));
            assert_eq!(client.remove().map(|(status, _)| status), Some(204));
            no_leaks(&service, 0);
            assert!(service.stop());
            run_ok(&["check", &store]);
            eprintln!("turns of {rounds} rounds: {turns:?}");
            assert!(all_have_begun(&turns));
            return;
        }
        std::thread::scope(|scope| {
            for ((known, turns), load) in known.iter_mut().zip(&turns).zip(LOADS) {
                let client = client.clone();
                scope.spawn(move || {
                    // Each round begins with what makes its source known again.
                    let mut turn = turns.load(Ordering::Relaxed).next_multiple_of(5);
                    while load(&client, known, turn) {
                        turn += 1;
                        turns.store(turn, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(LOAD);
            // A busy machine needs longer until there is something of each kind to lose.
            let until = Instant::now() + BEGUN_WITHIN;
            while !all_have_begun(&turns) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            service.kill9();
        });
    }
}
