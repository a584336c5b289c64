//! Every query of every dashboard and rule, asked of real Prometheus servers that scrape a real service under load: 2.x
//! with classic histograms and 3.x with native ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lumpscope_lab::disks::StoreKind;
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::collector::Collected;
use lumpscope_tests::grafana::{self, Query, QueryKind};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::prometheus::{Prometheus, Series, Version, now};
use lumpscope_tests::service::{Service, lab_with_stores, words};
use serde_json::Value;
use tokio::task::JoinHandle;

/// Longest that is waited for data: rates need several scrapes, rules several evaluations.
const PATIENCE: Duration = Duration::from_secs(300);
const STORES: [&str; 3] = ["raw", "ext4", "xfs"];
/// Metrics on the left of an alert that this service does not export, with the reason.
const NOT_HERE: [(&str, &str); 1] = [(
    "lumpscope_certificate_not_after_timestamp_seconds",
    "the service serves without TLS",
)];

fn dashboards() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.with_file_name("dashboards")
}

/// Puts, gets and deletes in every store until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(service: &Service) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = Vec::new();
        for store in STORES {
            let client = Client::connect(&service.grpc).await.expect("it is up");
            running.push(tokio::spawn(one(client, store, Arc::clone(&stop))));
        }
        Load { stop, running }
    }

    /// Stops, and insists that nothing has failed.
    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.running {
            task.await.expect("the load went well");
        }
    }
}

