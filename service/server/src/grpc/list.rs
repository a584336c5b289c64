//! Lists: a page is one message, whose memory has a budget until its client has taken it.

use bytes::{BufMut as _, Bytes, BytesMut};
use lumpscope_proto::{frame, v1};

use super::convert;
use super::lump_store::LumpStoreService;
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::Scope;

/// Memory for pages of lists.
pub(crate) const LISTS: u64 = 32 << 20;
/// Bytes of an id while a page is made: the engine's, in the message, in the frame.
const ID: u64 = 100;
/// Bytes of an id itself.
const RAW: usize = 16;

/// Serves List: its only frame. A client that does not take it loses its connection, as with a get.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn list(
    service: &LumpStoreService,
    scope: &Scope,
    connection: Option<&Connection>,
    asked: v1::ListRequest,
) -> Result<Bytes, Refusal> {
    scope.wait_as(asked.options.as_ref());
    let named = &service.store(scope, &asked.store)?;
    let range = convert::range(asked.start.as_ref(), asked.end.as_ref())?;
    let range = range.check().map_err(|error| named.refusal(error))?;
    let rest = convert::after_token(range, &asked.page_token)?;
    let limit = convert::page_size(asked.page_size)?;
    let bytes = u64::try_from(limit).unwrap_or(u64::MAX).saturating_mul(ID);
    let memory = service.lists.reserve(scope.payer(), connection, bytes);
    let memory = memory.await?;
    let page = scope
        .ask(named, (), |store, ctx, on_done| {
            store.submit_list(ctx, rest, limit, on_done)
        })
        .await?;
    let mut all = BytesMut::with_capacity(page.ids.len() * RAW);
    for id in page.ids {
        all.put_slice(&convert::raw(id));
    }
    let mut all = all.freeze();
    let ids = std::iter::from_fn(|| (!all.is_empty()).then(|| all.split_to(RAW)));
    let next = page
        .next
        .map(|id| Bytes::copy_from_slice(&convert::raw(id)));
    let frame = frame::message(&v1::ListResponse {
        request_id: scope.id(),
        ids: ids.collect(),
        next_page_token: next.unwrap_or_default(),
    });
    Ok(memory.part(frame))
}
