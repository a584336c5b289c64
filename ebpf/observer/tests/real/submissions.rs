//! The I/O that a thread said it was in the kernel for is the one that its block requests do.

#![expect(unsafe_code, reason = "a ring takes raw pointers")]

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, squeue, types};
use lumpscope_observer::{
    BlockOp, Declared, Event, Flavour, Input, Op, ProbeProgram, PuntedIos, Purpose, Step,
    Submission, Tuning,
};

use crate::support::{Aligned, LoopDevice, Watched, forced, mount_tracefs, now, ready};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Bytes from one I/O's place to the next: nothing can be merged.
const STEP: u64 = 2 * BLOCK as u64;
const IN_FLIGHT: u64 = 32;
const ROUNDS: u64 = 20;

/// Watches a new device; what the observer learns goes into the file.
fn watched(device: &LoopDevice, file: &Path, flavour: Flavour) -> Watched {
    let tuning = Tuning {
        record: Some(file.to_owned()),
        ..forced(flavour)
    };
    Watched::new(&device.path, tuning)
}

/// The writes that the observer learnt of.
fn writes_in(it: &Watched, file: &Path) -> Vec<Event> {
    it.report();
    it.observer.shutdown();
    let text = std::fs::read_to_string(file).expect("a recording");
    let inputs = text.lines().map(serde_json::from_str::<Input>);
    let events = inputs.filter_map(|input| match input.expect("an input") {
        Input::Event(event) if event.op == BlockOp::Write && event.own => Some(event),
        _ => None,
    });
    events.collect()
}

/// The token of the I/O that lies where the block request does.
fn token_at(event: &Event) -> u64 {
    event.sector * 512 / STEP
}

/// Every write must name its own I/O, and every I/O must be there.
fn all_name_their_own(it: &Watched, events: &[Event]) {
    let mut seen = BTreeSet::new();
    for event in events {
        let token = token_at(event);
        let own = Submission {
            store: it.index,
            token,
        };
        assert_eq!(event.submission, Some(own), "{event:?}");
        seen.insert(token);
    }
    let expected = IN_FLIGHT * ROUNDS;
    assert_eq!(u64::try_from(seen.len()).expect("few"), expected);
}

fn threads(flavour: Flavour) {
    let device = LoopDevice::new(64 * MIB);
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("inputs.jsonl");
    let it = watched(&device, &file, flavour);
    std::thread::scope(|scope| {
        for thread in 0..IN_FLIGHT {
            let it = &it;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let token = thread * ROUNDS + round;
                    it.observer.entering(it.index, token);
                    it.undeclared(Op::Write, token * STEP, BLOCK);
                    it.observer.left();
                }
            });
        }
    });
    let events = writes_in(&it, &file);
    all_name_their_own(&it, &events);
    assert_eq!(it.observer.submissions_refused(), 0);
}

/// Hands over 32 writes with one system call, 20 times.
fn drive(it: &Watched, device: &LoopDevice) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&device.path)
        .expect("direct I/O");
    let fd = types::Fd(file.as_raw_fd());
    let mut ring = IoUring::new(64).expect("an io_uring");
    let mut buffer = Aligned::new(BLOCK);
    let bytes = buffer.get();
    for round in 0..ROUNDS {
        for number in 0..IN_FLIGHT {
            let token = round * IN_FLIGHT + number;
            let length = u32::try_from(BLOCK).expect("small");
            let entry = opcode::Write::new(fd, bytes.as_ptr(), length)
                .offset(token * STEP)
                .build()
                .user_data(token);
            // SAFETY: the buffer outlives the ring, which is waited for below.
            unsafe { ring.submission().push(&entry) }.expect("room");
        }
        it.observer.drives_ring(it.index);
        let done = ring.submit_and_wait(usize::try_from(IN_FLIGHT).expect("few"));
        it.observer.left();
        done.expect("submitted");
        for end in ring.completion() {
            assert_eq!(usize::try_from(end.result()), Ok(BLOCK));
        }
    }
}

/// Does a declared I/O for a request through an io_uring, as the engine does.
pub(crate) fn io_in_ring(it: &Watched, request: u64, purpose: Purpose, op: Op, at: (u64, usize)) {
    ring_io(it, request, (purpose, op), at, squeue::Flags::empty());
}

