//! The scripts of ebpf/bpftrace against a live service: each prints what was done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_lab::disks::{Lab, LabOptions, LabStore, StoreKind};
use lumpscope_lab::tracer::Tracer;
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, binary, format_stores};
use rustix::fs::{OFlags, major, minor};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("bpftrace")];
const BPFTRACE: &[Need] = &[Need::Tool("bpftrace"), Need::Root];
/// How often a part is run, should the kernel skip a program in it: see ebpf/README.md.
const ATTEMPTS: usize = 5;
/// A lump whose id has something in each of its four parts.
const TRACED: u128 = 0x0000_0001_0000_0002_ffff_fff3_0000_0004;
const MIB: usize = 1 << 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebpf/bpftrace")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn scripts() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of the scripts");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("plain names"))
        .filter(|name| name.ends_with(".bt"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_script_says_what_it_cannot_see_and_has_an_example() {
    let overview = read("README.md");
    let scripts = scripts();
    assert!(scripts.len() >= 8, "{scripts:?}");
    for name in scripts {
        let head = read(&name);
        let head = head.split("*/").next().expect("a head");
        for words in ["USAGE: ", "cannot see", name.as_str()] {
            assert!(head.contains(words), "{name}: no {words:?} in its head");
        }
        let example = read(&name.replace(".bt", "_example.txt"));
        assert!(example.contains(&name), "{name}: its example has another");
        let known = overview.contains(&format!("`{name}`"));
        assert!(known, "{name} is not in README.md");
    }
}

#[test]
fn a_script_without_arguments_prints_its_usage() {
    let Some(_alone) = alone(BPFTRACE) else {
        return;
    };
    for name in scripts() {
        let head = read(&name);
        let usage = head.split("USAGE: ").nth(1).expect("a usage");
        let usage = usage.lines().next().expect("a line");
        // Without BINARY bpftrace refuses the script, and without disks block-count counts all.
        if !usage.contains(" SECONDS") || usage.contains("BINARY") {
            continue;
        }
        let ran = Command::new("bpftrace").arg(folder().join(&name)).output();
        let ran = ran.expect("bpftrace runs");
        let said = String::from_utf8_lossy(&ran.stdout);
        let words = format!("USAGE: {usage}\n");
        assert!(said.contains(&words), "{name}: {said}");
        assert!(!said.contains("ready"), "{name}: {said}");
    }
}

#[test]
fn the_documented_probes_are_those_of_the_binary() {
    let Some(_alone) = alone(BPFTRACE) else {
        return;
    };
    let overview = read("README.md");
    let table = overview
        .split("| probe |")
        .nth(1)
        .expect("the table of probes");
    let documented = table.lines().skip(2).map_while(|line| {
        let name = line.strip_prefix("| `")?;
        Some(name.split('`').next()?.to_owned())
    });
    let mut documented: Vec<String> = documented.collect();
    documented.sort();
    let prefix = format!("usdt:{}:lumpscope:", binary().display());
    let output = Command::new("bpftrace")
        .args(["-l", &format!("{prefix}*")])
        .output()
        .expect("bpftrace starts");
    let listed = String::from_utf8(output.stdout).expect("text");
    let mut listed: Vec<&str> = listed
        .lines()
        .filter_map(|l| l.strip_prefix(&prefix))
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, documented);
}

/// Numbers printed by a script: `@name[key]: number`.
fn numbers(text: &str) -> BTreeMap<String, u64> {
    let number = |line: &str| {
        let (name, value) = line.strip_prefix('@')?.split_once(": ")?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// A service on a raw disk and an ext4 with a journal.
struct Bench {
    lab: Lab,
    service: Service,
    client: Client,
}

impl Bench {
    async fn new() -> Bench {
        let options = LabOptions {
            kinds: vec![StoreKind::Raw, StoreKind::Ext4],
            ..LabOptions::new(512 << 20)
        };
        let lab = Lab::create(&options).expect("a lab can be made");
        format_stores(&lab, "200M");
        let service = Service::start(&lab, &[]);
        let client = Client::connect(&service.grpc).await;
        let client = client.expect("the service is up");
        Bench {
            lab,
            service,
            client,
        }
    }

    fn store(&self, kind: StoreKind) -> &LabStore {
        self.lab.store(kind).expect("it was asked for")
    }

    /// Runs a script on the disk of a store until it is told to stop.
    fn on_disk(&self, script: &str, kind: StoreKind) -> Tracer {
        let devno = self.store(kind).devno;
        let disk = [major(devno).to_string(), minor(devno).to_string()];
        let arguments = ["0".to_owned()].into_iter().chain(disk);
        Tracer::start_with(&folder().join(script), arguments).expect("bpftrace runs it")
    }

    /// Reads 4 KiB of the raw disk at each of these places, past all caches, in a thread that is
    /// called `head-thief`.
    fn read_at(&self, places: &[u64]) {
        let device = self.store(StoreKind::Raw).device.clone();
        let places = places.to_vec();
        let thread = std::thread::Builder::new().name("head-thief".to_owned());
        let read = thread.spawn(move || {
            let file = File::options()
                .read(true)
                .custom_flags(i32::try_from(OFlags::DIRECT.bits()).expect("a flag"))
                .open(device)
                .expect("root may read it");
            let mut memory = vec![0_u8; 8192];
            let skip = memory.as_ptr().align_offset(4096);
            for place in places {
                file.read_exact_at(&mut memory[skip..skip + 4096], place)
                    .expect("the device can be read");
            }
        });
        read.expect("a thread").join().expect("it reads");
    }

    async fn put(&mut self, store: &str, id: u128, length: usize) -> u64 {
        let put = self.client.put(store, id, content(id, 1, length)).await;
        put.expect("the put works").request_id
    }
}

/// Shows what a script printed, when the test is run with --nocapture.
fn finish(tracer: Tracer) -> String {
    let text = tracer.finish_text().expect("bpftrace ends well");
    eprintln!("{text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_script_prints_what_was_done() {
    let Some(_alone) = alone(NEEDS) else { return };
    let mut bench = Bench::new().await;
    request_latency(&mut bench).await;
    by_command(&bench);
    again_if_skipped(async || lump_trace(&mut bench).await).await;
    again_if_skipped(async || distances(&bench)).await;
    again_if_skipped(async || under_load(&mut bench).await).await;
    again_if_skipped(async || head_mover(&mut bench).await).await;
    again_if_skipped(async || fs_journal(&mut bench).await).await;
    assert!(bench.service.stop(), "the service ends well");
}

/// The kernel may have skipped a program, and then a block request is missing: once in a while, not
/// each time.
async fn again_if_skipped(mut part: impl AsyncFnMut() -> Result<(), String>) {
    for attempt in 1.. {
        match part().await {
            Ok(()) => break,
            Err(why) => assert!(attempt < ATTEMPTS, "{why}"),
        }
    }
}

/// `why`, if it does not hold.
fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

async fn request_latency(bench: &mut Bench) {
    let script = folder().join("request-latency.bt");
    let arguments = ["0".as_ref(), binary().as_os_str()];
    let tracer = Tracer::start_with(&script, arguments).expect("bpftrace runs it");
    for id in 0..5 {
        bench.put("raw", id, MIB).await;
        bench.client.get("raw", id).await.expect("the get works");
    }
    bench.put("ext4", 1, 3000).await;
    let missing = bench.client.get("ext4", 77).await;
    assert!(missing.is_err(), "it was never put");
    let found = numbers(&finish(tracer));
    for (name, wanted) in [
        ("requests[raw, put, 1]", 5),
        ("requests[raw, get, 1]", 5),
        ("requests[ext4, put, 1]", 1),
        ("requests[ext4, get, 0]", 1),
        ("bytes[raw, put]", 5 << 20),
        ("bytes[raw, get]", 5 << 20),
        ("bytes[ext4, put]", 3000),
    ] {
        assert_eq!(found.get(name), Some(&wanted), "{name} in {found:?}");
    }
    for (store, method) in [("raw", "put"), ("raw", "get"), ("ext4", "put")] {
        let stages = found
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("stage_ns[{store}, {method}, ")));
        let sum: u64 = stages.map(|(_, ns)| ns).sum();
        let total = found[&format!("total_ns[{store}, {method}]")];
        assert_eq!(sum, total, "the stages of {method} on {store} add up");
    }
}

/// The command fills in what a script asks for, and ends with its last line.
fn by_command(bench: &Bench) {
    for name in ["seek-heatmap", "request-latency"] {
        let ran = Command::new(binary())
            .env("LUMPSCOPE_SERVER", &bench.service.grpc)
            .args(["bpftrace", name, "--store", "raw", "--seconds", "1s"])
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{ran:?}");
        assert!(said.contains("\nready\n"), "{ran:?}");
        assert!(!said.ends_with("\n\n"), "{said}");
    }
}

/// The number behind a word of a line.
fn after(line: &str, word: &str) -> i64 {
    let mut words = line.split_whitespace().skip_while(|w| *w != word);
    let number = words.nth(1).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number behind {word:?} in {line:?}"))
}

async fn lump_trace(bench: &mut Bench) -> Result<(), String> {
    let script = folder().join("lump-trace.bt");
    let devno = bench.store(StoreKind::Raw).devno;
    let parts = [96, 64, 32, 0].map(|shift| format!("{:#x}", (TRACED >> shift) & 0xffff_ffff));
    let mut arguments = vec!["0".to_owned(), binary().display().to_string()];
    arguments.extend([major(devno).to_string(), minor(devno).to_string()]);
    arguments.extend(parts);
    let tracer = Tracer::start_with(&script, arguments).expect("bpftrace runs it");
    let others = tokio::spawn(others(bench.client.clone()));
    let put = bench.put("raw", TRACED, 3 * MIB).await;
    // The same id in another store is another lump, on another disk.
    others.await.expect("they put");
    let got = bench.client.get("raw", TRACED).await;
    got.expect("the get works");
    let text = in_order(&finish(tracer));
    let of_put = format!(" request {put} ");
    let of_put: Vec<&str> = text.lines().filter(|l| l.contains(&of_put)).collect();
    let has = |words: &str| of_put.iter().filter(|line| line.contains(words)).count();
    // Two requests, put and get, and none of the others'.
    let requests = (text.matches(" lump\n").count(), has(" put lump"));
    assert_eq!(requests, (2, 1), "{text}");
    assert_eq!(text.matches(" get lump\n").count(), 1, "{text}");
    let of_stages = (has(" stage "), has(" done put store raw"));
    assert_eq!(of_stages, (9, 1), "{text}");
    let end = of_put.last().expect("there are lines");
    assert!(end.contains(" done put "), "nothing after its end: {text}");
    let io = of_put.iter().find(|line| line.contains(" io write data "));
    let io = io.unwrap_or_else(|| panic!("no data in {text}"));
    let first = after(io, "offset") / 512;
    check_bytes(bench, u64::try_from(first).expect("a sector") * 512);
    let sectors = after(io, "length") / 512;
    let data = first..first + sectors;
    let blocks = of_put.iter().filter(|line| line.contains(" block write "));
    let blocks = blocks.filter(|line| data.contains(&after(line, "sector")));
    let written: i64 = blocks.map(|line| after(line, "sectors")).sum();
    check(written == sectors && text.contains(" block read "), || {
        format!("{written} of {sectors} sectors of the lump are in one block request each: {text}")
    })
}

/// bpftrace prints what one processor did in order, and what two did as it finds it.
fn in_order(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_by_key(|line| {
        let microseconds = line.split(' ').next().and_then(|word| word.parse().ok());
        microseconds.unwrap_or(u64::MAX)
    });
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The traced lump begins at this byte of the raw disk.
fn check_bytes(bench: &Bench, place: u64) {
    let device = &bench.store(StoreKind::Raw).device;
    let mut file = File::open(device).expect("root may read it");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .expect("the cache can be dropped");
    file.seek(SeekFrom::Start(place)).expect("it is there");
    let mut found = vec![0; 512];
    std::io::Read::read_exact(&mut file, &mut found).expect("the device can be read");
    assert!(
        found == content(TRACED, 1, 512),
        "the lump is not where the script says"
    );
}

/// Puts of others beside the one that is followed.
async fn others(mut client: Client) {
    for id in 1000..1010 {
        for store in ["raw", "ext4"] {
            let put = client.put(store, id, content(id, 1, MIB)).await;
            put.expect("the put works");
        }
    }
}

/// Three distances that are known: 0, forward, backward.
fn distances(bench: &Bench) -> Result<(), String> {
    const FORWARD: u64 = (64 << 20) - 8192;
    const BACKWARD: u64 = (63 << 20) + 4096;
    let places = [0, 4096, 64 << 20, 1 << 20];
    let devno = bench.store(StoreKind::Raw).devno;
    let disk = format!("[{}, {}]", major(devno), minor(devno));

    let tracer = bench.on_disk("seek-distance.bt", StoreKind::Raw);
    bench.read_at(&places);
    let found = numbers(&finish(tracer));
    for (name, wanted) in [
        ("requests", 3),
        ("sequential", 1),
        ("forward_bytes", FORWARD),
        ("backward_bytes", BACKWARD),
    ] {
        let name = format!("{name}{disk}");
        check(found.get(&name) == Some(&wanted), || {
            format!("{name} is not {wanted} in {found:?}")
        })?;
    }

    let tracer = bench.on_disk("d2c-by-distance.bt", StoreKind::Raw);
    bench.read_at(&places);
    let text = finish(tracer);
    let found = numbers(&text);
    check(found.len() == 3, || format!("{found:?}"))?;
    for interval in ["0", ">= 1M", "< -1M"] {
        let requests = found.get(&format!("requests[{interval}]"));
        check(requests == Some(&1), || format!("{found:?}"))?;
        assert!(text.contains(&format!("@d2c_us[{interval}]")), "{text}");
    }

    // Ends by itself, after its seconds.
    let arguments = [2, major(devno), minor(devno)].map(|number| number.to_string());
    let script = folder().join("seek-heatmap.bt");
    let tracer = Tracer::start_with(&script, arguments).expect("bpftrace runs it");
    bench.read_at(&places);
    let text = tracer.wait_text().expect("bpftrace ends well");
    eprintln!("{text}");
    let row = |line: &str| -> Vec<u64> {
        let cells = line.split_whitespace().skip(1);
        cells.map(|cell| cell.parse().expect("a number")).collect()
    };
    let rows = text.lines().skip(1).filter(|line| !line.is_empty());
    let rows: Vec<Vec<u64>> = rows.map(row).collect();
    let (sum, seconds) = rows.split_last().expect("a line of sums");
    assert_eq!(seconds.len(), 2, "a line each second: {text}");
    check(*sum == [0, 0, 1, 0, 1, 0, 1, 0, 0], || text.clone())
}

/// A busy store: the script counts as many as the service.
async fn under_load(bench: &mut Bench) -> Result<(), String> {
    let data_requests = async |client: &mut Client| {
        let report = client.report("raw").await.expect("a report");
        report.block.expect("an observed store").data_requests
    };
    let before = data_requests(&mut bench.client).await;
    let tracer = bench.on_disk("seek-distance.bt", StoreKind::Raw);
    for id in 0..8 {
        bench.put("raw", id, 2 * MIB + 5).await;
    }
    let text = tracer.finish_text().expect("bpftrace ends well");
    let ours = data_requests(&mut bench.client).await - before;
    let of = |name: &str| {
        let found = numbers(&text);
        let found = found.iter().filter(|(key, _)| key.starts_with(name));
        found.map(|(_, n)| n).sum::<u64>()
    };
    // The first has no distance.
    let theirs = of("requests[") + 1;
    check(theirs == ours, || {
        format!("the script counted {theirs}, the service {ours}")
    })
}

async fn head_mover(bench: &mut Bench) -> Result<(), String> {
    let tracer = bench.on_disk("head-mover.bt", StoreKind::Raw);
    bench.put("raw", 50, MIB).await;
    bench.read_at(&[0]);
    bench.put("raw", 51, MIB).await;
    let text = finish(tracer);
    let found = numbers(&text);
    let moves = |mover: &str, moved: &str| {
        let moves = found.iter().filter(|(name, _)| {
            name.starts_with(&format!("moves[{mover}"))
                && name.ends_with(&format!("{moved}, data]"))
        });
        moves.map(|(_, n)| n).sum::<u64>()
    };
    assert!(
        !text.contains("meta]"),
        "a raw disk has no metadata of a file system: {text}"
    );
    // The thief went to sector 0 once, and whoever came after had to travel back.
    let moves = (moves("", ", head-thief"), moves("head-thief, data", ""));
    check(moves == (1, 1), || format!("{moves:?} in {text}"))
}

async fn fs_journal(bench: &mut Bench) -> Result<(), String> {
    let kinds = [StoreKind::Ext4, StoreKind::Raw];
    let [ext4, raw] = kinds.map(|kind| bench.on_disk("fs-journal.bt", kind));
    let mount = bench.store(StoreKind::Ext4).store_path.clone();
    let mount = mount.parent().expect("a file on a file system");
    for round in 0..4 {
        bench.put("ext4", 60 + round, MIB).await;
        bench.put("raw", 60 + round, MIB).await;
        // A new file, made durable, is a transaction of the journal.
        let file = mount.join(format!("new-{round}"));
        let mut dd = bench.lab.command(Path::new("dd"));
        dd.args("if=/dev/zero bs=4k count=1 conv=fsync status=none".split(' '))
            .arg(format!("of={}", file.display()));
        assert!(dd.status().expect("dd starts").success());
    }
    let (ext4, raw) = (finish(ext4), finish(raw));
    let found = numbers(&ext4);
    let of = |name: &str| found.get(name).copied().unwrap_or_default();
    assert!(!raw.contains("fs-"), "a raw disk has no file system: {raw}");
    assert!(raw.contains("@requests[data, write]"), "{raw}");
    let seen = of("requests[fs-journal, write]") >= 4
        && of("disturbed[fs-journal]") >= 1
        && of("way_back_bytes[fs-journal]") > 0
        && of("bytes[data, write]") >= 4 << 20;
    check(seen, || ext4.clone())
}
