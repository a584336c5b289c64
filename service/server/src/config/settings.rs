//! Every setting, once: its flag, key, environment variable, help, type and default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use lumpscope_units::{Size, Span};
use serde::{Deserialize, Serialize};

use super::Rhythm;
use super::values::{
    CommitArg, DurabilityArg, GuardRule, IoBackendArg, LogFormat, QueuePolicyArg, S3Etag,
    SlowerThan, StoreSpec, UnixMode, Whole, address, address_in_file, shown,
};

/// Configuration of `serve`. Each field is a flag, a key of the file and, as LUMPSCOPE_NAME, an
/// environment variable.
#[derive(Args, Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeConfig {
    /// A store to serve: a block device, a file, or uuid:UUID for the block device that has it; repeat
    /// for more (in the environment separated by ';')
    #[arg(
        long = "store",
        value_name = "NAME=PATH",
        env = "LUMPSCOPE_STORE",
        value_delimiter = ';'
    )]
    #[serde(rename = "store")]
    pub stores: Vec<StoreSpec>,
    /// Address for gRPC; port 0: any free one
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_LISTEN", value_parser = address)]
    #[serde(deserialize_with = "address_in_file")]
    pub listen: SocketAddr,
    /// Address for the page, /metrics, /livez, /readyz and /healthz; port 0: any free one
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_METRICS_LISTEN", value_parser = address)]
    #[serde(deserialize_with = "address_in_file")]
    pub metrics_listen: SocketAddr,
    /// Allow remote addresses without TLS and a login
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_ALLOW_REMOTE", action = ArgAction::Set)]
    pub allow_remote: bool,
    /// Also serve gRPC on this UNIX socket; whoever can open it has full access
    #[arg(long, value_name = "PATH", env = "LUMPSCOPE_UNIX_SOCKET")]
    #[serde(serialize_with = "shown")]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the UNIX socket, octal
    #[arg(long, value_name = "MODE", env = "LUMPSCOPE_UNIX_MODE")]
    pub unix_mode: UnixMode,
    /// Certificate chain of the service, PEM; needs tls-key
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_CERT")]
    #[serde(serialize_with = "shown")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the service, PEM; needs tls-cert
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_KEY")]
    #[serde(serialize_with = "shown")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates for clients, PEM; clients then need a certificate signed by one of them
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_CLIENT_CA")]
    #[serde(serialize_with = "shown")]
    pub tls_client_ca: Option<PathBuf>,
    /// Revocation lists (CRL) of these CAs, PEM, one for each CA: the certificates in them are refused
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_CLIENT_CRL")]
    #[serde(serialize_with = "shown")]
    pub tls_client_crl: Option<PathBuf>,
    /// TOML file of tokens and their rights; requests over TCP then need one
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TOKENS")]
    #[serde(serialize_with = "shown")]
    pub tokens: Option<PathBuf>,
    /// Interval between checks for changed certificates and tokens; 0: only on SIGHUP
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_RELOAD_INTERVAL", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub reload_interval: Duration,
    /// Maximum number of open connections; others wait to be accepted
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_CONNECTIONS")]
    pub max_connections: usize,
    /// Maximum number of concurrent calls on one connection
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_STREAMS")]
    pub max_streams: u32,
    /// Maximum size of the headers of one call
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MAX_HEADER_BYTES")]
    pub max_header_bytes: Size,
    /// Close a connection after this time without a call; 0: never
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_IDLE_TIMEOUT", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub idle_timeout: Duration,
    /// Time limit of a connection's handshakes
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_HANDSHAKE_TIMEOUT", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub handshake_timeout: Duration,
    /// Minimum average rate of a body in bytes per second, after body-timeout; 0: none
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MIN_RATE")]
    pub min_rate: Size,
    /// Bytes a client may send ahead on one call, HTTP/2 flow control
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_STREAM_WINDOW")]
    pub stream_window: Size,
    /// Bytes a client may send ahead on one connection, HTTP/2 flow control
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_CONNECTION_WINDOW")]
    pub connection_window: Size,
    /// Memory of all HTTP/2 connections: windows, frames and calls in flight; when it is used up, further
    /// connections get smaller windows
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_CONNECTION_MEMORY")]
    pub connection_memory: Size,
    /// Largest HTTP/2 frame a client may send, 16K to 8M
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_FRAME_SIZE")]
    pub frame_size: Size,
    /// Time that requests in flight get when the service stops or a store is removed
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_DRAIN_TIMEOUT", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub drain_timeout: Duration,
    /// Switch to this user once the devices are open and the probes attached
    #[arg(long, value_name = "USER[:GROUP]", env = "LUMPSCOPE_USER")]
    pub user: Option<String>,
    /// Keep all capabilities, e.g. to add stores that only root can open
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_KEEP_PRIVILEGES", action = ArgAction::Set)]
    pub keep_privileges: bool,
    /// Folder or device from which stores can be added later; repeat for more; without: any folder of /
    /// at start, except those of the system
    #[arg(
        long,
        value_name = "PATH",
        env = "LUMPSCOPE_ADD_STORE_FROM",
        value_delimiter = ';'
    )]
    pub add_store_from: Vec<PathBuf>,
    /// Refuse to start if a store cannot be opened
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_REQUIRE_ALL_STORES", action = ArgAction::Set)]
    pub require_all_stores: bool,
    /// Name of this machine in the claims on its stores; without: by /etc/machine-id, which containers lack
    #[arg(long, value_name = "NAME", env = "LUMPSCOPE_MACHINE")]
    pub machine: Option<String>,
    /// Do not observe the disks
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_NO_PROBES", action = ArgAction::Set)]
    pub no_probes: bool,
    /// Load this compiled probe object instead of the built-in one
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_PROBE_OBJECT")]
    #[serde(serialize_with = "shown")]
    pub probe_object: Option<PathBuf>,
    /// Hand out one in this many completed block requests as an event, for explanations and live views;
    /// all are counted; 1: each; 0: none
    #[arg(long, value_name = "N", env = "LUMPSCOPE_EVENT_ONE_IN")]
    pub event_one_in: u32,
    /// Also hand out block requests that took at least this long; 0s: off
    #[arg(long, value_name = "TIME", env = "LUMPSCOPE_EVENT_SLOWER_THAN")]
    pub event_slower_than: Span,
    /// Pin the probes' maps in this folder of a bpffs, for bpftool
    #[arg(long, value_name = "DIR", env = "LUMPSCOPE_PIN_MAPS")]
    #[serde(serialize_with = "shown")]
    pub pin_maps: Option<PathBuf>,
    /// Send traces to the OpenTelemetry collector at this http:// or https:// HOST:PORT (OTLP over gRPC)
    #[arg(long, value_name = "URL", env = "LUMPSCOPE_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Link of the page to a trace: a URL of Jaeger or Grafana with {trace_id} in it
    #[arg(long, value_name = "URL", env = "LUMPSCOPE_TRACE_URL")]
    pub trace_url: Option<String>,
    /// Share of requests traced by chance, 0 to 1; slow and failed requests, and those whose client asks,
    /// are always traced
    #[arg(long, value_name = "RATIO", env = "LUMPSCOPE_TRACE_RATIO")]
    pub trace_ratio: f64,
    /// Trace every request that takes at least this long; auto: 50ms on an SSD, else 100ms
    #[arg(long, value_name = "TIME|auto", env = "LUMPSCOPE_TRACE_SLOWER_THAN")]
    pub trace_slower_than: SlowerThan,
    /// Write the last minute of events to a file in this folder when a request or an I/O takes
    /// flight-slower-than, a block request fails or an alert's condition begins to hold
    #[arg(long, value_name = "DIR", env = "LUMPSCOPE_FLIGHT_RECORDER")]
    pub flight_recorder: Option<PathBuf>,
    /// See flight-recorder; auto: 2s on an SSD, else 5s
    #[arg(long, value_name = "TIME|auto", env = "LUMPSCOPE_FLIGHT_SLOWER_THAN")]
    pub flight_slower_than: SlowerThan,
    /// When another process opens a store's block device for writing: off, audit (count and report) or
    /// deny; NAME=POLICY: for this store; repeat for more
    #[arg(
        long,
        value_name = "[NAME=]POLICY",
        env = "LUMPSCOPE_GUARD",
        value_delimiter = ';'
    )]
    pub guard: Vec<GuardRule>,
    /// Count the runs of the probes and their time; costs every BPF program of the machine two clock
    /// reads a run
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_PROGRAM_STATISTICS", action = ArgAction::Set)]
    pub program_statistics: bool,
    /// Backend of disk I/O
    #[arg(long, value_enum, env = "LUMPSCOPE_IO_BACKEND")]
    pub io_backend: IoBackendArg,
    /// An I/O in flight for longer than this takes its store out of service until it ends; 0: never
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_IO_TIMEOUT", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub io_timeout: Duration,
    /// How a put becomes durable. runs: its data behind that of the put before and one flush; records
    /// follow, and after a power loss opening looks for puts without one. ordered: its data and a
    /// flush, then its record and a flush, so that CannyLS can open the store after a power loss, too
    #[arg(long, value_enum, env = "LUMPSCOPE_COMMIT")]
    pub commit: CommitArg,
    /// Maximum number of I/Os in flight at a store's disk; without an arm, large gets begin only below
    /// 4 MiB, puts below 8 MiB in flight
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_DEPTH")]
    pub queue_depth: usize,
    /// Maximum number of requests waiting in a store; beyond it answers UNAVAILABLE
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_LIMIT")]
    pub queue_limit: usize,
    /// Order of waiting requests
    #[arg(long, value_enum, env = "LUMPSCOPE_QUEUE_POLICY")]
    pub queue_policy: QueuePolicyArg,
    /// Policy position: maximum number of younger requests that start before a waiting one [default: half
    /// of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_OVERTAKES")]
    pub max_overtakes: Option<u32>,
    /// A store is overloaded when this many requests wait for overload-after; more than
    /// queue-limit: never [default: three quarters of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_OVERLOAD_THRESHOLD")]
    pub overload_threshold: Option<usize>,
    /// See overload-threshold
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_OVERLOAD_AFTER", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub overload_after: Duration,
    /// Memory of each store for lumps; at least put-memory and get-memory together
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_BUFFER_BUDGET")]
    pub buffer_budget: Size,
    /// Rate limit of each store's scrubber in bytes per second; 0: off
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_SCRUB_RATE")]
    pub scrub_rate: Size,
    /// Time between the starts of two passes of a scrubber
    #[arg(long, value_name = "HOURS", env = "LUMPSCOPE_SCRUB_INTERVAL", value_parser = Whole::<3600>::parse)]
    #[serde(with = "Whole::<3600>")]
    pub scrub_interval: Duration,
    /// Rate limit of each store's journal collection in bytes per second, exceeded when the journal is
    /// nearly full; 0: none
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GC_RATE")]
    pub gc_rate: Size,
    /// Journal records between two checkpoints of a store's index; 0: no checkpoints
    #[arg(long, value_name = "N", env = "LUMPSCOPE_CHECKPOINT_RECORDS")]
    pub checkpoint_records: u64,
    /// Open damaged stores without their lost parts, repair them, and log the losses; first see
    /// `lumpscope check --salvage --quick`
    #[arg(long, value_name = "BOOL", env = "LUMPSCOPE_SALVAGE", action = ArgAction::Set)]
    pub salvage: bool,
    /// Meaning of "acknowledged" for requests that do not set it
    #[arg(long, value_enum, env = "LUMPSCOPE_DURABILITY")]
    pub durability: DurabilityArg,
    /// Memory for lumps being put, all stores; further puts wait [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_PUT_MEMORY")]
    pub put_memory: Option<Size>,
    /// Memory of each store for lumps being read or sent; further gets wait [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GET_MEMORY")]
    pub get_memory: Option<Size>,
    /// Largest gRPC message; a body may have any number of them
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MAX_MESSAGE")]
    pub max_message: Size,
    /// Abandon a put whose client sends nothing for this long
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_BODY_TIMEOUT", value_parser = Whole::<1>::parse)]
    #[serde(with = "Whole::<1>")]
    pub body_timeout: Duration,
    /// Serve S3 on this address; port 0: any free one; needs s3-credentials
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_S3_LISTEN", value_parser = address)]
    #[serde(deserialize_with = "address_in_file")]
    pub s3_listen: Option<SocketAddr>,
    /// The only store that S3 serves; otherwise a bucket is in any of them
    #[arg(long, value_name = "NAME", env = "LUMPSCOPE_S3_STORE")]
    pub s3_store: Option<String>,
    /// DNS name of the S3 endpoint: also serves BUCKET.NAME, and refuses other names; repeat for more
    #[arg(
        long,
        value_name = "NAME",
        env = "LUMPSCOPE_S3_DOMAIN",
        value_delimiter = ';'
    )]
    pub s3_domain: Vec<String>,
    /// TOML file of the access keys of S3, their secrets and their rights
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_S3_CREDENTIALS")]
    #[serde(serialize_with = "shown")]
    pub s3_credentials: Option<PathBuf>,
    /// Largest body of one put or part of S3, 1M to 5G
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_S3_MAX_BODY")]
    pub s3_max_body: Size,
    /// Source of the ETag of an object that S3 puts in one request
    #[arg(long, value_enum, env = "LUMPSCOPE_S3_ETAG")]
    pub s3_etag: S3Etag,
    /// Abandon multipart uploads of S3 begun this long ago; 0: never
    #[arg(long, value_name = "HOURS", env = "LUMPSCOPE_S3_UPLOAD_EXPIRY", value_parser = Whole::<3600>::parse)]
    #[serde(with = "Whole::<3600>")]
    pub s3_upload_expiry: Duration,
    /// Format of the log on stderr
    #[arg(long, value_enum, env = "LUMPSCOPE_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// Filter of the log, e.g. "info" or "lumpscope=debug,warn"
    #[arg(long, value_name = "FILTER", env = "LUMPSCOPE_LOG")]
    pub log: String,
    /// Stores whose claim by another machine is replaced. No key: it is for one start.
    #[arg(skip)]
    #[serde(skip)]
    pub take_over: Vec<String>,
    /// How often the page makes frames. Not a setting: only tests change it.
    #[arg(skip)]
    #[serde(skip)]
    pub rhythm: Rhythm,
}

