//! Metrics at an OpenTelemetry collector, beside those of a scrape.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::traces::until;
use lumpscope_lab::disks::{Lab, StoreKind};
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::collector::Collected;
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, number_data_point,
};

/// Values by the names and labels that the text form gives them.
type Series = BTreeMap<String, f64>;

/// The series of a scrape, without exemplars.
fn scraped(service: &Service) -> Series {
    let text = service.scrape();
    let (_, body) = text.split_once("\r\n\r\n").unwrap_or(("", &text));
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let series = lines.filter_map(|line| {
        let line = line.split(" # ").next()?;
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split_terminator("\",");
        let labels = labels.map(|label| {
            let (name, value) = label.split_once("=\"").expect("a label");
            let value = value.trim_end_matches('"');
            let bound = (name == "le").then(|| value.parse().ok()).flatten();
            (name.to_owned(), bound.map_or(value.to_owned(), shown))
        });
        Some((named(name, labels), value.parse().ok()?))
    });
    series.collect()
}

/// A bound of a bucket.
fn shown(bound: f64) -> String {
    format!("{bound:?}")
}

/// A series by its name and its labels, in the order of these.
fn named(name: &str, labels: impl Iterator<Item = (String, String)>) -> String {
    let mut labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    labels.sort();
    format!("{name}{{{}}}", labels.join(","))
}

fn labels(attributes: &[KeyValue]) -> impl Iterator<Item = (String, String)> {
    attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().and_then(|v| v.value.as_ref());
        let Some(Value::StringValue(text)) = value else {
            panic!("{attribute:?}");
        };
        (attribute.key.clone(), text.clone())
    })
}

fn of_number(name: &str, point: &NumberDataPoint, all: &mut Series) {
    let Some(number_data_point::Value::AsDouble(value)) = point.value else {
        panic!("{name}: {point:?}");
    };
    all.insert(named(name, labels(&point.attributes)), value);
}

fn of_histogram(name: &str, point: &HistogramDataPoint, all: &mut Series) {
    assert_eq!(
        point.bucket_counts.len(),
        point.explicit_bounds.len() + 1,
        "{name}"
    );
    let of = |part: &str| named(&format!("{name}_{part}"), labels(&point.attributes));
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let float = |count: u64| count as f64;
    all.insert(of("sum"), point.sum.expect("a sum"));
    all.insert(of("count"), float(point.count));
    let mut below = 0;
    let bounds = point.explicit_bounds.iter().copied();
    for (bound, count) in bounds.chain([f64::INFINITY]).zip(&point.bucket_counts) {
        below += count;
        let labels = labels(&point.attributes).chain([("le".to_owned(), shown(bound))]);
        all.insert(named(&format!("{name}_bucket"), labels), float(below));
    }
}

/// The series of an export as a scrape would show them. Sums begin at `begins` or later.
fn exported(metrics: &[Metric], begins: u64) -> Series {
    let mut all = Series::new();
    let cumulative = i32::from(AggregationTemporality::Cumulative);
    for metric in metrics {
        let name = &*metric.name;
        match metric.data.as_ref().expect("values") {
            Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    of_number(name, point, &mut all);
                }
            }
            Data::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == cumulative);
                for point in &sum.data_points {
                    let (since, at) = (point.start_time_unix_nano, point.time_unix_nano);
                    let of_machine = name.starts_with("lumpscope_pressure");
                    assert!(since < at && (since >= begins || of_machine), "{name}");
                    of_number(name, point, &mut all);
                }
            }
            Data::Histogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality, cumulative);
                for point in &histogram.data_points {
                    assert!(point.start_time_unix_nano >= begins, "{name}");
                    of_histogram(name, point, &mut all);
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    all
}

fn since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    u64::try_from(since.as_nanos()).expect("not so late")
}

/// The metrics of one export: few enough for one message.
fn metrics_of(collected: &Collected, which: usize) -> Option<Vec<Metric>> {
    let all = collected.metrics();
    let resource = all.get(which)?.resource_metrics[0].clone();
    let scope = resource.scope_metrics[0].clone();
    assert_eq!(scope.scope.expect("a scope").name, "lumpscope");
    Some(scope.metrics)
}

/// A service that sends metrics and all spans to a collector, with a token.
fn serve(lab: &Lab, collector: SocketAddr) -> Service {
    let endpoint = format!("http://{collector}");
    let arguments = [
        "--otlp-endpoint",
        &endpoint,
        "--otlp-metrics-interval",
        "1s",
        "--trace-ratio",
        "1",
    ];
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t")];
    Service::start_within(lab, &arguments, &headers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_what_a_scrape_gets() {
    let Some(_alone) = alone(&[Need::Root]) else {
        return;
    };
    // The kernel tells when a process began in whole seconds of a time of its own.
    let begins = since_1970() - 3_000_000_000;
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    // A port that is free, and on which nobody answers for now.
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let away = std::net::TcpListener::bind(local).and_then(|listener| listener.local_addr());
    let away = away.expect("a port");
    let service = serve(&lab, away);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    for id in 0..20 {
        let put = client.put("raw", id, content(id, 1, 70_000));
        put.await.expect("it works");
        client.get("raw", id).await.expect("it works");
    }
    let count = |result: &str| {
        let result = [("result".to_owned(), result.to_owned())].into_iter();
        let name = named("lumpscope_metric_exports_total", result);
        scraped(&service).get(&name).copied()
    };
    until("exports that nobody takes", || {
        count("failed").filter(|failed| *failed > 0.0)
    })
    .await;

    let (_, collected) = Collected::listen(away).await;
    until("exports that are taken", || {
        count("ok").filter(|ok| *ok > 0.0)
    })
    .await;
    let before = scraped(&service);
    let next = collected.metrics().len() + 1;
    let metrics = until("an export that began after the scrape", || {
        metrics_of(&collected, next)
    })
    .await;
    let after = scraped(&service);
    let told = exported(&metrics, begins);
    for name in before.keys() {
        assert!(told.contains_key(name), "{name} was scraped, not exported");
    }
    let same = |(name, value): &(&String, &f64)| after.get(*name) == Some(*value);
    let kept: Vec<_> = before.iter().filter(same).collect();
    // What moves by itself may have come back between the scrapes.
    let moves = |name: &str| name.starts_with("process_") || name.contains("connections");
    for (name, value) in kept.into_iter().filter(|(name, _)| !moves(name)) {
        assert_eq!(told.get(name), Some(value), "{name}");
    }
    let puts = "lumpscope_requests_total{code=\"OK\",method=\"put\",store=\"raw\"}";
    assert_eq!(told.get(puts), Some(&20.0), "{told:?}");
    let unit = |name: &str| metrics.iter().find(|m| m.name == name).map(|m| &*m.unit);
    assert_eq!(unit("lumpscope_request_duration_seconds"), Some("s"));
    assert_eq!(unit("lumpscope_block_bytes_total"), Some("By"));

    // The end exports once more.
    client
        .put("raw", 99, content(99, 1, 10))
        .await
        .expect("it works");
    drop(client);
    assert!(service.stop(), "the service ends well");
    let last = metrics_of(&collected, collected.metrics().len() - 1).expect("there are some");
    assert_eq!(exported(&last, begins).get(puts), Some(&21.0));
    // Spans and metrics alike say who sends them.
    assert!(!collected.spans().is_empty());
    let who = collected.authorizations();
    assert!(
        who.iter().all(|it| it.as_deref() == Some("Bearer t")),
        "{who:?}"
    );
}
