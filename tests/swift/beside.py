"""Disk files of lumps beside Swift's own, on the same objects: names, hashes and lists must be equal.

Run by the scenes as `beside.py ADDRESS DEVICES DEVICE FOLDER`, in the cluster's namespaces.
"""

import os
import random
import sys
import time

import eventlet

eventlet.monkey_patch(all=False, socket=True, select=True, thread=True)

from lumpscope_swift import form, manager, tree
from lumpscope_swift.device import Device
from lumpscope_swift.door import Door
from swift.common.exceptions import DiskFileError, DiskFileNotExist
from swift.common.storage_policy import POLICIES
from swift.common.utils import Timestamp, get_logger, hash_path
from swift.obj.diskfile import DiskFileManager, DiskFileRouter

POWER = 5


def partition(name):
    return str(int(hash_path("a", "c", name), 16) >> 128 - POWER)


class Side:
    """One of the two managers."""

    def __init__(self, files, device):
        self.files, self.device = files, device

    def file(self, name):
        return self.files.get_diskfile(self.device, partition(name), "a", "c", name, POLICIES[0])

    def put(self, name, data, when):
        file = self.file(name)
        try:
            file.open()
        except (DiskFileError, DiskFileNotExist):
            pass
        with file.create(size=len(data)) as writer:
            writer.write(data)
            size, etag = writer.chunks_finished()
            writer.put({"X-Timestamp": Timestamp(when).internal, "Content-Length": str(size), "ETag": etag,
                        "Content-Type": "a/b"})

    def get(self, name):
        file = self.file(name)
        file.open()
        return b"".join(file.reader())

    def post(self, name, when, **more):
        self.file(name).write_metadata({"X-Timestamp": Timestamp(when).internal, **more})

    def listed(self, part):
        found = self.files.yield_hashes(self.device, part, POLICIES[0])
        hashes = self.files.get_hashes(self.device, part, [], POLICIES[0])
        return hashes, sorted((name, sorted(times.items())) for name, times in found)


def histories(sides, began):
    """The same changes on both sides; returns the partitions they are in."""
    for number in range(60):
        name = f"o{number}"
        for side in sides:
            side.put(name, b"x" * 100, began + number)
            if number % 3 == 0:
                side.put(name, b"y" * 100, began + number + 200)
            if number % 5 == 0:
                side.post(name, began + number + 300, **{"X-Object-Meta-A": "b"})
            if number % 7 == 0:
                kind = Timestamp(began + number + 350).internal
                side.post(name, began + number + 400, **{"Content-Type": "z/z", "Content-Type-Timestamp": kind})
            if number % 11 == 0:
                side.file(name).delete(Timestamp(began + number + 500))
    return {partition(f"o{number}") for number in range(60)}


def sweeping(lumps, device, began):
    """Pieces that no head names go after a day; those of an object stay."""
    data = random.Random(1).randbytes(9 << 20)
    lumps.put("big", data, began)
    hash_int = int(hash_path("a", "c", "big"), 16)
    before = device.list(*form.pieces_range(0))
    for second, number in ((time.time() - manager.ORPHAN - 60, 1), (time.time(), 2)):
        device.put(form.piece_id(0, hash_int, form.upload(int(second), number), 0), [b"z" * 1000])
    lumps.files._sweep(device, 0)
    left = set(device.list(*form.pieces_range(0)))
    assert set(before) < left and len(left) == len(before) + 1, (len(before), len(left))
    assert lumps.get("big") == data


def marking(address, name):
    """A store that is empty is taken by two at once: the second one's look finds no marker, and its list does."""
    first, second = Device(Door(address), name), Device(Door(address), name)
    listed = second.list

    def after_the_first(*args):
        assert first.trouble() is None
        return listed(*args)

    second.list = after_the_first
    assert second.trouble() is None, second.trouble()


def main():
    address, devices, name, folder = sys.argv[1:]
    marking(address, name)
    os.makedirs(os.path.join(folder, name))
    conf = {"devices": devices, "lumpscope_address": address}
    lumps = Side(DiskFileRouter(conf, get_logger({}))[0], name)
    files = Side(DiskFileManager({"devices": folder, "mount_check": "false"}, get_logger({})), name)
    began = time.time() - 1000
    parts = histories([lumps, files], began)
    for part in sorted(parts):
        # The second time from the record.
        for _ in range(2):
            ours, theirs = lumps.listed(part), files.listed(part)
            theirs_here = {suffix: theirs[0][suffix] for suffix in theirs[0]}
            assert ours == (theirs_here, theirs[1]), (part, ours, theirs)
        assert lumps.files._get_hashes(name, part, POLICIES[0])[0] == 0, "hashed again though nothing has changed"
    lumps.put("late", b"new", began + 50)
    lumps.put("late", b"old", began + 10)
    assert lumps.get("late") == b"new", "an older put that came late has won"
    device = lumps.files.device(name)
    sweeping(lumps, device, began)
    part = sorted(parts)[0]
    tree.rmtree(os.path.join(devices, name, "objects", part))
    assert part not in lumps.files.partitions(device, POLICIES[0])
    print(f"{len(parts)} partitions are listed and hashed as Swift's own files are")


if __name__ == "__main__":
    main()
