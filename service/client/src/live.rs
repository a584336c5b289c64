//! Live streams of the service.

use std::time::Duration;

use lumpscope_proto::v1;
use tonic::Streaming;

use crate::call::{Client, Repeat, call};
use crate::error::Error;
use crate::many::as_error;

/// The service sends a message about every second; after this much silence it counts as gone.
const PATIENCE: Duration = Duration::from_secs(15);

impl Client {
    /// Watches block requests as they complete. [`Options::timeout`](crate::Options::timeout) is for the beginning
    /// only.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
    pub async fn trace(&self, message: v1::TraceRequest) -> Result<Live<v1::TraceResponse>, Error> {
        call!(self, Repeat::Always, "the trace", |attempt| {
            let request = attempt.request(message.clone());
            let stream = self.observe().trace(request).await?.into_inner();
            Ok(Live { stream })
        })
    }

    /// Takes the recording that the observer's view can be replayed from. [`Options::timeout`](crate::Options::timeout)
    /// is for the beginning only.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
    pub async fn record(&self) -> Result<Live<v1::RecordResponse>, Error> {
        call!(self, Repeat::Always, "the recording", |attempt| {
            let request = attempt.request(v1::RecordRequest {});
            let stream = self.observe().record(request).await?.into_inner();
            Ok(Live { stream })
        })
    }
}

/// Replies that come until this is dropped.
#[derive(Debug)]
pub struct Live<M> {
    stream: Streaming<M>,
}

impl<M> Live<M> {
    /// The next reply; `None`: the service has stopped. One without content comes about every second. May be dropped
    /// while it waits; nothing is lost then.
    ///
    /// # Errors
    /// [`Error::Lost`]: the connection broke, or nothing came for 15 s. [`Error::Refused`].
    pub async fn next(&mut self) -> Result<Option<M>, Error> {
        let next = tokio::time::timeout(PATIENCE, self.stream.message());
        let silent = |_| Error::Lost {
            why: format!("nothing came for {} s", PATIENCE.as_secs()),
        };
        next.await
            .map_err(silent)?
            .map_err(|status| as_error(status.into()))
    }
}
