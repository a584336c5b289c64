//! The UNIX socket beside TCP.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::UnixMode;
use lumpscope_server::door::Door;
use lumpscope_server::serve::Service;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;

use super::harness::{Authority, Serving, place, token, tokens};
use crate::abuse::wire::{
    DATA, END_HEADERS, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, hpack_length,
};
use crate::common::{self, body, get, put, refused};

#[tokio::test]
async fn its_permissions_are_the_login() {
    let (folder, mut config) = place();
    let socket = folder.path().join("lumpscope.sock");
    // TLS and tokens are for TCP.
    common::use_tls(&mut config, Authority::new().files(folder.path()));
    let reader = token("reader", "r", "scopes = [\"read\"]");
    config.tokens = Some(tokens(folder.path(), &[reader]));
    config.unix_socket = Some(socket.clone());
    config.unix_mode = UnixMode(0o620);
    let service = Serving::start(config.clone()).await;
    let meta = std::fs::symlink_metadata(&socket).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o620);
    let uri = format!("unix://{}", socket.display());
    let mut client = LumpStoreClient::new(common::channel(&uri).await);
    let bytes = body(5, 2 << 20);
    put(&mut client, "s", 5, &bytes).await.unwrap();
    assert_eq!(get(&mut client, "s", 5).await.unwrap(), bytes);
    // Somebody else with the same configuration does not take it away from a service that lives.
    let mut second = config.clone();
    (second.tls_cert, second.tls_key) = (None, None);
    let error = Service::start(second).await.err().unwrap().to_string();
    assert!(error.contains("another process is listening"), "{error}");
    get(&mut client, "s", 5).await.unwrap();
    drop(client);
    service.stop().await;
    assert!(!socket.exists());
    Door::new(&config).unwrap();
}

#[tokio::test]
async fn what_a_killed_service_left_is_replaced() {
    let (folder, mut config) = place();
    let socket = folder.path().join("lumpscope.sock");
    config.unix_socket = Some(socket.clone());
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let service = Serving::start(config).await;
    let uri = format!("unix://{}", socket.display());
    let mut client = LumpStoreClient::new(common::channel(&uri).await);
    let asked = get(&mut client, "s", 1).await;
    refused(asked, Code::NotFound, &["no lump"]);
    drop(client);
    service.stop().await;
}

#[tokio::test]
async fn a_call_may_have_any_authority() {
    let (folder, mut config) = place();
    let socket = folder.path().join("lumpscope.sock");
    config.unix_socket = Some(socket.clone());
    let service = Serving::start(config).await;
    // As grpcio writes them: the path without its first slash, percent-encoded.
    for authority in ["tmp%2Fa%2Fb.sock", "a:b:c", &"%2Fx".repeat(40)] {
        let mut fields = Vec::new();
        hpack(&mut fields, ":path", "/grpc.health.v1.Health/Check");
        hpack(&mut fields, ":authority", authority);
        // POST and http, of the static table.
        fields.extend([0x83, 0x86]);
        hpack(&mut fields, "content-type", "application/grpc");
        hpack(&mut fields, "te", "trailers");
        let call = [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frame(HEADERS, END_HEADERS, 1, &fields),
            &frame(DATA, 1, 1, &[0; 5]),
        ]
        .concat();
        for pieces in [call.len(), 1] {
            let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
            for piece in call.chunks(pieces) {
                stream.write_all(piece).await.unwrap();
            }
            let kind = loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; usize::try_from(len).unwrap()];
                stream.read_exact(&mut payload).await.unwrap();
                if matches!(head[3], HEADERS | RST_STREAM) {
                    break head[3];
                }
            };
            assert_eq!(kind, HEADERS, "{authority}");
        }
    }
    service.stop().await;
}

/// A field that goes into the table, by a literal name.
fn hpack(fields: &mut Vec<u8>, name: &str, value: &str) {
    fields.push(0x40);
    for text in [name, value] {
        hpack_length(fields, text.len());
        fields.extend(text.as_bytes());
    }
}
