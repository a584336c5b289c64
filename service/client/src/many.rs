//! Many lumps through one call.

use std::collections::VecDeque;

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use lumpscope_proto::{frame, v1};
use tonic::{Code, Streaming};

use crate::body::Body;
use crate::call::{AttemptFailure, Client, Repeat, call};
use crate::error::{Error, Refusal};
use crate::get::{Check, Gathered, Lump};
use crate::id::LumpId;
use crate::put::{PutOptions, same};
use crate::uncopied::Message;

/// The outcome of one lump of many.
type LumpResult<T> = Result<T, Error>;

impl Client {
    /// Stores many lumps through one stream, and answers for each of them, in their order. The whole stream is repeated
    /// when the connection breaks.
    ///
    /// # Errors
    /// Of the stream as a whole: as for [`Client::put`]; the lumps may or may not be stored then. The refusal of one
    /// lump is in its own outcome.
    pub async fn put_many(
        &self,
        store: &str,
        lumps: Vec<(LumpId, Bytes)>,
        options: &PutOptions,
    ) -> Result<Vec<LumpResult<v1::PutResponse>>, Error> {
        let sums: Vec<u32> = lumps.iter().map(|(_, body)| crc32_iscsi(body)).collect();
        let messages: Vec<Message> = lumps
            .iter()
            .zip(&sums)
            .flat_map(|((id, body), crc32c)| messages(store, *id, body, *crc32c, options))
            .collect();
        call!(self, options.repeat(), "a put of many", |attempt| {
            let mut service = self.sending(tokio_stream::iter(messages.clone()));
            let request = attempt.request(tokio_stream::empty());
            let mut replies = service.put_many(request).await?.into_inner();
            let mut outcomes: Vec<Option<LumpResult<v1::PutResponse>>> = Vec::new();
            outcomes.resize_with(lumps.len(), || None);
            while let Some(reply) = replies.message().await? {
                let at = usize::try_from(reply.index).unwrap_or(usize::MAX);
                let (Some(slot), Some(outcome)) = (outcomes.get_mut(at), reply.outcome) else {
                    return Err(Error::Protocol("an outcome of no lump").into());
                };
                *slot = Some(match outcome {
                    v1::put_many_response::Outcome::Stored(stored) => {
                        same(lumps[at].0, sums[at], stored.crc32c).map(|()| stored)
                    }
                    v1::put_many_response::Outcome::Failed(failed) => Err(refused(failed, store)),
                });
            }
            let all: Option<Vec<_>> = outcomes.into_iter().collect();
            all.ok_or(Error::Protocol("a lump without an outcome").into())
        })
    }

    /// Begins to read many lumps, at most [`crate::MANY`], whole, in this order. The call is repeated until the first
    /// answer has come.
    ///
    /// # Errors
    /// As for [`Client::get`]. The refusal of one lump is in its own outcome.
    pub async fn get_many(&self, store: &str, ids: Vec<LumpId>) -> Result<GetMany, Error> {
        let message = v1::GetManyRequest {
            store: store.to_owned(),
            ids: ids.iter().map(|id| (*id).into()).collect(),
            options: None,
        };
        call!(self, Repeat::Always, "a get of many", |attempt| {
            let request = attempt.request(message.clone());
            let mut stream = self.lump_store().get_many(request).await?.into_inner();
            Ok(GetMany {
                ahead: stream.message().await?,
                stream,
                ids: ids.iter().copied().collect(),
                store: store.to_owned(),
                index: 0,
            })
        })
    }

    /// Removes at most [`crate::MANY`] lumps by one request; returns for each whether it existed.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection. A part may have been carried out.
    pub async fn delete_many(&self, store: &str, ids: &[LumpId]) -> Result<Vec<bool>, Error> {
        let message = v1::DeleteManyRequest {
            store: store.to_owned(),
            ids: ids.iter().map(|id| (*id).into()).collect(),
            ..Default::default()
        };
        call!(self, Repeat::Always, "a delete of many", |attempt| {
            let request = attempt.request(message.clone());
            let reply = self.lump_store().delete_many(request).await?.into_inner();
            if reply.existed.len() == ids.len() {
                Ok(reply.existed)
            } else {
                Err(Error::Protocol("a delete of many with the wrong number of answers").into())
            }
        })
    }
}

