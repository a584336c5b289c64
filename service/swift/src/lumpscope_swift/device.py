"""One device of Swift: a store of a local Lumpscope service. Files of objects, their pieces, records of partitions."""

import json
import random
import time

from eventlet import sleep

from . import door as doors
from . import form, messages
from .door import DoorError

# Bytes of content in a lump: an object has one lump up to this, and a piece for each further so many.
PIECE = 4 << 20
# Bytes read for a head alone.
HEAD_READ = 4 << 10
# Bytes read of a file when it is opened: of one of up to a MiB it is all, in one call and from one place of the disk.
FIRST_READ = (1 << 20) + (16 << 10)
# Files that are small go into the journal's record: one write, and no block of their own.
EMBEDDED = 4 << 10
# Seconds for which the state of the store and its room are believed.
BELIEVED = 2.0
# Tries to find a tag that nobody takes at the same time.
TRIES = 16
# Refusals after which a put is tried again, and the seconds between two tries.
AGAIN = {"PLACE_REFUSED", "STORE_BUSY", "BUFFERS_EXHAUSTED", "NO_MEMORY"}
PAUSES = (0.05, 0.2, 0.5, None)
_PAGE = 10000


class File:
    """A file of an object: its id, its name as Swift has it, its head, and what was read of its content, in parts."""

    def __init__(self, ident, name, head=None, content=(), damage=None):
        self.ident = ident
        self.name = name
        self.head = head
        self.content = content
        # Why it cannot be read; None: it can.
        self.damage = damage


