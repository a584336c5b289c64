//! One run: a number of connections, each with a number of calls under way, for a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::content::{self, LARGE_BIT, size_of};
use super::{Client, same};
use crate::failure::{call_failed, wrong_bytes};
use crate::load::{Measured, Meter};
use crate::process::Server;

/// Calls of one run before those that are timed, as a part of its length.
const WARM_UP: f64 = 0.25;
/// One of so many gets is compared byte by byte; the others by their length.
const COMPARED: u64 = 32;

/// The kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Call {
    Put,
    Get,
}

/// The task of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    pub(crate) call: Call,
    /// Size of the lumps: 1 or 4.
    pub(crate) mib: u64,
    pub(crate) connections: usize,
}

impl Setting {
    /// All that are measured.
    pub(crate) fn all() -> impl Iterator<Item = Setting> {
        let kinds = [
            (Call::Put, 1),
            (Call::Get, 1),
            (Call::Put, 4),
            (Call::Get, 4),
        ];
        kinds.into_iter().flat_map(|(call, mib)| {
            [1, 4].map(|connections| Setting {
                call,
                mib,
                connections,
            })
        })
    }

    pub(crate) fn name(self) -> String {
        let call = match self.call {
            Call::Put => "put",
            Call::Get => "get",
        };
        let s = if self.connections == 1 { "" } else { "s" };
        format!(
            "{call} {} MiB, {} connection{s}",
            self.mib, self.connections
        )
    }

    /// The id of a lump of this size.
    fn id(self, number: u64) -> u64 {
        if self.mib == 1 {
            number
        } else {
            number | LARGE_BIT
        }
    }
}

/// Where gets find lumps and where puts may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Lumps of a size that are there before the first round, and never overwritten.
    pub(crate) filled: u64,
    /// Lumps of a size behind them, which puts overwrite again and again.
    pub(crate) puts: u64,
}

impl Room {
    /// A quarter of the store holds what is got, a quarter is overwritten, for each of the two
    /// sizes in turn; half stays free, because a lump that is replaced stays until the new one is
    /// safe.
    pub(crate) fn of(store_mib: u64, mib: u64) -> Room {
        let lumps = (store_mib / 8 / mib).max(1);
        Room {
            filled: lumps,
            puts: lumps,
        }
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) measured: Measured,
    /// Processor time of the server for each GiB.
    pub(crate) cpu_seconds_per_gib: f64,
}

/// Connections to one server, used in all rounds.
pub(crate) struct Clients {
    clients: Vec<Client>,
    who: &'static str,
    next: Arc<AtomicU64>,
}

impl Clients {
    pub(crate) async fn connect(server: &Server, count: usize) -> anyhow::Result<Clients> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(super::connect(server.who, &server.url).await?);
        }
        Ok(Clients {
            clients,
            who: server.who,
            next: Arc::default(),
        })
    }

    /// Puts what will be got.
    pub(crate) async fn fill(&mut self, setting: Setting, room: Room) -> anyhow::Result<()> {
        for number in 0..room.filled {
            let id = setting.id(number);
            super::put(&mut self.clients[0], id, content::body(id, size_of(id)))
                .await
                .map_err(call_failed(self.who, "put"))?;
        }
        Ok(())
    }

    /// One run. Calls that are under way when the time is over are waited for, and do not count.
    pub(crate) async fn run(
        &self,
        server: &Server,
        setting: Setting,
        room: Room,
        calls: usize,
        time: Duration,
    ) -> anyhow::Result<Outcome> {
        let begin = Instant::now() + time.mul_f64(WARM_UP);
        let end = begin + time;
        let mut tasks = tokio::task::JoinSet::new();
        for client in self
            .clients
            .iter()
            .cycle()
            .take(setting.connections * calls)
        {
            let worker = Worker {
                client: client.clone(),
                who: self.who,
                setting,
                room,
                next: Arc::clone(&self.next),
            };
            tasks.spawn(worker.work(begin, end));
        }
        tokio::time::sleep_until(begin.into()).await;
        let cpu = server.cpu_seconds()?;
        tokio::time::sleep_until(end.into()).await;
        let cpu = server.cpu_seconds()? - cpu;
        let mut meter = Meter::new();
        meter.add_time(time);
        for latencies in super::finish(tasks).await? {
            for latency in latencies {
                meter.request(setting.mib << 20, latency);
            }
        }
        let measured = meter.finish();
        let gib = crate::human::as_float(measured.bytes) / crate::human::as_float(1 << 30);
        Ok(Outcome {
            measured,
            cpu_seconds_per_gib: cpu / gib,
        })
    }
}

/// One call after the other.
struct Worker {
    client: Client,
    who: &'static str,
    setting: Setting,
    room: Room,
    next: Arc<AtomicU64>,
}

impl Worker {
    async fn work(mut self, begin: Instant, end: Instant) -> anyhow::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let latency = match self.setting.call {
                Call::Put => self.put(number).await?,
                Call::Get => self.get(number).await?,
            };
            let now = Instant::now();
            if now >= begin && now < end {
                latencies.push(latency);
            }
        }
        Ok(latencies)
    }

    async fn put(&mut self, number: u64) -> anyhow::Result<Duration> {
        let id = self.setting.id(self.room.filled + number % self.room.puts);
        let body = content::body(id, size_of(id));
        super::put(&mut self.client, id, body)
            .await
            .map_err(call_failed(self.who, "put"))
    }

    async fn get(&mut self, number: u64) -> anyhow::Result<Duration> {
        let id = self.setting.id(fastrand::u64(0..self.room.filled));
        let (latency, pieces) = super::get(&mut self.client, id)
            .await
            .map_err(call_failed(self.who, "get"))?;
        let length: usize = pieces.iter().map(bytes::Bytes::len).sum();
        let right = length == size_of(id)
            && (!number.is_multiple_of(COMPARED) || same(&pieces, &content::body(id, size_of(id))));
        if right {
            return Ok(latency);
        }
        Err(wrong_bytes(self.who, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_name_and_ids_of_its_size() {
        let names: std::collections::BTreeSet<String> = Setting::all().map(Setting::name).collect();
        assert_eq!(names.len(), 8, "{names:?}");
        assert!(names.contains("put 1 MiB, 1 connection"), "{names:?}");
        for setting in Setting::all() {
            assert_eq!(size_of(setting.id(3)) as u64, setting.mib << 20);
        }
    }

    #[test]
    fn half_of_the_store_stays_free() {
        let used = |mib| {
            let room = Room::of(1024, mib);
            (room.filled + room.puts) * mib
        };
        assert!(used(1) + used(4) <= 512);
    }
}
