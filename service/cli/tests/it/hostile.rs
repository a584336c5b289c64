//! Names, messages and texts from a hostile service or file reach no terminal as they are.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use lumpscope_proto::FILE_DESCRIPTOR_SET;
use lumpscope_units::escape::is_hostile;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};
use tokio::net::TcpListener;

use crate::common::folder;
use crate::every::{RECORDING, files, offline, online, run, words};

/// Clears the screen, sets its title, changes colour in one byte, turns the text's direction, and begins
/// new lines.
const HOSTILE: &str = "evil\x1b[2J\x1b]0;x\x07\u{9b}31m\u{7f}\u{202e}\r\nforged\u{2028}\u{2029}";
/// How a part of that is shown.
const SHOWN: &str = r"evil\x1b[2J";
/// Messages in messages.
const DEEPEST: usize = 6;

/// The messages of the protocol, by full name, and what its methods return.
struct Protocol {
    messages: BTreeMap<String, DescriptorProto>,
    returned: BTreeMap<String, String>,
}

impl Protocol {
    fn new() -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut known = Self {
            messages: BTreeMap::new(),
            returned: BTreeMap::new(),
        };
        for file in set.file {
            let package = format!(".{}", file.package());
            for message in &file.message_type {
                known.add(&package, message);
            }
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    known.returned.insert(path, method.output_type().to_owned());
                }
            }
        }
        known
    }

    fn add(&mut self, within: &str, message: &DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        for inner in &message.nested_type {
            self.add(&name, inner);
        }
        self.messages.insert(name, message.clone());
    }

    /// A message with a hostile text in each of its fields that is a text, also in those inside it.
    fn message(&self, name: &str, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(message) = self.messages.get(name).filter(|_| depth < DEEPEST) else {
            return out;
        };
        for field in &message.field {
            let number = u32::try_from(field.number()).unwrap();
            let bytes = match field.r#type() {
                Type::String => HOSTILE.as_bytes().to_vec(),
                Type::Bytes => vec![7; 16],
                Type::Message => self.message(field.type_name(), depth + 1),
                // What is not so has a reason, which is a text.
                Type::Bool => continue,
                Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                    encode_key(number, WireType::SixtyFourBit, &mut out);
                    out.extend([0; 8]);
                    continue;
                }
                Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                    encode_key(number, WireType::ThirtyTwoBit, &mut out);
                    out.extend([0; 4]);
                    continue;
                }
                _ => {
                    encode_key(number, WireType::Varint, &mut out);
                    encode_varint(2, &mut out);
                    continue;
                }
            };
            encode_key(number, WireType::LengthDelimited, &mut out);
            encode_varint(bytes.len() as u64, &mut out);
            out.extend(bytes);
        }
        out
    }
}

/// Answers every call with hostile texts: with a reply, or with a refusal.
async fn serve(refuses: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let protocol = Protocol::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            // One command at a time has one connection at a time.
            while let Some(Ok((request, respond))) = connection.accept().await {
                let name = protocol.returned.get(request.uri().path());
                let body = name.map(|name| protocol.message(name, 0));
                answer(respond, body.filter(|_| !refuses));
            }
        }
    });
    at
}

fn answer(mut respond: h2::server::SendResponse<Bytes>, body: Option<Vec<u8>>) {
    let head = Response::builder().header("content-type", "application/grpc");
    let Some(body) = body else {
        let mut text = String::new();
        for byte in HOSTILE.bytes() {
            text.push_str(&format!("%{byte:02X}"));
        }
        let refusal = head.header("grpc-status", "9").header("grpc-message", text);
        let _ = respond.send_response(refusal.body(()).unwrap(), true);
        return;
    };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(body.len()).unwrap());
    frame.extend_from_slice(&body);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    // The command may have gone.
    if let Ok(mut stream) = respond.send_response(head.body(()).unwrap(), false) {
        let _ = stream.send_data(frame.freeze(), false);
        let _ = stream.send_trailers(trailers);
    }
}

/// Runs a command; the texts that it shows are harmless. True: it shows one.
#[track_caller]
fn harmless(server: &str, line: &[String]) -> bool {
    let ended = run(server, line);
    let mut shows = false;
    for said in [&ended.stdout, &ended.stderr] {
        let said = String::from_utf8_lossy(said);
        let bad = said.chars().find(|c| *c != '\n' && is_hostile(*c));
        assert_eq!(bad, None, "{line:?}: {said:?}");
        let forged = said
            .lines()
            .find(|line| line.trim_start().starts_with("forged"));
        assert_eq!(forged, None, "{line:?}: {said}");
        shows |= said.contains(SHOWN);
    }
    shows
}

/// Commands of a client, and those with all that they show.
fn commands(dir: &Path) -> Vec<Vec<String>> {
    let more: [&[&str]; 5] = [
        &["get", "hdd", "1"],
        &["explain", "7"],
        &["trace", "--count", "1"],
        &["stat", "hdd", "--json"],
        &["top", "--count", "1", "--json"],
    ];
    let more = more.iter().map(|line| words(line));
    online(dir).into_iter().chain(more).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_and_refusals_are_shown_and_do_nothing() {
    let dir = folder();
    files(dir.path());
    for refuses in [false, true] {
        let server = format!("http://{}", serve(refuses).await);
        let all = commands(dir.path());
        let mut silent = Vec::new();
        for line in &all {
            let shows = tokio::task::block_in_place(|| harmless(&server, line));
            if !shows {
                silent.push(line.join(" "));
            }
        }
        if refuses {
            // `load` has its connections refused, too, but is not to end.
            assert!(
                silent.iter().all(|line| line.contains("load")),
                "{silent:#?}"
            );
        } else {
            let shown = [
                "stores",
                "stat hdd",
                "explain 7",
                "trace --count 1",
                "top --count 1",
            ];
            for line in shown {
                assert!(
                    !silent.iter().any(|other| other == line),
                    "{line} is silent"
                );
            }
        }
    }
}

#[test]
fn files_and_arguments_are_shown_and_do_nothing() {
    let dir = folder();
    files(dir.path());
    let recording = dir.path().join("r.jsonl");
    let text = std::fs::read_to_string(RECORDING).unwrap();
    let quoted = serde_json::to_string(HOSTILE).unwrap();
    let text = text.replace("\"dd\"", &quoted).replace("\"ext4\"", &quoted);
    std::fs::write(&recording, text).unwrap();
    let recording = recording.to_str().unwrap();
    for line in [
        &["trace", "--replay", recording][..],
        &["trace", "--replay", recording, "--json"],
        &["export", recording, "--format", "csv"],
        &["export", recording, "--format", "blkparse"],
        &["export", recording, "--format", "perfetto"],
        &["explain", "--replay", recording],
        &["top", "--replay", recording],
    ] {
        harmless("", &words(line));
    }
    assert!(harmless("", &words(&["trace", "--replay", recording])));
    let odd = dir.path().join(HOSTILE);
    let odd = odd.to_str().unwrap();
    for line in [
        &["format", odd, "--capacity", "16M"][..],
        &["format", odd, "--capacity", "16M"],
        &["explain", "--replay", odd],
        &[HOSTILE],
    ] {
        assert!(harmless("", &words(line)), "{line:?} is silent");
    }
    for line in [
        &["serve", "--check-config", "--no-probes", "--store", HOSTILE][..],
        &["stores", "--server", HOSTILE],
        &["get", HOSTILE, HOSTILE],
    ] {
        harmless("", &words(line));
    }
    for line in offline(dir.path()) {
        harmless("", &line);
    }
}
