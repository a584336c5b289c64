//! Secrets stay out of the log at every level.

use std::process::Command;

use lumpscope_proto::v1;
use rustix::process::Signal;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::door::{Authority, LONG, lumps, place, tokens};
use crate::process::Process;

/// The token and the table that `lumpscope token` prints.
fn made() -> (String, String) {
    let output = Command::new(crate::process::PROGRAM)
        .args(["token", "--name", "made", "--scope", "read,write"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let token = text.lines().find(|line| line.starts_with("lumpscope_"));
    let token = token.expect("a token").to_owned();
    let table = text[text.find("[[token]]").unwrap()..].to_owned();
    assert_eq!(token.len(), "lumpscope_".len() + 64);
    assert!(!table.contains(&token));
    (token, table)
}

#[test]
fn two_tokens_are_never_the_same() {
    assert_ne!(made().0, made().0);
}

#[tokio::test]
async fn a_log_of_everything_holds_no_secret() {
    let (folder, config) = place();
    let ours = Authority::new();
    let files = ours.files(folder.path());
    let (secret, table) = made();
    let list = tokens(folder.path(), &[table]);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let stores = [("s", &*config.stores[0].path)];
    let (cert, key, list) = (path(&files.cert), path(&files.key), path(&list));
    let more = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tokens",
        &list,
        // The transport is quiet unless it is named.
        "--log",
        "trace,h2=trace,hyper=trace,rustls=trace,tokio_rustls=trace,tonic=trace",
    ];
    let mut service = Process::start(folder.path(), &stores, &more);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&ours.pem))
        .domain_name("localhost");
    let address = service.grpc.replace("http:", "https:");
    let endpoint = Endpoint::from_shared(address).unwrap().tls_config(tls);
    let channel = endpoint.unwrap().connect().await.unwrap();
    let guess = "lumpscope_guess0123456789";
    for _ in 0..3 {
        let ask = v1::ListStoresRequest {};
        lumps(channel.clone(), &secret)
            .list_stores(ask)
            .await
            .unwrap();
        lumps(channel.clone(), guess)
            .list_stores(ask)
            .await
            .unwrap_err();
    }
    service.signal(Signal::HUP);
    // The body of a put is none of the log's business either.
    let payload = "payload-that-is-private";
    let request = tonic::Request::new(tokio_stream::iter([
        crate::common::first(crate::common::header("s", 1, payload.len() as u64)),
        crate::common::chunk(payload),
    ]));
    lumps(channel.clone(), &secret).put(request).await.unwrap();
    drop(channel);
    service.signal(Signal::TERM);
    assert!(service.ended(LONG).success(), "{}", service.log());
    let log = service.log();
    for word in ["TRACE", "h2::", "login refused", "reloaded"] {
        assert!(
            log.contains(word),
            "{word:?} is not in the log: it proves nothing"
        );
    }
    let pem = std::fs::read_to_string(&key).unwrap();
    let of_key = pem.lines().filter(|line| !line.starts_with("-----"));
    for private in of_key.chain([&*secret, guess, &secret[10..], payload]) {
        let found = log.lines().find(|line| line.contains(private));
        assert_eq!(found, None, "{private:?} is in the log");
    }
}
