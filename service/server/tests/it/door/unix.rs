//! The UNIX socket beside TCP.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::UnixMode;
use lumpscope_server::door::Door;
use lumpscope_server::serve::Service;
use tonic::Code;

use super::harness::{Authority, Serving, place, token, tokens};
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
