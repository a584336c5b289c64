//! From wire values to engine values and back; every refusal names the field.

use lumpscope_engine::{Durability, LumpId, LumpRange, Placement, PutCondition};
use lumpscope_proto::v1;

use crate::refusal::Refusal;

/// Ids a page holds when the client does not say.
pub const DEFAULT_IDS: u32 = 1_000;
/// Most ids a page holds.
pub const MAX_IDS: u32 = 10_000;

/// A lump id that must be there.
///
/// # Errors
/// [`Refusal::IdMissing`], [`Refusal::IdLength`], [`Refusal::IdText`].
pub fn lump_id(field: &'static str, id: Option<&v1::LumpId>) -> Result<LumpId, Refusal> {
    optional_id(field, id)?.ok_or(Refusal::IdMissing { field })
}

/// A lump id that may be absent. One that is there without a form is refused.
///
/// # Errors
/// As [`lump_id`].
pub fn optional_id(
    field: &'static str,
    id: Option<&v1::LumpId>,
) -> Result<Option<LumpId>, Refusal> {
    let Some(id) = id else { return Ok(None) };
    match &id.form {
        None => Err(Refusal::IdMissing { field }),
        Some(v1::lump_id::Form::Raw(raw)) => <[u8; 16]>::try_from(&raw[..])
            .map(|bytes| Some(LumpId(u128::from_be_bytes(bytes))))
            .map_err(|_| Refusal::IdLength {
                field,
                got: raw.len(),
            }),
        Some(v1::lump_id::Form::Text(text)) => {
            parse_hex(text).map(Some).ok_or_else(|| Refusal::IdText {
                field,
                got: text.chars().take(40).collect(),
            })
        }
    }
}

/// 1 to 32 hexadecimal digits, padded with zeros on the left.
#[must_use]
pub fn parse_hex(text: &str) -> Option<LumpId> {
    let digits = (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !digits {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(LumpId)
}

/// The 16 bytes of an id, most significant first.
#[must_use]
pub fn raw(id: LumpId) -> [u8; 16] {
    id.0.to_be_bytes()
}

/// `start <= id < end`; an absent start is the smallest id, an absent end is none.
///
/// # Errors
/// As [`lump_id`]. A reversed range is the engine's to refuse.
pub fn range(start: Option<&v1::LumpId>, end: Option<&v1::LumpId>) -> Result<LumpRange, Refusal> {
    Ok(LumpRange {
        start: optional_id("start", start)?.unwrap_or(LumpId(0)),
        end: optional_id("end", end)?,
    })
}

/// The rest of `range` behind a page token.
///
/// # Errors
/// [`Refusal::PageToken`]: not 16 bytes, or outside the range.
pub fn after_token(range: LumpRange, token: &[u8]) -> Result<LumpRange, Refusal> {
    if token.is_empty() {
        return Ok(range);
    }
    let bytes = <[u8; 16]>::try_from(token).map_err(|_| Refusal::PageToken)?;
    let next = LumpId(u128::from_be_bytes(bytes));
    if next < range.start || range.end.is_some_and(|end| next >= end) {
        return Err(Refusal::PageToken);
    }
    Ok(LumpRange {
        start: next,
        end: range.end,
    })
}

/// Ids in a page.
///
/// # Errors
/// [`Refusal::PageSize`].
pub fn page_size(got: u32) -> Result<usize, Refusal> {
    let size = match got {
        0 => DEFAULT_IDS,
        1..=MAX_IDS => got,
        _ => {
            return Err(Refusal::PageSize {
                got,
                max: MAX_IDS,
                default: DEFAULT_IDS,
            });
        }
    };
    Ok(usize::try_from(size).unwrap_or(usize::MAX))
}

/// Durability asked for; unspecified: what the service is configured to.
///
/// # Errors
/// [`Refusal::EnumValue`].
pub fn durability(got: i32, default: Durability) -> Result<Durability, Refusal> {
    match v1::Durability::try_from(got) {
        Ok(v1::Durability::Unspecified) => Ok(default),
        Ok(v1::Durability::Synced) => Ok(Durability::Synced),
        Ok(v1::Durability::Journaled) => Ok(Durability::Journaled),
        Err(_) => Err(Refusal::EnumValue {
            field: "durability",
            got,
        }),
    }
}

/// Durability reached, for a reply.
#[must_use]
pub fn durability_reply(reached: Durability) -> i32 {
    match reached {
        Durability::Synced => v1::Durability::Synced.into(),
        Durability::Journaled => v1::Durability::Journaled.into(),
    }
}

/// Placement asked for; `None`: whichever the store chooses.
///
/// # Errors
/// [`Refusal::EnumValue`].
pub fn placement(got: i32) -> Result<Option<Placement>, Refusal> {
    match v1::Placement::try_from(got) {
        Ok(v1::Placement::Unspecified) => Ok(None),
        Ok(v1::Placement::Data) => Ok(Some(Placement::Data)),
        Ok(v1::Placement::Embedded) => Ok(Some(Placement::Embedded)),
        Err(_) => Err(Refusal::EnumValue {
            field: "placement",
            got,
        }),
    }
}

/// When a put is carried out.
///
/// # Errors
/// [`Refusal::EnumValue`].
pub fn condition(got: i32) -> Result<PutCondition, Refusal> {
    match v1::PutCondition::try_from(got) {
        Ok(v1::PutCondition::Unspecified | v1::PutCondition::Always) => Ok(PutCondition::Always),
        Ok(v1::PutCondition::IfAbsent) => Ok(PutCondition::IfAbsent),
        Err(_) => Err(Refusal::EnumValue {
            field: "condition",
            got,
        }),
    }
}

/// The ids of a call about many lumps.
///
/// # Errors
/// As [`lump_id`].
pub fn lump_ids(field: &'static str, ids: &[v1::LumpId]) -> Result<Vec<LumpId>, Refusal> {
    ids.iter().map(|id| lump_id(field, Some(id))).collect()
}

/// Where a lump lives, for a reply.
#[must_use]
pub fn placement_reply(placement: Placement) -> i32 {
    match placement {
        Placement::Data => v1::Placement::Data.into(),
        Placement::Embedded => v1::Placement::Embedded.into(),
    }
}
