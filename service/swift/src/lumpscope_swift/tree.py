"""The folders that Swift's replicator and reconstructor list, where they are ranges of ids.

Both walk the folders of a device with the functions of the operating system: there is no other interface. So these
names of their modules are bound to functions that ask the managers for devices whose files are lumps, and do what they
did for every other path. Installed by the first manager, in the process of the daemon.
"""

import errno
import os
import shutil
import sys
import types

from swift.common.storage_policy import POLICIES
from swift.obj.diskfile import get_data_dir

from . import form, messages

_MANAGERS = []
_DAEMONS = ("swift.obj.replicator", "swift.obj.reconstructor")


def install(manager):
    """Makes the folders of the manager's policy be seen by the daemon of this process."""
    _MANAGERS.append(manager)
    for name in _DAEMONS:
        daemon = sys.modules.get(name)
        if daemon is None or getattr(daemon, "lumps_are_seen", False):
            continue
        daemon.lumps_are_seen = True
        daemon.os = _over(os, listdir=listdir, rmdir=_rmdir)
        daemon.shutil = _over(shutil, rmtree=rmtree)
        daemon.tpool = _over(daemon.tpool, execute=_execute(daemon.tpool.execute))
        for theirs, ours in (("listdir", _quiet_listdir), ("isdir", isdir)):
            if hasattr(daemon, theirs):
                setattr(daemon, theirs, ours)
        if hasattr(daemon, "check_drive"):
            daemon.check_drive = _check_drive(daemon.check_drive)


def _over(module, **names):
    """A module with some of its names bound to something else."""
    other = types.ModuleType(module.__name__)
    other.__dict__.update({**module.__dict__, **names})
    return other


class Place:
    """A path that is a range of ids."""

    def __init__(self, manager, policy, parts):
        self.manager = manager
        self.device = manager.device(parts[0])
        self.policy = policy
        self.partition = parts[2] if len(parts) > 2 else None
        self.suffix = parts[3] if len(parts) > 3 else None
        self.hash = parts[4] if len(parts) > 4 else None


def _place(path):
    """The place of a path; None: it is a folder or file like any other."""
    for policy in POLICIES:
        manager = _manager_of(policy)
        if manager is None:
            continue
        parts = os.path.relpath(path, manager.devices).split(os.sep)
        if len(parts) > 1 and parts[1] == get_data_dir(policy) and (len(parts) == 2 or parts[2].isdigit()):
            return Place(manager, policy, parts)
    return None


def _manager_of(policy):
    """The manager of a policy whose files are lumps; None: they are files."""
    for manager in _MANAGERS:
        if manager.policy == policy.policy_type and policy.diskfile_module.endswith(".lumps"):
            return manager
    return None


def listdir(path):
    """Names in a folder."""
    place = _place(path)
    if place is None:
        return os.listdir(path)
    if place.partition is None:
        return place.manager.partitions(place.device, place.policy)
    if place.suffix is None:
        return place.manager.suffixes(place.device, place.policy, place.partition)
    raise OSError(errno.ENOTSUP, "not listed below suffixes", path)


def _quiet_listdir(path):
    try:
        return listdir(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return []


def isdir(path):
    """True: it is a folder. Suffixes are asked about only when they were listed just before."""
    return os.path.isdir(path) if _place(path) is None else True


def rmtree(path, ignore_errors=False, *more, **options):
    """Removes a folder: a partition is three ranges, and free at once."""
    place = _place(path)
    if place is None:
        return shutil.rmtree(path, ignore_errors, *more, **options)
    policy = int(place.policy)
    if place.hash is not None:
        for file in place.device.files(place.device.list(*form.file_range(policy, int(place.hash, 16)))):
            if file.head is not None and file.head.hash == int(place.hash, 16):
                place.manager.remove(place.device, policy, file)
        return None
    if place.partition is None or place.suffix is not None:
        raise OSError(errno.ENOTSUP, "only partitions and objects are removed", path)
    ranges = form.partition_ranges(policy, int(place.partition), place.manager.part_power(place.policy))
    for start, end in ranges:
        place.device.delete_range(start, end, messages.SYNCED)
    return None


def _rmdir(path, *more, **options):
    # A suffix without files is not there.
    if _place(path) is None:
        os.rmdir(path, *more, **options)


def _execute(theirs):
    def execute(function, *args, **options):
        """Calls of the service are waited for in green threads; only real files need threads of the system."""
        owner = getattr(function, "__self__", None)
        of_lumps = owner in _MANAGERS or any(isinstance(arg, str) and _place(arg) for arg in args)
        return function(*args, **options) if of_lumps else theirs(function, *args, **options)
    return execute


def _check_drive(theirs):
    def check_drive(root, drive, mount_check):
        for manager in _MANAGERS:
            if root == manager.devices:
                path = manager.get_dev_path(drive)
                if path is None:
                    raise ValueError("%s cannot be used: %s" % (drive, manager.device(drive).trouble()))
                return path
        return theirs(root, drive, mount_check)
    return check_drive
