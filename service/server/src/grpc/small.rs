//! Lumps that fit into one message. A put takes tonic's way: what it copies is little.

use lumpscope_proto::v1;

use super::convert;
use super::get::Fetched;
use super::lump_store::LumpStoreService;
use super::put::Wanted;
use crate::refusal::Refusal;
use crate::request::Scope;
use crate::request::methods::MAX_SMALL;

/// Most bytes of a body in one message.
pub const SMALL: u64 = MAX_SMALL as u64;

/// Serves PutSmall.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn put_small(
    service: &LumpStoreService,
    scope: &Scope,
    asked: v1::PutSmallRequest,
) -> Result<v1::PutSmallResponse, Refusal> {
    let mut header = asked.header.ok_or(Refusal::HeaderMissing)?;
    let got = asked.body.len() as u64;
    check_small(got, "Put")?;
    if header.length != 0 && header.length != got {
        let announced = header.length;
        return Err(Refusal::LengthDiffers { announced, got });
    }
    header.length = got;
    let wanted = Wanted::of(service, scope, header)?;
    let mut room = wanted.room(service, scope).await?;
    room.take(&wanted, &asked.body).await?;
    let put = wanted.store(scope, room).await?;
    Ok(v1::PutSmallResponse { put: Some(put) })
}

/// Serves GetSmall. One byte more than may be sent is asked for, so that a larger lump is found out
/// and never read whole.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn get_small(
    service: &LumpStoreService,
    scope: &Scope,
    asked: v1::GetSmallRequest,
) -> Result<Fetched, Refusal> {
    let asked = asked.get.unwrap_or_default();
    scope.wait_as(asked.options.as_ref());
    let named = service.store(scope, &asked.store)?;
    let id = convert::lump_id("id", asked.id.as_ref())?;
    let range = asked.range.unwrap_or_default();
    let length = range.length.unwrap_or(u64::MAX).min(SMALL + 1);
    let fetched = Fetched::read(scope, &named, id, (range.offset, length)).await?;
    let header = &fetched.header;
    if header.length > SMALL {
        let behind = header.lump_length - header.offset;
        check_small(range.length.unwrap_or(u64::MAX).min(behind), "Get")?;
    }
    Ok(fetched)
}

fn check_small(len: u64, instead: &'static str) -> Result<(), Refusal> {
    if len > SMALL {
        return Err(Refusal::TooLongForOne {
            len,
            max: SMALL,
            instead,
        });
    }
    Ok(())
}
