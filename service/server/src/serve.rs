//! `lumpscope serve`: opens the stores, serves until told to stop, closes them in order.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumpscope_observer::{FlightOptions, ObjectSource, Observer, ObserverOptions, Tuning};
use lumpscope_units::{Size, nanoseconds};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::check::probe_object;
use crate::config::{FLIGHT_AUTO, ServeConfig};
use crate::door::{Door, Reloader};
use crate::error::ServerError;
use crate::grpc::Health;
use crate::listen::{self, Sockets};
pub use crate::listen::{S3Parts, ServeS3};
use crate::memory_sum;
use crate::observed::Watches;
use crate::privileges;
use crate::request::Budget;
use crate::stopping;
use crate::stores::Stores;
use crate::telemetry::Sources;
use crate::telemetry::metrics::RequestMetrics;
use crate::telemetry::otlp::{self, Servers, Tracing};

/// A service that runs.
pub struct Service {
    /// Address on which gRPC is served.
    pub grpc: SocketAddr,
    /// Address on which metrics are served.
    pub metrics: SocketAddr,
    /// Address on which S3 is served; `None`: it is off.
    pub s3: Option<SocketAddr>,
    stores: Stores,
    observer: Observer,
    health: Health,
    requests: Arc<RequestMetrics>,
    tracing: Tracing,
    drain: Duration,
    stop: watch::Sender<bool>,
    door: Door,
    grpc_task: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts everything; requests are answered when this returns.
    ///
    /// # Errors
    /// An address that cannot be listened on, a store that cannot be opened.
    pub async fn start(config: ServeConfig) -> Result<Self, ServerError> {
        Self::start_with(config, None, |_, _| Ok(())).await
    }

    /// Starts everything, with S3 served by `s3`. Calls `opened` after the stores were opened and
    /// the probes attached, before anything is served: it may block, and its error closes
    /// everything and is returned.
    ///
    /// # Errors
    /// As [`Service::start`], that of `opened`, and `s3-listen` without `s3`.
    pub async fn start_with(
        config: ServeConfig,
        s3: Option<ServeS3>,
        opened: impl FnOnce(&ServeConfig, &Observer) -> Result<(), ServerError> + Send + 'static,
    ) -> Result<Self, ServerError> {
        if config.s3_listen.is_some() && s3.is_none() {
            let why = "s3-listen is set, and this program was built without S3";
            return Err(ServerError::Argument(why.to_owned()));
        }
        let serve_s3 = s3;
        let door = Door::new(&config)?;
        let sockets = Sockets::bind(&config).await?;
        let (grpc, metrics, s3) = (sockets.grpc, sockets.metrics, sockets.s3_address);
        let collector = otlp::collector(config.otlp_endpoint.as_deref())?;
        let (observer, stores) = open(config.clone(), opened).await?;
        let (sampling, servers) = (config.sampling(), Servers::new(grpc, s3));
        let instance = servers.instance();
        let tracing = Tracing::start(collector, sampling, servers, &observer);
        let sources = Sources {
            instance,
            tracing: tracing.clone(),
            stores: stores.clone(),
            observer: observer.clone(),
            requests: Arc::new(RequestMetrics::default()),
            door: door.clone(),
            put_memory: Budget::new(config.put_memory().0),
            watches: Arc::new(Watches::new(&config)),
        };
        let requests = Arc::clone(&sources.requests);
        let (stop, stopped) = watch::channel(false);
        let serving = listen::serve(sockets, &config, serve_s3, sources, stopped).await;
        let health = serving.health;
        let reload_task = tokio::spawn(Arc::clone(&door.reloader).watch());
        let health_task = tokio::spawn(health.clone().watch());
        let scrub_task = tokio::spawn(crate::scrub::watch(stores.clone()));
        let heap_task = tokio::spawn(crate::heap::watch());
        let memory = Size(memory_sum(&config));
        let open = stores.all();
        let indexes = open
            .iter()
            .map(|named| named.store.stats().index_memory_bytes);
        memory_sum::warn_of_limit(memory.0, indexes.sum());
        info!(%grpc, %metrics, stores = stores.names(), %memory, "serving");
        Ok(Self {
            grpc,
            metrics,
            s3,
            stores,
            observer,
            health,
            requests,
            tracing,
            drain: config.drain_timeout,
            stop,
            door,
            grpc_task: serving.grpc,
            others: vec![
                serving.metrics,
                health_task,
                scrub_task,
                reload_task,
                heap_task,
            ],
        })
    }

    /// Reads certificates and tokens again when told to.
    #[must_use]
    pub fn reloader(&self) -> Arc<Reloader> {
        Arc::clone(&self.door.reloader)
    }

    /// The stores that it serves.
    #[must_use]
    pub fn stores(&self) -> Stores {
        self.stores.clone()
    }

