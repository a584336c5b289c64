//! Self-description of the service: metrics, health, reflection, reports, request ids.

use std::collections::BTreeMap;

use crate::common::*;
use lumpscope_proto::REQUEST_ID_KEY;
use lumpscope_proto::v1;
use lumpscope_server::telemetry::names;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prost::Message as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const MIB: u64 = 1 << 20;

#[test]
fn metrics_md_is_the_table_of_the_code() {
    let document = include_str!("../../METRICS.md");
    let lines = document.split_inclusive('\n');
    let from_it = lines.skip_while(|line| !line.starts_with("| metric |"));
    let table: String = from_it.filter(|line| line.starts_with('|')).collect();
    let want = names::markdown();
    assert!(table == want, "METRICS.md should have this table:\n{want}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_endpoint_exports_what_the_table_says() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    service.put("s", 1, &body(1, 70_000)).await;
    get(&mut service.client, "s", 1).await.unwrap();
    head(&mut service.client, "s", 2).await.unwrap_err();
    // The report waits until the observer has taken in what ended.
    let mut observe = service.observe().await;
    observe.report(v1::ReportRequest::default()).await.unwrap();
    let (status, plain) = service.http_get("/metrics").await;
    assert_eq!(status, 200);
    let counter = "# TYPE lumpscope_requests counter";
    let marks = ["# EOF", "# UNIT", " info\n", counter];
    assert!(!marks.iter().any(|mark| plain.contains(mark)), "{plain}");
    assert!(plain.contains("# TYPE lumpscope_requests_total counter\n"));
    let stream = tokio::net::TcpStream::connect(service.metrics).await;
    let stream = stream.unwrap();
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let (status, text) = crate::door::harness::http_get(stream, "/metrics", accept).await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"));
    let mut types = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{name} twice");
        }
    }
    let want: BTreeMap<&str, &str> = names::ALL.iter().map(|m| (m.name, m.kind.word())).collect();
    assert_eq!(types, want);
    for line in [
        "lumpscope_requests_total{store=\"s\",method=\"put\",code=\"OK\"} 1",
        "lumpscope_requests_total{store=\"s\",method=\"head\",code=\"NOT_FOUND\"} 1",
        "lumpscope_request_duration_seconds_count{store=\"s\",method=\"get\"} 1",
        "lumpscope_request_body_bytes_total{store=\"s\",method=\"put\"} 70000.0",
        "lumpscope_request_body_bytes_total{store=\"s\",method=\"get\"} 70000.0",
        "lumpscope_store_lumps{store=\"s\"} 1.0",
        "lumpscope_store_failed{store=\"s\"} 0.0",
        "lumpscope_body_memory_bytes{direction=\"put\"} 0.0",
        "lumpscope_requests_in_progress 0.0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let (status, text) = service.http_get("/healthz").await;
    assert_eq!((status, text.as_str()), (200, "ok\n"));
    assert_eq!(service.http_get("/nothing").await.0, 404);
    service.stop().await;
}

