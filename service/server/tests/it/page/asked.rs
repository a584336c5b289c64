//! Callers of the page's data, and their answers.

use lumpscope_proto::v1;
use lumpscope_server::config::Rhythm;
use serde_json::Value;

use super::{ask, number, service};
use crate::common::web;
use crate::common::{body, folder, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_login_only_our_own_page_may_ask() {
    let dir = folder();
    let service = service(dir.path(), &["s"], Rhythm::default()).await;
    let path = "/api/v1/slowest";
    for (headers, words) in [
        ("Host: evil.example:9464\r\n", "IP address"),
        ("Host: localhost.evil.example\r\n", "IP address"),
        ("Sec-Fetch-Site: cross-site\r\n", "another web site"),
        ("Sec-Fetch-Site: same-site\r\n", "another web site"),
    ] {
        let refused = web::get(service.metrics, path, headers).await;
        refused.refused(403, words);
        let refused = web::get(service.metrics, "/api/v1/live", headers).await;
        refused.refused(403, words);
    }
    for headers in [
        "Host: localhost:9464\r\n",
        "Host: [::1]:9464\r\n",
        "Sec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: none\r\n",
    ] {
        let reply = web::get(service.metrics, path, headers).await;
        let expected = Value::Array(Vec::new());
        assert_eq!(reply.json()["requests"], expected, "{headers}");
    }
    // The files hold nothing that a page of another site could read.
    for path in ["/", "/livez"] {
        let reply = web::get(service.metrics, path, "Host: evil.example\r\n").await;
        assert_eq!(reply.status, 200, "{path}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_explained_and_nonsense_is_refused() {
    let dir = folder();
    let mut service = service(dir.path(), &["s", "t"], Rhythm::default()).await;
    let reply = put(&mut service.client, "s", 1, &body(1, 5000)).await;
    let id = reply.unwrap().request_id;
    let one = ask(&service, &format!("/api/v1/requests/{id}")).await;
    assert_eq!(one.status, 200);
    let mut one = one.json();
    assert_eq!(
        (number(&one["request_id"]), &one["store"]),
        (id, &"s".into())
    );
    assert_eq!(
        (&one["method"], number(&one["bytes"])),
        (&"put".into(), 5000)
    );
    let explain = v1::ExplainRequest { request_id: id };
    let told = service.observe().await.explain(explain).await.unwrap();
    let told = told.into_inner().request.unwrap();
    assert_eq!(number(&one["total_ns"]), told.total_ns);
    assert_eq!(one["sentence"], *told.sentence);
    for path in [
        "/api/v1/slowest",
        "/api/v1/slowest?store=s&within_seconds=900&limit=1",
    ] {
        let mut slowest = ask(&service, path).await.json();
        let found = &mut slowest["requests"][0];
        // The two clocks are compared anew for each answer.
        for request in [&mut *found, &mut one] {
            request["begin_unix_ns"].take();
        }
        assert_eq!(*found, one, "{path}");
    }
    let of_t = ask(&service, "/api/v1/slowest?store=t").await.json();
    assert_eq!(of_t, serde_json::json!({"requests": []}));
    let observer = ask(&service, "/api/v1/observer").await.json();
    assert_eq!(observer["stores"][1]["store"], "t");
    assert_eq!(observer["stores"][1]["observed"], false);

    for (path, status, words) in [
        ("requests/999999", 404, "not known"),
        ("requests/x", 400, "number"),
        ("requests/-1", 400, "number"),
        ("slowest?limit=x", 400, "limit"),
        ("slowest?limit=0", 400, "from 1 to"),
        ("slowest?limit=100000", 400, "from 1 to"),
        ("slowest?within_seconds=-5", 400, "within_seconds"),
        ("slowest?stores=s", 400, "stores"),
        ("slowest?store=nobody", 404, "no store"),
        ("live?since=now", 400, "since"),
        ("past?since=now", 400, "since"),
        ("live?token=abc", 400, "token"),
        ("nothing", 404, "no such path"),
    ] {
        ask(&service, &format!("/api/v1/{path}"))
            .await
            .refused(status, words);
    }
    service.stop().await;
}
