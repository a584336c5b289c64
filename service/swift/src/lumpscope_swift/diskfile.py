"""Swift's disk files over lumps: what a policy names as its `diskfile_module`.

Which files of an object count, which are obsolete and what a suffix hashes to is decided by Swift's own managers, from
names; here is where the names come from and what becomes of the files.
"""

import contextlib
import os
import time

from swift.common.exceptions import (DiskFileCollision, DiskFileError, DiskFileExpired, DiskFileNoSpace,
                                     DiskFileQuarantined)
from swift.common.request_helpers import is_sys_meta
from swift.common.utils import Timestamp, hash_path
from swift.obj import diskfile as reference

from . import content, form
from .door import DoorError
from .device import File
from .manager import Lumps


class ObjectLumps:
    """The files of one object on one device."""

    def __init__(self, diskfile, manager, device_path, datadir, policy):
        self._diskfile = diskfile
        self._manager = manager
        self.device = manager.device(os.path.basename(device_path))
        self.policy = int(policy)
        self.datadir = datadir
        self.hash = form_hash(os.path.basename(datadir))
        # Files by id as they were read, and the ids that were listed last; None: not yet.
        self.known = {}
        self.ids = None

    def list(self):
        self.ids = self.device.list(*form.file_range(self.policy, self.hash))
        return self.ids

    def files(self, whole=False):
        """All files, each with its head; `whole`: with its content, if one is all there is."""
        ids = self.list()
        data = sum(form.kind_of(ident) == form.KIND_DATA for ident in ids)
        return self.device.files(ids, self.known, whole and data < 2)

    def put(self, extension, head, first):
        kind = {".data": form.KIND_DATA, ".meta": form.KIND_META, ".ts": form.KIND_TOMBSTONE}[extension]
        start = form.file_range(self.policy, self.hash)[0]
        ident = self.device.put_file(start, kind, self.ids or (), head, first)
        if self.ids is not None:
            self.ids.append(ident)
            # What was just written need not be read to be known.
            head = form.decode_head(head)
            self.known[ident] = File(ident, head.name, head)
        return ident

    def clean(self):
        """Removes what is obsolete now. The change that made it so has succeeded, so errors are only told."""
        try:
            self._manager.clean(self.device, self.policy, self.hash, self.datadir, self.ids, self.known)
        except DoorError as error:
            self._manager.logger.warning("obsolete files of %s stay for now: %s", self.datadir, error)

    def check_room(self, size):
        """Keeps the reserve of `fallocate_reserve` free."""
        try:
            free, whole = self.device.room()
        except DoorError as error:
            self.device.distrust()
            raise DiskFileError(str(error)) from error
        reserve = self._manager.fallocate_reserve
        if self._manager.fallocate_is_percent:
            reserve = whole * reserve / 100
        if free - size <= reserve:
            raise DiskFileNoSpace("%d bytes are free, and %d are kept" % (free, reserve))


def form_hash(text):
    """The hash in the name of a folder, where stars stand for digits that are not known."""
    return int(text.replace("*", "0"), 16)