/// Does a declared write that the io_uring must hand to a worker.
fn write_by_worker(it: &Watched, request: u64, offset: u64) {
    let what = (Purpose::Data, Op::Write);
    ring_io(it, request, what, (offset, BLOCK), squeue::Flags::ASYNC);
}

fn ring_io(
    it: &Watched,
    request: u64,
    (purpose, op): (Purpose, Op),
    at: (u64, usize),
    flags: squeue::Flags,
) {
    let mut ring = IoUring::new(4).expect("an io_uring");
    let fd = types::Fd(it.file.as_raw_fd());
    let mut buffer = Aligned::new(at.1);
    it.declared(&[request], purpose, op, at, |token| {
        let bytes = buffer.get();
        let length = u32::try_from(at.1).expect("small");
        let entry = match op {
            Op::Read => opcode::Read::new(fd, bytes.as_mut_ptr(), length)
                .offset(at.0)
                .build(),
            Op::Write => opcode::Write::new(fd, bytes.as_ptr(), length)
                .offset(at.0)
                .build(),
            Op::Flush => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        // SAFETY: the buffer outlives the I/O, which is waited for.
        unsafe { ring.submission().push(&entry.user_data(token).flags(flags)) }.expect("room");
        it.observer.drives_ring(it.index);
        let done = ring.submit_and_wait(1);
        it.observer.left();
        done.expect("submitted");
        let want = if op == Op::Flush { 0 } else { at.1 };
        for end in ring.completion() {
            assert_eq!(usize::try_from(end.result()), Ok(want));
        }
    });
}

/// Reads one place for several requests at once, as the engine does when several get one lump.
pub(crate) fn reads_at_once(it: &Watched, requests: &[u64], at: (u64, usize)) {
    let mut ring = IoUring::new(8).expect("an io_uring");
    let fd = types::Fd(it.file.as_raw_fd());
    let mut buffers = Vec::new();
    for request in requests {
        let token = it.begun(&[*request], Purpose::Data, Op::Read, at);
        let mut buffer = Aligned::new(at.1);
        let bytes = buffer.get();
        let length = u32::try_from(bytes.len()).expect("small");
        let entry = opcode::Read::new(fd, bytes.as_mut_ptr(), length).offset(at.0);
        // SAFETY: the buffer outlives the I/O, which is waited for.
        unsafe { ring.submission().push(&entry.build().user_data(token)) }.expect("room");
        buffers.push(buffer);
    }
    it.observer.drives_ring(it.index);
    let done = ring.submit_and_wait(requests.len());
    it.observer.left();
    done.expect("submitted");
    for end in ring.completion() {
        assert_eq!(usize::try_from(end.result()), Ok(at.1));
        let token = end.user_data();
        it.observer.finish(it.index, token, now(), true);
    }
}

fn ring(flavour: Flavour) {
    let device = LoopDevice::new(64 * MIB);
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("inputs.jsonl");
    let it = watched(&device, &file, flavour);
    let programs = it.observer.programs();
    let submit = programs.iter().find(|p| p.name.starts_with("submit_"));
    let submit = submit.expect("it is tried");
    assert!(submit.attached && !submit.needed, "{submit:?}");
    drive(&it, &device);
    it.undeclared(Op::Write, 60 * MIB, BLOCK);
    let (last, ring): (Vec<Event>, Vec<Event>) = writes_in(&it, &file)
        .into_iter()
        .partition(|event| event.sector == 60 * MIB / 512);
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].submission, None, "said nothing: {last:?}");
    // What the kernel hands to workers says nothing either.
    let (inline, workers): (Vec<Event>, Vec<Event>) = ring
        .into_iter()
        .partition(|event| event.submission.is_some());
    let all = inline.len() + workers.len();
    assert!(inline.len() * 10 >= all * 9, "{} of {all}", inline.len());
    if workers.is_empty() {
        return all_name_their_own(&it, &inline);
    }
    for event in &inline {
        assert_eq!(event.submission.map(|s| s.token), Some(token_at(event)));
    }
}

#[test]
fn thirty_two_threads_are_told_apart() {
    let Some(_one) = ready() else { return };
    threads(Flavour::TpBtf);
    threads(Flavour::RawTp);
}

#[test]
fn thirty_two_writes_of_one_io_uring_are_told_apart() {
    let Some(_one) = ready() else { return };
    ring(Flavour::TpBtf);
    ring(Flavour::RawTp);
}

