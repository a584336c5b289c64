//! The page's data goes through the same door as gRPC.

use lumpscope_server::config::Rhythm;
use serde_json::Value;

use super::harness::{Serving, lumps, token, tokens};
use crate::common::web::{Events, get};
use crate::common::{body, folder, raw_id, store_file};

const ALL: &str = "Authorization: Bearer all\r\n";
const ONE: &str = "Authorization: Bearer one\r\n";

const FAST: std::time::Duration = std::time::Duration::from_millis(20);

/// A service with the stores a and b, and tokens for both, for a alone, and for nothing seen.
async fn serving(folder: &std::path::Path) -> Serving {
    let path = |name| store_file(folder, name, 16 << 20, 4096, 0.05);
    let (a, b) = (path("a"), path("b"));
    let mut config = crate::common::config(&[("a", &a), ("b", &b)]);
    let entries = [
        token("all", "all", "scopes = [\"observe\", \"write\"]"),
        token("one", "one", "scopes = [\"observe\"]\nstores = [\"a\"]"),
        token("blind", "blind", "scopes = [\"read\"]"),
    ];
    config.tokens = Some(tokens(folder, &entries));
    config.rhythm = Rhythm {
        frame: FAST,
        past_frame: FAST,
        ..Rhythm::default()
    };
    Serving::start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_needs_a_login_and_the_files_do_not() {
    let folder = folder();
    let serving = serving(folder.path()).await;
    let at = serving.metrics;
    assert_eq!(get(at, "/", "").await.status, 200);
    for path in [
        "live",
        "past",
        "slowest",
        "requests/1",
        "observer",
        "nothing",
    ] {
        let path = format!("/api/v1/{path}");
        let refused = get(at, &path, "").await;
        refused.refused(401, "token");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        let refused = get(at, &path, "Authorization: Bearer wrong\r\n").await;
        refused.refused(401, "misspelt or withdrawn");
        let refused = get(at, &path, "Authorization: Bearer blind\r\n").await;
        refused.refused(403, "scope \"observe\"");
    }
    // Who logs in may come by any name: a page of another site has no token.
    let by_name = format!("{ALL}Host: lumpscope.example\r\n");
    assert_eq!(get(at, "/api/v1/observer", &by_name).await.status, 200);
    let elsewhere = format!("{ALL}Sec-Fetch-Site: cross-site\r\n");
    let refused = get(at, "/api/v1/observer", &elsewhere).await;
    refused.refused(403, "another web site");
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_use_one_store_sees_nothing_of_the_others() {
    let folder = folder();
    let serving = serving(folder.path()).await;
    let at = serving.metrics;
    let names = |value: &Value, key: &str| -> Vec<String> {
        let all = value["stores"].as_array().unwrap().iter();
        all.map(|s| s[key].as_str().unwrap().to_owned()).collect()
    };
    for (login, stores) in [(ALL, &["a", "b"][..]), (ONE, &["a"])] {
        let mut events = Events::open(at, "", login).await;
        assert_eq!(names(&events.take("hello").await, "name"), stores);
        for _ in 0..3 {
            let frame = events.take("frame").await;
            let parts = frame["stores"].as_object().unwrap();
            assert_eq!(parts.keys().collect::<Vec<_>>(), stores);
        }
        let past = loop {
            let past = get(at, "/api/v1/past", login).await.json();
            if past["frames"].get(0).is_some() {
                break past;
            }
            tokio::time::sleep(FAST).await;
        };
        let parts = past["frames"][0]["stores"].as_object().unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), stores);
        let observer = get(at, "/api/v1/observer", login).await.json();
        assert_eq!(names(&observer, "store"), stores);
    }
    // A request to the other store is as unknown as none at all.
    let id = {
        let mut client = lumps(serving.plain().await, "all");
        let header = lumpscope_proto::v1::PutHeader {
            store: "b".into(),
            id: raw_id(1),
            length: 100,
            ..Default::default()
        };
        let parts = [
            crate::common::first(header),
            crate::common::chunk(body(1, 100)),
        ];
        let reply = client.put(tokio_stream::iter(parts)).await.unwrap();
        reply.into_inner().request_id
    };
    let path = format!("/api/v1/requests/{id}");
    assert_eq!(get(at, &path, ALL).await.json()["store"], "b");
    get(at, &path, ONE).await.refused(404, "not known");
    let slowest = get(at, "/api/v1/slowest", ALL).await.json();
    assert_eq!(slowest["requests"][0]["request_id"], id);
    let slowest = get(at, "/api/v1/slowest", ONE).await.json();
    assert_eq!(slowest, serde_json::json!({"requests": []}));
    let other = get(at, "/api/v1/slowest?store=b", ONE).await;
    other.refused(403, "may not use");
    serving.stop().await;
}
