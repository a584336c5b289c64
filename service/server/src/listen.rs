//! The gRPC server: which services it has, and the bounds of its transport.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_proto::FILE_DESCRIPTOR_SET;
use lumpscope_proto::v1::admin_server::AdminServer;
use lumpscope_proto::v1::lump_store_server::LumpStoreServer;
use lumpscope_proto::v1::observe_server::ObserveServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use crate::config::ServeConfig;
use crate::grpc::{
    Admin, AdminService, Health, LumpStoreService, ObserveService, Recorder, Traced,
};
use crate::telemetry::Sources;

/// A connection on which nothing answers for this long after a ping is given up.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// Serves gRPC on `listener` until `stopped` says so.
pub(crate) async fn serve_grpc(
    listener: TcpListener,
    config: &ServeConfig,
    sources: &Sources,
    stopped: watch::Receiver<bool>,
) -> (Health, JoinHandle<Result<(), tonic::transport::Error>>) {
    let (stores, observer) = (sources.stores.clone(), sources.observer.clone());
    let requests = Arc::clone(&sources.requests);
    let recorder = Arc::new(Recorder::new(observer.clone(), requests));
    let lumps = LumpStoreServer::new(LumpStoreService::new(
        stores.clone(),
        observer.clone(),
        config,
        sources.put_memory.clone(),
        sources.get_memory.clone(),
    ))
    .max_decoding_message_size(config.max_message);
    let observe = ObserveServer::new(ObserveService::new(stores.clone(), observer));
    let (health, health_server) = Health::new(stores);
    health.look().await;
    let admin = Admin::new(config, sources, health.clone());
    let admin = AdminServer::new(AdminService::new(admin));
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let built_in = "the descriptors are part of this program";
    let server = tonic::transport::Server::builder()
        .max_frame_size(config.door.frame_size)
        .initial_stream_window_size(config.door.stream_window)
        .initial_connection_window_size(config.door.connection_window)
        .max_concurrent_streams(config.door.max_streams)
        .http2_max_header_list_size(config.door.max_header_bytes)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .add_service(Traced::new(lumps, Arc::clone(&recorder)))
        .add_service(Traced::new(observe, Arc::clone(&recorder)))
        .add_service(Traced::new(admin, recorder))
        .add_service(health_server)
        .add_service(describe().build_v1().expect(built_in))
        .add_service(describe().build_v1alpha().expect(built_in));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let task = tokio::spawn(server.serve_with_incoming_shutdown(incoming, told(stopped)));
    (health, task)
}

/// Completes when the service is told to stop.
pub(crate) async fn told(mut stopped: watch::Receiver<bool>) {
    // An error means that the service is gone, which is a stop too.
    let _ = stopped.wait_for(|stop| *stop).await;
}