#[test]
fn classic_programs_tell_them_apart_too() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    threads(Flavour::Classic);
    ring(Flavour::Classic);
}

/// Flushes go to workers always, and a write that asks for it does.
fn punted(flavour: Flavour) {
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, forced(flavour));
    let none = it.observer.punted().expect("they are counted");
    assert_eq!(none, PuntedIos::default());
    for request in 1..=3 {
        it.request(request, "put", MIB, || {
            let at = (request * MIB, BLOCK);
            io_in_ring(&it, request, Purpose::Data, Op::Write, at);
            io_in_ring(&it, request, Purpose::Flush, Op::Flush, (0, 0));
        });
    }
    let before = it.observer.punted().expect("they are counted");
    it.request(4, "put", MIB, || {
        write_by_worker(&it, 4, 10 * MIB);
    });
    let found = it.observer.punted().expect("they are counted");
    if found.unknown > 0 {
        // Before 5.19 records do not say what it is.
        assert_eq!(flavour, Flavour::Classic);
        assert!(before.unknown >= 3 && found.unknown == before.unknown + 1);
        assert_eq!((found.flushes, found.data), (0, 0));
    } else {
        assert_eq!((before.flushes, found.flushes), (3, 3), "{flavour:?}");
        assert_eq!(found.data, before.data + 1, "{flavour:?}");
    }
    it.report();
    let told = it.observer.explain(4).expect("kept");
    let said = |step: &&Step| step.text.contains("issued by an io_uring worker");
    let worker = &told.blocks[0].process;
    // Before 5.12 it is a kernel thread.
    let is_thread = !worker.starts_with("io_wqe_worker");
    assert_eq!(worker.starts_with("iou-wrk-"), is_thread, "{told:#?}");
    let expected = usize::from(is_thread);
    assert_eq!(told.steps.iter().filter(said).count(), expected);
}

#[test]
fn what_an_io_uring_hands_to_workers_is_counted_and_told() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        punted(flavour);
    }
}

#[test]
fn a_submission_for_another_io_is_a_conflict() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, Tuning::default());
    it.write(1, MIB, BLOCK);
    it.observer.declare(Declared {
        store: it.index,
        token: 1000,
        requests: vec![2],
        purpose: Purpose::Data,
        op: Op::Write,
        offset: 0,
        len: BLOCK as u64,
        begin_ns: now(),
    });
    it.observer.entering(it.index, 999);
    it.undeclared(Op::Write, 0, BLOCK);
    it.observer.left();
    it.observer.finish(it.index, 1000, now(), true);
    let audit = it.report().audit;
    assert_eq!((audit.agreements, audit.conflicts), (1, 1), "{audit:?}");
    let said = "place and submission disagree 1 time";
    assert!(audit.finding.contains(said), "{}", audit.finding);
}

#[test]
fn what_the_programs_cost_is_counted_when_asked_for() {
    let Some(_one) = ready() else { return };
    for program_statistics in [false, true] {
        let device = LoopDevice::new(64 * MIB);
        let tuning = Tuning {
            program_statistics,
            ..Tuning::default()
        };
        let it = Watched::new(&device.path, tuning);
        for id in 1..=100 {
            it.write(id, id * 8192, BLOCK);
        }
        drive(&it, &device);
        let programs = it.observer.programs();
        let needed = programs.iter().filter(|program| program.needed);
        assert_eq!(needed.count(), 2, "{programs:?}");
        let block = |program: &&ProbeProgram| program.hook.starts_with("block_");
        assert_eq!(programs.iter().filter(block).count(), 3, "{programs:?}");
        for program in programs.iter().filter(block) {
            assert!(program.attached, "{program:?}");
            assert!(program.not_attached_because.is_empty(), "{program:?}");
            let counted = program.runs >= 100 && program.run_ns > 0;
            assert_eq!(counted, program_statistics, "{program:?}");
            assert!(counted || program.runs == 0, "{program:?}");
        }
        if program_statistics {
            for program in &programs {
                let each = program.run_ns.checked_div(program.runs);
                eprintln!("{}: {} runs, {each:?} ns each", program.name, program.runs);
            }
        }
        it.observer.shutdown();
        assert!(it.observer.programs().is_empty());
    }
}
