//! Writes series under the names of the table, in the form that was asked for.

use std::fmt;

use lumpscope_observer::StoreReport;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::collector::Snapshot;
use super::heat::{HeatHistograms, float};
use super::names::{Metric, MetricKind};

/// Writes series under the names of the table.
pub(super) struct Out<'a, 'b> {
    pub(super) encoder: &'a mut DescriptorEncoder<'b>,
}

impl Out<'_, '_> {
    fn describe(
        &mut self,
        metric: &Metric,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let (name, unit) = metric.split_unit();
        let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match metric.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
            MetricKind::Info => MetricType::Info,
        };
        write(
            self.encoder
                .encode_descriptor(name, metric.help, unit.as_ref(), kind)?,
        )
    }

    pub(super) fn family(&mut self, metric: &Metric, family: &impl EncodeMetric) -> fmt::Result {
        self.describe(metric, |encoder| family.encode(encoder))
    }

    pub(super) fn info(&mut self, metric: &Metric, series: Vec<Vec<String>>) -> fmt::Result {
        self.describe(metric, |mut encoder| {
            for values in &series {
                let values = values.iter().map(String::as_str).collect();
                encoder.encode_info(&labels(metric, values))?;
            }
            Ok(())
        })
    }

    /// Series of a counter or a gauge: values of its labels, and a number.
    pub(super) fn numbers<'s>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (Vec<&'s str>, f64)>,
    ) -> fmt::Result {
        let write = |encoder: &mut MetricEncoder<'_>, value| match metric.kind {
            MetricKind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
            _ => encoder.encode_gauge(&value),
        };
        self.describe(metric, |mut encoder| {
            for (values, value) in series {
                if values.is_empty() {
                    write(&mut encoder, value)?;
                } else {
                    let labels = labels(metric, values);
                    write(&mut encoder.encode_family(&labels)?, value)?;
                }
            }
            Ok(())
        })
    }

    /// A number of each store.
    pub(super) fn of_stores(
        &mut self,
        metric: &Metric,
        stores: &[Snapshot<'_>],
        value: impl Fn(&Snapshot<'_>) -> u64,
    ) -> fmt::Result {
        let series = stores
            .iter()
            .map(|s| (vec![&*s.named.name], float(value(s))));
        self.numbers(metric, series)
    }

    pub(super) fn histogram(
        &mut self,
        metric: &Metric,
        stores: &[Snapshot<'_>],
        of: fn(&StoreReport) -> HeatHistograms,
    ) -> fmt::Result {
        self.describe(metric, |mut encoder| {
            for s in stores {
                for ((first, second), buckets) in of(&s.report) {
                    let mut values = vec![&*s.named.name, &*first, &*second];
                    values.truncate(metric.labels.len());
                    let native = buckets.native.encode();
                    encoder
                        .encode_family(&labels(metric, values))?
                        .encode_histogram_with_native::<NoLabelSet>(
                            buckets.sum,
                            buckets.count,
                            &buckets.bounds,
                            None,
                            native.histogram(),
                        )?;
                }
            }
            Ok(())
        })
    }
}

/// Names and values of a series' labels.
fn labels<'s>(metric: &Metric, values: Vec<&'s str>) -> Vec<(&'static str, &'s str)> {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    metric.labels.iter().copied().zip(values).collect()
}