async fn one(mut client: Client, store: &'static str, stop: Arc<AtomicBool>) {
    const LUMPS: u128 = 40;
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let id = u128::from(round * 7) % LUMPS;
        let length = 100_000 + usize::try_from(round % 5).expect("small") * 90_000;
        let body = content(id, round, length);
        let put = client.put(store, id, body.clone()).await;
        put.expect("a put works");
        let got = client.get(store, id).await.expect("a get works");
        assert!(got == body, "what was put comes back");
        if round % 4 == 0 {
            let delete = lumpscope_proto::v1::DeleteRequest {
                store: store.to_owned(),
                id: Some(lumpscope_tests::client::id(id)),
                ..Default::default()
            };
            client.raw().delete(delete).await.expect("a delete works");
            let missing = client.get(store, id).await.expect_err("it is gone");
            assert_eq!(missing.code(), tonic::Code::NotFound);
        }
        // Gentle: the servers and other tests want to run too.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// True: the reason for which a query may be empty holds here. Most do not: this service has a collector, statistics of
/// its programs and a guard; but it serves no S3.
fn excused(version: Version, query: &Query) -> bool {
    query.may_be_empty.as_ref().is_some_and(|reason| {
        let before_3 = reason.starts_with("Prometheus before 3");
        let of_pressure = reason.contains("does not tell of pressure");
        let calm = of_pressure && !Path::new("/proc/pressure").exists();
        let mut holds = "serves without TLS|has no S3 endpoint|need have happened".split('|');
        let holds = holds.any(|part| reason.contains(part));
        calm || (before_3 && version == Version::Two) || holds
    })
}

/// Problem of a query; `None`: none.
fn wrong(server: &Prometheus, query: &Query) -> Option<String> {
    let found = match &query.asked {
        QueryKind::Expression(expr) => server
            .range(expr, grafana::RANGE, 5)
            .map(|series| series.iter().any(|series| !series.values.is_empty())),
        QueryKind::LabelValues { of, label } => server
            .ask(&format!("label/{label}/values"), &[("match[]", of)])
            .map(|values| values.as_array().is_some_and(|values| !values.is_empty())),
    };
    let why = match found {
        Ok(true) => return None,
        Ok(false) if excused(server.version, query) => return None,
        Ok(false) => "has no data".to_owned(),
        Err(error) => format!("is refused: {error}"),
    };
    let (version, place, asked) = (server.version, &query.place, &query.asked);
    Some(format!("{version}: {place} {why}: {asked:?}"))
}

/// Asks until nothing is wrong any more, and panics with what still is when patience ends.
fn until_right<T>(mut open: Vec<T>, wrong: impl Fn(&T) -> Option<String>) {
    let begun = Instant::now();
    loop {
        let mut failures = Vec::new();
        open.retain(|one| {
            let failure = wrong(one);
            let keep = failure.is_some();
            failures.extend(failure);
            keep
        });
        if open.is_empty() {
            return;
        }
        let (count, all) = (failures.len(), failures.join("\n"));
        assert!(begun.elapsed() < PATIENCE, "{count} remain:\n{all}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Names of metrics in an expression: of this service, its process, and `up`.
fn metrics(expr: &str) -> BTreeSet<String> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let ours =
        |word: &&str| word.contains("lumpscope_") || word.starts_with("process_") || *word == "up";
    let words = expr.split(|c| !part_of_name(c)).filter(ours);
    words.map(str::to_owned).collect()
}

fn rules(loaded: &Value) -> Option<impl Iterator<Item = &Value>> {
    let groups = loaded["groups"].as_array()?.iter();
    Some(
        groups
            .filter_map(|group| group["rules"].as_array())
            .flatten(),
    )
}

/// The rules that a server has loaded: each is in order, what is recorded has data, and what an alert looks at exists.
fn check_rules(server: &Prometheus) {
    let version = server.version;
    let mut records = Vec::new();
    let mut looked_at = BTreeSet::new();
    until_right(vec![()], |()| {
        let loaded = server.ask("rules", &[]).ok()?;
        let bad = rules(&loaded)?.filter(|rule| rule["health"] != "ok");
        let bad = bad.map(|rule| {
            let [name, health, error] = ["name", "health", "lastError"].map(|key| &rule[key]);
            format!("{version}: {name}: {health} {error}\n")
        });
        Some(bad.collect::<String>()).filter(|bad| !bad.is_empty())
    });
    let loaded = server.ask("rules", &[]).expect("rules are loaded");
    for rule in rules(&loaded).expect("they are grouped") {
        let (name, query) = (rule["name"].as_str(), rule["query"].as_str());
        let (name, query) = (name.expect("it has one"), query.expect("it has one"));
        if rule["type"] == "recording" {
            records.push((format!("what {name} is made of"), query.to_owned()));
            records.push((name.to_owned(), name.to_owned()));
        } else {
            let answer = server.range(query, grafana::RANGE, 5);
            answer.unwrap_or_else(|error| panic!("{version}: {name} is refused: {error}"));
            looked_at.extend(metrics(query));
        }
    }
    assert!(records.len() > 20 && looked_at.len() > 20, "{looked_at:?}");
    until_right(records, |(name, expr)| {
        let found = server.range(expr, grafana::RANGE, 5);
        let found = match found {
            Ok(series) if series.iter().any(|s| !s.values.is_empty()) => return None,
            Ok(_) => "has no data".to_owned(),
            Err(error) => error,
        };
        Some(format!("{version}: rule {name}: {found}"))
    });
    let here = |name: &String| NOT_HERE.iter().all(|(not, _)| not != name);
    until_right(looked_at.into_iter().filter(here).collect(), |name| {
        let found = server.instant(&format!("count({name})"));
        let there = found.is_ok_and(|series| !series.is_empty());
        (!there).then(|| format!("{version}: an alert looks at {name}, which is not there"))
    });
}

/// Every exemplar of the latency histogram leads to a trace that the collector has.
fn check_exemplars(server: &Prometheus, collected: &Collected) {
    until_right(vec![()], |()| {
        let (start, end) = ((now() - 3600).to_string(), now().to_string());
        let query = "{__name__=~\"lumpscope_request_duration_seconds.*\"}";
        let asked = [("query", query), ("start", &start), ("end", &end)];
        let found = server.ask("query_exemplars", &asked);
        let found = found.expect("it can be asked");
        let exemplars = found.as_array().into_iter().flatten();
        let exemplars = exemplars.filter_map(|series| series["exemplars"].as_array());
        let traces = exemplars.flatten().filter_map(|exemplar| {
            let id = exemplar["labels"]["trace_id"].as_str()?;
            Some(id.to_owned())
        });
        let traces: BTreeSet<String> = traces.collect();
        let spans = collected.spans();
        let hex = |id: &[u8]| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() };
        let known: BTreeSet<String> = spans.iter().map(|span| hex(&span.trace_id)).collect();
        let (count, missing) = (traces.len(), traces.difference(&known).count());
        let version = server.version;
        (count == 0 || missing > 0)
            .then(|| format!("{version}: {count} exemplars, {missing} without a trace"))
    });
}

/// The only value of an expression, which is waited for.
fn value(server: &Prometheus, expr: &str) -> f64 {
    let mut found = None;
    let begun = Instant::now();
    while found.is_none() && begun.elapsed() < PATIENCE {
        let series = server.instant(expr);
        let series: Vec<Series> = series.unwrap_or_else(|e| panic!("{expr}: {e}"));
        let first = series.first();
        found = first.and_then(|series| series.values.first().copied());
        std::thread::sleep(Duration::from_millis(200));
    }
    found.unwrap_or_else(|| panic!("no data: {expr}"))
}

/// Native and classic histograms have the same counts, and their quantiles differ by less than a classic bucket.
fn check_native(server: &Prometheus) {
    // Name, and how much wider a classic bucket is than where it begins; `None`: it has values on both sides of 0.
    for (name, step) in [
        ("lumpscope_request_duration_seconds", Some(2.0)),
        ("lumpscope_block_device_time_seconds", Some(2.0)),
        ("lumpscope_block_seek_device_time_seconds", Some(8.0)),
        ("lumpscope_block_seek_distance_bytes", Some(8.0)),
        ("lumpscope_block_signed_seek_bytes", None),
    ] {
        // Both are of the same scrape: at no time may they differ.
        let differ = format!("count(histogram_count({name}) != {name}_count) or vector(0)");
        let both = format!("count(histogram_count({name}) == {name}_count)");
        assert!(value(server, &both) >= 3.0, "{name} has native buckets");
        assert!(value(server, &differ) < 0.5, "{name} counts differently");
        let Some(step) = step else { continue };
        for quantile in [0.5, 0.9, 0.99] {
            let of = |classic: &str, by: &str| {
                let series = format!("{name}{classic}{{store=\"ext4\"}}");
                format!("histogram_quantile({quantile}, sum by (store{by}) ({series}))")
            };
            let ratio = format!("({}) / ({})", of("", ""), of("_bucket", ", le"));
            let ratio = value(server, &ratio);
            // A native bucket of device time begins 7 % lower, one of latency is 9 % wide.
            let most = step * 1.1;
            let near = ratio < most && ratio > 1.0 / most;
            assert!(near, "{name}, {quantile}: native / classic = {ratio}");
        }
    }
}

/// A request that began where the previous one ended has no seek distance: two counters of the
/// kernel side that must agree, but for requests of unknown device time.
fn check_no_seeks(server: &Prometheus) {
    until_right(STORES.to_vec(), |store| {
        let of = |metric: &str, labels: &str| {
            let series = format!("lumpscope_{metric}{{store=\"{store}\"{labels}}}");
            value(server, &format!("sum({series})"))
        };
        let none = of("block_seek_distance_bytes_bucket", ",le=\"0.0\"");
        let sequential = of("block_sequential_requests_total", "");
        let timeless = of("audit_found_late_requests_total", "");
        let right = sequential > 0.0 && (sequential - none).abs() <= timeless;
        let counts = format!("{none} without a seek, {sequential} sequential");
        (!right).then(|| format!("{store}: {counts}, {timeless} without a time"))
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_dashboards_and_rules_returns_data_from_both_prometheus() {
    let [two, three] = [Version::Two, Version::Three].map(|it| Need::Tool(it.program()));
    let needs = [Need::Root, two, three];
    let Some(_alone) = alone(&needs) else { return };
    let (queries, count) = grafana::queries(&dashboards().join("grafana/dashboards"));
    assert!(count >= 5 && queries.len() > 50, "{count} dashboards");
    let any = "127.0.0.1:0".parse().expect("an address");
    let (collector, collected) = Collected::listen(any).await;
    let lab = lab_with_stores(&StoreKind::ALL, 512 << 20, "200M");
    let endpoint = format!("http://{collector}");
    let more = "--trace-ratio 0.2 --guard audit --scrub-rate 8M --program-statistics";
    let more = [&words(more)[..], &["--otlp-endpoint", &endpoint]].concat();
    let service = Service::start(&lab, &more);
    let rules = dashboards().join("prometheus");
    let (recording, alerts) = (rules.join("rules.yml"), rules.join("alerts.yml"));
    let servers = [Version::Two, Version::Three]
        .map(|version| Prometheus::start(version, &service.metrics, &[&recording, &alerts]));
    let load = Load::start(&service).await;
    for server in &servers {
        until_right(queries.clone(), |query| wrong(server, query));
        check_rules(server);
        check_exemplars(server, &collected);
    }
    check_native(&servers[1]);
    load.stop().await;
    servers.iter().for_each(check_no_seeks);
    drop(servers);
    assert!(service.stop(), "the service ends well");
}
