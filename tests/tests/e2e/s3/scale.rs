//! Independence of number and size: lists of many keys, objects larger than the allowed memory, a
//! full store, keys of all kinds through a client written in Rust.

use lumpscope_tests::s3::{ACCESS, BucketClient, SECRET, keys};
use lumpscope_tests::service::{self, Service, run_ok};

use super::{file_store, folder, serve};

/// Keys that are listed; with `LUMPSCOPE_SOAK` as many as in the long form.
const LISTED: usize = 6_000;
const LISTED_LONG: usize = 100_000;
/// Connections that put them.
const CONNECTIONS: usize = 32;
/// The object that is larger than the memory for bodies.
const LARGE: usize = 256 << 20;
/// Most memory of the service at its peak, with 32 MiB for incoming bodies and as much for outgoing
/// ones.
const RESIDENT: u64 = 200 << 20;

#[track_caller]
fn is(status: u16, answer: Option<(u16, Vec<u8>)>) -> Vec<u8> {
    let (got, body) = answer.expect("an answer");
    assert_eq!(got, status, "{}", String::from_utf8_lossy(&body));
    body
}

#[test]
fn many_keys_are_listed_page_by_page_in_order() {
    let count = match std::env::var_os("LUMPSCOPE_SOAK") {
        Some(_) => LISTED_LONG,
        None => LISTED,
    };
    let folder = folder();
    let format = ["--capacity", "1G", "--journal-ratio", "0.1"];
    let store = service::file_store(folder.path(), &format);
    let service = serve(&store, &keys(folder.path(), ""), &[]);
    let client = BucketClient::new(&service.s3, "many", ACCESS, SECRET);
    is(200, client.create());
    let mut names: Vec<String> = (0..count)
        .map(|n| format!("{}/ü {}/{n}", n % 13, n % 101))
        .collect();
    std::thread::scope(|scope| {
        for some in names.chunks(count.div_ceil(CONNECTIONS)) {
            let client = client.clone();
            scope.spawn(move || {
                for name in some {
                    is(200, client.put(name, b""));
                }
            });
        }
    });
    names.sort_unstable();
    for size in [1000, 333] {
        let (found, pages) = client.list_all("", size).expect("a list");
        assert!(found.iter().map(|object| &object.key).eq(&names));
        assert_eq!(pages, count.div_ceil(size));
    }
    let (found, _) = client.list_all("7/ü", 1000).expect("a list");
    let begin = names.iter().filter(|name| name.starts_with("7/ü"));
    assert!(found.iter().map(|object| &object.key).eq(begin));
    for some in names.chunks(1000) {
        is(200, client.delete_many(some));
    }
    assert_eq!(client.list_all("", 1000).expect("a list").0, []);
    is(204, client.remove());
    assert!(service.stop());
    run_ok(&["check", &store]);
}

/// Most that a process had in memory, in bytes.
fn peak(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: u64 = kib.expect("a peak").parse().expect("a number");
    kib << 10
}

#[test]
fn an_object_of_256_mib_passes_through_little_memory() {
    let folder = folder();
    let store = service::file_store(folder.path(), &["--capacity", "600M"]);
    let more = ["--put-memory", "32M", "--get-memory", "32M"];
    let service = serve(&store, &keys(folder.path(), ""), &more);
    let client = BucketClient::new(&service.s3, "large", ACCESS, SECRET);
    is(200, client.create());
    let body: Vec<u8> = (0..LARGE >> 3)
        .flat_map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    is(200, client.put("large", &body));
    assert!(is(200, client.get("large")) == body, "other bytes");
    is(200, client.copy("large", "copy"));
    let copy = is(200, client.get("copy"));
    assert!(copy == body, "other bytes in the copy");
    let peak = peak(&service);
    eprintln!("at most {} MiB resident", peak >> 20);
    assert!(peak < RESIDENT, "{peak} bytes were resident");
    is(204, client.delete("large"));
    is(204, client.delete("copy"));
    assert!(service.stop());
}