class Reader:
    """Reads lumps. Mixed into Swift's reader, which does all else."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._fp.on_damage = self._quarantine

    def can_zero_copy_send(self):
        return False

    def _drop_cache(self, fd, offset, length):
        pass


class ReplicatedReader(Reader, reference.DiskFileReader):
    pass


class FragmentReader(Reader, reference.ECDiskFileReader):
    pass


class LumpFile:
    """A disk file of lumps; all else is done by Swift's, which this is mixed into."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lumps = ObjectLumps(self, self._manager, self._device_path, self._datadir, self.policy)
        self._files = {}
        # True: only its metadata are asked for.
        self._head_only = False

    # Reading.

    def read_metadata(self, current_time=None):
        self._head_only = True
        return super().read_metadata(current_time=current_time)

    def open(self, modernize=False, current_time=None):
        try:
            files = self.lumps.files(whole=not self._head_only)
            damaged = [file.damage for file in files if file.damage]
            if damaged:
                raise self._quarantine(self._datadir, damaged[0])
            files = self._manager.ours(self.lumps.hash, files, self._datadir)
            self._files = {file.name: file for file in files}
            info = self._get_ondisk_files(sorted(self._files), self.policy)
            self._data_file = info.get("data_file")
            if not self._data_file:
                raise self._construct_exception_from_ts_file(**info)
            self._fp = self._read_head(info, current_time)
        except DoorError as error:
            self.lumps.device.distrust()
            raise DiskFileError(str(error)) from error
        return self

    def _read_and_validate_metadata(self, source, quarantine_filename=None, add_missing_checksum=False):
        # The checksum of a lump covers its head.
        return dict(self._files[os.path.basename(source)].head.metadata)

    _failsafe_read_metadata = _read_and_validate_metadata

    def _read_head(self, info, current_time):
        data, meta, ctype = (info.get(key) for key in ("data_file", "meta_file", "ctype_file"))
        self._datafile_metadata = self._read_and_validate_metadata(data)
        self._metafile_metadata = None
        self._metadata = dict(self._datafile_metadata)
        if meta:
            self._metafile_metadata = self._read_and_validate_metadata(meta)
            if ctype and ctype != meta:
                self._merge_content_type_metadata(ctype)
            self._metadata = self._merged()
            self._metafile_metadata.pop("name", None)
        file = self._files[os.path.basename(data)]
        if self._name is None:
            self._learn_name(file, data)
        self._check(file, data, current_time)
        return content.Content(self.lumps.device, self.lumps.policy, file)

    def _merged(self):
        """Metadata of the data, over which a POST has put its own."""
        kept = reference.RESERVED_DATAFILE_META | reference.DATAFILE_SYSTEM_META
        merged = dict(self._metafile_metadata)
        for key, value in self._datafile_metadata.items():
            if key.lower() in kept or is_sys_meta("object", key):
                merged[key] = value
        posted = self._metafile_metadata.get("Content-Type-Timestamp")
        if "Content-Type" in self._datafile_metadata and \
                (posted is None or Timestamp(self._datafile_metadata["X-Timestamp"]) > Timestamp(posted)):
            merged["Content-Type"] = self._datafile_metadata["Content-Type"]
            merged.pop("Content-Type-Timestamp", None)
        return merged

    def _learn_name(self, file, data):
        """The name of an object of which only the place was known."""
        name = self._metadata.get("name", "")
        if int(hash_path(name.lstrip("/")), 16) != file.head.hash:
            raise self._quarantine(data, "the name %r does not have the hash of its place" % name)
        self._name = name
        self._datadir = os.path.join(os.path.dirname(self._datadir), "%032x" % file.head.hash)
        self.lumps.datadir = self._datadir
        self.lumps.hash = file.head.hash

    def _check(self, file, data, current_time):
        """Refuses what is another object or expired, and sets aside what contradicts itself."""
        name = self._metadata.get("name")
        if name is None:
            raise self._quarantine(data, "it has no name")
        if name != self._name:
            raise DiskFileCollision("the place of %r is taken by %r" % (self._name, name))
        try:
            ends = int(self._metadata.get("X-Delete-At", 0))
            length = int(self._metadata["Content-Length"])
        except (KeyError, ValueError) as error:
            raise self._quarantine(data, "its metadata cannot be read: %s" % error)
        if ends and ends <= (time.time() if current_time is None else current_time) and not self._open_expired:
            raise DiskFileExpired(metadata=self._metadata)
        if length != file.head.size:
            raise self._quarantine(data, "its metadata say %d bytes, and it has %d" % (length, file.head.size))
        self._content_length = length

    def _quarantine(self, data_file, msg):
        self._manager.set_aside(self.lumps.device, self.lumps.policy, self.lumps.hash, self._datadir, msg)
        self._quarantined_dir = self._datadir
        self._logger.warning("Quarantined object %s: %s", data_file, msg)
        self._logger.increment("quarantines")
        return DiskFileQuarantined(msg)

    # Writing.

    def frag_index_for(self, metadata, extension):
        """Index of the fragment that is stored; None: it is none."""
        return None

    def commit_file(self, timestamp, ident):
        """Replicated objects are durable when they are stored."""

    def writer(self, size=None, extension=".data"):
        return content.Writer(self, size, extension)

    @contextlib.contextmanager
    def create(self, size=None, extension=".data"):
        writer = self.writer(size, extension)
        try:
            yield writer.open()
        finally:
            writer.close()

    def write_metadata(self, metadata):
        with self.create(extension=".meta") as writer:
            writer.put(metadata)

    def delete(self, timestamp):
        with self.create(extension=".ts") as writer:
            writer.put({"X-Timestamp": Timestamp(timestamp).internal})


