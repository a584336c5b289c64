//! TLS, clients' certificates, and files that cannot be used.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::ServeConfig;
use lumpscope_server::door::Door;
use tonic::Code;

use super::harness::{Authority, Serving, place, raw_tls, secret, tokens};
use crate::common::{body, get, header, put, put_as, refused};
use crate::grpc_web::web_list;

#[tokio::test]
async fn tls_is_spoken_and_nothing_else() {
    let (folder, mut config) = place();
    let (ours, other) = (Authority::new(), Authority::new());
    crate::common::use_tls(&mut config, ours.files(folder.path()));
    let service = Serving::start(config).await;
    let mut client = LumpStoreClient::new(service.tls(&ours, None).await.unwrap());
    let bytes = body(7, 3 << 20);
    put(&mut client, "s", 7, &bytes).await.unwrap();
    assert_eq!(get(&mut client, "s", 7).await.unwrap(), bytes);
    // A client that trusts somebody else does not get as far as a request.
    service.tls(&other, None).await.unwrap_err();
    // Nor does one that speaks no TLS, or no HTTP/2 below it.
    let plain = tonic::transport::Endpoint::from_shared(format!("http://{}", service.grpc));
    let plain = plain.unwrap().connect_lazy();
    let asked = LumpStoreClient::new(plain)
        .list_stores(v1::ListStoresRequest {})
        .await;
    asked.unwrap_err();
    raw_tls(service.grpc, &ours, b"http/1.0").await.unwrap_err();
    // gRPC-Web is spoken below TLS as well.
    let stream = raw_tls(service.grpc, &ours, b"http/1.1").await.unwrap();
    let reply = web_list(stream).await;
    assert_eq!((reply.http, reply.code), (200, Some(0)), "{reply:?}");
    get(&mut client, "s", 7).await.unwrap();
    service.stop().await;
}

#[tokio::test]
async fn a_client_must_show_a_certificate_that_is_signed() {
    let (folder, mut config) = place();
    let (ours, theirs, other) = (Authority::new(), Authority::new(), Authority::new());
    let mut files = ours.files(folder.path());
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, &theirs.pem).unwrap();
    files.client_ca = Some(ca);
    crate::common::use_tls(&mut config, files);
    let service = Serving::start(config).await;
    for shown in [None, Some(other.sign("somebody"))] {
        // TLS 1.3 lets a client believe that it is connected until it reads.
        let asked = match service.tls(&ours, shown.as_ref()).await {
            Ok(channel) => LumpStoreClient::new(channel)
                .list_stores(v1::ListStoresRequest {})
                .await
                .map_err(|status| assert_ne!(status.code(), Code::Unauthenticated)),
            Err(_) => Err(()),
        };
        asked.unwrap_err();
    }
    let pair = theirs.sign("somebody");
    let channel = service.tls(&ours, Some(&pair)).await.unwrap();
    let mut client = LumpStoreClient::new(channel);
    // Without a list, who is signed may do everything.
    put(&mut client, "s", 1, &body(1, 100)).await.unwrap();
    service.stop().await;
}

