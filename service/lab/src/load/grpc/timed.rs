//! One run: a number of connections, each with a number of calls in flight, for a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tonic::{Code, Status};

use super::content::{self, LARGE_BIT, size_of};
use super::{Client, same};
use crate::failure::{call_failed, wrong_bytes};
use crate::load::pace::{Pace, Worker, drive};
use crate::load::{Measured, Meter};
use crate::process::Server;

/// Calls of one run before those that are timed, as a part of its length.
const WARM_UP: f64 = 0.25;
/// One of so many gets is compared byte by byte; the others by their length.
const COMPARED: u64 = 32;
/// Wait after a call was answered "try again".
const AGAIN: Duration = Duration::from_millis(10);

/// The kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Call {
    Put,
    Get,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Put => "put",
            Call::Get => "get",
        }
    }
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
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            more => format!("{more} connections"),
        };
        format!("{} {} MiB, {connections}", self.call.name(), self.mib)
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

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    /// Calls in flight on each connection.
    pub(crate) calls: usize,
    pub(crate) time: Duration,
    /// Count calls that are answered "try again", and try again; otherwise the first ends the run.
    pub(crate) patient: bool,
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

    /// One run. Calls that are in flight when the time is over are waited for, and do not count.
    pub(crate) async fn run(
        &self,
        server: &Server,
        setting: Setting,
        room: Room,
        length: Length,
    ) -> anyhow::Result<Outcome> {
        let pace = Pace::after(length.time.mul_f64(WARM_UP), length.time);
        let end = pace.begin() + length.time;
        let mut meter = Meter::new();
        meter.add_time(length.time);
        let meter = Arc::new(Mutex::new(meter));
        let clients = self.clients.get(..setting.connections);
        let clients = clients.unwrap_or(&self.clients);
        let callers: Vec<Caller> = clients
            .iter()
            .cycle()
            .take(clients.len() * length.calls)
            .map(|client| Caller {
                client: client.clone(),
                who: self.who,
                setting,
                room,
                patient: length.patient,
                next: Arc::clone(&self.next),
                meter: Arc::clone(&meter),
            })
            .collect();
        let cpu = async {
            tokio::time::sleep_until(pace.begin().into()).await;
            let before = server.cpu_seconds()?;
            tokio::time::sleep_until(end.into()).await;
            Ok(server.cpu_seconds()? - before)
        };
        let (_, cpu) = tokio::try_join!(drive(callers, &pace), cpu)?;
        let measured = lock(&meter).finish();
        let gib = crate::human::as_float(measured.bytes) / crate::human::as_float(1 << 30);
        Ok(Outcome {
            measured,
            cpu_seconds_per_gib: cpu / gib,
        })
    }
}

fn lock(meter: &Mutex<Meter>) -> std::sync::MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call after the other.
struct Caller {
    client: Client,
    who: &'static str,
    setting: Setting,
    room: Room,
    patient: bool,
    next: Arc<AtomicU64>,
    meter: Arc<Mutex<Meter>>,
}

impl Worker for Caller {
    type Error = anyhow::Error;

    async fn step(&mut self, pace: &Pace) -> anyhow::Result<bool> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let called = match self.setting.call {
            Call::Put => self.put(number).await,
            Call::Get => self.get(number).await?,
        };
        let counts = pace.counts(Instant::now());
        match called {
            Ok(latency) if counts => lock(&self.meter).request(self.setting.mib << 20, latency),
            Ok(_) => {}
            Err(status) if self.patient && status.code() == Code::Unavailable => {
                if counts {
                    lock(&self.meter).error();
                }
                tokio::time::sleep(AGAIN).await;
            }
            Err(status) => {
                return Err(call_failed(self.who, self.setting.call.name())(status));
            }
        }
        Ok(true)
    }
}

impl Caller {
    async fn put(&mut self, number: u64) -> Result<Duration, Status> {
        let id = self.setting.id(self.room.filled + number % self.room.puts);
        let body = content::body(id, size_of(id));
        super::put(&mut self.client, id, body).await
    }

    /// The outer error: it came back wrong.
    async fn get(&mut self, number: u64) -> anyhow::Result<Result<Duration, Status>> {
        let id = self.setting.id(fastrand::u64(0..self.room.filled));
        let (latency, pieces) = match super::get(&mut self.client, id).await {
            Ok(got) => got,
            Err(status) => return Ok(Err(status)),
        };
        let length: usize = pieces.iter().map(bytes::Bytes::len).sum();
        let right = length == size_of(id)
            && (!number.is_multiple_of(COMPARED) || same(&pieces, &content::body(id, size_of(id))));
        if right {
            return Ok(Ok(latency));
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
