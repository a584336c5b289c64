"""The part of a manager of disk files that knows lumps: where lists come from and how things are removed."""

import contextlib
import hashlib
import json
import os
import random
import re
import time
from collections import defaultdict

from eventlet import sleep, spawn_after
from swift.common.exceptions import (DiskFileDeviceUnavailable, DiskFileError, DiskFileNotExist,
                                     PartitionLockTimeout)
from swift.common.storage_policy import POLICIES
from swift.common.utils import config_fallocate_value, lock_path, split_path
from swift.obj.diskfile import AuditLocation, get_data_dir, valid_suffix

from . import content, form, tree
from .device import Device
from .door import Door, DoorError

# An upload without a head is given up after so many seconds.
ORPHAN = 86400
# Ids of a suffix are looked at in turns, so that other requests are not held up.
_TURN = 200
_TRANSACTION = re.compile(r"tx([0-9a-f]{21})-([0-9a-f]{10})")

_DEVICES = {}


class _Digest:
    def __init__(self):
        self._md5 = content.md5()

    def update(self, part):
        self._md5.update(part.encode() if isinstance(part, str) else part)

    def hexdigest(self):
        return self._md5.hexdigest()


class Lumps:
    """Mixed into Swift's managers. Settings, beside Swift's: `lumpscope_address` (`unix:PATH` or `HOST:PORT`), for one
    device `lumpscope_address_DEVICE`; `lumpscope_timeout`, seconds. A device has the store of its name."""

    def __init__(self, conf, logger):
        super().__init__(conf, logger)
        self._conf = conf
        self._swift_dir = conf.get("swift_dir", "/etc/swift")
        self._address = conf.get("lumpscope_address", "unix:/run/lumpscope/lumpscope.sock")
        self._timeout = float(conf.get("lumpscope_timeout", 60))
        # Older releases keep it elsewhere.
        self.fallocate_reserve, self.fallocate_is_percent = \
            config_fallocate_value(conf.get("fallocate_reserve", "1%"))
        self.use_splice = False
        self._folders = set()
        tree.install(self)

    def device(self, name):
        """The store of a device."""
        address = self._conf.get("lumpscope_address_" + name, self._address)
        if (address, name) not in _DEVICES:
            door = Door(address, self._timeout, trace=self._trace)
            _DEVICES[address, name] = Device(door, name)
        return _DEVICES[address, name]

    def _trace(self):
        """Swift's transaction as a trace: its digits are those of its id, so one is found by the other."""
        known = getattr(self.logger, "thread_locals", None) or (None,)
        found = _TRANSACTION.match(known[0] or "")
        if not found:
            return {}
        span = random.getrandbits(64) | 1
        return {"traceparent": "00-%s%s0-%016x-00" % (found.group(1), found.group(2), span)}

    def get_dev_path(self, device, mount_check=None):
        path = os.path.join(self.devices, device)
        if mount_check is False:
            return path
        trouble = self.device(device).trouble()
        if trouble is not None:
            self.logger.warning("device %s cannot be used: %s", device, trouble)
            return None
        if device not in self._folders:
            # For what is not on the disk: locks, and updates of containers that wait. The daemons do not look at a
            # device without the folder of the policy.
            for policy in POLICIES:
                os.makedirs(os.path.join(path, get_data_dir(policy)), exist_ok=True)
            self._folders.add(device)
        return path

    @contextlib.contextmanager
    def partition_lock(self, device, policy, partition, name=None, timeout=None):
        folder = os.path.join(self.devices, device, "locks", get_data_dir(policy), str(partition))
        timeout = self.replication_lock_timeout if timeout is None else timeout
        with lock_path(folder, timeout=timeout, timeout_class=PartitionLockTimeout, limit=1, name=name):
            yield True

    def part_power(self, policy):
        """Bits of a hash that are the number of its partition."""
        policy = POLICIES.get_by_index(int(policy))
        policy.load_ring(self._swift_dir)
        return policy.object_ring.part_power

    # Files of an object.

    def ours(self, hash_int, files, datadir):
        """The files of the object with this hash, each name once. Bits are missing in an id, so there may be those of
        another object: they are told, and left alone."""
        if "*" in os.path.basename(datadir) and files:
            hash_int = files[0].head.hash
        found = {}
        for file in files:
            if file.head.hash != hash_int:
                self.logger.error("%s and %032x have the same ids", datadir, file.head.hash)
                continue
            other = found.get(file.name)
            if other is None or (file.head.written, file.ident) > (other.head.written, other.ident):
                found[file.name] = file
        return list(found.values())

    def clean(self, device, policy, hash_int, datadir, ids=None, known=None, **kwargs):
        """Removes obsolete files of an object. Returns what Swift's get_ondisk_files does, with the names that are left
        under `files`, their heads under `heads`, and the number of the others under `removed`."""
        if ids is None:
            ids = device.list(*form.file_range(policy, hash_int))
        files = device.files(ids, known)
        removed = 0
        for file in [file for file in files if file.damage]:
            self._set_aside(device, policy, [file], datadir, file.damage)
            files.remove(file)
            removed += 1
        ours = {file.name: file for file in self.ours(hash_int, files, datadir)}
        for file in files:
            if file.head.hash == hash_int and ours[file.name] is not file:
                self.remove(device, policy, file)
                removed += 1
        names = sorted(ours, reverse=True)
        kwargs.setdefault("policy", POLICIES.get_by_index(policy))
        results = self.get_ondisk_files(names, datadir, verify=False, **kwargs)
        gone = list(results.get("obsolete", ()))
        if "ts_info" in results and self._is_reclaimable(results["ts_info"]):
            gone.append(results.pop("ts_info"))
        for info in results.get("possible_reclaim", ()):
            age = time.time() - ours[info["filename"]].head.written / 1000
            if self._is_reclaimable(info) and \
                    (info.get("durable", True) or self.commit_window <= 0 or age > self.commit_window):
                gone.append(info)
        for info in gone:
            if info["filename"] in names:
                self.remove(device, policy, ours[info["filename"]])
                names.remove(info["filename"])
                removed += 1
        results["removed"] = removed + self._remove_marks(device, ids)
        results["files"] = names
        results["heads"] = {name: ours[name].head for name in names}
        return results

    def _remove_marks(self, device, ids):
        """Removes marks without data. Both go as one range, so only a commit that came late leaves one."""
        data = {ident for ident in ids if form.kind_of(ident) == form.KIND_DATA}
        lost = [ident for ident in ids
                if form.kind_of(ident) == form.KIND_MARK and ident - form.KIND_MARK not in data]
        if lost:
            device.delete(lost)
        return len(lost)

    def _is_reclaimable(self, info):
        return time.time() - float(info["timestamp"]) > self.reclaim_age

    def remove(self, device, policy, file):
        """Removes a file: first the lump that makes it be there, and later its pieces, which may be read just now."""
        device.remove_file(file)
        if file.head is not None and file.head.upload:
            spawn_after(content.GRACE, self._remove_pieces, device, policy, file)

    def _remove_pieces(self, device, policy, file):
        try:
            device.remove_pieces(policy, file)
        except DoorError as error:
            self.logger.warning("pieces of %s stay for a day: %s", file.name, error)

    def cleanup_ondisk_files(self, hsh_path, **kwargs):
        device, datadir, _, text = self._place(hsh_path)
        return self.clean(device, _policy_of(datadir), int(text, 16), hsh_path, **kwargs)

    def _place(self, path):
        """Device, folder of the policy, partition and hash of a path; those that it does not have are None."""
        parts = os.path.relpath(path, self.devices).split(os.sep)
        parts += [None] * (5 - len(parts))
        return self.device(parts[0]), parts[1], parts[2], parts[4]

    # Setting aside.

    def quarantine_renamer(self, device_path, corrupted_file_path):
        return self.quarantine_dir_renamer(device_path, os.path.dirname(corrupted_file_path))

    def quarantine_dir_renamer(self, device_path, from_dir):
        device, datadir, _, text = self._place(from_dir)
        why = "its content is not what its metadata say, or cannot be read"
        self.set_aside(device, _policy_of(datadir), int(text, 16), from_dir, why)
        return from_dir

    def set_aside(self, device, policy, hash_int, datadir, why):
        """Takes all files of an object out of service: what can be read is kept, the others are only told of."""
        files = device.files(device.list(*form.file_range(policy, hash_int)))
        ours = "*" in os.path.basename(datadir)
        files = [file for file in files if file.damage or ours or file.head.hash == hash_int]
        self._set_aside(device, policy, files, datadir, why)

    def _set_aside(self, device, policy, files, datadir, why):
        for file in files:
            number = form.QUARANTINE_START + (int(time.time() * 1000) << 64) + random.getrandbits(63) * 2
            told = {"file": "%032x" % file.ident, "name": file.name, "path": datadir, "why": why}
            device.put(number, [json.dumps(told).encode()], placement=2)
            with contextlib.suppress(DoorError, OSError):
                if file.damage is None:
                    device.put(number + 1, list(device.stream(file.ident, 0)))
            self.remove(device, policy, file)

    # Listing.

    def partitions(self, device, policy):
        """Numbers of the partitions that have files, as text: a look at the first id of each."""
        power = self.part_power(policy)
        start, end = form.policy_range(int(policy))
        found = []
        while start < end:
            ids = device.list(start, end, 1)
            if not ids:
                break
            number = form.partition_of(ids[0], power)
            found.append(str(number))
            start = form.partition_ranges(int(policy), number, power)[0][1]
        return found

    def _ids_by_suffix(self, device, policy, partition):
        start, end = form.partition_ranges(int(policy), int(partition), self.part_power(policy))[0]
        found = defaultdict(list)
        for ident in device.list(start, end):
            found[form.suffix_of(ident)].append(ident)
        return found

    def suffixes(self, device, policy, partition):
        """Suffixes of a partition that have files."""
        return sorted(self._ids_by_suffix(device, policy, partition))

    def _listdir(self, path):
        return tree.listdir(path)

    def yield_suffixes(self, device, partition, policy):
        dev_path = self.get_dev_path(device)
        if not dev_path:
            raise DiskFileDeviceUnavailable()
        for suffix in self.suffixes(self.device(device), policy, partition):
            yield os.path.join(dev_path, get_data_dir(policy), str(partition), suffix), suffix

    def yield_hashes(self, device, partition, policy, suffixes=None, **kwargs):
        if not self.get_dev_path(device):
            raise DiskFileDeviceUnavailable()
        dev = self.device(device)
        by_suffix = self._ids_by_suffix(dev, policy, partition)
        for suffix in sorted(by_suffix) if suffixes is None else suffixes:
            for hash_text, info in self._objects(dev, device, policy, partition, by_suffix.get(suffix, ()), **kwargs):
                times = {}
                for key in ("ts_info", "data_info"):
                    if key in info:
                        times["ts_data"] = info[key]["timestamp"]
                if "durable" in info.get("data_info", ()):
                    times["durable"] = info["data_info"]["durable"]
                if "meta_info" in info:
                    times["ts_meta"] = info["meta_info"]["timestamp"]
                if "ctype_info" in info:
                    times["ts_ctype"] = info["ctype_info"]["ctype_timestamp"]
                if "ts_data" in times:
                    yield hash_text, times

    def _objects(self, dev, device, policy, partition, ids, **kwargs):
        """Each object of a suffix after it was cleaned: its hash as text, and its files; in the order of the hashes."""
        by_object = defaultdict(list)
        for ident in ids:
            by_object[form.object_of(ident)].append(ident)
        found = []
        for number, ids in enumerate(by_object.values()):
            if number % _TURN == _TURN - 1:
                sleep()
            known = {}
            hashes = {file.head.hash for file in dev.files(ids, known) if not file.damage}
            for hash_int in hashes or {None}:
                text = "%032x" % hash_int if hashes else "unknown"
                path = os.path.join(self.devices, device, get_data_dir(policy), str(partition), text[-3:], text)
                try:
                    info = self.clean(dev, int(policy), hash_int, path, ids, known, **kwargs)
                except DiskFileError as error:
                    self.logger.debug("%s: %s", path, error)
                    continue
                if hashes and info["files"]:
                    found.append((text, info))
        return sorted(found, key=lambda one: one[0])

    # Hashes of suffixes.

    def invalidate_hash(self, suffix_dir):
        """The suffix is hashed anew when it is asked for next, though no file of it has changed."""
        device, datadir, partition, _ = self._place(suffix_dir)
        ident = form.record_id(_policy_of(datadir), int(partition), self.part_power(_policy_of(datadir)))
        record = device.load_record(ident)
        if isinstance(record, dict) and record.pop(os.path.basename(suffix_dir), None) is not None:
            device.save_record(ident, record)

    def consolidate_hashes(self, partition_dir):
        """There is nothing to consolidate: a hash is known to be that of certain ids."""

    def get_hashes(self, device, partition, suffixes, policy, skip_rehash=False):
        dev_path = self.get_dev_path(device)
        if not dev_path:
            raise DiskFileDeviceUnavailable()
        wanted = [suffix for suffix in suffixes or () if valid_suffix(suffix)]
        if not skip_rehash:
            return self._get_hashes(device, partition, policy, recalculate=wanted)[1]
        for suffix in wanted:
            self.invalidate_hash(os.path.join(dev_path, get_data_dir(policy), str(partition), suffix))
        return None

    def _get_hashes(self, device, partition, policy, recalculate=None, do_listdir=False):
        """How many suffixes were hashed, and the hashes of all. A hash counts for as long as the suffix has the ids
        that it was made of; no file changes without a change of an id."""
        dev = self.device(device)
        ident = form.record_id(int(policy), int(partition), self.part_power(policy))
        record = dev.load_record(ident)
        record = record if isinstance(record, dict) else {}
        by_suffix = self._ids_by_suffix(dev, policy, partition)
        hashes, fresh, hashed = {}, {}, 0
        for suffix, ids in by_suffix.items():
            known = record.get(suffix)
            if known and known[0] == _fingerprint(ids) and suffix not in (recalculate or ()):
                fresh[suffix], hashes[suffix] = known, _hash_value(known[1])
                continue
            hashed += 1
            objects = self._objects(dev, device, policy, partition, ids)
            if not objects:
                continue
            value = self._hash_objects(objects)
            hashes[suffix] = value
            # Where something was removed these ids are no more, and nobody knows of those that came meanwhile.
            if not any(info["removed"] for _, info in objects):
                pairs = [[index, one] for index, one in value.items()] if isinstance(value, dict) else value
                fresh[suffix] = [_fingerprint(ids), pairs]
        if fresh != record:
            dev.save_record(ident, fresh)
        return hashed, hashes

    def _hash_objects(self, objects):
        digests = defaultdict(_Digest)
        for _, info in objects:
            for key in ("meta_info", "ts_info"):
                if key in info:
                    digests[None].update(info[key]["timestamp"].internal + info[key]["ext"])
            self._update_suffix_hashes(digests, info)
            if "ctype_info" in info:
                digests[None].update(info["ctype_info"]["ctype_timestamp"].internal + "_ctype")
        if self.policy == "erasure_coding":
            return {index: digest.hexdigest() for index, digest in digests.items()}
        return digests[None].hexdigest()

    # From hashes and places.

    def get_diskfile_and_filenames_from_hash(self, device, partition, object_hash, policy, **kwargs):
        dev_path = self.get_dev_path(device)
        if not dev_path:
            raise DiskFileDeviceUnavailable()
        path = os.path.join(dev_path, get_data_dir(policy), str(partition), object_hash[-3:], object_hash)
        try:
            info = self.cleanup_ondisk_files(path)
        except DoorError as error:
            raise DiskFileError(str(error)) from error
        if not info["files"]:
            raise DiskFileNotExist()
        metadata = info["heads"][info["files"][-1]].metadata
        try:
            names = split_path(metadata.get("name", ""), 3, 3, True)
        except ValueError as error:
            raise DiskFileNotExist() from error
        found = self.diskfile_cls(self, dev_path, partition, *names, policy=policy, **kwargs)
        return found, info["files"]

    def object_audit_location_generator(self, policy, device_dirs=None, auditor_type="ALL"):
        names = os.listdir(self.devices)
        names = [name for name in names if not device_dirs or name in device_dirs]
        random.shuffle(names)
        for name in names:
            dev = self.device(name)
            if dev.trouble() is not None:
                self.logger.debug("Skipping %s: %s", name, dev.trouble())
                continue
            for partition in self.partitions(dev, policy):
                folder = os.path.join(self.devices, name, get_data_dir(policy), partition)
                for suffix, ids in self._ids_by_suffix(dev, policy, partition).items():
                    for first in sorted({form.object_of(ident) for ident in ids}):
                        text = "%024x*****%s" % (first >> 25 & (1 << 96) - 1, suffix)
                        yield AuditLocation(os.path.join(folder, suffix, text), name, partition, policy)
            if auditor_type == "ALL":
                self._sweep(dev, int(policy))

    def clear_auditor_status(self, policy, auditor_type="ALL"):
        """An audit begins at the beginning: what it lists costs the disk nothing."""

    # Sweeping.

    def _sweep(self, dev, policy):
        """Removes the pieces of uploads that have no head and began more than a day ago."""
        start, end = form.pieces_range(policy)
        while True:
            ids = dev.list(start, end, 1)
            if not ids:
                return
            number, began = form.upload_of(ids[0])
            first = ids[0] & ~(form.MAX_PIECES - 1)
            start = first + form.MAX_PIECES
            if time.time() - began < ORPHAN or self._has_head(dev, ids[0], number):
                continue
            removed = dev.delete_range(first, start)
            self.logger.info("removed %d pieces of an upload that was never completed", removed)

    @staticmethod
    def _has_head(dev, piece, number):
        start, end = form.files_beside(piece)
        files = dev.files([ident for ident in dev.list(start, end) if form.kind_of(ident) == form.KIND_DATA])
        return any(file.damage or file.head.upload == number for file in files)


def _fingerprint(ids):
    return hashlib.sha256(b"".join(ident.to_bytes(16, "big") for ident in sorted(ids))).hexdigest()[:24]


def _hash_value(stored):
    return stored if isinstance(stored, str) else {index: one for index, one in stored}


def _policy_of(datadir):
    """Index of the policy whose folder has this name."""
    _, _, index = datadir.partition("-")
    return int(index or 0)


