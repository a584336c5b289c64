//! The metrics as bytes, in the forms that scrapers ask for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    Histogram, LabelPair, MetricFamily,
};
use prometheus_client::encoding::{prometheus_protobuf, text};
use prometheus_client::registry::Registry;
use prost::Message as _;

use super::Sources;
use super::collector::{MetricsFormat, ServiceCollector};
use super::plain::plain;

/// All metrics of the service, read when they are asked for.
#[derive(Debug)]
pub(crate) struct Metrics {
    text: Registry,
    protobuf: Registry,
}

impl Metrics {
    /// The metrics of these sources.
    pub(crate) fn new(sources: Sources) -> Self {
        let sources = Arc::new(sources);
        let registry = |form| {
            let mut registry = Registry::default();
            let collector = ServiceCollector::new(Arc::clone(&sources), form);
            registry.register_collector(Box::new(collector));
            registry
        };
        Self {
            text: registry(MetricsFormat::OpenMetrics),
            protobuf: registry(MetricsFormat::Protobuf),
        }
    }

    /// All of them, in this form.
    ///
    /// # Errors
    /// When a value cannot be written.
    pub(crate) fn write(&self, form: MetricsFormat) -> Result<Vec<u8>, fmt::Error> {
        match form {
            MetricsFormat::OpenMetrics => self.text().map(String::into_bytes),
            MetricsFormat::Plain => self.text().map(|text| plain(&text).into_bytes()),
            MetricsFormat::Protobuf => self.protobuf(),
        }
    }

    fn text(&self) -> Result<String, fmt::Error> {
        let mut written = String::new();
        text::encode(&mut written, &self.text)?;
        Ok(written)
    }

    /// As `io.prometheus.client.MetricFamily` messages, each after its length: histograms have
    /// native and classic buckets.
    fn protobuf(&self) -> Result<Vec<u8>, fmt::Error> {
        let families = prometheus_protobuf::encode(&self.protobuf)?;
        let mut written = Vec::new();
        for family in with_exemplars(families) {
            let writing = family.encode_length_delimited(&mut written);
            writing.map_err(|_| fmt::Error)?;
        }
        Ok(written)
    }
}

/// Where a family comes twice, the second has the exemplars of the first.
fn with_exemplars(families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    let mut joined: Vec<MetricFamily> = Vec::with_capacity(families.len());
    for family in families {
        match joined.last_mut() {
            Some(last) if last.name == family.name => take_exemplars(last, family),
            _ => joined.push(family),
        }
    }
    joined
}

fn take_exemplars(family: &mut MetricFamily, from: MetricFamily) {
    let of = from.metric.into_iter();
    let mut of: HashMap<Vec<LabelPair>, Histogram> = of
        .filter_map(|metric| Some((metric.label, metric.histogram?)))
        .collect();
    for metric in &mut family.metric {
        let from = of.remove(&metric.label);
        let (Some(histogram), Some(from)) = (&mut metric.histogram, from) else {
            continue;
        };
        for (bucket, from) in histogram.bucket.iter_mut().zip(from.bucket) {
            bucket.exemplar = from.exemplar;
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
        Bucket, Exemplar, Metric,
    };

    use super::*;

    fn family(name: &str, store: &str, count: u64, trace: Option<f64>) -> MetricFamily {
        let label = LabelPair {
            name: "store".to_owned(),
            value: store.to_owned(),
        };
        let exemplar = trace.map(|value| Exemplar {
            value,
            ..Exemplar::default()
        });
        let bucket = Bucket {
            cumulative_count: count,
            exemplar,
            ..Bucket::default()
        };
        let histogram = Histogram {
            bucket: vec![bucket],
            sample_count: count,
            ..Histogram::default()
        };
        MetricFamily {
            name: name.to_owned(),
            metric: vec![Metric {
                label: vec![label],
                histogram: Some(histogram),
                ..Metric::default()
            }],
            ..MetricFamily::default()
        }
    }

    #[test]
    fn exemplars_move_to_the_series_with_the_same_labels_and_counts_stay() {
        let joined = with_exemplars(vec![
            family("a", "s", 3, None),
            family("a", "s", 2, Some(0.5)),
            family("b", "s", 3, None),
            family("b", "another", 2, Some(0.5)),
        ]);
        let found: Vec<_> = joined
            .iter()
            .map(|family| {
                let histogram = family.metric[0].histogram.as_ref().unwrap();
                let bucket = &histogram.bucket[0];
                let exemplar = bucket.exemplar.as_ref().map(|e| e.value.to_string());
                (&*family.name, bucket.cumulative_count, exemplar)
            })
            .collect();
        let expected = [("a", 3, Some("0.5".to_owned())), ("b", 3, None)];
        assert_eq!(found, expected, "the second has no series in common");
    }
}
