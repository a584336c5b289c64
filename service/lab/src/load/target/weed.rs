//! The way to the volumes of SeaweedFS, by its own HTTP: the master names a place, the volume server takes the bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use ureq::Agent;

use super::download::Download;
use super::files::blocking;
use super::{Answer, Failure, Placement, StoreClient};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster, and where in it the lumps lie that were put.
#[derive(Clone)]
pub struct WeedVolumes {
    master: Arc<str>,
    agent: Agent,
    places: Arc<Mutex<BTreeMap<u128, Assigned>>>,
}

/// A place that the master has named.
#[derive(Debug, Clone, Deserialize)]
struct Assigned {
    fid: String,
    /// `HOST:PORT` of the volume server.
    url: String,
}

impl WeedVolumes {
    /// `master`: its `HOST:PORT`.
    #[must_use]
    pub fn new(master: &str) -> WeedVolumes {
        let agent = Agent::config_builder().timeout_global(Some(PATIENCE));
        WeedVolumes {
            master: Arc::from(master),
            agent: agent.build().new_agent(),
            places: Arc::default(),
        }
    }

    /// A place for a new lump.
    ///
    /// # Errors
    /// There is no volume that takes it yet, or nobody answers.
    fn assign(&self) -> Result<Assigned, ureq::Error> {
        let url = format!("http://{}/dir/assign", self.master);
        self.agent.get(url).call()?.into_body().read_json()
    }

    /// It takes lumps.
    ///
    /// # Errors
    /// It does not yet.
    pub fn ready(&self) -> Result<(), String> {
        self.assign().map(drop).map_err(|error| error.to_string())
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u128, Assigned>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, id: u128) -> Result<Assigned, Failure> {
        let place = self.places().get(&id).cloned();
        place.ok_or_else(|| Failure::peer(format!("lump {id:032x} has never been put")))
    }
}

/// One client of the volumes.
pub(super) struct WeedClient {
    volumes: WeedVolumes,
    /// `None` before the first get, and after a failure.
    download: Option<(String, Download)>,
}

impl WeedClient {
    pub(super) fn new(volumes: WeedVolumes) -> WeedClient {
        WeedClient {
            volumes,
            download: None,
        }
    }
}

#[async_trait]
impl StoreClient for WeedClient {
    /// Asking for a place is part of the put of a new lump.
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        _placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let volumes = self.volumes.clone();
        blocking(move || {
            let begin = Instant::now();
            let known = volumes.places().get(&id).cloned();
            let place = match known {
                Some(place) => place,
                None => volumes.assign()?,
            };
            let url = format!("http://{}/{}?fsync=true", place.url, place.fid);
            volumes.agent.put(url).send(&body[..])?;
            let answer = Answer::since(begin, None);
            volumes.places().insert(id, place);
            Ok(answer)
        })
        .await
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let place = self.volumes.place(id)?;
        let kept = self.download.take().filter(|(url, _)| *url == place.url);
        let (answer, kept) = blocking(move || {
            let fresh = || Download::new(place.url.clone(), PATIENCE);
            let mut download = kept.map_or_else(fresh, |(_, download)| download);
            let begin = Instant::now();
            let bytes = download.get(&format!("/{}", place.fid))?;
            Ok((Answer::since(begin, vec![bytes]), (place.url, download)))
        })
        .await?;
        self.download = Some(kept);
        Ok(answer)
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        let place = self.volumes.place(id)?;
        let volumes = self.volumes.clone();
        blocking(move || {
            let begin = Instant::now();
            let url = format!("http://{}/{}", place.url, place.fid);
            volumes.agent.delete(url).call()?;
            volumes.places().remove(&id);
            Ok(Answer::since(begin, None))
        })
        .await
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        Ok(self.volumes.places().keys().copied().collect())
    }
}
