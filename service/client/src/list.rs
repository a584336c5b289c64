//! Ids, page by page, as a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lumpscope_proto::v1;
use tokio_stream::Stream;

use crate::call::{Client, Repeat, call};
use crate::error::Error;
use crate::id::LumpId;

/// Ids of a page.
const PAGE: u32 = 10_000;

type Page = Pin<Box<dyn Future<Output = Result<v1::ListResponse, Error>> + Send>>;

impl Client {
    /// The ids in `[start, end)`, in ascending order; without an end up to the largest. Each page is its own call,
    /// with its own time and repetitions.
    #[must_use]
    pub fn list(&self, store: &str, start: Option<LumpId>, end: Option<LumpId>) -> Listing {
        let request = v1::ListRequest {
            store: store.to_owned(),
            start: start.map(Into::into),
            end: end.map(Into::into),
            page_size: PAGE,
            ..Default::default()
        };
        Listing {
            page: Some(page(self.clone(), request.clone())),
            client: self.clone(),
            request,
            ids: VecDeque::new(),
        }
    }
}

fn page(client: Client, request: v1::ListRequest) -> Page {
    Box::pin(async move {
        call!(&client, Repeat::Always, "the list", |attempt| {
            let request = attempt.request(request.clone());
            Ok(client.lump_store().list(request).await?.into_inner())
        })
    })
}

/// A stream of ids. It ends after the first error.
pub struct Listing {
    client: Client,
    request: v1::ListRequest,
    page: Option<Page>,
    ids: VecDeque<Bytes>,
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl Stream for Listing {
    type Item = Result<LumpId, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(raw) = self.ids.pop_front() {
                let id = LumpId::from_raw(&raw);
                return Poll::Ready(Some(id.ok_or(Error::Protocol("an id without 16 bytes"))));
            }
            let Some(page_under_way) = &mut self.page else {
                return Poll::Ready(None);
            };
            let reply = ready!(page_under_way.as_mut().poll(cx));
            self.page = None;
            match reply {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(reply) => {
                    self.ids = reply.ids.into();
                    if !reply.next_page_token.is_empty() {
                        self.request.page_token = reply.next_page_token;
                        self.page = Some(page(self.client.clone(), self.request.clone()));
                    }
                }
            }
        }
    }
}
