//! Storing one lump.

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use lumpscope_proto::{frame, v1};
use tokio_stream::StreamExt as _;

use crate::body::Body;
use crate::call::{Attempt, AttemptFailure, Client, Repeat, call};
use crate::error::Error;
use crate::id::LumpId;

/// Options of a put. The default: durability as configured, in the data region, replacing an older lump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutOptions {
    /// Meaning of "acknowledged".
    pub durability: v1::Durability,
    /// Data region, or embedded in the journal; unspecified: as the store chooses.
    pub placement: v1::Placement,
    /// Only if there is no lump of this id; else the service refuses with ALREADY_EXISTS.
    pub if_absent: bool,
    /// Queueing of the request.
    pub queue: Option<v1::RequestOptions>,
}

impl PutOptions {
    pub(crate) fn header(
        &self,
        store: &str,
        id: LumpId,
        length: u64,
        crc32c: Option<u32>,
    ) -> v1::PutHeader {
        let condition = if self.if_absent {
            v1::PutCondition::IfAbsent
        } else {
            v1::PutCondition::Unspecified
        };
        v1::PutHeader {
            store: store.to_owned(),
            id: Some(id.into()),
            length,
            durability: self.durability.into(),
            placement: self.placement.into(),
            condition: condition.into(),
            crc32c,
            options: self.queue,
        }
    }

    pub(crate) fn repeat(&self) -> Repeat {
        if self.if_absent {
            Repeat::Never
        } else {
            Repeat::Always
        }
    }
}

impl Client {
    /// Stores one lump through a stream of chunks. After a repetition `created` comes from the last try.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; [`Error::ChecksumMismatch`]; [`Error::ReadBody`];
    /// [`Error::Ambiguous`] for a put "if absent" whose answer was lost; those of a connection.
    pub async fn put(
        &self,
        store: &str,
        id: LumpId,
        body: impl Into<Body>,
        options: &PutOptions,
    ) -> Result<v1::PutResponse, Error> {
        let mut body = body.into();
        let known = body.crc32c();
        let header = options.header(store, id, body.length(), known);
        let what = format!("the put of lump {id}");
        call!(self, options.repeat(), &what, |attempt| {
            let done = self.put_once(attempt, id, header.clone(), &mut body).await;
            done.map_err(|failure| {
                if body.lasts() {
                    failure
                } else {
                    failure.last()
                }
            })
        })
    }

    async fn put_once(
        &self,
        attempt: &Attempt,
        id: LumpId,
        header: v1::PutHeader,
        body: &mut Body,
    ) -> Result<v1::PutResponse, AttemptFailure> {
        let known = header.crc32c;
        let (chunks, sent) = body.chunks().map_err(Error::ReadBody)?;
        let first = frame::message(&v1::PutRequest {
            part: Some(v1::put_request::Part::Header(header)),
        });
        let messages = tokio_stream::once([first, Bytes::new()]).chain(chunks.map(frame::chunk));
        let reply = self
            .sending(messages)
            .put(attempt.request(tokio_stream::empty()))
            .await;
        if let Some(failure) = sent.failure() {
            return Err(Error::ReadBody(failure).into());
        }
        let reply = reply?.into_inner();
        same(id, known.unwrap_or_else(|| sent.crc32c()), reply.crc32c)?;
        Ok(reply)
    }

    /// Stores one lump of at most [`crate::SMALL`] bytes by one message.
    ///
    /// # Errors
    /// As for [`Client::put`]; OUT_OF_RANGE for a longer body.
    pub async fn put_small(
        &self,
        store: &str,
        id: LumpId,
        body: impl Into<Bytes>,
        options: &PutOptions,
    ) -> Result<v1::PutResponse, Error> {
        let body = body.into();
        let crc32c = crc32_iscsi(&body);
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let request = v1::PutSmallRequest {
            header: Some(options.header(store, id, length, Some(crc32c))),
            body,
        };
        let what = format!("the put of lump {id}");
        call!(self, options.repeat(), &what, |attempt| {
            let request = attempt.request(request.clone());
            let reply = self.lump_store().put_small(request).await?.into_inner();
            let reply = reply
                .put
                .ok_or(Error::Protocol("a put without its reply"))?;
            same(id, crc32c, reply.crc32c)?;
            Ok(reply)
        })
    }
}

/// Compares the checksums of the two ends.
pub(crate) fn same(id: LumpId, sent: u32, came: u32) -> Result<(), Error> {
    if sent == came {
        Ok(())
    } else {
        Err(Error::ChecksumMismatch { id, sent, came })
    }
}