    /// Serves until `shutdown` completes, then ends in order: see [`Service::run_until_or`].
    ///
    /// # Errors
    /// As [`Service::run_until_or`].
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        self.run_until_or(shutdown, std::future::pending()).await
    }

    /// Serves until `shutdown` completes. Then health says NOT_SERVING, no new requests are taken,
    /// and those under way may finish for at most `drain-timeout`, or until `hurry` completes; what
    /// is left is cut off. The stores are flushed and closed, and the probes are detached.
    ///
    /// # Errors
    /// gRPC that ended without being told to, or a store that did not close in order or in time.
    pub async fn run_until_or(
        mut self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let asked = tokio::select! {
            () = shutdown => true,
            // Only when it has panicked: it serves until it is told to stop.
            _ = &mut self.grpc_task => false,
        };
        info!("stopping: no new requests, those under way may finish");
        for task in self.others.drain(1..) {
            task.abort();
        }
        self.health.end().await;
        self.stores.stop();
        self.stop.send_replace(true);
        if asked {
            let (task, requests) = (&mut self.grpc_task, &self.requests);
            stopping::finish(task, requests, &self.stores, self.drain, hurry).await;
        }
        self.tracing.shutdown().await;
        let observer = self.observer.clone();
        let closed = stopping::close(&self.stores, move || observer.shutdown()).await;
        for task in &self.others {
            task.abort();
        }
        info!("stopped");
        closed?;
        if asked {
            Ok(())
        } else {
            Err(ServerError::Ended)
        }
    }
}

/// Makes a folder that the settings name, for the user who is going to serve, unless it is there.
fn make_folder(dir: &Path, user: Option<(u32, u32)>) -> std::io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir)?;
    match user {
        Some((user, group)) => chown(dir, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// The folder of pinned maps, if the user who serves can unpin them at the end.
fn pins(config: &ServeConfig, user: Option<(u32, u32)>) -> Option<PathBuf> {
    let dir = config.pin_maps.as_ref().filter(|_| !config.no_probes)?;
    if let Err(error) = make_folder(dir, user) {
        warn!(pin_maps = %dir.display(), %error, "cannot make the folder: no maps are pinned");
        return None;
    }
    let serves = user.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
    let owner = std::fs::metadata(dir).map_or(serves, |meta| meta.uid());
    if owner != serves && !config.keep_privileges {
        warn!(
            pin_maps = %dir.display(),
            owner,
            serves,
            "no maps are pinned: the user who serves could not unpin them at the end; give the folder \
             to that user, or name one that is not there"
        );
        return None;
    }
    Some(dir.clone())
}

/// The flight recorder, whose folder is made if it is missing.
fn flight(
    config: &ServeConfig,
    user: Option<(u32, u32)>,
) -> Result<Option<FlightOptions>, ServerError> {
    let Some(dir) = config.flight_recorder.clone() else {
        return Ok(None);
    };
    make_folder(&dir, user).map_err(|error| {
        let why = format!("flight-recorder = {}: {error}", dir.display());
        ServerError::Argument(why)
    })?;
    let slower_than = |has_arm| nanoseconds(config.flight_slower_than.of(FLIGHT_AUTO, has_arm));
    Ok(Some(FlightOptions {
        dir,
        slower_than_ns: slower_than(true),
        slower_than_without_arm_ns: slower_than(false),
    }))
}

/// Observer first, so that it sees what the stores read when they open.
async fn open(
    config: ServeConfig,
    opened: impl FnOnce(&ServeConfig, &Observer) -> Result<(), ServerError> + Send + 'static,
) -> Result<(Observer, Stores), ServerError> {
    let user = config.user.as_deref().map(privileges::ids_of).transpose()?;
    let flight = flight(&config, user)?;
    if let Some(path) = &config.probe_object {
        probe_object(path)?;
    }
    let opening = tokio::task::spawn_blocking(move || {
        let config = config.with_places();
        let watched = |spec| config.watched(spec);
        let options = ObserverOptions {
            stores: config.stores.iter().map(watched).collect(),
            object: config
                .probe_object
                .clone()
                .map_or(ObjectSource::Prebuilt, ObjectSource::Path),
            enabled: !config.no_probes,
            tuning: Tuning {
                pin_maps: pins(&config, user),
                program_statistics: config.program_statistics,
                flight,
                ..Tuning::default()
            },
        };
        let observer = Observer::start(options);
        set_events(&config, &observer);
        let stores = Stores::open(&config, &observer);
        let done = stores.and_then(|stores| match opened(&config, &observer) {
            Ok(()) => Ok(stores),
            Err(error) => {
                // The first error is the one to tell; closing logs its own.
                let _ = stores.close();
                Err(error)
            }
        });
        match done {
            Ok(stores) => {
                stores.tell_blind_spots();
                Ok((observer, stores))
            }
            Err(error) => {
                observer.shutdown();
                Err(error)
            }
        }
    });
    match opening.await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Before anything is done that could be observed. Where nothing can, the log says so anyway.
fn set_events(config: &ServeConfig, observer: &Observer) {
    let policy = config.events();
    if !config.no_probes
        && policy != observer.events()
        && let Err(why) = observer.set_events(policy)
    {
        warn!(why, "the event policy is not in force");
    }
}