class ReplicatedFile(LumpFile, reference.DiskFile):
    """An object of a replicated policy."""

    reader_cls = ReplicatedReader
    writer_cls = content.Writer


class FragmentFile(LumpFile, reference.ECDiskFile):
    """A fragment archive of an erasure-coded policy."""

    reader_cls = FragmentReader
    writer_cls = content.Writer

    def frag_index_for(self, metadata, extension):
        if extension != ".data":
            return None
        index = metadata.setdefault("X-Object-Sysmeta-Ec-Frag-Index", self._frag_index)
        self._frag_index = self._manager.validate_fragment_index(index, self.policy)
        return self._frag_index

    def commit_file(self, timestamp, ident):
        lumps = self.lumps
        name = self._manager.make_on_disk_filename(timestamp, ".data", frag_index=self._frag_index)
        try:
            if ident is None:
                ident = self._stored(timestamp, name)
            if ident is not None:
                with content.refusals():
                    lumps.device.put(ident | form.KIND_MARK, [], placement=2)
                if lumps.ids is not None:
                    lumps.ids.append(ident | form.KIND_MARK)
        except DoorError as error:
            raise DiskFileError(str(error)) from error
        lumps.clean()

    def _stored(self, timestamp, name):
        """Id of a fragment that is not durable yet; None: nothing is to be done."""
        files = {file.name: file for file in self.lumps.files() if not file.damage}
        if name in files:
            return files[name].ident
        info = self._manager.get_ondisk_files(
            sorted(files), self._datadir, frag_index=self._frag_index, policy=self.policy)
        newer = [info["ts_info"]] if info.get("ts_info") else []
        # Another writer may have taken it away, with something newer, or may have been here.
        if any(one["timestamp"] > timestamp for one in newer) or \
                any(one["timestamp"] >= timestamp for one in info.get("durable_frag_set") or ()):
            return None
        raise DiskFileError("%s has no fragment %s to be made durable" % (self._datadir, name))

    def purge(self, timestamp, frag_index, nondurable_purge_delay=0, meta_timestamp=None):
        make = self._manager.make_on_disk_filename
        names = {make(timestamp, ext=".ts")}
        if meta_timestamp is not None:
            names.add(make(meta_timestamp, ext=".meta"))
        young = None
        if frag_index is not None:
            young = make(timestamp, ext=".data", frag_index=frag_index)
            names |= {young, make(timestamp, ext=".data", frag_index=frag_index, durable=True)}
        lumps = self.lumps
        try:
            for file in lumps.files():
                if file.damage or file.head.hash != lumps.hash:
                    continue
                age = time.time() - file.head.written / 1000
                if file.name in names and not (file.name == young and age < nondurable_purge_delay):
                    self._manager.remove(lumps.device, lumps.policy, file)
        except DoorError as error:
            raise DiskFileError(str(error)) from error


class LumpManager(Lumps, reference.DiskFileManager):
    """`diskfile_module = egg:lumpscope-swift#replication.lumps`"""

    diskfile_cls = ReplicatedFile


class ECLumpManager(Lumps, reference.ECDiskFileManager):
    """`diskfile_module = egg:lumpscope-swift#erasure_coding.lumps`"""

    diskfile_cls = FragmentFile
