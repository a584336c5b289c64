//! Must not achieve: to go on when the token or the certificate has been withdrawn, or to log in
//! with a file that is no file of tokens.

use std::error::Error;
use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use lumpscope_server::config::ServeConfig;
use rcgen::{
    CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, DnValue, RevocationReason,
    date_time_ymd,
};
use tonic::transport::Channel;

use crate::common::web::Events;
use crate::door::harness::{
    Authority, LONG, Pair, Serving, http_get, place, raw_config, raw_tls_with, secret, token,
    tokens, with_token,
};
use crate::door::reload::{HalfPut, known};

const ALL: &str = "scopes = [\"observe\"]";

/// Authority with an RSA key, whose list is signed with SHA-1: made by OpenSSL, as ring signs with
/// neither.
const SHA1_CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIB2TCCAUKgAwIBAgIUe/qR7xSm9hzd53zEAu9Ab/RZyc4wDQYJKoZIhvcNAQEL
BQAwDjEMMAoGA1UEAwwDb2xkMCAXDTI2MTEyOTE5MDc1NVoYDzIxMjYxMTA1MTkw
NzU1WjAOMQwwCgYDVQQDDANvbGQwgZ8wDQYJKoZIhvcNAQEBBQADgY0AMIGJAoGB
AJkItuipe3wdYZ759+/y7+aDembhtD7rjqiGoueYCzOf8p3We04Kd0RsxeRnOxW/
A1XyekXVDkzwDo+fe8zHVcJMqSr3SRZjANWlXMOHrVjI9D0H7XMSS+H8PmLADrYH
hKNRbCm8nP0uLsTSFTmlsiKFHnWnAZoJ45aJcQZMP0JbAgMBAAGjMjAwMA8GA1Ud
EwEB/wQFMAMBAf8wHQYDVR0OBBYEFFdnREHc7C5gh39ayDf4sdOKudg8MA0GCSqG
SIb3DQEBCwUAA4GBAD/HclhkQv7D2OC7EJTItmVM6JxqmF8n9QQbFnP8LmG+fBwe
oDAv6Guvt90bQWiUh3H3KCLDFzTnSHXdy8a+H2QxVFzF6TIL7cZLtxOeGg8G0XFt
AnNMJLhtxJ8FzyH+3/LryHVYL0VGp0RAgeFxuwF5TAYKT+4jYRsLf1gdg7ba
-----END CERTIFICATE-----
";
const SHA1_LIST: &str = "\
-----BEGIN X509 CRL-----
MIHnMFICAQEwDQYJKoZIhvcNAQEFBQAwDjEMMAoGA1UEAwwDb2xkFw0yNjExMjkx
OTA3NTVaGA8yMTI2MTEwNTE5MDc1NVqgDjAMMAoGA1UdFAQDAgEBMA0GCSqGSIb3
DQEBBQUAA4GBAFtR6x8yVJYd8Pj3MD96Bpjvub0hTbi/bpfJ3RVYDkcUFcdpWNyg
xnqG0K0ElhUhUSLZAqhHnMzHoS8NYHA5C7AZXFgbPOd7Aji1pPFzGLziHTGZ8bDv
tB51eT/QrPURVGPbRQaKjFyxveEt+Pxk9vtAuFim8sc+2O2DdiDiAHz5
-----END X509 CRL-----
";

/// Reads a stream to its end.
async fn end_of<T>(mut stream: Streaming<T>) -> Result<(), Status> {
    let read = async {
        while stream.message().await?.is_some() {}
        Ok(())
    };
    timeout(LONG, read).await.expect("the stream ends")
}

