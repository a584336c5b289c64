//! The bytes of a request as they come from HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use crate::refusal::Refusal;

/// Why no more of a request comes.
#[derive(Debug)]
pub(super) enum Lost {
    /// The client sends nothing.
    Silent(Duration),
    /// The client has gone away, or breaks the rules of HTTP/2.
    Gone(Status),
}

impl From<Lost> for Status {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Silent(silence) => Refusal::Silent { silence }.into(),
            Lost::Gone(status) => status,
        }
    }
}

/// The body of a request, with the patience the service has for it.
pub(super) struct PatientBody {
    body: Body,
    silence: Duration,
    /// When bytes came last, or when they were asked for first.
    last: Instant,
}

impl PatientBody {
    /// `silence`: longest time without a byte.
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self {
            body,
            silence,
            last: Instant::now(),
        }
    }

    /// The client's time begins anew: the service has not been reading.
    pub(super) fn resume(&mut self) {
        self.last = Instant::now();
    }

    /// The next bytes, in the pieces in which they came; `None`: the client has ended its request.
    /// May be dropped and called again.
    ///
    /// # Errors
    /// [`Lost`].
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, Lost> {
        let patience = self.last + self.silence;
        loop {
            let frame = tokio::time::timeout_at(patience, self.body.frame()).await;
            let frame = frame.map_err(|_| Lost::Silent(self.silence))?;
            let Some(frame) = frame.transpose().map_err(Lost::Gone)? else {
                return Ok(None);
            };
            // Trailers of a request say nothing.
            if let Ok(bytes) = frame.into_data()
                && !bytes.is_empty()
            {
                self.last = Instant::now();
                return Ok(Some(bytes));
            }
        }
    }
}
