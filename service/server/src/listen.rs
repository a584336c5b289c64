//! The gRPC server: which services it has, over HTTP/2 and as gRPC-Web over HTTP/1.1, and the bounds
//! of its transport.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lumpscope_proto::FILE_DESCRIPTOR_SET;
use lumpscope_proto::v1::admin_server::AdminServer;
use lumpscope_proto::v1::lump_store_server::LumpStoreServer;
use lumpscope_proto::v1::observe_server::ObserveServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected as _;
use tracing::debug;

use crate::config::ServeConfig;
use crate::connection_memory::{ConnectionMemory, Granted};
use crate::door::{self, Admitted, Entrance, Leave, Listener, Protocol, SocketFile};
use crate::error::ServerError;
use crate::grpc::{
    AdminService, Auth, Direct, Health, Intake, LumpStoreService, ObserveService, RequestIdService,
    Web,
};
use crate::log_rate::LogRate;
use crate::privileges;
use crate::request::Requests;
use crate::telemetry::{Reporter, Sources};

/// A connection on which nothing answers for this long after a ping is given up.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));
/// Calls that a client has begun and reset before they were looked at; with more the connection
/// ends (CVE-2023-44487, "rapid reset").
const MAX_PENDING_RESETS: usize = 20;
/// Calls that were reset because the client broke the rules; with more the connection ends.
const MAX_ERROR_RESETS: usize = 1024;
/// Smallest buffer for headers that hyper takes.
const LEAST_BUFFER: usize = 8 << 10;
/// Most bytes of a question to reflection: it holds one name.
const MAX_REFLECTION: usize = 4 << 10;

/// Connections open at a time at the metrics endpoint.
const METRICS_CONNECTIONS: usize = 128;

/// The sockets that are listened on, before anybody is answered.
pub(crate) struct Sockets {
    /// Address on which gRPC is served.
    pub(crate) grpc: SocketAddr,
    /// Address on which metrics are served.
    pub(crate) metrics: SocketAddr,
    /// Address on which S3 is served; `None`: it is off.
    pub(crate) s3_address: Option<SocketAddr>,
    tcp: TcpListener,
    unix: Option<(tokio::net::UnixListener, SocketFile)>,
    http: TcpListener,
    s3: Option<TcpListener>,
}

impl Sockets {
    /// Listens. Who connects from now on waits until something is served.
    pub(crate) async fn bind(config: &ServeConfig) -> Result<Self, ServerError> {
        let tcp = bind("listen", config.listen).await?;
        let http = bind("metrics-listen", config.metrics_listen).await?;
        let s3 = match config.s3_listen {
            Some(address) => Some(bind("s3-listen", address).await?),
            None => None,
        };
        // Bound as who we are, and then of the user that we are going to be.
        let ids = config.user.as_deref().map(privileges::ids_of).transpose()?;
        let unix = config.unix_socket.as_deref();
        let unix = unix.map(|path| door::listen_unix(path, config.unix_mode.0, ids));
        Ok(Self {
            grpc: local(&tcp)?,
            metrics: local(&http)?,
            s3_address: s3.as_ref().map(local).transpose()?,
            tcp,
            unix: unix.transpose()?,
            http,
            s3,
        })
    }
}

async fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServerError::Bind {
            key,
            address,
            source,
        })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, ServerError> {
    listener.local_addr().map_err(|source| ServerError::System {
        what: "read the address listened on",
        source,
    })
}

/// Serves S3 until `stopped`. The endpoint is a crate on top of this one, which the binary hands in.
pub type ServeS3 = fn(S3Parts) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of the service that the S3 endpoint stands on.
pub struct S3Parts {
    /// Bound to `s3-listen`.
    pub listener: TcpListener,
    /// Limits and counts of its connections.
    pub entrance: Arc<Entrance>,
    /// The settings of the service.
    pub config: ServeConfig,
    /// Stores, memory and logins.
    pub sources: Sources,
    /// Gives its requests their ids.
    pub requests: Arc<Requests>,
    /// True: take no more requests, end.
    pub stopped: watch::Receiver<bool>,
}

/// Tasks of the running endpoints.
pub(crate) struct EndpointTasks {
    /// Keeps the health service up to date.
    pub(crate) health: Health,
    /// Ends when all connections of gRPC and S3 have ended after a stop.
    pub(crate) grpc: JoinHandle<()>,
    /// Task of the metrics endpoint.
    pub(crate) metrics: JoinHandle<()>,
}

