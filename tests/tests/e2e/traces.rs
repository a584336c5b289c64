//! OTLP traces, end to end: a real service on a raw disk with probes, and a collector that is there,
//! away, and back.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use lumpscope_lab::disks::{Lab, StoreKind};
use lumpscope_proto::v1::{
    BlockIo, ExplainRequest, GetManyRequest, PutManyRequest, SlowRequest, get_many_response,
    put_many_request, put_many_response, put_request,
};
use lumpscope_tests::client::{Client, content, id};
use lumpscope_tests::collector::Collected;
use lumpscope_tests::needs::{ROOT, alone};
use lumpscope_tests::s3;
use lumpscope_tests::service::{Service, lab_with_stores};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tonic::Request;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const MIB: usize = 1 << 20;
/// Longest that is waited for what must come: spans are sent several times a second, and a collector
/// that was away is tried again after a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must come.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    found.unwrap_or_else(|_| panic!("it did not come: {what}"))
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn serve(lab: &Lab, collector: SocketAddr, more: &[&str]) -> Service {
    let endpoint = format!("http://{collector}");
    let arguments = ["--otlp-endpoint", &endpoint, "--trace-ratio", "0"];
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t")];
    Service::start_within(lab, &[&arguments[..], more].concat(), &headers)
}

/// A request that is a part of the trace of its client.
fn traced<T>(message: T, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{PARENT}-{flags}");
    let headers = request.metadata_mut();
    headers.insert("traceparent", parent.parse().expect("plain text"));
    headers.insert("tracestate", "vendor=1".parse().expect("plain text"));
    request
}

async fn traced_put(client: &mut Client, id: u128, length: usize, flags: &str) -> u64 {
    let put = client.put_request("raw", id, content(id, 1, length));
    let request = traced(tokio_stream::iter(put), flags);
    let put = client.raw().put(request).await.expect("the put works");
    put.into_inner().request_id
}

