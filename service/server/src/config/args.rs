//! The flags of `lumpscope serve`, which are also the keys of its file and, as LUMPSCOPE_NAME, its
//! environment variables.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use lumpscope_units::{Size, Span};
use serde::Deserialize;

use super::values::{
    DurabilityArg, GuardRule, IoBackendArg, LogFormat, QueuePolicyArg, S3Etag, StoreSpec, UnixMode,
};

/// Flags of `lumpscope serve`. Every flag is also a key of the file and, as LUMPSCOPE_NAME, an
/// environment variable.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeArgs {
    /// A store to serve; repeat for more (in the environment separated by ';')
    #[arg(
        long,
        value_name = "NAME=PATH",
        env = "LUMPSCOPE_STORE",
        value_delimiter = ';'
    )]
    pub store: Vec<StoreSpec>,
    /// Address for gRPC; port 0: any free one [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Address for the web page, /metrics, /livez, /readyz and /healthz; port 0: any free one [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// Allow addresses that other machines can reach without TLS and a login
    #[arg(long, env = "LUMPSCOPE_ALLOW_REMOTE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub allow_remote: Option<bool>,
    /// Serve gRPC on this UNIX socket, too; any process that can open it has full access, without a
    /// token
    #[arg(long, value_name = "PATH", env = "LUMPSCOPE_UNIX_SOCKET")]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the UNIX socket, octal [default: 600]
    #[arg(long, value_name = "MODE", env = "LUMPSCOPE_UNIX_MODE")]
    pub unix_mode: Option<UnixMode>,
    /// Certificate chain of the service, PEM; needs tls-key
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the service, PEM; needs tls-cert
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates for clients, PEM: clients must then have a certificate signed by one of them
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// TOML file of the accepted tokens and their rights; every request over TCP then needs a token
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TOKENS")]
    pub tokens: Option<PathBuf>,
    /// Interval between checks for changed certificates and tokens; 0: only on SIGHUP [default: 10]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_RELOAD_INTERVAL")]
    pub reload_interval: Option<u64>,
    /// Most connections open at a time; further ones wait to be accepted [default: 2048]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_CONNECTIONS")]
    pub max_connections: Option<usize>,
    /// Most calls under way at a time on one connection [default: 256]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_STREAMS")]
    pub max_streams: Option<u32>,
    /// Most bytes of the headers of one call [default: 16K]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MAX_HEADER_BYTES")]
    pub max_header_bytes: Option<Size>,
    /// Close a connection after this time without a call; 0: never [default: 600]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_IDLE_TIMEOUT")]
    pub idle_timeout: Option<u64>,
    /// Close a connection whose handshakes take longer than this [default: 10]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_HANDSHAKE_TIMEOUT")]
    pub handshake_timeout: Option<u64>,
    /// Abandon a body that moves fewer bytes a second than this on average, after body-timeout; 0:
    /// no limit [default: 64K]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MIN_RATE")]
    pub min_rate: Option<Size>,
    /// Bytes a client may send ahead on one call, HTTP/2 flow control [default: 2M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_STREAM_WINDOW")]
    pub stream_window: Option<Size>,
    /// Bytes a client may send ahead on one connection, HTTP/2 flow control [default: 4M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_CONNECTION_WINDOW")]
    pub connection_window: Option<Size>,
    /// Largest HTTP/2 frame a client may send, 16K to 8M [default: 1M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_FRAME_SIZE")]
    pub frame_size: Option<Size>,
    /// Longest wait for requests under way when the service stops or a store is removed [default:
    /// 10]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<u64>,
    /// Switch to this user once the devices are open and the probes attached
    #[arg(long, value_name = "USER[:GROUP]", env = "LUMPSCOPE_USER")]
    pub user: Option<String>,
    /// Keep all capabilities: stores can then be added that only root can open
    #[arg(long, env = "LUMPSCOPE_KEEP_PRIVILEGES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub keep_privileges: Option<bool>,
    /// Refuse to start when a store cannot be opened, instead of serving the others
    #[arg(long, env = "LUMPSCOPE_REQUIRE_ALL_STORES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub require_all_stores: Option<bool>,
    /// Only check the configuration and the files it names, and print the resulting settings
    #[arg(long)]
    #[serde(skip)]
    pub check_config: bool,
    /// TOML file of these settings, by their keys
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Do not observe the disks
    #[arg(long, env = "LUMPSCOPE_NO_PROBES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub no_probes: Option<bool>,
    /// Load this compiled probe object instead of the built-in one
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_PROBE_OBJECT")]
    pub probe_object: Option<PathBuf>,
    /// Hand out one in this many completed block requests as an event, for attribution,
    /// explanations and live views; all are counted in any case; 1: each; 0: none by chance
    /// [default: 1]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_EVENT_ONE_IN")]
    pub event_one_in: Option<u32>,
    /// Also hand out each block request that took at least this long from queued to completed; 0s:
    /// no such rule [default: 0s]
    #[arg(long, value_name = "TIME", env = "LUMPSCOPE_EVENT_SLOWER_THAN")]
    pub event_slower_than: Option<Span>,
    /// Pin the probes' maps in this folder of a bpffs, for bpftool; they are unpinned at the end
    #[arg(long, value_name = "DIR", env = "LUMPSCOPE_PIN_MAPS")]
    pub pin_maps: Option<PathBuf>,
    /// Send traces to the OpenTelemetry collector at this http://HOST:PORT, with OTLP over gRPC
    #[arg(long, value_name = "URL", env = "LUMPSCOPE_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Link of the web page for a trace: a URL of Jaeger or Grafana with {trace_id} in it
    #[arg(long, value_name = "URL", env = "LUMPSCOPE_TRACE_URL")]
    pub trace_url: Option<String>,
    /// Share of requests that are traced by chance, 0 to 1; requests whose client asks for it, slow
    /// ones and ones that fail by the service's fault are always traced [default: 0.01]
    #[arg(long, value_name = "RATIO", env = "LUMPSCOPE_TRACE_RATIO")]
    pub trace_ratio: Option<f64>,
    /// Trace every request that takes at least this long [default: 100ms]
    #[arg(long, value_name = "TIME", env = "LUMPSCOPE_TRACE_SLOWER_THAN")]
    pub trace_slower_than: Option<Span>,
    /// Policy when another process opens a store's block device for writing: off, audit (count and
    /// report) or deny, where the kernel can (`lumpscope doctor`); NAME=POLICY: for this store;
    /// repeat for more [default: off]
    #[arg(
        long,
        value_name = "[NAME=]POLICY",
        env = "LUMPSCOPE_GUARD",
        value_delimiter = ';'
    )]
    pub guard: Vec<GuardRule>,
    /// Count the runs of the probes and their time, which costs every run of every BPF program of
    /// the machine two clock reads
    #[arg(long, env = "LUMPSCOPE_PROGRAM_STATISTICS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub program_statistics: Option<bool>,
    /// Backend of disk I/O [default: auto]
    #[arg(long, value_enum, env = "LUMPSCOPE_IO_BACKEND")]
    pub io_backend: Option<IoBackendArg>,
    /// Most I/Os that a store has in flight at its disk [default: 32]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_DEPTH")]
    pub queue_depth: Option<usize>,
    /// Most requests waiting in a store before it answers UNAVAILABLE [default: 1024]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_LIMIT")]
    pub queue_limit: Option<usize>,
    /// Order of waiting requests; learned is position by the observed times of the disk [default:
    /// position]
    #[arg(long, value_enum, env = "LUMPSCOPE_QUEUE_POLICY")]
    pub queue_policy: Option<QueuePolicyArg>,
    /// For the policies position and learned: most younger requests that may start before a waiting
    /// one [default: half of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_OVERTAKES")]
    pub max_overtakes: Option<u32>,
    /// A store is overloaded when this many requests wait for overload-after; more than
    /// queue-limit: never [default: three quarters of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_OVERLOAD_THRESHOLD")]
    pub overload_threshold: Option<usize>,
    /// See overload-threshold [default: 10]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_OVERLOAD_AFTER")]
    pub overload_after: Option<u64>,
    /// Memory of each store for lumps that are put or read: at least put-memory and get-memory
    /// together [default: 1G]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_BUFFER_BUDGET")]
    pub buffer_budget: Option<Size>,
    /// Bytes a second that each store's scrubber reads to find damage; 0: off [default: 0]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_SCRUB_RATE")]
    pub scrub_rate: Option<Size>,
    /// Time from the start of one pass of a scrubber to the start of the next [default: 168]
    #[arg(long, value_name = "HOURS", env = "LUMPSCOPE_SCRUB_INTERVAL")]
    pub scrub_interval: Option<u64>,
    /// Bytes a second that each store's journal garbage collection reads and writes; exceeded when
    /// the journal is nearly full; 0: no limit [default: 0]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GC_RATE")]
    pub gc_rate: Option<Size>,
    /// Journal records after which a store writes a checkpoint of its index, so that it opens
    /// quickly; 0: never [default: 1000000]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_CHECKPOINT_RECORDS")]
    pub checkpoint_records: Option<u64>,
    /// Open damaged stores without their lost parts, repair them, and log the losses: use it once,
    /// after `lumpscope inspect --salvage` has listed them
    #[arg(long, env = "LUMPSCOPE_SALVAGE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub salvage: Option<bool>,
    /// Meaning of "acknowledged" for requests that do not set it [default: synced]
    #[arg(long, value_enum, env = "LUMPSCOPE_DURABILITY")]
    pub durability: Option<DurabilityArg>,
    /// Memory for lumps that are being put, all clients together; further puts wait [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_PUT_MEMORY")]
    pub put_memory: Option<Size>,
    /// Memory of each store for lumps that are being read or sent, all clients together; further
    /// gets wait [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GET_MEMORY")]
    pub get_memory: Option<Size>,
    /// Largest gRPC message accepted; a body may have any number of them [default: 8M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MAX_MESSAGE")]
    pub max_message: Option<Size>,
    /// Abandon a put whose client sends nothing for this long [default: 30]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_BODY_TIMEOUT")]
    pub body_timeout: Option<u64>,
    /// Serve S3 on this address; port 0: any free one; needs s3-credentials
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_S3_LISTEN")]
    pub s3_listen: Option<SocketAddr>,
    /// The store that S3 serves; not needed when there is only one
    #[arg(long, value_name = "NAME", env = "LUMPSCOPE_S3_STORE")]
    pub s3_store: Option<String>,
    /// TOML file of the access keys of S3, their secrets and their rights
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_S3_CREDENTIALS")]
    pub s3_credentials: Option<PathBuf>,
    /// Largest body of one put or part of S3, 1M to 5G [default: 5G]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_S3_MAX_BODY")]
    pub s3_max_body: Option<Size>,
    /// Source of the ETag of an object that S3 puts in one request [default: md5]
    #[arg(long, value_enum, env = "LUMPSCOPE_S3_ETAG")]
    pub s3_etag: Option<S3Etag>,
    /// Abandon multipart uploads of S3 begun this long ago; 0: never [default: 168]
    #[arg(long, value_name = "HOURS", env = "LUMPSCOPE_S3_UPLOAD_EXPIRY")]
    pub s3_upload_expiry: Option<u64>,
    /// Format of the log on stderr [default: text]
    #[arg(long, value_enum, env = "LUMPSCOPE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Filter of the log, as "info" or "lumpscope=debug,warn" [default: info]
    #[arg(long, value_name = "FILTER", env = "LUMPSCOPE_LOG")]
    pub log: Option<String>,
}
