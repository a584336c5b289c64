//! Families of Prometheus as metrics of OTLP, under the names that queries use.
//!
//! Counters are cumulative sums and histograms have explicit bounds. A series whose count has
//! fallen, or that was absent, has begun anew since the reading before.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, Sum, exemplar, number_data_point,
};
use prometheus::{LabelPair, MetricFamily, MetricType};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as prometheus;

use crate::telemetry::names;

/// Reads one series after the other, and knows since when each counts.
#[derive(Debug)]
pub(super) struct Points {
    /// Begin and count of every series of the last reading.
    known: HashMap<(String, Vec<LabelPair>), (u64, f64)>,
    /// Time of the last reading in nanoseconds since 1970; before the first, when the service began.
    last: u64,
    /// When the machine was started: the kernel counts pressure from then on.
    boot: u64,
}

impl Points {
    /// Of a service that began at a time in nanoseconds since 1970, on a machine that was started
    /// at `boot`.
    pub(super) fn new(begun: u64, boot: u64) -> Self {
        Self {
            known: HashMap::new(),
            last: begun,
            boot,
        }
    }

    /// Every family that has a series, read at `now` (nanoseconds since 1970).
    pub(super) fn of(&mut self, families: Vec<MetricFamily>, now: u64) -> Vec<Metric> {
        let before = std::mem::take(&mut self.known);
        let families = families.into_iter().filter(|f| !f.metric.is_empty());
        let metrics = families.map(|f| self.metric(f, &before, now)).collect();
        self.last = now;
        metrics
    }