/// The metrics as Prometheus 3 asks for them.
async fn families(at: std::net::SocketAddr) -> Vec<MetricFamily> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let end = reply.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&reply[..end]).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let kind = "content-type: application/vnd.google.protobuf; proto=io.prometheus";
    assert!(head.contains(kind), "{head}");
    let mut rest = &reply[end + 4..];
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    families
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_protobuf_each_histogram_has_native_and_classic_buckets_of_the_same_count() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    for id in 0..20 {
        service.put("s", id, &body(id, 30_000)).await;
        get(&mut service.client, "s", id).await.unwrap();
    }
    let families = families(service.metrics).await;
    let names: Vec<String> = families.iter().map(|f| f.name.clone()).collect();
    let want: Vec<String> = names::ALL.iter().map(names::Metric::exposed).collect();
    let (mut sorted, mut all) = (names.clone(), want);
    sorted.sort_unstable();
    all.sort_unstable();
    assert_eq!(sorted, all, "each once");
    let duration = names::REQUEST_DURATION.exposed();
    let of = families.iter().find(|f| f.name == duration).unwrap();
    assert!(of.metric.len() >= 2);
    for metric in &of.metric {
        let histogram = metric.histogram.as_ref().unwrap();
        let mut bucket = 0;
        let counts = histogram.positive_delta.iter().map(|delta| {
            bucket += delta;
            u64::try_from(bucket).unwrap()
        });
        let native = histogram.zero_count + counts.sum::<u64>();
        let spans = histogram.positive_span.iter();
        let buckets: usize = spans.map(|span| span.length as usize).sum();
        assert_eq!(buckets, histogram.positive_delta.len());
        let classic = histogram.bucket.last().unwrap();
        assert!(classic.upper_bound.is_infinite());
        assert_eq!(native, histogram.sample_count);
        assert_eq!(classic.cumulative_count, histogram.sample_count);
        assert!(native >= 1 && histogram.bucket.len() == 21);
    }
    let is_one = |method: &str| method == "put" || method == "get";
    let of = of.metric.iter();
    let of = of.filter(|m| m.label.iter().any(|l| is_one(&l.value)));
    let counts = of.map(|m| m.histogram.as_ref().unwrap().sample_count);
    assert!(counts.eq([20, 20]));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_add_up_to_the_whole() {
    let mut service = Running::alone("s", 80 * MIB, 4096, 0.05).await;
    for id in 0..10 {
        // Half of them are written while they come in.
        let len = if id % 2 == 0 { 100_000 } else { 3_000_000 };
        service.put("s", id, &body(id, len)).await;
        get(&mut service.client, "s", id).await.unwrap();
    }
    let mut observe = service.observe().await;
    let request = v1::ReportRequest {
        store: "s".into(),
        ..Default::default()
    };
    let reply = observe.report(request).await.unwrap().into_inner();
    assert!(reply.request_id > 20);
    let report = &reply.stores[0];
    assert_eq!(report.store, "s");
    assert!(!report.observed && !report.not_observed_because.is_empty());
    assert_eq!(report.operations.len(), 2, "{:?}", report.operations);
    for o in &report.operations {
        let sums = (o.count, o.errors, o.bytes);
        assert_eq!(sums, (10, 0, 15_500_000), "{}", o.method);
        let stages: u64 = o.stages.iter().map(|s| s.total_ns).sum();
        assert_eq!(stages, o.total_ns, "{}", o.method);
        let time = |name: &str| {
            let stage = o.stages.iter().find(|s| s.stage == name);
            stage.map_or(0, |s| s.total_ns)
        };
        assert!(time("submit") > 0, "{}: {:?}", o.method, o.stages);
        for commit in ["journal", "write", "flush"] {
            let is_put = o.method == "put";
            assert_eq!(time(commit) > 0, is_put, "{commit}: {:?}", o.stages);
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_has_its_own_request_id() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let reply = service.client.list_stores(v1::ListStoresRequest {}).await;
        let reply = reply.unwrap();
        let id = reply.metadata().get(REQUEST_ID_KEY).unwrap();
        let id = id.to_str().unwrap().to_owned();
        assert_eq!(reply.into_inner().request_id.to_string(), id);
        assert!(seen.insert(id));
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_knows_each_store() {
    let service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut health = HealthClient::new(channel(&service.grpc).await);
    for name in ["", "lumpscope.v1.LumpStore", "store/s"] {
        let request = HealthCheckRequest {
            service: name.to_owned(),
        };
        let reply = health.check(request).await.unwrap().into_inner();
        assert_eq!(reply.status(), ServingStatus::Serving, "{name}");
    }
    let service_name = "store/t".to_owned();
    let request = HealthCheckRequest {
        service: service_name,
    };
    let unknown = health.check(request).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    drop(health);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_lists_the_services() {
    let service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut client = ServerReflectionClient::new(channel(&service.grpc).await);
    let ask = |what| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(what),
    };
    let file = |symbol: &str| ask(MessageRequest::FileContainingSymbol(symbol.into()));
    let questions = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        file("lumpscope.v1.LumpStore"),
        file("google.rpc.ErrorInfo"),
        file("google.rpc.RetryInfo"),
        file("google.rpc.BadRequest"),
    ]);
    let answers = client.server_reflection_info(questions).await;
    let mut answers = answers.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = first else {
        panic!("{first:?}")
    };
    let names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    for name in [
        "lumpscope.v1.LumpStore",
        "lumpscope.v1.Observe",
        "grpc.health.v1.Health",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    for _ in 0..4 {
        let next = answers.message().await.unwrap().unwrap().message_response;
        let is_file = matches!(next, Some(MessageResponse::FileDescriptorResponse(_)));
        assert!(is_file, "{next:?}");
    }
    drop((client, answers));
    service.stop().await;
}
