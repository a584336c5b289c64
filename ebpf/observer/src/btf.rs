//! Offsets of structure members, read from the kernel's own type information (BTF).
//!
//! Pure: bytes in, offsets out. The probes carry no relocations, so the loader looks up what it
//! needs here and sets it as constants. Written by hand because aya-obj keeps its accessors private
//! and btf-rs, the one maintained crate, is LGPL.
//! Format: <https://docs.kernel.org/bpf/btf.html>.

use thiserror::Error;

/// The running kernel's type information.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC_PROTO: u32 = 13;
/// Anonymous structures inside each other: the kernel has three levels.
const MAX_DEPTH: u32 = 8;

/// Why the type information cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BtfError {
    /// The bytes are not BTF of this byte order.
    #[error("the kernel's type information does not begin as BTF does")]
    NotBtf,
    /// A length or offset leads out of the bytes.
    #[error("the kernel's type information is cut short at byte {at}")]
    Short { at: usize },
    /// A kind of type that this reader does not know.
    #[error("the kernel's type information has a type of the unknown kind {kind}")]
    UnknownKind { kind: u32 },
    /// The kernel has no such thing.
    #[error("this kernel has no `{name}`")]
    Missing {
        /// `structure.member` or the name of a tracepoint.
        name: String,
    },
    /// A member does not begin at a whole byte.
    #[error("`{name}` is a bit field on this kernel")]
    BitField {
        /// `structure.member`.
        name: String,
    },
}

/// The kernel's type information, indexed.
pub(crate) struct Btf<'a> {
    bytes: &'a [u8],
    strings: usize,
    strings_end: usize,
    /// Where each type begins; its id is its position plus 1.
    types: Vec<usize>,
}

struct Type {
    at: usize,
    name: u32,
    kind: u32,
    bit_fields: bool,
    members: usize,
    target: u32,
}

impl<'a> Btf<'a> {
    /// Indexes `bytes`, as read from `/sys/kernel/btf/vmlinux`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        if bytes.len() < HEADER_BYTES || half(bytes, 0)? != MAGIC {
            return Err(BtfError::NotBtf);
        }
        let header = size(word(bytes, 4)?);
        let types_at = header.saturating_add(size(word(bytes, 8)?));
        let types_end = types_at.saturating_add(size(word(bytes, 12)?));
        let strings = header.saturating_add(size(word(bytes, 16)?));
        let strings_end = strings.saturating_add(size(word(bytes, 20)?));
        if types_end > bytes.len() || strings_end > bytes.len() {
            return Err(BtfError::Short { at: bytes.len() });
        }
        let mut btf = Btf {
            bytes,
            strings,
            strings_end,
            types: Vec::new(),
        };
        let mut at = types_at;
        while at < types_end {
            btf.types.push(at);
            let found = btf.read(at)?;
            at += 12 + tail_bytes(found.kind, found.members)?;
        }
        Ok(btf)
    }

    /// Offset in bytes of a member, looked for in unnamed inner structures too.
    pub(crate) fn member_offset(&self, structure: &str, member: &str) -> Result<u32, BtfError> {
        let name = || format!("{structure}.{member}");
        for &at in &self.types {
            let found = self.read(at)?;
            if found.kind == KIND_STRUCT && self.is_named(found.name, structure) {
                let bits = self
                    .find_member(&found, member, 0)?
                    .ok_or_else(|| BtfError::Missing { name: name() })?;
                if bits % 8 != 0 {
                    return Err(BtfError::BitField { name: name() });
                }
                return Ok(bits / 8);
            }
        }
        Err(BtfError::Missing { name: name() })
    }

    /// Number of arguments of a tracepoint.
    pub(crate) fn tracepoint_arguments(&self, tracepoint: &str) -> Result<usize, BtfError> {
        // The first argument is the tracepoint's own.
        Ok(self.prototype(tracepoint)?.members.saturating_sub(1))
    }

    /// Name of the type of a tracepoint's argument, counted from 0; empty: it has none.
    pub(crate) fn tracepoint_argument(
        &self,
        tracepoint: &str,
        index: usize,
    ) -> Result<&str, BtfError> {
        let prototype = self.prototype(tracepoint)?;
        if index + 1 >= prototype.members {
            let name = format!("argument {index} of tracepoint {tracepoint}");
            return Err(BtfError::Missing { name });
        }
        let at = prototype.at + 12 + (index + 1) * 8;
        let found = self.by_id(word(self.bytes, at + 4)?)?;
        let start = self.strings.saturating_add(size(found.name));
        let text = self.bytes.get(start..self.strings_end).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        Ok(std::str::from_utf8(&text[..end]).unwrap_or_default())
    }

    fn prototype(&self, tracepoint: &str) -> Result<Type, BtfError> {
        let name = format!("btf_trace_{tracepoint}");
        for &at in &self.types {
            let found = self.read(at)?;
            if found.kind == KIND_TYPEDEF && self.is_named(found.name, &name) {
                let pointer = self.by_id(found.target)?;
                let prototype = self.by_id(pointer.target)?;
                if pointer.kind == KIND_PTR && prototype.kind == KIND_FUNC_PROTO {
                    return Ok(prototype);
                }
            }
        }
        Err(BtfError::Missing {
            name: format!("tracepoint {tracepoint}"),
        })
    }

    fn find_member(&self, of: &Type, name: &str, depth: u32) -> Result<Option<u32>, BtfError> {
        for index in 0..of.members {
            let at = of.at + 12 + index * 12;
            let (label, target) = (word(self.bytes, at)?, word(self.bytes, at + 4)?);
            let raw = word(self.bytes, at + 8)?;
            let bits = if of.bit_fields { raw & 0xff_ffff } else { raw };
            if label != 0 {
                if self.is_named(label, name) {
                    return Ok(Some(bits));
                }
                continue;
            }
            let inner = self.by_id(target)?;
            let nested = inner.kind == KIND_STRUCT || inner.kind == KIND_UNION;
            if nested
                && depth < MAX_DEPTH
                && let Some(more) = self.find_member(&inner, name, depth + 1)?
            {
                return Ok(Some(bits.saturating_add(more)));
            }
        }
        Ok(None)
    }

    fn by_id(&self, id: u32) -> Result<Type, BtfError> {
        let index = size(id).wrapping_sub(1);
        let at = self.types.get(index).ok_or(BtfError::Short { at: index })?;
        self.read(*at)
    }

    fn read(&self, at: usize) -> Result<Type, BtfError> {
        let info = word(self.bytes, at + 4)?;
        Ok(Type {
            at,
            name: word(self.bytes, at)?,
            kind: (info >> 24) & 0x1f,
            bit_fields: info >> 31 != 0,
            members: size(info & 0xffff),
            target: word(self.bytes, at + 8)?,
        })
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let at = self.strings.saturating_add(size(offset));
        let end = at.saturating_add(name.len());
        end < self.strings_end
            && self.bytes.get(at..end) == Some(name.as_bytes())
            && self.bytes.get(end) == Some(&0)
    }
}

