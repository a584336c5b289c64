//! The connection of the client commands, and what a refusal looks like on the terminal.

use std::time::Duration;

use clap::Args;
use lumpscope_proto::REQUEST_ID_KEY;
use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::error::ServerError;
use crate::grpc::convert;
use crate::telemetry::metrics::code_name;

/// Bytes under way before the receiver has to answer.
const WINDOW: u32 = 16 << 20;

/// Where the service is.
#[derive(Args, Clone, Debug)]
pub(super) struct ServerArg {
    /// Address of the service
    #[arg(
        long,
        value_name = "URL",
        env = "LUMPSCOPE_SERVER",
        default_value = "http://127.0.0.1:50051",
        global = true
    )]
    pub(super) server: String,
}

impl ServerArg {
    /// Connects.
    pub(super) async fn connect(&self) -> Result<LumpStoreClient<Channel>, ServerError> {
        let failed = |why: String| ServerError::Connect {
            server: self.server.clone(),
            why,
        };
        let endpoint = Endpoint::from_shared(self.server.clone())
            .map_err(|error| failed(format!("{error}: write http://HOST:PORT")))?
            .connect_timeout(Duration::from_secs(5))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .tcp_nodelay(true);
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| failed(root_cause(&error)))?;
        Ok(LumpStoreClient::new(channel))
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// A refusal by the service, with the id by which its log and metrics know the request.
pub(super) fn refused(status: Status) -> ServerError {
    let id = status.metadata().get(REQUEST_ID_KEY);
    ServerError::Refused {
        code: code_name(status.code()).to_owned(),
        message: status.message().to_owned(),
        request_id: id.and_then(|id| id.to_str().ok()).map(str::to_owned),
    }
}

/// An id as it is typed: 1 to 32 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdArg(pub(super) lumpscope_engine::LumpId);

impl std::str::FromStr for IdArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        convert::parse_hex(text)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no lump id: write 1 to 32 hexadecimal digits"))
    }
}

impl IdArg {
    pub(super) fn wire(self) -> v1::LumpId {
        let raw = bytes::Bytes::copy_from_slice(&convert::raw(self.0));
        v1::LumpId {
            form: Some(v1::lump_id::Form::Raw(raw)),
        }
    }
}
