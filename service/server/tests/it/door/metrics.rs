//! The endpoint for machines that watch, behind the same door.

use tokio::net::TcpStream;

use super::harness::{Authority, Serving, http_get, place, raw_tls, token, tokens};

#[tokio::test]
async fn metrics_are_for_who_may_observe_all() {
    let (folder, mut config) = place();
    let entries = [
        token("watch", "w", "scopes = [\"observe\"]"),
        token("reader", "r", "scopes = [\"read\", \"admin\"]"),
        token("some", "s", "scopes = [\"observe\"]\nstores = [\"s\"]"),
    ];
    config.tokens = Some(tokens(folder.path(), &entries));
    let service = Serving::start(config).await;
    let ask = async |path: &str, headers: &str| {
        let stream = TcpStream::connect(service.metrics).await.unwrap();
        http_get(stream, path, headers).await
    };
    let by = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (headers, status, words) in [
        (String::new(), 401, "authorization"),
        (by("guess"), 401, "not one this service knows"),
        (by("r"), 403, "observe"),
        (by("s"), 403, "some stores"),
        (by("w"), 200, "lumpscope_tokens"),
    ] {
        let (got, text) = ask("/metrics", &headers).await;
        assert_eq!(got, status, "{headers}");
        assert!(text.contains(words) && !text.contains("guess"), "{text}");
    }
    // Who looks whether the service lives has no token.
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(ask(path, "").await.0, 200, "{path}");
    }
    let (_, text) = ask("/metrics", &by("w")).await;
    for line in [
        "lumpscope_login_failures_total{reason=\"missing\"} 1",
        "lumpscope_login_failures_total{reason=\"unknown\"} 1",
        "lumpscope_login_failures_total{reason=\"scope\"} 2",
        "lumpscope_connections{entrance=\"metrics\"} 1.0",
        "lumpscope_tokens 3.0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    service.stop().await;
}

#[tokio::test]
async fn metrics_come_by_tls_when_grpc_does() {
    let (folder, mut config) = place();
    let ours = Authority::new();
    crate::common::use_tls(&mut config, ours.files(folder.path()));
    let service = Serving::start(config).await;
    let stream = raw_tls(service.metrics, &ours, b"http/1.1").await.unwrap();
    let (status, text) = http_get(stream, "/metrics", "").await;
    assert_eq!(status, 200);
    let line = "lumpscope_certificate_not_after_timestamp_seconds ";
    assert!(text.contains(line), "{text}");
    let mut plain = TcpStream::connect(service.metrics).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET /metrics HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let came = super::harness::until_closed(&mut plain).await;
    assert!(!came.starts_with(b"HTTP"), "{came:?}");
    service.stop().await;
}