async fn explained(client: &mut Client, request_id: u64) -> SlowRequest {
    let told = client
        .observe()
        .explain(ExplainRequest { request_id })
        .await;
    let told = told.expect("it is known").into_inner();
    told.request.expect("it is explained")
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn number(span: &Span, key: &str) -> i64 {
    match value(&span.attributes, key) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

/// The value of a metric without labels, or of the line that begins so.
fn metric(service: &Service, name: &str) -> Option<f64> {
    let text = service.scrape();
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_is_one_trace_down_to_its_block_requests() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    let (collector, collected) = Collected::listen(any()).await;
    let service = serve(&lab, collector, &["--trace-slower-than", "1h"]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    // Neither asked for, nor slow, nor a fault of the service.
    let put = client.put("raw", 1, content(1, 1, MIB)).await;
    put.expect("it works");
    client.get("raw", 99).await.expect_err("it was never put");
    let request = traced_put(&mut client, 7, 3 * MIB, "01").await;
    let spans = until("the put's spans", || {
        let spans = collected.spans();
        (!spans.is_empty()).then_some(spans)
    })
    .await;
    let told = explained(&mut client, request).await;
    check_tree(&spans, request, &told.blocks);
    let resource = collected.resource();
    assert_eq!(text(&resource, "service.name"), "lumpscope");
    let instance = text(&resource, "service.instance.id");
    let host = text(&resource, "host.name");
    assert!(instance.starts_with(&format!("{host}:")), "{instance}");
    let senders = collected.authorizations();
    let known = senders.iter().all(|it| it.as_deref() == Some("Bearer t"));
    assert!(known, "{senders:?}");

    let exemplar = format!("# {{trace_id=\"{TRACE}\"}}");
    let scraped = service.scrape();
    let named = format!("service_instance_id=\"{instance}\"");
    assert!(scraped.contains(&named), "{named}");
    let with_exemplar: Vec<&str> = scraped.lines().filter(|l| l.contains(&exemplar)).collect();
    assert_eq!(with_exemplar.len(), 1, "{with_exemplar:?}");
    let bucket = "lumpscope_request_duration_seconds_bucket{";
    for part in [bucket, "store=\"raw\"", "method=\"put\""] {
        assert!(with_exemplar[0].contains(part), "{with_exemplar:?}");
    }
    let sent = u64::try_from(spans.len()).expect("few");
    // The collector has them before the service knows that it does.
    until("the count of these spans", || {
        let exported = metric(&service, "lumpscope_trace_spans_exported_total");
        (exported.map(|n| format!("{n}")) == Some(sent.to_string())).then_some(())
    })
    .await;
    assert_eq!(metric(&service, "lumpscope_trace_exporter_up"), Some(1.0));

    // The end waits for the spans of what has just ended.
    traced_put(&mut client, 8, MIB, "01").await;
    drop(client);
    assert!(service.stop(), "the service ends well");
    let requests = collected.spans().iter().filter(is_root).count();
    assert_eq!(requests, 2, "only what was sampled, and all of it");
}

fn is_root(span: &&Span) -> bool {
    span.kind() == SpanKind::Server
}

/// One request, its stages, and as their children its block requests.
fn check_tree(spans: &[Span], request: u64, blocks: &[BlockIo]) {
    for span in spans {
        assert_eq!(hex(&span.trace_id), TRACE, "one trace");
        assert_eq!(span.trace_state, "vendor=1");
    }
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
    assert_eq!(ids.len(), spans.len(), "each span has its own id");
    let roots: Vec<&Span> = spans.iter().filter(is_root).collect();
    let [root] = roots[..] else {
        panic!("one request: {roots:?}");
    };
    assert_eq!(hex(&root.parent_span_id), PARENT);
    assert_eq!(root.name, "lumpscope.v1.LumpStore/Put");
    assert_eq!(text(&root.attributes, "rpc.system.name"), "grpc");
    let expected = "lumpscope.v1.LumpStore/Put";
    assert_eq!(text(&root.attributes, "rpc.method"), expected);
    assert_eq!(text(&root.attributes, "rpc.response.status_code"), "OK");
    assert_eq!(text(&root.attributes, "client.address"), "127.0.0.1");
    assert!(number(root, "client.port") > 0);
    assert_eq!(text(&root.attributes, "lumpscope.store"), "raw");
    let expected = i64::try_from(request).expect("small");
    assert_eq!(number(root, "lumpscope.request_id"), expected);
    assert_eq!(number(root, "lumpscope.bytes"), 3 << 20);
    let children = |parent: &Span| -> Vec<&Span> {
        let of = |span: &&Span| span.parent_span_id == parent.span_id;
        spans.iter().filter(of).collect()
    };
    let stages = children(root);
    let names: Vec<&str> = stages.iter().map(|span| &*span.name).collect();
    for name in ["recv", "device", "journal", "reply"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(stages.len() + 1 + blocks.len(), spans.len(), "{names:?}");
    let inside = |span: &Span| {
        let begin = span.start_time_unix_nano >= root.start_time_unix_nano;
        begin && span.end_time_unix_nano <= root.end_time_unix_nano
    };
    assert!(spans.iter().all(inside), "all passes within the request");
    let place = |block: &BlockIo| (block.sector.cast_signed(), i64::from(block.sectors) * 512);
    let of_stage = |name: &str| -> BTreeSet<(i64, i64)> {
        let stage = stages.iter().find(|span| span.name == name);
        let blocks = children(stage.expect("it is there")).into_iter();
        let blocks = blocks.map(|span| {
            assert!(text(&span.attributes, "lumpscope.device").starts_with("loop"));
            assert!(number(span, "lumpscope.device_ns") > 0 || span.name == "flush");
            let sector = number(span, "lumpscope.sector");
            (sector, number(span, "lumpscope.block_bytes"))
        });
        blocks.collect()
    };
    let is_data = |block: &&BlockIo| block.purpose == "data";
    let (data, others): (Vec<&BlockIo>, Vec<&BlockIo>) = blocks.iter().partition(is_data);
    let wanted: BTreeSet<(i64, i64)> = data.into_iter().map(place).collect();
    assert!(!wanted.is_empty());
    assert_eq!(of_stage("device"), wanted);
    assert_eq!(of_stage("journal"), others.into_iter().map(place).collect());
}

/// Puts lumps in one call, and gets them in another.
async fn many(client: &mut Client, ids: std::ops::Range<u128>) {
    let length = |id: u128| usize::try_from(id * 77_777).expect("small");
    let puts = ids.clone().flat_map(|id| {
        let messages = client.put_request("raw", id, content(id, 1, length(id)));
        messages.into_iter().filter_map(|message| {
            let part = match message.part? {
                put_request::Part::Header(header) => put_many_request::Part::Header(header),
                put_request::Part::Chunk(chunk) => put_many_request::Part::Chunk(chunk),
            };
            Some(PutManyRequest { part: Some(part) })
        })
    });
    let puts: Vec<PutManyRequest> = puts.collect();
    let puts = traced(tokio_stream::iter(puts), "01");
    let stored = client.raw().put_many(puts).await;
    let mut stored = stored.expect("taken").into_inner();
    let mut left: BTreeSet<u64> = (0..).zip(ids.clone()).map(|(index, _)| index).collect();
    while let Some(one) = stored.message().await.expect("answered") {
        let is_stored = matches!(one.outcome, Some(put_many_response::Outcome::Stored(_)));
        assert!(is_stored && left.remove(&one.index), "{one:?}");
    }
    assert!(left.is_empty(), "{left:?}");
    let gets = GetManyRequest {
        store: "raw".to_owned(),
        ids: ids.clone().map(id).collect(),
        ..GetManyRequest::default()
    };
    let gets = traced(gets, "01");
    let got = client.raw().get_many(gets).await;
    let mut got = got.expect("taken").into_inner();
    let mut bytes = 0;
    while let Some(one) = got.message().await.expect("answered") {
        if let Some(get_many_response::Part::Chunk(chunk)) = one.part {
            bytes += chunk.len();
        }
    }
    assert_eq!(bytes, ids.map(length).sum::<usize>());
}

/// Lumps are written and read at a time: the stages of the whole call add up to its time all the
/// same, and every span lies within its parent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lumps_in_one_call_are_one_trace_whose_stages_add_up() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    let (collector, collected) = Collected::listen(any()).await;
    let service = serve(&lab, collector, &["--trace-slower-than", "1h"]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    many(&mut client, 1..40).await;
    let spans = until("the spans of both calls", || {
        let spans = collected.spans();
        (spans.iter().filter(is_root).count() == 2).then_some(spans)
    })
    .await;
    for method in ["PutMany", "GetMany"] {
        let name = format!("lumpscope.v1.LumpStore/{method}");
        let root = spans.iter().find(|span| span.name == name);
        let root = root.unwrap_or_else(|| panic!("{method} in {spans:?}"));
        let request_id = number(root, "lumpscope.request_id").cast_unsigned();
        let told = explained(&mut client, request_id).await;
        let stages: u64 = told.stages.iter().map(|stage| stage.total_ns).sum();
        assert_eq!(stages, told.total_ns, "{method}: {:?}", told.stages);
        let took = |span: &Span| span.end_time_unix_nano - span.start_time_unix_nano;
        assert_eq!(took(root), told.total_ns, "{method}");
        assert!(told.block_requests > 39, "{method}: {told:?}");
        check_within(&spans, root);
    }
    drop(client);
    assert!(service.stop(), "the service ends well");
}

/// Every span lies within its parent, down from this one; none of them is cut off.
fn check_within(spans: &[Span], parent: &Span) {
    for span in spans {
        if span.parent_span_id != parent.span_id {
            continue;
        }
        let begins = span.start_time_unix_nano >= parent.start_time_unix_nano;
        let ends = span.end_time_unix_nano <= parent.end_time_unix_nano;
        assert!(begins && ends, "{span:?} in {parent:?}");
        check_within(spans, span);
    }
}

/// Clients that put at a time share flushes and wait for each other's batches; and S3 has clients, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_span_is_linked_with_those_of_the_requests_that_it_names() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    let (collector, collected) = Collected::listen(any()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let keys = s3::keys(folder.path(), "");
    let keys = keys.to_str().expect("plain text");
    let more = ["--s3-listen", "127.0.0.1:0", "--s3-credentials", keys];
    let slow = ["--trace-slower-than", "1us"];
    let service = serve(&lab, collector, &[&more[..], &slow].concat());
    let bucket = s3::BucketClient::new(&service.s3, "bbb", s3::ACCESS, s3::SECRET);
    let made = tokio::task::spawn_blocking(move || bucket.create()).await;
    assert_eq!(made.expect("no panic").map(|(code, _)| code), Some(200));
    let puts = (0..8).map(|of| {
        let grpc = service.grpc.clone();
        tokio::spawn(async move {
            let mut client = Client::connect(&grpc).await.expect("it is up");
            for id in (of * 20)..(of * 20 + 20) {
                let put = client.put("raw", id, content(id, 1, 4096)).await;
                put.expect("it works");
            }
        })
    });
    for put in puts.collect::<Vec<_>>() {
        put.await.expect("no panic");
    }
    let spans = until("a span of each request", || {
        let spans = collected.spans();
        (spans.iter().filter(is_root).count() == 161).then_some(spans)
    })
    .await;
    let mut seen = BTreeSet::new();
    for span in &spans {
        for link in &span.links {
            let linked = |root: &&Span| root.span_id == link.span_id;
            let root = spans.iter().filter(is_root).find(linked);
            let root = root.expect("a link leads to a request that is exported");
            assert_eq!((&root.trace_id, link.flags & 1), (&link.trace_id, 1));
            assert_ne!(root.trace_id, span.trace_id, "it is another request's");
            let relation = text(&link.attributes, "lumpscope.relation");
            if relation == "waited_for" {
                let named = number(span, "lumpscope.waited_for_request_id");
                assert_eq!(named, number(root, "lumpscope.request_id"));
            }
            seen.insert(relation);
        }
    }
    for relation in ["waited_for", "shared", "previous_owner"] {
        assert!(seen.contains(relation), "{relation} in {seen:?}");
    }
    let s3 = spans.iter().filter(is_root);
    let mut s3 = s3.filter(|span| span.name.starts_with("S3/"));
    let s3 = s3.next().expect("the bucket was made");
    assert_eq!(text(&s3.attributes, "client.address"), "127.0.0.1");
    assert!(number(s3, "client.port") > 0);
    assert!(service.stop(), "the service ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_are_kept_and_a_collector_that_is_away_harms_nobody() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    // A port that is free, and on which nobody answers for now.
    let away = std::net::TcpListener::bind(any()).and_then(|listener| listener.local_addr());
    let away = away.expect("a port");
    // Everything is slow by this measure; the ratio is 0.
    let service = serve(&lab, away, &["--trace-slower-than", "1us"]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    for id in 0..20 {
        let put = client.put("raw", id, content(id, 1, 70_000)).await;
        put.expect("it works");
    }
    let failed = "lumpscope_trace_spans_dropped_total{reason=\"export_failed\"}";
    let dropped = until("spans that nobody takes", || {
        metric(&service, failed).filter(|dropped| *dropped > 0.0)
    })
    .await;
    assert!(metric(&service, "lumpscope_trace_export_failures_total") >= Some(1.0));
    assert_eq!(metric(&service, "lumpscope_trace_exporter_up"), Some(0.0));
    assert!(dropped >= 1.0);

    let (_, collected) = Collected::listen(away).await;
    let mut last = 0;
    for id in 100..110 {
        let put = client.put("raw", id, content(id, 1, 70_000)).await;
        last = put.expect("it works").request_id;
    }
    let last = i64::try_from(last).expect("small");
    let kept = |span: &Span| is_root(&span) && number(span, "lumpscope.request_id") == last;
    until("the last put's span", || {
        collected.spans().iter().any(kept).then_some(())
    })
    .await;
    // No parent: the trace is the service's own.
    let spans = collected.spans();
    let root = spans.iter().find(|span| kept(span)).expect("it is there");
    assert!(root.parent_span_id.is_empty() || hex(&root.parent_span_id) == "0".repeat(16));
    assert_ne!(hex(&root.trace_id), "0".repeat(32));
    // The collector has them before the service knows that it does.
    until("an exporter that is up", || {
        (metric(&service, "lumpscope_trace_exporter_up") == Some(1.0)).then_some(())
    })
    .await;
    let exported = until("a count that agrees", || {
        let exported = metric(&service, "lumpscope_trace_spans_exported_total")?;
        let got = u32::try_from(collected.spans().len()).expect("few");
        (exported == f64::from(got)).then_some(exported)
    })
    .await;
    assert!(exported > 0.0);
    assert!(service.stop(), "the service ends well");
}
