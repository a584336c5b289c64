//! Reads a request that is one message.

use bytes::{Buf as _, Bytes, BytesMut};
use lumpscope_proto::frame::{PREFIX_LEN, WireError};
use prost::Message;
use tonic::Status;

use crate::grpc::source::PatientBody;
use crate::refusal::Refusal;

/// What is wrong with a message that is no protobuf.
pub(in crate::grpc) const FIELDS: &str = "its fields cannot be read";

/// The only message of a request, of at most `max` bytes.
///
/// # Errors
/// [`WireError`] as a refusal, silence, a client that went away.
pub(in crate::grpc) async fn read_message<M: Message + Default>(
    source: &mut PatientBody,
    max: usize,
) -> Result<M, Status> {
    let mut gathered = BytesMut::new();
    let mut only = Bytes::new();
    while let Some(bytes) = source.data().await? {
        if gathered.len() + only.len() + bytes.len() > PREFIX_LEN + max {
            let len = (gathered.len() + only.len() + bytes.len() - PREFIX_LEN) as u64;
            let max = max as u64;
            return Err(Refusal::from(WireError::TooLarge { len, max }).into());
        }
        if only.is_empty() && gathered.is_empty() {
            only = bytes;
        } else {
            gathered.extend_from_slice(&std::mem::take(&mut only));
            gathered.extend_from_slice(&bytes);
        }
    }
    let whole = if gathered.is_empty() {
        only
    } else {
        gathered.freeze()
    };
    message(whole).map_err(|error| Refusal::from(error).into())
}

fn message<M: Message + Default>(mut whole: Bytes) -> Result<M, WireError> {
    if whole.len() < PREFIX_LEN {
        return Err(WireError::Truncated);
    }
    match whole.get_u8() {
        0 => {}
        1 => return Err(WireError::Compressed),
        flag => return Err(WireError::Flag { flag }),
    }
    let len = usize::try_from(whole.get_u32()).unwrap_or(usize::MAX);
    if whole.len() < len {
        return Err(WireError::Truncated);
    }
    if whole.len() > len {
        return Err(WireError::Malformed("more than one message came"));
    }
    M::decode(whole).map_err(|_| WireError::Malformed(FIELDS))
}