/// Bytes that follow a type's first twelve.
fn tail_bytes(kind: u32, members: usize) -> Result<usize, BtfError> {
    match kind {
        2 | 7..=12 | 16 | 18 => Ok(0),
        1 | 14 | 17 => Ok(4),
        3 => Ok(12),
        4 | 5 | 15 | 19 => Ok(members * 12),
        6 | 13 => Ok(members * 8),
        _ => Err(BtfError::UnknownKind { kind }),
    }
}

fn size(n: u32) -> usize {
    usize::try_from(n).expect("usize has at least 32 bits on Linux")
}

fn half(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    let field = bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .ok_or(BtfError::Short { at })?;
    Ok(u16::from_ne_bytes(*field))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let field = bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .ok_or(BtfError::Short { at })?;
    Ok(u32::from_ne_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// int; struct request { int a; struct { int inner; } }; a tracepoint with two arguments.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0request\0a\0inner\0btf_trace_block_rq_issue\0";
        let at = |name: &str| {
            let pos = strings
                .windows(name.len())
                .position(|w| w == name.as_bytes());
            u32::try_from(pos.expect("in the strings")).expect("small")
        };
        let mut types: Vec<u32> = vec![at("int"), 1 << 24, 4, 32];
        types.extend([0, 4 << 24 | 1, 4, at("inner"), 1, 32]);
        types.extend([at("request"), 4 << 24 | 2, 16, at("a\0"), 1, 32, 0, 2, 64]);
        types.extend([0, 13 << 24 | 3, 0, 0, 1, 0, 1, 0, 1]);
        types.extend([0, 2 << 24, 4]);
        types.extend([at("btf_trace_"), 8 << 24, 5]);
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut out = Vec::new();
        out.extend(MAGIC.to_ne_bytes());
        out.extend([1, 0]);
        let len = |n: usize| u32::try_from(n).expect("small").to_ne_bytes();
        for field in [
            len(24),
            len(0),
            len(types.len()),
            len(types.len()),
            len(strings.len()),
        ] {
            out.extend(field);
        }
        out.extend(types);
        out.extend(strings);
        out
    }

    #[test]
    fn finds_members_also_in_unnamed_structures() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).expect("valid");
        assert_eq!(btf.member_offset("request", "a"), Ok(4));
        assert_eq!(btf.member_offset("request", "inner"), Ok(12));
        assert_eq!(btf.tracepoint_arguments("block_rq_issue"), Ok(2));
        assert_eq!(btf.tracepoint_argument("block_rq_issue", 1), Ok("int"));
        assert!(btf.tracepoint_argument("block_rq_issue", 2).is_err());
        let missing = BtfError::Missing {
            name: "request.rq_disk".to_owned(),
        };
        assert_eq!(btf.member_offset("request", "rq_disk"), Err(missing));
    }

    #[test]
    fn no_cut_of_the_bytes_panics() {
        let bytes = sample();
        for end in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0xff;
            if let Ok(btf) = Btf::parse(&broken) {
                let _ = btf.member_offset("request", "inner");
                let _ = btf.tracepoint_arguments("block_rq_issue");
                let _ = btf.tracepoint_argument("block_rq_issue", 1);
            }
        }
    }
}