#[tokio::test]
async fn streams_of_a_token_that_is_withdrawn() {
    let (folder, mut config) = place();
    let entries = [token("stays", "s", ALL), token("goes", "g", ALL)];
    config.tokens = Some(tokens(folder.path(), &entries));
    config.reload_interval = Duration::ZERO;
    let service = Serving::start(config).await;
    let channel = service.plain().await;
    let watching = |secret| ObserveClient::new(with_token(channel.clone(), secret));
    let mut goes = watching("g");
    let trace = goes.trace(v1::TraceRequest::default()).await.unwrap();
    let record = goes.record(v1::RecordRequest::default()).await.unwrap();
    let health = |secret| HealthClient::new(with_token(channel.clone(), secret));
    let asked = HealthCheckRequest {
        service: "store/s".to_owned(),
    };
    let watch = health("g").watch(asked.clone()).await.unwrap();
    let mut health_stays = health("s").watch(asked).await.unwrap().into_inner();
    let mut other = watching("s");
    let stays = other.trace(v1::TraceRequest::default()).await;
    let mut stays = stays.unwrap().into_inner();
    tokens(folder.path(), &entries[..1]);
    service.reloader.reload().unwrap();
    for ended in [
        end_of(trace.into_inner()).await,
        end_of(record.into_inner()).await,
        end_of(watch.into_inner()).await,
    ] {
        let status = ended.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    // A heartbeat comes after the reload.
    for _ in 0..2 {
        assert!(stays.message().await.unwrap().is_some());
    }
    assert!(health_stays.message().await.unwrap().is_some());
    let quiet = timeout(Duration::from_millis(100), health_stays.message()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    drop((stays, health_stays, other, goes));
    drop(channel);
    service.stop().await;
}

#[tokio::test]
async fn the_page_of_a_token_that_is_withdrawn() {
    let (folder, mut config) = place();
    let entries = [token("stays", "s", ALL), token("goes", "g", ALL)];
    config.tokens = Some(tokens(folder.path(), &entries));
    config.reload_interval = Duration::ZERO;
    config.rhythm.frame = Duration::from_millis(20);
    let service = Serving::start(config).await;
    let watching = |secret| {
        let login = format!("Authorization: Bearer {secret}\r\n");
        async move { Events::open(service.metrics, "", &login).await }
    };
    let (mut stays, mut goes) = (watching("s").await, watching("g").await);
    for events in [&mut stays, &mut goes] {
        events.take("hello").await;
        events.take("frame").await;
    }
    tokens(folder.path(), &entries[..1]);
    service.reloader.reload().unwrap();
    let end = async { while goes.next().await.is_some() {} };
    timeout(LONG, end).await.expect("the page's stream ends");
    for _ in 0..2 {
        stays.take("frame").await;
    }
    drop(stays);
    service.stop().await;
}

#[tokio::test]
async fn files_that_are_none_of_tokens() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, mut config) = place();
    let good = tokens(folder.path(), &[token("t", "t", ALL)]);
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let open = folder.path().join("open");
    std::fs::copy(&good, &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o664)).unwrap();
    for (path, word) in [
        (pipe, "regular file"),
        ("/dev/zero".into(), "regular file"),
        (folder.path().to_owned(), "regular file"),
        (open, "664"),
    ] {
        config.tokens = Some(path.clone());
        let started = lumpscope_server::serve::Service::start(config.clone());
        let started = timeout(LONG, started).await.expect("it is not waited for");
        let error = started.err().expect("it is refused").to_string();
        assert!(error.contains(word), "{}: {error}", path.display());
    }
}

/// A folder, and a service in it for clients whose certificates `clients` has signed.
fn place_for(ours: &Authority, clients: &Authority) -> (tempfile::TempDir, ServeConfig) {
    let (folder, mut config) = place();
    let mut files = ours.files(folder.path());
    let [ca, crl] = ["clients.pem", "clients.crl"].map(|name| folder.path().join(name));
    std::fs::write(&ca, &clients.pem).unwrap();
    std::fs::write(&crl, clients.revoke(&[])).unwrap();
    (files.client_ca, files.client_crl) = (Some(ca), Some(crl));
    crate::common::use_tls(&mut config, files);
    config.reload_interval = Duration::ZERO;
    (folder, config)
}

/// A client that watches.
async fn watching(
    service: &Serving,
    ours: &Authority,
    shown: &Pair,
) -> Result<Watcher, Box<dyn Error>> {
    let channel = service.tls(ours, Some(shown)).await?;
    let mut observe = ObserveClient::new(channel.clone());
    let trace = observe.trace(v1::TraceRequest::default()).await?;
    let trace = trace.into_inner();
    Ok(Watcher { channel, trace })
}

