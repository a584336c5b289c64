"""Ids of lumps and their heads. FORMAT.md has the tables and the reasons."""

import collections
import struct

ID_BITS = 128
HASH_BITS = 128
SPACE_FILES, SPACE_PIECES, SPACE_RECORDS, SPACE_SYSTEM = range(4)
# Bits of an id from the top: space 2, policy 5, then as the space has it.
_POLICY_AT = 121
MAX_POLICY = 31
# Files: hash 96 (its upper bits), suffix 12 (its lowest), tag 11, kind 2.
_HIGH_AT, _SUFFIX_AT, _TAG_AT = 25, 13, 2
_HIGH_DROPS = 32
TAGS = 1 << 11
OBJECT_IDS = 1 << _SUFFIX_AT
# The mark of a durable fragment lies directly behind its data, so both are removed as one range.
KIND_DATA, KIND_MARK, KIND_META, KIND_TOMBSTONE = range(4)
# Pieces: hash 44 (its upper bits), seconds since 1970 32, random 29, number 16.
_PIECE_HASH_BITS, _PIECE_NUMBER_BITS, _PIECE_RANDOM_BITS = 44, 16, 29
UPLOAD_BITS = 61
MAX_PIECES = 1 << _PIECE_NUMBER_BITS

# System: what a store is for, and what was quarantined.
MARKER_ID = SPACE_SYSTEM << 126
QUARANTINE_START = (SPACE_SYSTEM << 126) | (1 << 125)

MAGIC = b"LSWF"
VERSION = 1
# Length of the head, hash, written (ms since 1970), size, bytes in this lump, bytes of a piece, upload, lengths of
# the name and count of pairs.
_HEAD = struct.Struct(">4sHI16sQQIIQHI")
_PAIR = struct.Struct(">HI")
MAX_HEAD = 1 << 20


class FormError(Exception):
    """Bytes that are no head, or ids that cannot be made."""


def file_range(policy, hash_int):
    """First id of an object's files, and the first behind them."""
    first = _in_policy(SPACE_FILES, policy)
    first |= (hash_int >> _HIGH_DROPS) << _HIGH_AT
    first |= (hash_int & 0xfff) << _SUFFIX_AT
    return first, first + OBJECT_IDS


def file_id(first, tag, kind):
    """Id of a file of the object whose ids begin at `first`."""
    return first | tag << _TAG_AT | kind


def object_of(ident):
    """First id of the object that a file belongs to."""
    return ident >> _SUFFIX_AT << _SUFFIX_AT


def tag_of(ident):
    return ident >> _TAG_AT & TAGS - 1


def kind_of(ident):
    return ident & 3


def suffix_of(ident):
    """The last three digits of the object's hash."""
    return "%03x" % (ident >> _SUFFIX_AT & 0xfff)


def partition_of(ident, part_power):
    """Number of the partition that a file is in."""
    return (ident >> _HIGH_AT & (1 << 96) - 1) >> (96 - part_power)


def partition_ranges(policy, partition, part_power):
    """Ranges of ids that a partition is: files, pieces, records."""
    ranges = []
    for space, bits, at in ((SPACE_FILES, 96, _HIGH_AT), (SPACE_PIECES, _PIECE_HASH_BITS, 77),
                            (SPACE_RECORDS, 96, _HIGH_AT)):
        base = _in_policy(space, policy)
        start, end = (n << (bits - part_power) << at for n in (partition, partition + 1))
        ranges.append((base + start, base + end))
    return ranges


def policy_range(policy):
    """Range of the ids of all files of a policy."""
    return _in_policy(SPACE_FILES, policy), _in_policy(SPACE_FILES, policy) + (1 << _POLICY_AT)


def pieces_range(policy):
    """Range of the ids of all pieces of a policy."""
    start = _in_policy(SPACE_PIECES, policy)
    return start, start + (1 << _POLICY_AT)


def record_id(policy, partition, part_power):
    """Id of the record with the hashes of a partition."""
    return partition_ranges(policy, partition, part_power)[2][0] | part_power


def piece_id(policy, hash_int, upload, number):
    """Id of a piece of an upload."""
    upload_bits = hash_int >> (HASH_BITS - _PIECE_HASH_BITS) << UPLOAD_BITS | upload
    return _in_policy(SPACE_PIECES, policy) | upload_bits << _PIECE_NUMBER_BITS | number


def upload(seconds, random_bits):
    """Number of an upload that begins now."""
    return (seconds & 0xffffffff) << _PIECE_RANDOM_BITS | random_bits & (1 << _PIECE_RANDOM_BITS) - 1


def upload_of(ident):
    """Number of the upload of a piece, and the second in which it began."""
    number = ident >> _PIECE_NUMBER_BITS & (1 << UPLOAD_BITS) - 1
    return number, number >> _PIECE_RANDOM_BITS


def files_beside(ident):
    """Range of the files of all objects that the piece may belong to."""
    top = ident >> 77 & (1 << 49) - 1
    return top << 77, (top + 1) << 77


def _in_policy(space, policy):
    if not 0 <= policy <= MAX_POLICY:
        raise FormError("policy %d: a store has room for the policies 0 to %d" % (policy, MAX_POLICY))
    return space << 126 | policy << _POLICY_AT


Head = collections.namedtuple("Head", "length hash written size first piece upload name metadata")


def encode_head(hash_int, written, size, first, piece, upload_number, name, metadata):
    """The bytes in front of the content of a file."""
    name = name.encode("ascii")
    pairs = []
    for key, value in metadata.items():
        key, value = _bytes(key), _bytes(value)
        pairs += [_PAIR.pack(len(key), len(value)), key, value]
    body = name + b"".join(pairs)
    length = _HEAD.size + len(body)
    if length > MAX_HEAD:
        raise FormError("the metadata take %d bytes, at most %d have room" % (length, MAX_HEAD))
    return _HEAD.pack(MAGIC, VERSION, length, hash_int.to_bytes(16, "big"), written, size, first, piece,
                      upload_number, len(name), len(metadata)) + body


def head_length(data):
    """Bytes of the head that begins like this."""
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise FormError("it does not begin with %s" % MAGIC.decode())
    version, length = struct.unpack_from(">HI", data, 4)
    if version != VERSION:
        raise FormError("version %d is not known" % version)
    if not _HEAD.size <= length <= MAX_HEAD:
        raise FormError("a head of %d bytes" % length)
    return length


def decode_head(data):
    """The head at the beginning of `data`, which holds all of it."""
    length = head_length(data)
    fields = _HEAD.unpack_from(data)
    digest, written, size, first, piece, upload_number, name_length, count = fields[3:]
    at = _HEAD.size + name_length
    try:
        name = bytes(data[_HEAD.size:at]).decode("ascii")
        metadata = {}
        for _ in range(count):
            key_length, value_length = _PAIR.unpack_from(data, at)
            at += _PAIR.size
            key, value = data[at:at + key_length], data[at + key_length:at + key_length + value_length]
            at += key_length + value_length
            metadata[_text(key)] = _text(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise FormError(str(error)) from error
    if at != length or len(data) < length:
        raise FormError("its fields take %d bytes of %d" % (at, length))
    return Head(length, int.from_bytes(digest, "big"), written, size, first, piece, upload_number, name, metadata)


def _bytes(value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _text(value):
    return bytes(value).decode("utf-8", "surrogateescape")
