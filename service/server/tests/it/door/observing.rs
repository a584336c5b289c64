//! A caller restricted to some stores learns nothing of the others from the observer.

use lumpscope_proto::v1;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tonic::Code;

use super::harness::{Known, Serving, token, tokens, with_token};
use crate::common::{self, body, refused};

fn of_store(store: &str) -> v1::TraceRequest {
    v1::TraceRequest {
        store: store.to_owned(),
        ..Default::default()
    }
}

/// One token is for both stores, the other for one of them.
fn two_stores(folder: &std::path::Path) -> lumpscope_server::config::ServeConfig {
    let theirs = common::store_file(folder, "theirs", 32 << 20, 4096, 0.05);
    let mine = common::store_file(folder, "mine", 32 << 20, 4096, 0.05);
    let mut config = common::config(&[("theirs", &theirs), ("mine", &mine)]);
    let all = "scopes = [\"read\", \"write\", \"observe\", \"admin\"]";
    config.tokens = Some(tokens(
        folder,
        &[
            token("all", "a", all),
            token("some", "s", &format!("{all}\nstores = [\"mine\"]")),
        ],
    ));
    config
}

#[tokio::test]
async fn who_may_use_one_store_learns_nothing_of_the_others() {
    let folder = common::folder();
    let service = Serving::start(two_stores(folder.path())).await;
    let channel = service.plain().await;
    let mut lumps = super::harness::lumps(channel.clone(), "a");
    let bytes = body(1, 5000);
    let mut ids = Vec::new();
    for store in ["theirs", "mine"] {
        let header = common::header(store, 1, bytes.len() as u64);
        let messages = [common::first(header), common::chunk(bytes.clone())];
        let stored = lumps.put(tokio_stream::iter(messages)).await.unwrap();
        ids.push(v1::ExplainRequest {
            request_id: stored.into_inner().request_id,
        });
    }
    let observe = |token| ObserveClient::<Known>::new(with_token(channel.clone(), token));
    let (mut all, mut some) = (observe("a"), observe("s"));

    all.explain(ids[0]).await.unwrap();
    some.explain(ids[1]).await.unwrap();
    let there = some.explain(ids[0]).await;
    let nowhere = some.explain(v1::ExplainRequest { request_id: 9999 }).await;
    refused(there, Code::NotFound, &["nothing is known", "may not use"]);
    refused(
        nowhere,
        Code::NotFound,
        &["nothing is known", "may not use"],
    );
    let slowest = |store: &str| v1::ListSlowestRequest {
        store: store.to_owned(),
        ..Default::default()
    };
    let stores = |reply: v1::ListSlowestResponse| {
        let mut names: Vec<String> = reply.requests.into_iter().map(|r| r.store).collect();
        names.sort();
        names
    };
    let listed = all.list_slowest(slowest("")).await.unwrap().into_inner();
    assert_eq!(stores(listed), ["mine", "theirs"]);
    let listed = some.list_slowest(slowest("")).await.unwrap().into_inner();
    assert_eq!(stores(listed), ["mine"]);
    let asked = some.list_slowest(slowest("theirs")).await;
    refused(asked, Code::PermissionDenied, &["\"theirs\""]);

    let asked = some.trace(of_store("theirs")).await.map(|_| ());
    refused(asked, Code::PermissionDenied, &["\"theirs\""]);
    let mut tracing = some.trace(of_store("")).await.unwrap().into_inner();
    let first = tracing.message().await.unwrap().unwrap();
    assert!(first.incomplete.contains("mine: "), "{first:?}");
    assert!(!first.incomplete.contains("theirs"), "{first:?}");
    let asked = some.record(v1::RecordRequest {}).await.map(|_| ());
    refused(asked, Code::PermissionDenied, &["some stores only"]);
    let each = v1::SetEventsRequest {
        events: Some(v1::EventPolicy {
            one_in: 1,
            slower_than_ns: 0,
        }),
    };
    let asked = some.set_events(each).await;
    refused(asked, Code::PermissionDenied, &["some stores only"]);
    let asked = some.describe_observer(v1::DescribeObserverRequest {}).await;
    let described = asked.unwrap().into_inner().stores;
    let names: Vec<String> = described.into_iter().map(|s| s.store).collect();
    assert_eq!(names, ["mine"]);
    drop(tracing);
    service.stop().await;
}