struct Watcher {
    channel: Channel,
    trace: Streaming<v1::TraceResponse>,
}

impl Watcher {
    /// What it watches ends for want of a login, and it does not get in again.
    async fn goes_away(self) {
        let status = end_of(self.trace).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        assert!(status.message().contains("certificate"), "{status:?}");
        let mut observe = ObserveClient::new(self.channel);
        let again = observe.trace(v1::TraceRequest::default()).await;
        again.unwrap_err();
    }

    async fn goes_on(&mut self) {
        // A heartbeat comes after the reload.
        for _ in 0..2 {
            assert!(self.trace.message().await.unwrap().is_some());
        }
    }
}

#[tokio::test]
async fn connections_of_an_authority_that_is_removed() {
    let [ours, theirs, other] = [(); 3].map(|()| Authority::new());
    let (folder, config) = place_for(&ours, &theirs);
    let service = Serving::start(config).await;
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, format!("{}{}", theirs.pem, other.pem)).unwrap();
    let crl = [theirs.revoke(&[]), other.revoke(&[])].concat();
    std::fs::write(folder.path().join("clients.crl"), crl).unwrap();
    service.reloader.reload().unwrap();
    let goes = watching(&service, &ours, &theirs.sign("goes"))
        .await
        .unwrap();
    let stays = other.sign("stays");
    let mut stays = watching(&service, &ours, &stays).await.unwrap();
    let bytes = crate::common::body(9, 4 << 20);
    let under_way = HalfPut::begin(goes.channel.clone(), "-", &bytes).await;
    known(&goes.channel, "-").await.unwrap();
    // A key that does not fit, and lists that are none, keep no authority alive.
    std::fs::write(&ca, &other.pem).unwrap();
    secret(&folder.path().join("key.pem"), &ours.sign("localhost").key);
    std::fs::write(folder.path().join("clients.crl"), "none").unwrap();
    let message = service.reloader.reload().unwrap_err().to_string();
    for word in [
        "key.pem",
        "is it the key of",
        "clients.crl",
        "no revocation list",
    ] {
        assert!(message.contains(word), "{word:?} in {message:?}");
    }
    goes.goes_away().await;
    stays.goes_on().await;
    // As with a token: what was admitted may finish.
    under_way.finish().await;
    drop(stays);
    service.stop().await;
}

#[tokio::test]
async fn connections_of_a_certificate_that_is_revoked() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (folder, config) = place_for(&ours, &theirs);
    let service = Serving::start(config).await;
    let (first, second) = (theirs.sign("goes"), theirs.sign("stays"));
    let goes = watching(&service, &ours, &first).await.unwrap();
    let mut stays = watching(&service, &ours, &second).await.unwrap();
    let crl = theirs.revoke(&[&first]);
    std::fs::write(folder.path().join("clients.crl"), crl).unwrap();
    service.reloader.reload().unwrap();
    goes.goes_away().await;
    stays.goes_on().await;
    drop(stays);
    service.stop().await;
}

