//! The built-in web page: its files, what it is told, and what slow viewers cost.

mod asked;
mod files;
mod live;
mod viewers;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::common::web::{self, Reply};
use crate::common::*;
use lumpscope_server::config::Rhythm;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A service with stores of these names, for which a second is so long.
async fn service(dir: &Path, names: &[&str], rhythm: Rhythm) -> Running {
    service_with(dir, names, rhythm, |_| ()).await
}

async fn service_with(
    dir: &Path,
    names: &[&str],
    rhythm: Rhythm,
    change: impl FnOnce(&mut lumpscope_server::config::ServeConfig),
) -> Running {
    let path = |name: &&str| store_file(dir, name, 16 * MIB, 4096, 0.05);
    let paths: Vec<_> = names.iter().map(path).collect();
    let stores: Vec<(&str, &Path)> = names
        .iter()
        .zip(&paths)
        .map(|(name, path)| (*name, path.as_path()))
        .collect();
    let mut config = config(&stores);
    config.rhythm = rhythm;
    change(&mut config);
    Running::with(config).await
}

fn every(frame: Duration) -> Rhythm {
    Rhythm {
        frame,
        ..Rhythm::default()
    }
}

const FAST: Duration = Duration::from_millis(20);

async fn ask(service: &Running, path: &str) -> Reply {
    web::get(service.metrics, path, "").await
}

/// Text of the metrics.
async fn metrics(service: &Running) -> String {
    String::from_utf8(ask(service, "/metrics").await.body).unwrap()
}

/// All series of a metric, summed by the values of these labels.
fn sums(metrics: &str, name: &str, labels: &[&str]) -> BTreeMap<Vec<String>, u64> {
    let mut sums = BTreeMap::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix(name).and_then(|r| r.strip_prefix('{')) else {
            continue;
        };
        let (found, value) = rest.split_once("} ").unwrap();
        let of = |label: &&str| {
            let (_, rest) = found.split_once(&format!("{label}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let key = labels.iter().map(of).collect();
        let value = value.split(' ').next().unwrap();
        let value = value.strip_suffix(".0").unwrap_or(value);
        *sums.entry(key).or_insert(0) += value.parse::<u64>().unwrap();
    }
    sums
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}