class Device:
    """A store as a device. All errors of calls are DoorError."""

    def __init__(self, door, store):
        self.door = door
        self.store = store
        self._asked = 0.0
        self._trouble = None
        # UUID of the store whose marker was seen: a disk may be replaced while this process lives.
        self._marked = None
        self._usage = (0.0, None)

    # State.

    def trouble(self):
        """Why the device cannot be used now; None: it can. Asked for at most every two seconds."""
        now = time.monotonic()
        if now - self._asked > BELIEVED:
            try:
                self._trouble = self._ask_state()
            except DoorError as error:
                self._trouble = str(error)
            self._asked = time.monotonic()
        return self._trouble

    def distrust(self):
        """Something failed: the state is asked for again."""
        self._asked = 0.0

    def _ask_state(self):
        reply = self.door.call("ListStores", messages.ListStoresRequest(), messages.ListStoresResponse)
        for info in reply.stores:
            if info.name == self.store:
                if info.state in (messages.SERVING, messages.DEGRADED):
                    return self._mark(info.uuid)
                return info.state_reason or info.failed or "state %d" % info.state
        return "the service at %s has no store %r" % (self.door.address, self.store)

    def _mark(self, uuid):
        """Makes sure that the store is Swift's: its marker is there, or it is empty and gets one, or it got its first
        file from a process that did not see yet that its disk was replaced."""
        if self._marked == uuid:
            return None
        try:
            found = self.read(form.MARKER_ID, 0, 4096)[1]
        except DoorError as error:
            if error.code != doors.NOT_FOUND:
                raise
            # Somebody else may have put the marker since.
            others = [ident for ident in self.list(0, None, 2) if ident != form.MARKER_ID]
            if any(file.damage for file in self.files(others[:1])):
                return "store %r has lumps, and none of them says that it is Swift's" % self.store
            marker = json.dumps({"lumpscope-swift": form.VERSION}).encode()
            header = self._header(form.MARKER_ID, placement=messages.EMBEDDED, condition=messages.IF_ABSENT)
            try:
                self.door.put(header, [marker], len(marker))
            except DoorError as raced:
                if raced.code != doors.ALREADY_EXISTS:
                    raise
            found = marker
        try:
            version = json.loads(found)["lumpscope-swift"]
        except (ValueError, KeyError, TypeError):
            return "store %r is not Swift's: the lump %032x is something else" % (self.store, form.MARKER_ID)
        if version != form.VERSION:
            return "store %r has the form %r, and this knows %d" % (self.store, version, form.VERSION)
        self._marked = uuid
        return None

    def room(self):
        """Bytes free and bytes in all, of the data region."""
        asked, usage = self._usage
        if usage is None or time.monotonic() - asked > BELIEVED:
            # No lump is between these: only the totals are wanted.
            request = messages.UsageRequest(store=self.store, start=_id(0), end=_id(0))
            usage = self.door.call("Usage", request, messages.UsageResponse)
            self._usage = (time.monotonic(), usage)
        return usage.data_capacity_bytes - usage.data_used_bytes, usage.data_capacity_bytes

    # Lumps.

    def list(self, start, end, most=None):
        """Ids from `start` up to `end` (None: the last), ascending, at most `most`."""
        ids = []
        request = messages.ListRequest(store=self.store, start=_id(start), page_size=min(most or _PAGE, _PAGE))
        if end is not None:
            request.end.raw = end.to_bytes(16, "big")
        while True:
            reply = self.door.call("List", request, messages.ListResponse)
            ids += [int.from_bytes(ident, "big") for ident in reply.ids]
            if not reply.next_page_token or most is not None and len(ids) >= most:
                return ids[:most]
            request.page_token = reply.next_page_token

    def read(self, ident, offset, length):
        """Length of the lump, and its bytes [offset, offset + length) as far as there are any."""
        request = messages.GetRequest(store=self.store, id=_id(ident))
        request.range.offset = offset
        request.range.length = length
        reply = self.door.call("GetSmall", messages.GetSmallRequest(get=request), messages.GetSmallResponse)
        return reply.header.lump_length, reply.body

    def stream(self, ident, offset):
        """The bytes of a lump from `offset` on, as they come."""
        request = messages.GetRequest(store=self.store, id=_id(ident))
        request.range.offset = offset
        return self.door.get(request)[1]

    def _read_part(self, ident, length):
        """Length of the lump, and the first `length` bytes, in one part."""
        whole, data = self.read(ident, 0, length)
        return whole, [data]

    def _read_first(self, ident):
        """Length of the lump, and the first FIRST_READ bytes, in parts."""
        request = messages.GetRequest(store=self.store, id=_id(ident))
        request.range.length = FIRST_READ
        header, parts = self.door.get(request)
        return header.lump_length, list(parts) or [b""]

    def put(self, ident, parts, **how):
        """Stores a lump. On stable storage when this returns, unless `durability` says otherwise."""
        for pause in PAUSES:
            try:
                return self.door.put(self._header(ident, **how), parts, sum(map(len, parts)))
            except DoorError as error:
                # Nothing was stored, and it may be later, or elsewhere on the disk.
                if error.code != doors.UNAVAILABLE or error.reason not in AGAIN or pause is None:
                    raise
            sleep(pause)

    def delete(self, ids):
        """Removes lumps; those that are not there are none. Survives the service's death; a power cut may undo it."""
        for at in range(0, len(ids), 16384):
            request = messages.DeleteManyRequest(store=self.store, durability=messages.JOURNALED)
            for ident in ids[at:at + 16384]:
                request.ids.add(raw=ident.to_bytes(16, "big"))
            self.door.call("DeleteMany", request, messages.DeleteManyResponse)

    def delete_range(self, start, end, durability=messages.JOURNALED):
        """Removes the lumps from `start` up to `end` at once. Returns how many."""
        request = messages.DeleteRangeRequest(store=self.store, start=_id(start), end=_id(end), durability=durability)
        return self.door.call("DeleteRange", request, messages.DeleteRangeResponse).deleted

    def _header(self, ident, placement=0, durability=messages.SYNCED, condition=0):
        return messages.PutRequest(header={
            "store": self.store, "id": {"raw": ident.to_bytes(16, "big")}, "placement": placement,
            "durability": durability, "condition": condition,
        }).header

    # Files of objects.

    def files(self, ids, known=None, whole=False):
        """The files among the ids of one object. `known`: files by id that need not be read again; the others are
        added. `whole`: their content is read as far as FIRST_READ goes."""
        known = {} if known is None else known
        tags = {form.tag_of(ident) for ident in ids if form.kind_of(ident) == form.KIND_MARK}
        files = []
        for ident in ids:
            if form.kind_of(ident) == form.KIND_MARK:
                continue
            file = known.get(ident)
            if file is None:
                try:
                    file = self._read_file(ident, whole)
                except DoorError as error:
                    if error.code == doors.NOT_FOUND:
                        # Somebody else has removed it since it was listed.
                        continue
                    raise
                known[ident] = file
            if file.damage is None:
                file.name = file.head.name
                if form.kind_of(ident) == form.KIND_DATA and form.tag_of(ident) in tags:
                    file.name = file.name[:-len(".data")] + "#d.data"
            files.append(file)
        return files

    def _read_file(self, ident, whole):
        try:
            length, parts = self._read_first(ident) if whole else self._read_part(ident, HEAD_READ)
            wanted = form.head_length(parts[0])
            if wanted > len(parts[0]):
                parts = self._read_part(ident, wanted)[1]
            head = form.decode_head(parts[0])
            # Wide enough for what was asked for: the lump ends where its head says.
            if length != head.length + head.first:
                raise form.FormError("it has %d bytes, its head says %d" % (length, head.length + head.first))
            return File(ident, head.name, head, [memoryview(parts[0])[head.length:], *parts[1:]])
        except form.FormError as error:
            return File(ident, None, damage="lump %032x is no file of Swift: %s" % (ident, error))
        except DoorError as error:
            if error.code != doors.DATA_LOSS:
                raise
            return File(ident, None, damage=str(error))

    def put_file(self, first_id, kind, taken, head, content):
        """Stores a file under a tag that no file of its object has. `taken`: ids that are known to be there."""
        length = len(head) + sum(map(len, content))
        small = length <= EMBEDDED and kind != form.KIND_DATA
        placement = messages.EMBEDDED if small else messages.DATA
        used = {form.tag_of(ident) for ident in taken}
        for _ in range(TRIES):
            tag = random.randrange(form.TAGS)
            if tag in used:
                continue
            ident = form.file_id(first_id, tag, kind)
            try:
                self.put(ident, [head] + content, placement=placement, condition=messages.IF_ABSENT)
                return ident
            except DoorError as error:
                if error.code != doors.ALREADY_EXISTS:
                    raise
                used.add(tag)
        raise DoorError(doors.RESOURCE_EXHAUSTED, "TAGS_TAKEN", "an object has no tag left for one more file")

    def remove_file(self, file):
        """Removes a file, with the mark of its durability, at once. Its pieces are left."""
        if form.kind_of(file.ident) == form.KIND_DATA:
            self.delete_range(file.ident, file.ident + 2)
        else:
            self.delete([file.ident])

    def remove_pieces(self, policy, file):
        """Removes the pieces of a file that is gone."""
        if file.head is None or not file.head.upload:
            return
        start = form.piece_id(policy, file.head.hash, file.head.upload, 0)
        self.delete_range(start, start + form.MAX_PIECES)

    # Records of partitions.

    def load_record(self, ident):
        """A record; None: there is none that can be read."""
        try:
            parts = b"".join(self.stream(ident, 0))
            return json.loads(parts)
        except ValueError:
            return None
        except DoorError as error:
            if error.code in (doors.NOT_FOUND, doors.DATA_LOSS):
                return None
            raise

    def save_record(self, ident, record):
        """Stores a record. It may be lost: everything in it can be found out again."""
        self.put(ident, [json.dumps(record, separators=(",", ":")).encode()], durability=messages.JOURNALED)


def _id(number):
    return {"raw": number.to_bytes(16, "big")}