#[tokio::test]
async fn lists_of_another_authority_lock_nobody_out() {
    let [theirs, forged] = [(); 2].map(|()| Authority::named("clients"));
    let [ours, other] = [(); 2].map(|()| Authority::new());
    let (folder, config) = place_for(&ours, &theirs);
    let [ca, crl] = ["clients.pem", "clients.crl"].map(|name| folder.path().join(name));
    let service = Serving::start(config.clone()).await;
    let (first, second) = (theirs.sign("goes"), theirs.sign("stays"));
    let goes = watching(&service, &ours, &first).await.unwrap();
    let mut stays = watching(&service, &ours, &second).await.unwrap();
    let older_first = [theirs.revoke(&[]), theirs.revoke(&[&first])].concat();
    for (lists, why) in [
        (
            other.revoke(&[]),
            "clients.crl: there is no list of CN=clients",
        ),
        (forged.revoke(&[]), "is not signed with the key of that CA"),
        (older_first, "there are two lists of CN=clients"),
    ] {
        std::fs::write(&crl, lists).unwrap();
        let message = service.reloader.reload().unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
        stays.goes_on().await;
    }
    std::fs::write(&ca, format!("{}{}", theirs.pem, forged.pem)).unwrap();
    let message = service.reloader.reload().unwrap_err().to_string();
    assert!(
        message.contains("two CAs are named CN=clients"),
        "{message}"
    );
    stays.goes_on().await;
    // An authority without a list does not keep those of another from being revoked.
    std::fs::write(&ca, format!("{}{}", theirs.pem, other.pem)).unwrap();
    std::fs::write(&crl, theirs.revoke(&[&first])).unwrap();
    service.reloader.reload().unwrap_err();
    goes.goes_away().await;
    stays.goes_on().await;
    drop(stays);
    service.stop().await;
    let started = lumpscope_server::serve::Service::start(config).await;
    let error = started.err().expect("it is refused").to_string();
    assert!(error.contains("there is no list of"), "{error}");
}

/// A list of `year` for the clients or authorities of `scope` that name `point`.
fn list_for(
    authority: &Authority,
    revoked: &[&Pair],
    year: i32,
    point: &str,
    scope: Option<CrlScope>,
) -> String {
    authority.revoke_with(revoked, |list| {
        list.this_update = date_time_ymd(year, 1, 1);
        list.issuing_distribution_point = Some(CrlIssuingDistributionPoint {
            distribution_point: CrlDistributionPoint {
                uris: vec![point.to_owned()],
            },
            scope,
        });
    })
}

#[tokio::test]
async fn an_older_list_for_more_or_fewer_certificates_hides_no_newer_one() {
    const POINT: &str = "http://ca/list";
    let (ours, theirs) = (Authority::new(), Authority::named("clients"));
    let (folder, config) = place_for(&ours, &theirs);
    let crl = folder.path().join("clients.crl");
    let service = Serving::start(config).await;
    let (first, second) = (theirs.sign("goes"), theirs.sign("stays"));
    let goes = watching(&service, &ours, &first).await.unwrap();
    let mut stays = watching(&service, &ours, &second).await.unwrap();
    let users = Some(CrlScope::UserCertsOnly);
    let newer = |scope| list_for(&theirs, &[&first], 2025, POINT, scope);
    for older in [
        theirs.revoke(&[]),
        list_for(&theirs, &[], 2024, POINT, None),
        list_for(&theirs, &[], 2024, "http://elsewhere/list", users) + &theirs.revoke(&[]),
    ] {
        std::fs::write(&crl, older + &newer(users)).unwrap();
        let message = service.reloader.reload().unwrap_err().to_string();
        let why = "there are two lists of CN=clients";
        assert!(message.contains(why), "{message}");
        stays.goes_on().await;
    }
    // Those that no certificate has in common both count.
    let others = [
        list_for(&theirs, &[], 2024, POINT, Some(CrlScope::CaCertsOnly)),
        newer(users),
    ];
    std::fs::write(&crl, others.concat()).unwrap();
    service.reloader.reload().unwrap();
    goes.goes_away().await;
    stays.goes_on().await;
    drop(stays);
    service.stop().await;
}