#[tokio::test]
async fn certificates_have_the_scopes_of_their_names() {
    let (folder, mut config) = place();
    let ours = Authority::new();
    let mut files = ours.files(folder.path());
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, &ours.pem).unwrap();
    files.client_ca = Some(ca);
    crate::common::use_tls(&mut config, files);
    let entry =
        |name: &str, scopes: &str| format!("[[certificate]]\nname = {name:?}\nscopes = {scopes}\n");
    config.tokens = Some(tokens(
        folder.path(),
        &[
            entry("spiffe://here/writer", "[\"read\", \"write\"]"),
            entry("reader.example", "[\"read\"]"),
        ],
    ));
    let service = Serving::start(config).await;
    let as_client = async |name: &str| {
        let pair = ours.sign(name);
        LumpStoreClient::new(service.tls(&ours, Some(&pair)).await.unwrap())
    };
    let bytes = body(3, 5000);
    let mut writer = as_client("spiffe://here/writer").await;
    put(&mut writer, "s", 3, &bytes).await.unwrap();
    let mut reader = as_client("Reader.example").await;
    assert_eq!(get(&mut reader, "s", 3).await.unwrap(), bytes);
    let result = put_as(&mut reader, header("s", 4, 5000), &bytes).await;
    let words = ["\"reader.example\"", "\"write\""];
    refused(result, Code::PermissionDenied, &words);
    let mut nobody = as_client("nobody.example").await;
    let asked = get(&mut nobody, "s", 3).await;
    refused(asked, Code::Unauthenticated, &["authorization"]);
    service.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (folder, mut config) = place();
    let ours = Authority::new();
    let mut files = ours.files(folder.path());
    let [ca, crl] = ["clients.pem", "clients.crl"].map(|name| folder.path().join(name));
    std::fs::write(&ca, &ours.pem).unwrap();
    std::fs::write(&crl, ours.revoke(&[])).unwrap();
    (files.client_ca, files.client_crl) = (Some(ca.clone()), Some(crl.clone()));
    crate::common::use_tls(&mut config, files.clone());
    let check = |file: &std::path::Path, words: &[&str]| {
        let message = Door::new(&config).unwrap_err().to_string();
        for word in words.iter().chain([&file.to_str().unwrap()]) {
            assert!(message.contains(word), "{word:?} in {message:?}");
        }
        assert!(!message.contains("PRIVATE"), "{message:?}");
        assert!(!message.contains('\n'), "{message:?}");
    };
    Door::new(&config).unwrap();
    for file in [&ca, &crl] {
        std::fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
        check(file, &["666", "chmod"]);
        std::fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    }
    let key = std::fs::read_to_string(&files.key).unwrap();
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    check(&files.key, &["644", "chmod"]);
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o640)).unwrap();
    Door::new(&config).unwrap();
    secret(&files.key, &ours.sign("localhost").key);
    check(&files.key, &["is it the key of"]);
    secret(&files.key, "nothing\n");
    check(&files.key, &["no private key"]);
    std::fs::remove_file(&files.key).unwrap();
    check(&files.key, &["No such file"]);
    secret(&files.key, &key);
    std::fs::write(&files.cert, &key).unwrap();
    check(&files.cert, &["no certificate"]);
    std::fs::write(
        &files.cert,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    check(&files.cert, &["cannot be read"]);
}

#[test]
fn other_machines_are_let_in_only_with_tls_and_a_login() {
    let args = |listen: &str, metrics: &str, tls: bool, ca: bool, tokens: bool| {
        let file = |given: bool| given.then(|| "/x".into());
        ServeConfig {
            stores: vec!["s=/x".parse().unwrap()],
            listen: listen.parse().unwrap(),
            metrics_listen: metrics.parse().unwrap(),
            tls_cert: file(tls),
            tls_key: file(tls),
            tls_client_ca: file(ca),
            tokens: file(tokens),
            ..ServeConfig::default()
        }
    };
    let (here, far) = ("127.0.0.1:0", "0.0.0.0:0");
    for (listen, metrics, key) in [(far, here, "listen"), (here, far, "metrics-listen")] {
        for (tls, ca, tokens) in [
            (false, false, false),
            (false, false, true),
            (true, false, false),
        ] {
            let asked = args(listen, metrics, tls, ca, tokens);
            let message = asked.clone().checked().unwrap_err().to_string();
            assert!(message.starts_with(key), "{message}");
            assert!(message.contains("--allow-remote"), "{message}");
            let allowed = ServeConfig {
                allow_remote: true,
                ..asked
            };
            allowed.checked().unwrap();
        }
        args(listen, metrics, true, false, true).checked().unwrap();
        args(listen, metrics, true, true, false).checked().unwrap();
    }
    args(here, here, false, false, false).checked().unwrap();
}