/// The values in force when neither flag, variable nor file says otherwise.
impl Default for ServeConfig {
    #[expect(clippy::too_many_lines, reason = "a line for each setting")]
    fn default() -> Self {
        let (seconds, hours) = (Duration::from_secs, Duration::from_hours);
        Self {
            stores: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 50051)),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            allow_remote: false,
            unix_socket: None,
            unix_mode: UnixMode(0o600),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_crl: None,
            tokens: None,
            reload_interval: seconds(10),
            max_connections: 2048,
            max_streams: 256,
            max_header_bytes: Size(16 << 10),
            idle_timeout: seconds(600),
            handshake_timeout: seconds(10),
            min_rate: Size(64 << 10),
            stream_window: Size(2 << 20),
            connection_window: Size(4 << 20),
            connection_memory: Size(1 << 30),
            // Bodies are MiB: frames of 64 KiB cost a quarter of their throughput, of a MiB a twentieth.
            frame_size: Size(512 << 10),
            drain_timeout: seconds(10),
            user: None,
            keep_privileges: false,
            add_store_from: Vec::new(),
            require_all_stores: false,
            machine: None,
            no_probes: false,
            probe_object: None,
            event_one_in: 1,
            event_slower_than: Span::default(),
            pin_maps: None,
            otlp_endpoint: None,
            trace_url: None,
            trace_ratio: 0.01,
            trace_slower_than: SlowerThan::Auto,
            flight_recorder: None,
            flight_slower_than: SlowerThan::Auto,
            guard: vec![GuardRule::default()],
            program_statistics: false,
            io_backend: IoBackendArg::default(),
            // The kernel's own for a command of SCSI or NVMe.
            io_timeout: seconds(30),
            commit: CommitArg::default(),
            queue_depth: 32,
            queue_limit: 1024,
            queue_policy: QueuePolicyArg::default(),
            max_overtakes: None,
            overload_threshold: None,
            overload_after: seconds(10),
            // Twice what put-memory and get-memory let in.
            buffer_budget: Size(1 << 30),
            scrub_rate: Size(0),
            scrub_interval: hours(7 * 24),
            gc_rate: Size(0),
            checkpoint_records: 1_000_000,
            salvage: false,
            durability: DurabilityArg::default(),
            put_memory: None,
            get_memory: None,
            max_message: Size(8 << 20),
            body_timeout: seconds(30),
            s3_listen: None,
            s3_store: None,
            s3_domain: Vec::new(),
            s3_credentials: None,
            // The limit of S3 itself.
            s3_max_body: Size(5 << 30),
            s3_etag: S3Etag::default(),
            s3_upload_expiry: hours(7 * 24),
            log_format: LogFormat::default(),
            log: "info".to_owned(),
            take_over: Vec::new(),
            rhythm: Rhythm::default(),
        }
    }
}