/// Serves gRPC and metrics until `stopped` says so.
pub(crate) async fn serve(
    sockets: Sockets,
    config: &ServeConfig,
    serve_s3: Option<ServeS3>,
    sources: Sources,
    stopped: watch::Receiver<bool>,
) -> EndpointTasks {
    let entrance = |name, protocol, most| entrance(config, &sources.door, name, protocol, most);
    let most = config.max_connections;
    let requests = Arc::new(Requests::new(Arc::new(Reporter {
        observer: sources.observer.clone(),
        metrics: Arc::clone(&sources.requests),
        tracing: sources.tracing.clone(),
        failures: LogRate::default(),
    })));
    let (health, service) = services(config, &sources, &requests, &stopped).await;
    let server = transport(config);
    let memory = ConnectionMemory::new(config);
    let limits = door::HttpLimits {
        header_timeout: config.handshake_timeout,
        buffer_bytes: config.max_header_bytes.as_usize().max(LEAST_BUFFER),
    };
    let calls = Calls {
        service,
        server,
        limits,
        door: sources.door.clone(),
    };
    let serve = move |admitted, leave| calls.clone().serve(memory.grant(), admitted, leave);
    let tcp = door::accept(
        Listener::Tcp(sockets.tcp),
        entrance("tcp", Protocol::Grpc, most),
        stopped.clone(),
        serve.clone(),
    );
    // Connections of its own: when strangers have taken all, whoever runs the service gets in.
    let entrance_unix = entrance("unix", Protocol::Grpc, most);
    let (unix, told_unix) = (sockets.unix, stopped.clone());
    let unix = async move {
        if let Some((listener, _file)) = unix {
            door::accept(Listener::Unix(listener), entrance_unix, told_unix, serve).await;
        }
    };
    let s3 = match (sockets.s3, serve_s3) {
        (Some(listener), Some(serve)) => serve(S3Parts {
            listener,
            entrance: entrance("s3", Protocol::Http, most),
            config: config.clone(),
            sources: sources.clone(),
            requests,
            stopped: stopped.clone(),
        }),
        _ => Box::pin(std::future::ready(())),
    };
    let entrance = entrance("metrics", Protocol::Http, METRICS_CONNECTIONS.min(most));
    let http = crate::http::serve(
        sockets.http,
        entrance,
        limits,
        sources,
        config.page(),
        config.allow_remote,
        stopped,
    );
    EndpointTasks {
        health,
        grpc: tokio::spawn(async move {
            tokio::join!(tcp, unix, s3);
        }),
        metrics: tokio::spawn(http),
    }
}

/// All services, behind the door.
async fn services(
    config: &ServeConfig,
    sources: &Sources,
    requests: &Arc<Requests>,
    stopped: &watch::Receiver<bool>,
) -> (Health, Auth<Routes>) {
    let (stores, observer) = (sources.stores.clone(), sources.observer.clone());
    let lumps = LumpStoreService::new(
        stores.clone(),
        observer.clone(),
        config,
        sources.put_memory.clone(),
    );
    let lumps = Direct::new(
        lumps.clone(),
        LumpStoreServer::new(lumps).max_decoding_message_size(config.max_message.as_usize()),
    );
    let observe = ObserveServer::new(ObserveService::new(
        stores.clone(),
        observer,
        Arc::clone(&sources.watches),
        stopped.clone(),
    ));
    let (health, health_server) = Health::new(stores);
    health.look().await;
    let admin = AdminServer::new(AdminService::new(config, sources, health.clone()));
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // What an error carries.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let intake = Intake::new(config.body_timeout);
    let built_in = "the descriptors are part of this program";
    let reflection = describe().build_v1().expect(built_in);
    let older = describe().build_v1alpha().expect(built_in);
    let ids = (requests, &intake);
    let routes = Routes::new(RequestIdService::new(lumps, ids))
        .add_service(RequestIdService::new(observe, ids))
        .add_service(RequestIdService::new(admin, ids))
        .add_service(health_server)
        .add_service(reflection.max_decoding_message_size(MAX_REFLECTION))
        .add_service(older.max_decoding_message_size(MAX_REFLECTION))
        .prepare();
    let auth = Auth::new(routes, sources.door.clone(), Arc::clone(requests), intake);
    (health, auth)
}

fn entrance(
    config: &ServeConfig,
    door: &door::Door,
    name: &'static str,
    protocol: Protocol,
    max_connections: usize,
) -> Arc<Entrance> {
    Arc::new(Entrance {
        name,
        protocol,
        max_connections,
        handshake_timeout: config.handshake_timeout,
        idle_timeout: config.idle_timeout,
        write_timeout: config.body_timeout,
        reloader: Arc::clone(&door.reloader),
        metrics: Arc::clone(&door.metrics),
    })
}

/// The bounds of HTTP/2 beside those of [`ConnectionMemory`].
fn transport(config: &ServeConfig) -> Server {
    Server::builder()
        .http2_max_header_list_size(config.max_header_bytes.as_u32())
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .http2_max_local_error_reset_streams(Some(MAX_ERROR_RESETS))
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
}

/// The calls of gRPC, for the connections that the door lets in.
#[derive(Clone)]
struct Calls {
    service: Auth<Routes>,
    server: Server,
    limits: door::HttpLimits,
    door: door::Door,
}

impl Calls {
    /// Serves one connection until it has ended. tonic takes leave (GOAWAY) of all connections of a
    /// server at once; here each is a server of its own, so that an idle one can be told to leave
    /// alone.
    async fn serve(self, granted: Granted, admitted: Admitted, leave: Leave) {
        if admitted.is_http1() {
            let web = Web::new(self.service, self.door, admitted.connect_info());
            return door::serve_http(web, self.limits, admitted, leave).await;
        }
        let only = tokio_stream::once(Ok::<_, std::convert::Infallible>(admitted));
        let only = only.chain(tokio_stream::pending());
        let server = granted.bound(self.server);
        let served = server.serve_with_incoming_shutdown(self.service, only, leave);
        if let Err(error) = served.await {
            debug!(%error, "a connection was not served");
        }
    }
}
