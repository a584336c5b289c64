//! Must not achieve: to go on watching when the token has been withdrawn, or to log in with a file
//! that is no file of tokens.

use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::common::web::Events;
use crate::door::harness::{LONG, Serving, place, token, tokens, with_token};

const ALL: &str = "scopes = [\"observe\"]";

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