/// Header and chunks of one lump of a stream.
fn messages(
    store: &str,
    id: LumpId,
    body: &Bytes,
    crc32c: u32,
    options: &PutOptions,
) -> impl Iterator<Item = Message> {
    let length = Body::from(body.clone()).length();
    let header = options.header(store, id, length, Some(crc32c));
    let mut rest = body.clone();
    let chunks = std::iter::from_fn(move || {
        let next = rest.split_to(rest.len().min(crate::CHUNK));
        (!next.is_empty()).then(|| frame::chunk(next))
    });
    let first = frame::message(&v1::PutManyRequest {
        part: Some(v1::put_many_request::Part::Header(header)),
    });
    std::iter::once([first, Bytes::new()]).chain(chunks)
}

/// A lump's own refusal inside a stream of many.
fn refused(failed: v1::LumpFailure, store: &str) -> Error {
    Error::Refused(Box::new(Refusal {
        code: Code::from(failed.code),
        message: failed.message,
        reason: failed.reason,
        store: store.to_owned(),
        request_id: None,
        retry_after: None,
    }))
}

/// Lumps as they come; one is held at a time.
#[derive(Debug)]
pub struct GetMany {
    stream: Streaming<v1::GetManyResponse>,
    /// Read, and not yet used: the beginning of the next lump marks the end of the previous one.
    ahead: Option<v1::GetManyResponse>,
    ids: VecDeque<LumpId>,
    store: String,
    index: u64,
}

impl GetMany {
    /// The next lump, or the reason it cannot be read; `None` after the last.
    ///
    /// # Errors
    /// When the stream ends before the last lump. The other lumps can be asked for again.
    pub async fn next(&mut self) -> Result<Option<(LumpId, LumpResult<Lump>)>, Error> {
        let Some(id) = self.ids.pop_front() else {
            return Ok(None);
        };
        let outcome = match self.take().await? {
            Some(v1::get_many_response::Part::Header(header)) => self.lump(id, header).await?,
            Some(v1::get_many_response::Part::Failed(failed)) => Err(refused(failed, &self.store)),
            _ => return Err(Error::Protocol("a get of many that leaves out a lump")),
        };
        self.index += 1;
        Ok(Some((id, outcome)))
    }

    async fn lump(&mut self, id: LumpId, header: v1::GetHeader) -> Result<LumpResult<Lump>, Error> {
        let mut check = Check::new(id, &header);
        let mut bytes = Gathered::default();
        let mut outcome = Ok(());
        while let Some(part) = self.take().await? {
            match part {
                v1::get_many_response::Part::Chunk(chunk) if outcome.is_ok() => {
                    outcome = check.add(&chunk);
                    bytes.add(chunk, header.length);
                }
                v1::get_many_response::Part::Chunk(_) => {}
                // The rest of it cannot be read.
                v1::get_many_response::Part::Failed(failed) => {
                    return Ok(Err(refused(failed, &self.store)));
                }
                v1::get_many_response::Part::Header(_) => {
                    return Err(Error::Protocol("a get of many with two headers of a lump"));
                }
            }
        }
        let bytes = bytes.finish();
        Ok(outcome
            .and_then(|()| check.finish())
            .map(|()| Lump { header, bytes }))
    }

    /// The next part of the lump at hand.
    async fn take(&mut self) -> Result<Option<v1::get_many_response::Part>, Error> {
        if self.ahead.is_none() {
            self.ahead = match self.stream.message().await {
                Ok(message) => message,
                Err(status) => return Err(as_error(status.into())),
            };
        }
        let index = self.index;
        let ours = self.ahead.take_if(|message| message.index == index);
        Ok(ours.and_then(|message| message.part))
    }
}

/// The failure of a stream that is not repeated.
pub(crate) fn as_error(failure: AttemptFailure) -> Error {
    match failure {
        AttemptFailure::Final(error) => error,
        AttemptFailure::Refused(refusal) => Error::Refused(refusal),
        AttemptFailure::NotSent(why) | AttemptFailure::Lost(why) => Error::Lost { why },
        AttemptFailure::TimeOver => Error::Lost {
            why: "the time of the call was over".to_owned(),
        },
        AttemptFailure::Last(failure) => as_error(*failure),
    }
}