#[tokio::test]
async fn a_list_with_a_bad_entry_keeps_no_token_alive() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (folder, mut config) = place_for(&ours, &theirs);
    let entries = [token("stays", "s", ALL), token("goes", "g", ALL)];
    config.tokens = Some(tokens(folder.path(), &entries));
    let service = Serving::start(config).await;
    let client = theirs.sign("client");
    let channel = service.tls(&ours, Some(&client)).await.unwrap();
    let mut goes = ObserveClient::new(with_token(channel, "g"));
    drop(goes.trace(v1::TraceRequest::default()).await.unwrap());
    // The reason of an entry: 0a 01 01, which is CgEB where it begins a group of three bytes. There
    // is no reason 7.
    let mut lists = ["x", "xx", "xxx"].into_iter().map(|name| {
        let other = Authority::named(name);
        other.revoke_with(&[&client], |list| {
            list.revoked_certs[0].reason_code = Some(RevocationReason::KeyCompromise);
        })
    });
    let list = lists.find(|list| list.contains("CgEB")).unwrap();
    let bad = list.replace("CgEB", "CgEH");
    let crl = theirs.revoke(&[]) + &bad;
    std::fs::write(folder.path().join("clients.crl"), crl).unwrap();
    tokens(folder.path(), &entries[..1]);
    let message = service.reloader.reload().unwrap_err().to_string();
    assert!(message.contains("clients.crl: "), "{message}");
    assert!(!message.contains("cert.pem"), "{message}");
    let asked = goes.trace(v1::TraceRequest::default()).await;
    let status = asked.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    let fresh = service.tls(&ours, Some(&client)).await.unwrap();
    let mut stays = ObserveClient::new(with_token(fresh, "s"));
    drop(stays.trace(v1::TraceRequest::default()).await.unwrap());
    drop((stays, goes));
    service.stop().await;
}

#[tokio::test]
async fn lists_that_rustls_would_refuse_at_each_handshake() {
    let (ours, theirs) = (Authority::new(), Authority::named("clients"));
    let (folder, config) = place_for(&ours, &theirs);
    let [ca, crl] = ["clients.pem", "clients.crl"].map(|name| folder.path().join(name));
    let service = Serving::start(config).await;
    let client = theirs.sign("stays");
    let mut stays = watching(&service, &ours, &client).await.unwrap();
    let printable = DnValue::PrintableString("clients".try_into().unwrap());
    let printable = theirs.renamed(printable);
    std::fs::write(&ca, [&theirs.pem, SHA1_CA].concat()).unwrap();
    for (lists, why) in [
        (
            theirs.revoke(&[]) + SHA1_LIST,
            "the list of CN=old in it is signed with sha1WithRSAEncryption",
        ),
        (printable.revoke(&[]), "no list of CN=clients in it"),
    ] {
        std::fs::write(&crl, lists).unwrap();
        let message = service.reloader.reload().unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
        stays.goes_on().await;
    }
    drop(stays);
    service.stop().await;
}

#[tokio::test]
async fn a_list_from_before_the_one_in_force() {
    let (ours, theirs) = (Authority::new(), Authority::named("clients"));
    let (folder, config) = place_for(&ours, &theirs);
    let crl = folder.path().join("clients.crl");
    let first = theirs.sign("goes");
    std::fs::write(&crl, theirs.revoke(&[&first])).unwrap();
    let service = Serving::start(config).await;
    watching(&service, &ours, &first).await.err().unwrap();
    let older = theirs.revoke_with(&[], |list| list.this_update = date_time_ymd(2023, 1, 1));
    std::fs::write(&crl, &older).unwrap();
    let message = service.reloader.reload().unwrap_err().to_string();
    let why = "the list of CN=clients in it is older than the one in force";
    assert!(message.contains(why), "{message}");
    watching(&service, &ours, &first).await.err().unwrap();
    service.stop().await;
}

#[tokio::test]
async fn a_certificate_that_has_expired() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_folder, config) = place_for(&ours, &theirs);
    let service = Serving::start(config).await;
    // Long enough for the slowest machine, in the end.
    let mut seconds = 4;
    let (client, watcher) = loop {
        let end = std::time::UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(seconds);
        let pair = theirs.sign_until("goes", Some(end));
        // A session to take up again later: its handshake shows no certificate.
        let client = raw_config(&ours, b"http/1.1", Some(&pair));
        let stream = raw_tls_with(service.metrics, client.clone()).await.unwrap();
        let lives = http_get(stream, "/livez", "").await.0 == 200;
        match watching(&service, &ours, &pair).await {
            Ok(watcher) if lives => break (client, watcher),
            _ => seconds *= 4,
        }
    };
    watcher.goes_away().await;
    if let Ok(mut stream) = raw_tls_with(service.metrics, client).await {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        // It may be gone already.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"", "{:?}", String::from_utf8_lossy(&answer));
    }
    service.stop().await;
}
