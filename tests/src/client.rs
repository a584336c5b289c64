//! A thin gRPC client: whole lumps in and out, nothing hidden.

use bytes::Bytes;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::observe_client::ObserveClient;
use lumpscope_proto::v1::{
    GetRequest, LumpId, PutHeader, PutRequest, PutResponse, ReportRequest, StoreReport,
    get_response, lump_id, put_request,
};
use tonic::Status;
use tonic::transport::Channel;

/// Bytes a chunk of a put carries.
const CHUNK: usize = 1 << 20;

/// A connection to one service.
#[derive(Debug, Clone)]
pub struct Client {
    lumps: LumpStoreClient<Channel>,
    observe: ObserveClient<Channel>,
}

/// The 16-byte form of an id.
pub fn id(value: u128) -> LumpId {
    let raw = Bytes::copy_from_slice(&value.to_be_bytes());
    LumpId {
        form: Some(lump_id::Form::Raw(raw)),
    }
}

/// Content that belongs to one (id, version) alone, so that foreign bytes are noticed.
///
/// # Panics
/// Never: the low half of an id fits in 64 bits.
pub fn content(value: u128, version: u64, length: usize) -> Bytes {
    let low = u64::try_from(value & u128::from(u64::MAX)).expect("masked to 64 bits");
    let mut state = low ^ (version << 40) ^ 0x9E37_79B9_7F4A_7C15;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

impl Client {
    /// Connects to `http://ADDRESS`.
    ///
    /// # Errors
    /// When nobody answers there.
    ///
    /// # Panics
    /// When the address is no URL.
    pub async fn connect(url: &str) -> Result<Client, tonic::transport::Error> {
        let channel = Channel::from_shared(url.to_owned())
            .expect("the service prints a valid address")
            .initial_stream_window_size(16 << 20)
            .initial_connection_window_size(16 << 20)
            .connect()
            .await?;
        Ok(Client {
            lumps: LumpStoreClient::new(channel.clone()).max_decoding_message_size(16 << 20),
            observe: ObserveClient::new(channel),
        })
    }

    /// The generated client, for calls that have no shorthand here.
    pub fn raw(&mut self) -> &mut LumpStoreClient<Channel> {
        &mut self.lumps
    }

    /// The generated client of the observer, on the same connection.
    #[must_use]
    pub fn observe(&self) -> ObserveClient<Channel> {
        self.observe.clone()
    }

    /// Puts one lump with the default durability.
    ///
    /// # Errors
    /// The service's refusal.
    pub async fn put(
        &mut self,
        store: &str,
        value: u128,
        body: Bytes,
    ) -> Result<PutResponse, Status> {
        let messages = self.put_request(store, value, body);
        let reply = self.lumps.put(tokio_stream::iter(messages)).await?;
        Ok(reply.into_inner())
    }

    /// The messages of such a put, to be sent with headers.
    pub fn put_request(&self, store: &str, value: u128, body: Bytes) -> Vec<PutRequest> {
        let header = PutHeader {
            store: store.to_owned(),
            id: Some(id(value)),
            length: body.len() as u64,
            ..PutHeader::default()
        };
        let mut messages = vec![PutRequest {
            part: Some(put_request::Part::Header(header)),
        }];
        let mut at = 0;
        while at < body.len() {
            let end = body.len().min(at + CHUNK);
            messages.push(PutRequest {
                part: Some(put_request::Part::Chunk(body.slice(at..end))),
            });
            at = end;
        }
        messages
    }

    /// Gets one whole lump.
    ///
    /// # Errors
    /// The service's refusal.
    pub async fn get(&mut self, store: &str, value: u128) -> Result<Vec<u8>, Status> {
        let request = GetRequest {
            store: store.to_owned(),
            id: Some(id(value)),
            range: None,
            ..Default::default()
        };
        let mut stream = self.lumps.get(request).await?.into_inner();
        let mut body = Vec::new();
        while let Some(message) = stream.message().await? {
            if let Some(get_response::Part::Chunk(chunk)) = message.part {
                body.extend_from_slice(&chunk);
            }
        }
        Ok(body)
    }

    /// The observation report of one store.
    ///
    /// # Errors
    /// The service's refusal.
    ///
    /// # Panics
    /// When the reply holds no report.
    pub async fn report(&mut self, store: &str) -> Result<StoreReport, Status> {
        let request = ReportRequest {
            store: store.to_owned(),
            without_heat: false,
        };
        let mut reply = self.observe.report(request).await?.into_inner();
        Ok(reply.stores.pop().expect("one store was asked for"))
    }
}