    fn metric(
        &mut self,
        family: MetricFamily,
        before: &HashMap<(String, Vec<LabelPair>), (u64, f64)>,
        now: u64,
    ) -> Metric {
        let temporality = AggregationTemporality::Cumulative.into();
        let kind = family.r#type();
        let (name, series) = (family.name, family.metric.into_iter());
        let data = match kind {
            MetricType::Counter => Data::Sum(Sum {
                data_points: series
                    .map(|s| {
                        let value = s.counter.map_or(0.0, |counter| counter.value);
                        let since = self.since(&name, &s.label, value, before);
                        number(s.label, value, since, now)
                    })
                    .collect(),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            MetricType::Histogram => Data::Histogram(Histogram {
                data_points: series
                    .map(|s| {
                        let from = s.histogram.unwrap_or_default();
                        let count = from.bucket.last().map_or(0, |b| b.cumulative_count);
                        let count = count.max(from.sample_count);
                        #[expect(clippy::cast_precision_loss, reason = "compared with its like")]
                        let since = self.since(&name, &s.label, count as f64, before);
                        HistogramDataPoint {
                            attributes: attributes(s.label),
                            start_time_unix_nano: since,
                            time_unix_nano: now,
                            ..histogram(from, count)
                        }
                    })
                    .collect(),
                aggregation_temporality: temporality,
            }),
            _ => Data::Gauge(Gauge {
                data_points: series
                    .map(|s| number(s.label, s.gauge.map_or(0.0, |gauge| gauge.value), 0, now))
                    .collect(),
            }),
        };
        Metric {
            description: family.help,
            unit: unit(&family.unit).to_owned(),
            data: Some(data),
            name,
            ..Metric::default()
        }
    }

    /// Since when a series counts, which is remembered.
    fn since(
        &mut self,
        name: &str,
        labels: &[LabelPair],
        count: f64,
        before: &HashMap<(String, Vec<LabelPair>), (u64, f64)>,
    ) -> u64 {
        let key = (name.to_owned(), labels.to_vec());
        let since = match before.get(&key) {
            Some((since, last)) if *last <= count => *since,
            None if before.is_empty() && is_of_machine(name) => self.boot,
            _ => self.last,
        };
        self.known.insert(key, (since, count));
        since
    }
}

/// Whether the kernel counts this for the whole machine.
fn is_of_machine(name: &str) -> bool {
    name.strip_suffix("_total") == Some(names::PRESSURE.name)
}

/// Units in the words of UCUM, which OTLP uses.
fn unit(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        other => other,
    }
}

fn number(labels: Vec<LabelPair>, value: f64, since: u64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// Buckets that count for themselves, and one more for all beyond the last bound.
fn histogram(from: prometheus::Histogram, count: u64) -> HistogramDataPoint {
    let mut point = HistogramDataPoint {
        count,
        sum: Some(from.sample_sum),
        ..HistogramDataPoint::default()
    };
    let mut below = 0;
    for bucket in from.bucket {
        point.exemplars.extend(bucket.exemplar.map(exemplar));
        // The last bound may be written as the largest number, or as infinite.
        if bucket.upper_bound < f64::MAX {
            point.explicit_bounds.push(bucket.upper_bound);
            point.bucket_counts.push(bucket.cumulative_count - below);
            below = bucket.cumulative_count;
        }
    }
    point.bucket_counts.push(count - below);
    point
}

fn exemplar(from: prometheus::Exemplar) -> Exemplar {
    let trace = from.label.iter().find(|label| label.name == "trace_id");
    let trace = trace.and_then(|label| u128::from_str_radix(&label.value, 16).ok());
    let at = from.timestamp.and_then(|at| {
        let seconds = u64::try_from(at.seconds).ok()?;
        Some(seconds * 1_000_000_000 + u64::try_from(at.nanos).ok()?)
    });
    Exemplar {
        time_unix_nano: at.unwrap_or(0),
        trace_id: trace.map_or(Vec::new(), |id| id.to_be_bytes().to_vec()),
        value: Some(exemplar::Value::AsDouble(from.value)),
        ..Exemplar::default()
    }
}

fn attributes(labels: Vec<LabelPair>) -> Vec<KeyValue> {
    let attribute = |label: LabelPair| KeyValue {
        key: label.name,
        value: Some(AnyValue {
            value: Some(Value::StringValue(label.value)),
        }),
        ..KeyValue::default()
    };
    labels.into_iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use prometheus::{Bucket, Counter};

    use super::*;

    fn counter(name: &str, value: f64) -> MetricFamily {
        MetricFamily {
            name: name.to_owned(),
            r#type: MetricType::Counter.into(),
            unit: "bytes".to_owned(),
            metric: vec![prometheus::Metric {
                counter: Some(Counter {
                    value,
                    ..Counter::default()
                }),
                ..prometheus::Metric::default()
            }],
            ..MetricFamily::default()
        }
    }

    fn since(metrics: &[Metric]) -> Vec<u64> {
        let of = |metric: &Metric| match &metric.data {
            Some(Data::Sum(sum)) => sum.data_points[0].start_time_unix_nano,
            other => panic!("{other:?}"),
        };
        metrics.iter().map(of).collect()
    }

    #[test]
    fn a_series_counts_from_the_start_until_it_falls_or_was_absent() {
        let mut points = Points::new(100, 7);
        let pressure = "lumpscope_pressure_seconds_total";
        let first = points.of(vec![counter("a", 5.0), counter(pressure, 1.0)], 110);
        assert_eq!(since(&first), [100, 7]);
        assert_eq!((&*first[0].name, &*first[0].unit), ("a", "By"));
        let second = vec![counter("a", 5.0), counter("b", 1.0), counter(pressure, 2.0)];
        assert_eq!(since(&points.of(second, 120)), [100, 110, 7]);
        assert_eq!(since(&points.of(vec![counter("a", 4.0)], 130)), [120]);
        let back = vec![counter("a", 9.0), counter("b", 9.0)];
        assert_eq!(since(&points.of(back, 140)), [120, 130]);
    }

    #[test]
    fn buckets_count_for_themselves_and_the_last_has_the_rest() {
        let bucket = |upper_bound, cumulative_count| Bucket {
            upper_bound,
            cumulative_count,
            ..Bucket::default()
        };
        let trace = LabelPair {
            name: "trace_id".to_owned(),
            value: format!("{:032x}", 0xabc),
        };
        let mut from = prometheus::Histogram {
            sample_count: 9,
            sample_sum: 4.5,
            bucket: vec![bucket(1.0, 2), bucket(2.0, 5), bucket(4.0, 6)],
            ..prometheus::Histogram::default()
        };
        from.bucket[1].exemplar = Some(prometheus::Exemplar {
            value: 1.5,
            label: vec![trace],
            ..prometheus::Exemplar::default()
        });
        let point = histogram(from.clone(), 9);
        assert_eq!(point.explicit_bounds, [1.0, 2.0, 4.0]);
        assert_eq!(point.bucket_counts, [2, 3, 1, 3]);
        assert_eq!((point.count, point.sum), (9, Some(4.5)));
        let [exemplar] = &point.exemplars[..] else {
            panic!("{:?}", point.exemplars);
        };
        assert_eq!(exemplar.trace_id, 0xabc_u128.to_be_bytes());
        from.bucket.push(bucket(f64::INFINITY, 9));
        assert_eq!(histogram(from, 9).bucket_counts, [2, 3, 1, 3]);
    }
}