#[test]
fn a_full_store_says_so_and_goes_on_after_deletes() {
    let folder = folder();
    let store = service::file_store(folder.path(), &["--capacity", "64M"]);
    let service = serve(&store, &keys(folder.path(), ""), &[]);
    let client = BucketClient::new(&service.s3, "full", ACCESS, SECRET);
    is(200, client.create());
    let body = vec![5; 7 << 20];
    for _ in 0..3 {
        let mut stored = Vec::new();
        loop {
            let key = format!("{}", stored.len());
            match client.put(&key, &body).expect("an answer") {
                (200, _) => stored.push(key),
                (507, why) => {
                    let why = String::from_utf8_lossy(&why).into_owned();
                    assert!(why.contains("<Code>InsufficientStorage</Code>"), "{why}");
                    break;
                }
                (status, why) => panic!("{status}: {}", String::from_utf8_lossy(&why)),
            }
        }
        assert!((7..=9).contains(&stored.len()), "{stored:?}");
        // Nothing of what was refused is there, and what was there is.
        let expected = stored.len();
        assert_eq!(client.list_all("", 100).expect("a list").0.len(), expected);
        assert!(is(200, client.get("0")) == body);
        is(404, client.get(&format!("{}", stored.len())));
        is(200, client.delete_many(&stored));
    }
    is(204, client.remove());
    assert!(service.stop());
    run_ok(&["check", &store]);
}

#[test]
fn a_client_in_rust_finds_what_it_expects() {
    let folder = folder();
    let store = file_store(folder.path());
    let service = serve(&store, &keys(folder.path(), ""), &[]);
    let client = BucketClient::new(&service.s3, "rust", ACCESS, SECRET);
    is(200, client.create());
    let long = "l".repeat(1024);
    let mut odd = [
        "plain",
        "with space",
        "täst/ü/漢字/😀",
        "quote\"'&<>",
        "percent%41%zz%",
        "plus+plus",
        "tail/",
        "a//b",
        "..x/.y",
        "question?x=y#z",
        "~tilde*(){}[]|\\^`",
        &long,
        "k=v;a:b@c,d$",
    ];
    for key in odd {
        is(200, client.put(key, key.as_bytes()));
        assert_eq!(is(200, client.get(key)), key.as_bytes());
        is(200, client.head(key));
    }
    odd.sort_unstable();
    let (found, _) = client.list_all("", 3).expect("a list");
    assert!(found.iter().map(|object| &*object.key).eq(odd));
    is(400, client.put(&"l".repeat(1025), b""));
    let one = vec![1; 5 << 20];
    let upload = client.create_upload("parts").expect("an upload");
    assert!(client.upload_part("parts", &upload, 1, b"small").is_some());
    let tags = [(1, &one[..]), (2, b"end")].map(|(number, bytes)| {
        let tag = client.upload_part("parts", &upload, number, bytes);
        tag.expect("a part")
    });
    let parts = Some(vec![(1, 5 << 20), (2, 3)]);
    assert_eq!(client.parts("parts", &upload), parts);
    let there = vec![("parts".to_owned(), upload.clone())];
    assert_eq!(client.uploads(), Some(there));
    is(404, client.get("parts"));
    is(200, client.complete("parts", &upload, &tags));
    assert!(is(200, client.get("parts")) == [&one[..], b"end"].concat());
    is(404, client.abort("parts", &upload));
    let upload = client.create_upload("parts").expect("an upload");
    assert!(client.upload_part("parts", &upload, 1, &one).is_some());
    is(204, client.abort("parts", &upload));
    assert_eq!(client.uploads(), Some(Vec::new()));
    is(409, client.remove());
    let (found, _) = client.list_all("", 1000).expect("a list");
    let all: Vec<String> = found.into_iter().map(|object| object.key).collect();
    is(200, client.delete_many(&all));
    is(204, client.remove());
    assert!(service.stop());
}
