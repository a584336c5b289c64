//! Spans go to the collector by TLS, and only to one that the named CA has signed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::common::*;
use crate::process::{PROGRAM, Process};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector with a certificate of its own CA, which is written to `ca`. It tells of each message the
/// path and the login; of each connection that is not agreed on, the reason.
async fn collector(ca: &Path) -> (SocketAddr, mpsc::UnboundedReceiver<Result<String, String>>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(ca, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let chain = vec![CertificateDer::from(
        params.signed_by(&key, &issuer).unwrap(),
    )];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, tell) = (acceptor.clone(), tell.clone());
            tokio::spawn(async move {
                // The test may have ended: then nobody is told.
                match acceptor.accept(stream).await {
                    Ok(stream) => serve(stream, &tell).await,
                    Err(error) => drop(tell.send(Err(error.to_string()))),
                }
            });
        }
    });
    (address, told)
}

async fn serve(
    stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    tell: &mpsc::UnboundedSender<Result<String, String>>,
) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut reply))) = connection.accept().await {
        let login = request.headers().get("authorization");
        let login = login.map_or("", |value| value.to_str().unwrap());
        let path = request.uri().path();
        let _ = tell.send(Ok(format!("{path} {login}")));
        let head = http::Response::builder().header("content-type", "application/grpc");
        let mut body = reply.send_response(head.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        body.send_trailers(trailers).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_travel_encrypted() {
    let dir = folder();
    let (ours, other) = (dir.path().join("ours.pem"), dir.path().join("other.pem"));
    let (address, mut told) = collector(&ours).await;
    collector(&other).await;
    let endpoint = format!("https://{address}");
    let more = ["--otlp-endpoint", endpoint.as_str(), "--trace-ratio", "1"];
    for (ca, good) in [(&ours, true), (&other, false)] {
        let store = store_file(dir.path(), &format!("{good}"), 16 << 20, 4096, 0.05);
        let mut command = Command::new(PROGRAM);
        command
            .arg("serve")
            .env("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t");
        let stores: &[(&str, &Path)] = &[("a", &store)];
        let service = Process::spawn(&mut command, dir.path(), stores, &more);
        let mut client = connect(&service.grpc).await;
        put(&mut client, "a", 1, &body(1, 100_000)).await.unwrap();
        let found = told.recv().await.expect("the collector is reached");
        match good {
            true => assert_eq!(found.unwrap(), format!("{EXPORT} Bearer t")),
            false => drop(found.expect_err("it trusts another CA")),
        }
    }
}

#[test]
fn a_ca_that_is_not_there_is_named() {
    let dir = folder();
    let store = store_file(dir.path(), "ca", 16 << 20, 4096, 0.05);
    let refused = Command::new(PROGRAM)
        .args("serve --no-probes --otlp-endpoint https://127.0.0.1:1".split(' '))
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
        .args(["--store", &format!("a={}", store.display())])
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file")
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    for word in [
        "otlp-endpoint",
        "/no/such/file",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
    ] {
        assert!(said.contains(word), "{word:?} in {said}");
    }
}
