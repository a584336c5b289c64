//! Certificates, tokens, and a service whose configuration the test has changed.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::{ServeConfig, TlsFiles};
use lumpscope_server::door::Reloader;
use lumpscope_server::error::ServerError;
use lumpscope_server::serve::Service;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, DnValue, IsCa,
    Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::common;

/// "It happens eventually": far beyond what any machine needs.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The timeouts that tests configure.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
    serial: u64,
}

impl Authority {
    pub(crate) fn new() -> Self {
        // Revocation lists are told apart by the name of their authority.
        Self::named(&format!("authority {}", number()))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate().unwrap())
    }

    /// An authority of another name, or of one written in another way, with this key.
    pub(crate) fn renamed(&self, name: impl Into<DnValue>) -> Self {
        Self::with_key(name, self.issuer.key().serialize_der().try_into().unwrap())
    }

    fn with_key(name: impl Into<DnValue>, key: KeyPair) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for a DNS name, or for a URI when it has a scheme.
    pub(crate) fn sign(&self, name: &str) -> Pair {
        self.sign_until(name, None)
    }

    /// As [`Authority::sign`], with an end of its validity, since 1970.
    pub(crate) fn sign_until(&self, name: &str, end: Option<Duration>) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        if let Some(end) = end {
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + end;
        }
        let serial = number();
        params.serial_number = Some(serial.into());
        params.subject_alt_names = vec![if name.contains("://") {
            SanType::URI(name.try_into().unwrap())
        } else {
            SanType::DnsName(name.try_into().unwrap())
        }];
        let key = KeyPair::generate().unwrap();
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// A revocation list, PEM.
    pub(crate) fn revoke(&self, pairs: &[&Pair]) -> String {
        self.revoke_with(pairs, |_| ())
    }

    /// As [`Authority::revoke`], with changes.
    pub(crate) fn revoke_with(
        &self,
        pairs: &[&Pair],
        change: impl FnOnce(&mut CertificateRevocationListParams),
    ) -> String {
        let revoked = |pair: &&Pair| RevokedCertParams {
            serial_number: pair.serial.into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let mut list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(4096, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: pairs.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        change(&mut list);
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Files of a service named localhost.
    pub(crate) fn files(&self, folder: &Path) -> TlsFiles {
        let files = TlsFiles {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            client_ca: None,
            client_crl: None,
        };
        self.write(&files);
        files
    }

    /// Replaces the files with a new certificate.
    pub(crate) fn write(&self, files: &TlsFiles) {
        let pair = self.sign("localhost");
        std::fs::write(&files.cert, pair.cert).unwrap();
        secret(&files.key, &pair.key);
    }
}

/// A number that no authority and no certificate of this process has yet.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes a file that only we can read.
pub(crate) fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// An entry of the file of tokens.
pub(crate) fn token(name: &str, token: &str, rest: &str) -> String {
    let digest = Sha256::digest(token);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nname = {name:?}\nsha256 = {hex:?}\n{rest}\n")
}

/// Writes a file of tokens.
pub(crate) fn tokens(folder: &Path, entries: &[String]) -> PathBuf {
    let path = folder.join("tokens.toml");
    std::fs::write(&path, format!("{}[end]\n", entries.concat())).unwrap();
    path
}

/// A folder with a store, and the configuration of a service for it.
pub(crate) fn place() -> (tempfile::TempDir, ServeConfig) {
    let folder = common::folder();
    let path = common::store_file(folder.path(), "door", 32 << 20, 4096, 0.05);
    let config = common::config(&[("s", &path)]);
    (folder, config)
}

/// A service to which nobody has connected yet.
pub(crate) struct Serving {
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) reloader: Arc<Reloader>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServerError>>,
}

impl Serving {
    pub(crate) async fn start(config: ServeConfig) -> Self {
        let service = Service::start(config).await.unwrap();
        let (grpc, metrics) = (service.grpc, service.metrics);
        let reloader = service.reloader();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(service.run_until(async move {
            let _ = stopped.await;
        }));
        Self {
            grpc,
            metrics,
            reloader,
            stop,
            ended,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
    }

    /// A client without TLS and without a token.
    pub(crate) async fn plain(&self) -> Channel {
        common::channel(&format!("http://{}", self.grpc)).await
    }

    /// A client that trusts `authority`, and shows a certificate if it has one.
    pub(crate) async fn tls(
        &self,
        authority: &Authority,
        shown: Option<&Pair>,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&authority.pem))
            .domain_name("localhost");
        if let Some(pair) = shown {
            config = config.identity(Identity::from_pem(&pair.cert, &pair.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.grpc))?;
        endpoint.timeout(LONG).tls_config(config)?.connect().await
    }
}

/// Sends a token with every call.
#[derive(Clone)]
pub(crate) struct Bearer(AsciiMetadataValue);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let value = self.0.clone();
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

/// A channel that sends a token with every call.
pub(crate) type Known = InterceptedService<Channel, Bearer>;

pub(crate) fn with_token(channel: Channel, token: &str) -> Known {
    let value = format!("Bearer {token}").parse().unwrap();
    InterceptedService::new(channel, Bearer(value))
}

pub(crate) fn lumps(channel: Channel, token: &str) -> LumpStoreClient<Known> {
    LumpStoreClient::new(with_token(channel, token))
}

/// One request by HTTP/1.1 on any stream: status and body.
pub(crate) async fn http_get<S>(mut stream: S, path: &str, headers: &str) -> (u16, String)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (text[9..12].parse().unwrap(), body.to_owned())
}

/// Waits until the other end closes, and returns what came before. An error is an end too.
pub(crate) async fn until_closed(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes));
    let _ = ended.await.expect("the connection was not closed");
    bytes
}

/// How a rustls client speaks `protocol`, with the certificate `shown`.
pub(crate) fn raw_config(
    authority: &Authority,
    protocol: &[u8],
    shown: Option<&Pair>,
) -> Arc<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(read(&authority.pem)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            let chain = vec![read(&pair.cert)];
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

/// A rustls client that speaks `protocol`, without a certificate of its own.
pub(crate) async fn raw_tls(
    address: SocketAddr,
    authority: &Authority,
    protocol: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    raw_tls_with(address, raw_config(authority, protocol, None)).await
}

/// Connects a rustls client.
pub(crate) async fn raw_tls_with(
    address: SocketAddr,
    config: Arc<rustls::ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(config);
    connector
        .connect("localhost".try_into().unwrap(), stream)
        .await
}

/// Drives a connection until it ends.
pub(crate) type Served = Box<dyn Future<Output = Result<(), h2::Error>> + Send + Unpin>;

/// Asks for health on a connection of HTTP/2: the status of the answer, and the connection.
pub(crate) async fn hello(stream: tokio::net::TcpStream) -> (JoinHandle<u16>, Served) {
    let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
    let asked = tokio::spawn(async move {
        let request = http::Request::post("http://x/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (reply, mut body) = send.send_request(request, false).unwrap();
        let empty = bytes::Bytes::from_static(&[0; 5]);
        body.send_data(empty, true).unwrap();
        reply.await.unwrap().status().as_u16()
    });
    (asked, Box::new(connection))
}
