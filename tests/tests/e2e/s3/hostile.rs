//! Clients that are broken, slow or mean; TLS; a service that ends while they are at it; and what is told of a request.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use lumpscope_lab::disks::StoreKind;
use lumpscope_tests::needs::{Need, ROOT, alone, available};
use lumpscope_tests::s3::{ACCESS, BucketClient, SECRET, keys};
use lumpscope_tests::service::{Service, lab_with_stores, run_ok, words};
use serde_json::Value;

use super::{file_store, folder, gauge, good, python, serve, with_s3};

#[test]
fn what_is_broken_slow_or_mean_is_refused_and_leaves_nothing() {
    if !available(&[Need::Tool("s3-python")]) {
        return;
    }
    let folder = folder();
    let store = file_store(folder.path());
    // hostile.py knows these.
    let more = "--body-timeout 2 --handshake-timeout 2 --put-memory 24M --min-rate 64K";
    let more = words(more);
    let service = serve(&store, &keys(folder.path(), ""), &more);
    python("hostile.py", &[&service.s3, ACCESS, SECRET], &[]);
    let found = gauge(&service, "lumpscope_store_lumps");
    assert_eq!(found, 0, "lumps are left");
    assert!(service.stop());
    run_ok(&["check", &store]);
}

/// Over TLS boto3 leaves the chunks unsigned and sends the checksum behind them.
#[test]
fn boto3_finds_the_same_over_tls() {
    if !available(&[Need::Tool("s3-python")]) {
        return;
    }
    let folder = folder();
    let store = file_store(folder.path());
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let mut mode = std::fs::metadata(&key).expect("it is there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
    std::fs::set_permissions(&key, mode).expect("it is ours");
    let [cert_text, key_text] = [&cert, &key].map(|path| path.to_str().expect("UTF-8"));
    let more = ["--tls-cert", cert_text, "--tls-key", key_text];
    let service = serve(&store, &keys(folder.path(), ""), &more);
    let url = format!("https://{}", service.s3);
    let trusted = [("AWS_CA_BUNDLE", &*cert), ("SSL_CERT_FILE", &*cert)];
    python("conformance.py", &[&url, ACCESS, SECRET, "20"], &trusted);
    // Who speaks without TLS is not answered as if it were.
    let client = BucketClient::new(&service.s3, "plain", ACCESS, SECRET);
    assert!(client.create().is_none_or(|(status, _)| status >= 400));
    assert!(service.stop());
}

/// A put that has sent this much of its body.
fn begun(client: &BucketClient, address: &str, body: &[u8], sent: usize) -> TcpStream {
    let url = client.put_url("late");
    let path = url.split_once(address).expect("the address").1;
    let mut stream = TcpStream::connect(address).expect("S3 is served");
    let len = body.len();
    let head = format!("PUT {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is read");
    stream.write_all(&body[..sent]).expect("it is read");
    stream
}

#[test]
fn what_has_begun_ends_when_the_service_does_and_nothing_else_begins() {
    let folder = folder();
    let store = file_store(folder.path());
    let keys = keys(folder.path(), "");
    let service = serve(&store, &keys, &["--drain-timeout", "60"]);
    let client = BucketClient::new(&service.s3, "ending", ACCESS, SECRET);
    assert!(client.create().is_some());
    let body = vec![3; 9 << 20];
    let mut late = begun(&client, &service.s3, &body, 5 << 20);
    // The bytes have been taken up: the put is under way.
    while gauge(&service, "lumpscope_store_requests_in_progress") != 1 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = i32::try_from(service.pid()).ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    // Nobody is let in any more, as soon as it has heard.
    while let Ok(mut stream) = TcpStream::connect(&service.s3) {
        let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", service.s3);
        let mut said = String::new();
        let asked = stream.write_all(request.as_bytes());
        if asked
            .and_then(|()| stream.read_to_string(&mut said))
            .is_err()
            || said.is_empty()
        {
            break;
        }
    }
    late.write_all(&body[5 << 20..]).expect("it goes on");
    let mut said = String::new();
    late.read_to_string(&mut said).expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert!(service.stop(), "it ends well");
    let service = serve(&store, &keys, &[]);
    let client = BucketClient::new(&service.s3, "ending", ACCESS, SECRET);
    assert!(
        client.get("late") == Some((200, body)),
        "it was acknowledged"
    );
    assert!(service.stop());
}

/// Output of `lumpscope explain` for a request.
fn explained(service: &Service, id: u64) -> Value {
    let output = Command::new(lumpscope_tests::service::binary())
        .args(["explain", "--json", &id.to_string()])
        .env("LUMPSCOPE_SERVER", &service.grpc)
        .output();
    let printed = good(&output.expect("lumpscope starts"));
    serde_json::from_str(printed.trim()).expect("JSON")
}

#[test]
fn a_request_of_s3_is_explained() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "300M");
    let folder = folder();
    // Nothing else was asked of it: all requests are among the slowest that are kept.
    let service = Service::start(&lab, &with_s3(&keys(folder.path(), "")));
    let client = BucketClient::new(&service.s3, "told", ACCESS, SECRET);
    assert!(client.create().is_some());
    let body = vec![9; 3 << 20];
    let put = client.put_with_id("object", &body).expect("an id");
    let (get, found) = client.get_with_id("object").expect("an id");
    assert!(found == body);
    for (id, method, operation) in [
        (put, "s3_put_object", "write"),
        (get, "s3_get_object", "read"),
    ] {
        let told = explained(&service, id);
        assert_eq!(told["method"], method, "{told}");
        let blocks = told["blocks"].as_array().expect("block requests");
        let data = blocks
            .iter()
            .filter(|it| it["operation"] == operation && it["purpose"] == "data");
        let sectors: u64 = data.clone().filter_map(|it| it["sectors"].as_u64()).sum();
        assert!(sectors * 512 >= 3 << 20, "{told}");
        for block in data {
            assert!(block["sector"].is_u64(), "{told}");
            assert!(block["device_ns"].is_u64(), "{told}");
            assert!(!block["seek_bytes"].is_null(), "{told}");
        }
        assert!(
            !told["steps"].as_array().expect("steps").is_empty(),
            "{told}"
        );
        eprintln!("{method}: {}", told["stages"]);
    }
    assert!(service.stop());
}
