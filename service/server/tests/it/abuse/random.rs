//! Bytes that nobody meant: in place of the preface, of frames, of messages.

use std::time::Duration;

use bytes::Bytes;
use lumpscope_server::request::methods::METHODS;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::harness::{Abused, random};
use super::wire::{self, CallEnd, PREFACE, PUT, frame, literal_headers};
use crate::common::body;

/// Methods of which a random message could do what it says: they need nothing but to be called.
const ACT_WITHOUT_WORDS: [&str; 3] = ["drain", "resume", "reload"];

/// Methods whose reply goes on until its client leaves, if what they were asked is understood.
const ENDLESS: [&str; 2] = ["trace", "record"];

fn bytes(random: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    let mut bytes = vec![0; random.usize(0..longest)];
    random.fill(&mut bytes);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_in_place_of_the_preface() {
    let abused = Abused::start().await;
    let mut random = random();
    for round in 0..200 {
        let mut socket = TcpStream::connect(abused.address()).await.unwrap();
        let mut sent = bytes(&mut random, 20_000);
        if round % 4 == 0 {
            // A preface that breaks off, or goes on wrongly.
            let from = random.usize(1..PREFACE.len());
            sent.splice(0..0, PREFACE[..from].iter().copied());
        }
        // The service closes as soon as it sees what this is.
        let _ = socket.write_all(&sent).await;
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_millis(20), socket.read_to_end(&mut answer)).await;
    }
    abused.survived().await;
}

fn random_frame(random: &mut fastrand::Rng) -> Vec<u8> {
    let stream = match random.u8(0..4) {
        0 => 0,
        1 => 1,
        2 => random.u32(0..64) * 2 + 1,
        _ => random.u32(..),
    };
    let payload = match random.u8(0..4) {
        0 => literal_headers(PUT, &[]),
        1 => wire::put_stream(u128::MAX, &body(1, 500), 300)[..random.usize(0..500)].to_vec(),
        _ => bytes(random, 300),
    };
    let mut frame = frame(random.u8(0..12), random.u8(..), stream, &payload);
    if random.u8(0..8) == 0 {
        // A length that is not that of the payload.
        frame[random.usize(0..3)] ^= 1 << random.u8(0..8);
    }
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_nobody_meant() {
    let mut abused = Abused::start().await;
    let mut random = random();
    for round in 0..300 {
        let mut socket = wire::raw(abused.address()).await;
        for _ in 0..random.usize(1..40) {
            if !wire::offer(&mut socket, &random_frame(&mut random)).await {
                break;
            }
        }
        let mut answer = [0; 1000];
        let _ = timeout(Duration::from_millis(5), socket.read(&mut answer)).await;
        if round % 50 == 0 {
            abused.works().await;
        }
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_in_place_of_messages() {
    let mut abused = Abused::start().await;
    let mut random = random();
    let client = wire::connect(abused.address(), 1 << 20).await;
    for method in METHODS {
        if ACT_WITHOUT_WORDS.contains(&method.name) {
            continue;
        }
        for _ in 0..40 {
            let noise = bytes(&mut random, 2000);
            let sent = match random.u8(0..4) {
                0 => Bytes::from(noise),
                1 => wire::prefixed(random.u8(..), &noise),
                _ => wire::prefixed(0, &noise),
            };
            let endless = ENDLESS.contains(&method.name);
            let ended = match endless {
                true => wire::call_and_leave(&client, method.path, sent.clone()).await,
                false => wire::call(&client, method.path, sent.clone()).await,
            };
            // Most are refused; what is not was understood, such as a message of unknown fields.
            let left = endless && matches!(ended, CallEnd::Left);
            assert!(
                left || matches!(ended, CallEnd::Code(_) | CallEnd::Reset(_)),
                "{}: {ended:?} after {sent:?}",
                method.path
            );
        }
    }
    abused.works().await;
    drop(client);
    abused.survived().await;
}

/// A put that has one defect.
fn defective(random: &mut fastrand::Rng, id: u128) -> (&'static str, Vec<u8>) {
    let lump = body(id, random.usize(1..50_000));
    let length = lump.len() as u64;
    let good = wire::put_stream(id, &lump, random.usize(1..20_000)).to_vec();
    let header = wire::put_header(id, length).to_vec();
    let chunk = |part: &[u8]| wire::message(&crate::common::chunk(part.to_vec())).to_vec();
    match random.u8(0..10) {
        0 => ("cut off", good[..random.usize(0..good.len())].to_vec()),
        1 => ("too long", [good, chunk(b"x")].concat()),
        2 => ("two headers", [&header[..], &good].concat()),
        3 => ("no header", chunk(&lump)),
        4 => ("no body", header),
        5 => {
            let mut bad = good;
            bad[0] = random.u8(1..);
            ("another flag", bad)
        }
        6 => {
            let mut bad = good;
            bad[random.usize(1..5)] ^= 1 << random.u8(0..8);
            ("another length", bad)
        }
        7 => (
            "wire type 7",
            [wire::prefixed(0, &[0x0f, 1]).to_vec(), good].concat(),
        ),
        8 => (
            "field 0",
            [header, wire::prefixed(0, &[0x02, 1, 7]).to_vec()].concat(),
        ),
        _ => (
            "an empty message",
            [header, wire::prefixed(0, &[]).to_vec()].concat(),
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_with_one_defect() {
    let abused = Abused::start().await;
    let mut random = random();
    let client = wire::connect(abused.address(), 1 << 20).await;
    for number in 0..400 {
        let (what, stream) = defective(&mut random, 1 << 100 | number);
        let ended = wire::call(&client, PUT, stream.into()).await;
        assert!(ended.refused(), "put {number} ({what}) was acknowledged");
    }
    drop(client);
    abused.survived().await;
}
