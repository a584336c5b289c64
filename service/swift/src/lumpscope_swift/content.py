"""The content of a file, read and written."""

import errno
import hashlib
import os
import random
import time

from swift.common.exceptions import DiskFileError, DiskFileNoSpace
from swift.common.utils import Timestamp

from . import device as devices
from . import door as doors
from . import form
from .door import DoorError

# Seconds for which the pieces of a replaced object stay, for those who are reading them.
GRACE = 60.0


def md5():
    """MD5 as Swift has it for ETags, where the library allows it for nothing else."""
    return hashlib.md5(usedforsecurity=False)


class Content:
    """Reads the content of a file as a file object would: read, seek, tell, close."""

    def __init__(self, dev, policy, file):
        self._dev = dev
        self._policy = policy
        self._file = file
        self._at = 0
        # Bytes that have come and not been read, which begin at `_at`; and where more come from.
        self._ready = memoryview(b"")
        self._more = None
        # Called with the reason when bytes are damaged.
        self.on_damage = None

    @staticmethod
    def fileno():
        """None: Swift's reader hands it on to what drops pages from the cache, which has nothing to do here."""
        return -1

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        if whence != os.SEEK_SET:
            raise OSError(errno.EINVAL, "only from the beginning")
        if offset != self._at:
            self._stop()
            self._at = offset

    def read(self, most):
        """The next bytes, at most `most`; none: the end."""
        while not self._ready:
            if self._at >= self._file.head.size:
                return b""
            self._ready = memoryview(self._next())
            if self._more is not None and self._at + len(self._ready) >= self._file.head.size:
                # To the end of the answer, so that its connection can be used again.
                self._more, more = None, self._more
                next(more, None)
        part = bytes(self._ready[:most])
        self._ready = self._ready[len(part):]
        self._at += len(part)
        return part

    def _next(self):
        if self._more is None:
            at = self._at
            for part in self._file.content:
                if at < len(part):
                    return part[at:]
                at -= len(part)
        try:
            if self._more is None:
                self._more = self._open()
            part = next(self._more, None)
            if part is not None:
                return part
            # The end of a lump; the next one begins here, unless nothing came of this.
            self._more = self._open(behind=True)
            part = next(self._more, None)
        except DoorError as error:
            self._failed(error)
        if part is None:
            self._damaged("the content ends at byte %d of %d" % (self._at, self._file.head.size))
        return part

    def _open(self, behind=False):
        head = self._file.head
        if self._at < head.first:
            if behind:
                self._damaged("the content ends at byte %d of %d" % (self._at, head.size))
            return self._dev.stream(self._file.ident, head.length + self._at)
        number, offset = divmod(self._at - head.first, head.piece)
        return self._dev.stream(form.piece_id(self._policy, head.hash, head.upload, number), offset)

    def _failed(self, error):
        if error.code in (doors.DATA_LOSS, doors.OUT_OF_RANGE) or \
                error.code == doors.NOT_FOUND and error.reason == "UNKNOWN_LUMP":
            self._damaged(str(error))
        self._dev.distrust()
        raise OSError(errno.EREMOTEIO, str(error)) from error

    def _damaged(self, why):
        if self.on_damage is not None:
            self.on_damage(why)
        # Not EIO: what came of it has been done.
        raise OSError(errno.EUCLEAN, why)

    def _stop(self):
        self._ready = memoryview(b"")
        if self._more is not None:
            self._more.close()
            self._more = None

    def close(self):
        self._stop()


class Writer:
    """Writes a file: pieces as they come, and the lump with its head at the end, which makes it be there."""

    def __init__(self, diskfile, size, extension):
        self._diskfile = diskfile
        self._size = size
        self._extension = extension
        self._digest = md5()
        self._upload_size = 0
        self._open = False
        # The first piece stays here until the head is known; the others leave when they are full.
        self._first = []
        self._first_size = 0
        self._piece = []
        self._piece_size = 0
        self._pieces = 0
        self._upload = 0
        self._stored = None

    @property
    def manager(self):
        return self._diskfile.manager

    def open(self):
        if self._open:
            raise ValueError("DiskFileWriter is already open")
        if self._extension == ".data":
            self._diskfile.lumps.check_room(self._size or 0)
        self._open = True
        return self

    def close(self):
        if self._open and self._upload and self._stored is None:
            # Best effort: what is left is swept.
            try:
                start = self._piece_id(0)
                self._diskfile.lumps.device.delete_range(start, start + form.MAX_PIECES)
            except DoorError as error:
                self.manager.logger.warning("pieces of an upload that was given up stay for a day: %s", error)
        self._open = False

    def write(self, chunk):
        if not self._open:
            raise ValueError("Writer is not open")
        self._digest.update(chunk)
        self._upload_size += len(chunk)
        chunk = memoryview(chunk)
        while len(chunk):
            if self._first_size < devices.PIECE:
                part = bytes(chunk[:devices.PIECE - self._first_size])
                self._first.append(part)
                self._first_size += len(part)
            else:
                part = bytes(chunk[:devices.PIECE - self._piece_size])
                self._piece.append(part)
                self._piece_size += len(part)
                if self._piece_size == devices.PIECE:
                    self._put_piece()
            chunk = chunk[len(part):]
        return self._upload_size

    def chunks_finished(self):
        return self._upload_size, self._digest.hexdigest()

    def _piece_id(self, number):
        lumps = self._diskfile.lumps
        return form.piece_id(lumps.policy, lumps.hash, self._upload, number)

    def _put_piece(self):
        if not self._upload:
            self._upload = form.upload(int(time.time()), random.SystemRandom().getrandbits(64))
        if self._pieces == form.MAX_PIECES:
            raise DiskFileError("an object has at most %d pieces of %d bytes" % (form.MAX_PIECES, devices.PIECE))
        with refusals():
            self._diskfile.lumps.device.put(self._piece_id(self._pieces), self._piece)
        self._pieces += 1
        self._piece, self._piece_size = [], 0

    def put(self, metadata):
        """Stores the file. It is on stable storage when this returns."""
        index = self._diskfile.frag_index_for(metadata, self._extension)
        timestamp = Timestamp(metadata["X-Timestamp"])
        ctype = metadata.get("Content-Type-Timestamp")
        more = {} if index is None else {"frag_index": index}
        name = self.manager.make_on_disk_filename(
            timestamp, self._extension, ctype_timestamp=Timestamp(ctype) if ctype else None, **more)
        metadata["name"] = self._diskfile._name
        if self._piece_size:
            self._put_piece()
        lumps = self._diskfile.lumps
        try:
            head = form.encode_head(
                lumps.hash, int(time.time() * 1000), self._upload_size, self._first_size,
                devices.PIECE, self._upload, name, metadata)
        except form.FormError as error:
            raise DiskFileError(str(error)) from error
        with refusals():
            self._stored = lumps.put(self._extension, head, self._first)
        # A fragment replaces nothing before it is durable.
        if index is None:
            lumps.clean()

    def commit(self, timestamp):
        """Makes the fragment durable that was stored; of replicated objects every one is."""
        self._diskfile.commit_file(Timestamp(timestamp), self._stored)


class refusals:
    """Errors of a change, as Swift knows them."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _trace):
        if kind is None or not issubclass(kind, DoorError):
            return False
        if error.code == doors.RESOURCE_EXHAUSTED:
            raise DiskFileNoSpace(str(error)) from error
        raise DiskFileError(str(error)) from error
