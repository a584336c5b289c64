"""The scenes: each breaks something, and says how it must be afterwards."""

import hashlib
import os
import random
import sys
import threading
import time
from http.client import HTTPConnection
from urllib.parse import quote

import cluster as clusters
from cluster import Cluster
from machine import Failed, check, note, run, say

# Bytes of the objects: nothing, less than a block, one lump, more than one.
SIZES = [0, 1, 1000, 25_000, 300_000, 1 << 20, (4 << 20) - 1, 9 << 20]
# Longest that the cluster may need to be whole again, in passes of its daemons.
PASSES = 8


def bytes_of(name, size):
    """Bytes that only this object has."""
    return random.Random(name).randbytes(size)


class Objects:
    """Every object that was acknowledged, and what it must be."""

    def __init__(self, client):
        self.client = client
        self.wanted = {}
        self.deleted = set()
        self.lock = threading.Lock()
        self.refused = 0
        # Of single reads: all, refused ones, and those with wrong bytes.
        self.reads = self.refused_reads = 0
        self.wrong = []

    def put(self, policy, name, data):
        """Puts an object. A refused one may be there or not; what it would have replaced is, or else the new one."""
        path = f"{policy}/{name}"
        with self.lock:
            self.deleted.discard(path)
            before = self.wanted.pop(path, None)
        status = self._status("PUT", path, data)
        new = (hashlib.md5(data).hexdigest(), len(data))
        with self.lock:
            if status == 201:
                self.wanted[path] = [new]
            else:
                self.refused += 1
                if before:
                    self.wanted[path] = [*before, new]

    def delete(self, path):
        with self.lock:
            self.wanted.pop(path, None)
        if self._status("DELETE", path) in (204, 404):
            with self.lock:
                self.deleted.add(path)

    def _status(self, method, path, data=None):
        try:
            return self.client.ask(method, path, data)[0]
        except OSError:
            return 0

    def lost(self):
        """Acknowledged objects that cannot be got, or are something else; deleted ones that are there."""
        wrong = []
        for path, known in list(self.wanted.items()):
            status, headers, body = self._got(path)
            if status != 200 or (hashlib.md5(body).hexdigest(), len(body)) not in known:
                wrong.append(f"{path}: {status}, {len(body)} bytes, wanted {known}")
        for path in list(self.deleted):
            status, _, _ = self._got(path)
            if status != 404:
                wrong.append(f"{path}: {status}, it was deleted")
        return wrong

    def read(self, path):
        """Gets an object as a client that does not ask twice; false: it was refused. Wrong bytes fail."""
        with self.lock:
            known = self.wanted.get(path)
        if known is None:
            return True
        try:
            status, _, body = self.client.ask("GET", path)
        except OSError:
            return False
        if status == 200 and (hashlib.md5(body).hexdigest(), len(body)) not in known:
            self.wrong.append(f"{path}: {len(body)} bytes that nobody put")
        return status == 200

    def _got(self, path):
        for _ in range(3):
            try:
                status, headers, body = self.client.ask("GET", path)
            except OSError:
                status, headers, body = 0, {}, b""
            # 401: the cache of logins was too slow.
            if status not in (0, 401, 503):
                break
            time.sleep(1)
        return status, headers, body

    def none_lost(self, when):
        wrong = self.lost() + self.wrong
        if wrong:
            raise Failed(f"{when}: {len(wrong)} of {len(self.wanted)} objects are lost or wrong:\n" + "\n".join(wrong[:10]))
        note(f"{when}: {len(self.wanted)} acknowledged objects are there, {len(self.deleted)} deleted ones are not")


class Writing:
    """Puts objects, reads, overwrites and deletes some, until it is told to stop."""

    def __init__(self, objects, policies, name, sizes):
        self.objects, self.policies, self.name, self.sizes = objects, policies, name, sizes
        self.stop = threading.Event()
        self.done = 0
        self.thread = threading.Thread(target=self._write)

    def _write(self):
        pick = random.Random(self.name)
        while not self.stop.is_set():
            policy = pick.choice(self.policies)
            number = pick.randrange(self.done + 1)
            name = f"{self.name}-{self.done if pick.random() < 0.7 else number}"
            if pick.random() < 0.3 and self.objects.wanted:
                self.objects.reads += 1
                if not self.objects.read(pick.choice(list(self.objects.wanted))):
                    self.objects.refused_reads += 1
            if pick.random() < 0.1:
                self.objects.delete(f"{policy}/{self.name}-{number}")
            else:
                data = bytes_of(f"{policy}{name}{self.done}", pick.choice(self.sizes))
                self.objects.put(policy, name, data)
            self.done += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def play(options, folder, site, alone):
    """The scenes, or instead of them a run of its own: the policies that it needs, and its function."""
    clusters.say_versions()
    if options.short:
        options.rounds, options.objects = 1, 12
        options.scenes = options.scenes or "service killed,disk destroyed,bits rot,databases away"
    # A disk that is full misses overwrites: objects are put all the time that a node is away, and in each round.
    options.size = options.size or 1024 + 16 * options.away + 256 * options.rounds
    if options.fill:
        # Partitions are not equal: some disks get more.
        options.size = options.fill * 3 // 2
    say("a cluster: four nodes in two zones")
    begun = time.monotonic()
    found = Cluster(options.binary, folder, site, options.size << 20, lumps_only=options.short,
                    away=options.away, traced=not options.speed, drive=options.drive)
    if alone:
        policies, run_alone = alone
        found.policies = [one for one in found.policies if one[0] in policies]
    found.start()
    note(f"ready after {time.monotonic() - begun:.0f} s")
    if alone:
        return run_alone(found, options)
    client = found.client()
    client.containers(found.policies)
    names = [one[0] for one in found.policies]
    lumps = [one[0] for one in found.policies if one[2]]
    objects = Objects(client)
    say("objects: put, got, ranges, metadata, overwritten, deleted, expired")
    use(objects, names, options.objects)
    objects.none_lost("as they were put")
    observed(found, client)
    rows = []
    for number in range(options.rounds):
        for name, scene in SCENES:
            if options.scenes and name not in options.scenes.split(","):
                continue
            say(f"round {number + 1}: {name}")
            begun, before = time.monotonic(), len(objects.wanted)
            text = scene(found, objects, lumps, f"r{number}{name.replace(' ', '-')}")
            objects.none_lost(name)
            rows.append((f"{number + 1}", name, f"{len(objects.wanted) - before:+d}", "0",
                         f"{time.monotonic() - begun:.0f} s", text))
            note(f"{rows[-1][-2]}: {text}; breakages so far: {len(rows)}")
    beside(found)
    table(rows)
    note(f"{objects.refused} puts and {objects.refused_reads} of {objects.reads} reads were refused meanwhile")


def beside(found):
    """The disk files themselves, in an empty store: whatever else is there would be listed, too."""
    node = found.nodes[0]
    node.service.kill9()
    node.disk.close()
    node.make_disk()
    node.start_service()
    words = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside.py"),
             f"unix:{node.socket}", node.devices, node.lump_device, os.path.join(found.folder, "beside")]
    note(run(words, env=found.env).strip().rsplit("\n", 1)[-1])


def table(rows):
    heads = ("round", "scene", "objects", "lost", "took", "")
    widths = [max(len(str(row[at])) for row in [heads, *rows]) for at in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


def use(objects, policies, count):
    """A user's day, on each policy."""
    client = objects.client
    for policy in policies:
        for number in range(count):
            size = SIZES[number % len(SIZES)]
            objects.put(policy, f"first-{number}", bytes_of(f"{policy}{number}", size))
        data = bytes_of("ranges", 9 << 20)
        objects.put(policy, "ranges", data)
        for start, end in ((0, 0), (5, 4 << 20), ((4 << 20) - 3, (4 << 20) + 3), (9 << 20, 10 << 20), ((8 << 20) + 1, (9 << 20) - 1)):
            status, _, got = client.ask("GET", f"{policy}/ranges", Range=f"bytes={start}-{end}")
            right = data[start:end + 1]
            if status != (206 if right else 416) or right and got != right:
                raise Failed(f"{policy}: bytes {start} to {end}: {status}, {len(got)} bytes")
        client.good("POST", f"{policy}/ranges", **{"X-Object-Meta-Colour": "blue", "Content-Type": "text/x"})
        client.good("POST", f"{policy}/ranges", **{"X-Object-Meta-Taste": "s\u00fc\u00df".encode().decode("latin1")})
        headers, _ = client.good("HEAD", f"{policy}/ranges")
        found = (headers["X-Object-Meta-Colour"], headers["Content-Type"], headers["Content-Length"])
        check(found == (None, "text/x", str(9 << 20)), f"{policy}: metadata is the last that was posted")
        if headers["X-Object-Meta-Taste"].encode("latin1") != "s\u00fc\u00df".encode():
            raise Failed(f"{policy}: metadata came back as {headers['X-Object-Meta-Taste']!r}")
        objects.put(policy, "first-1", bytes_of("again", 5 << 20))
        objects.delete(f"{policy}/first-2")
        client.good("PUT", f"{policy}/expires", b"soon", **{"X-Delete-After": "1"})
        time.sleep(1.5)
        check(client.ask("GET", f"{policy}/expires")[0] == 404, f"{policy}: an object that has expired is not there")


def observed(found, client):
    """The services know which transactions of Swift the slowest requests of their disks were for."""
    said = "".join(node.explained() for node in found.nodes)
    # txAAAAAAAAAAAAAAAAAAAAA-BBBBBBBBBB: its digits and a 0 are the trace.
    traces = {one[2:23] + one[24:34] + "0" for one in client.transactions}
    seen = sum(trace in said for trace in traces)
    check(seen > 0, f"{seen} of {len(traces)} transactions are among the explained requests")


def heal(found, objects, lumps, what):
    """Passes of the daemons until `what()` says that all is whole."""
    for number in range(PASSES):
        found.once("replicator", *(["reconstructor"] if "ec-lumps" in lumps else []))
        left = what()
        if not left:
            return number + 1
    raise Failed(f"not whole after {PASSES} passes: {left}")


def places(found, objects, lumps):
    """For each object the index of its policy, its path on a device, and where the ring wants it (address, device)."""
    from swift.common.ring import Ring
    account = objects.client.url.rsplit("/", 1)[1]
    rings = {}
    for name in lumps:
        index = found.index(name)
        rings[name] = index, Ring(found.swift_dir, ring_name=f"object-{index}" if index else "object")
    for path in list(objects.wanted):
        policy, _, key = path.partition("/")
        if policy in rings:
            index, ring = rings[policy]
            part, nodes = ring.get_nodes(account, policy, key)
            yield index, f"{part}/{account}/{path}", [(node["ip"], node["device"]) for node in nodes]


def holds(ip, device, index, path):
    """A device has an object."""
    connection = HTTPConnection(ip, clusters.OBJECT, timeout=30)
    try:
        connection.request("HEAD", quote(f"/{device}/{path}"), headers={"X-Backend-Storage-Policy-Index": str(index)})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def missing(found, objects, lumps):
    """Copies and fragments that are not where the ring wants them."""
    return [f"{path} on {device}" for index, path, nodes in places(found, objects, lumps)
            for ip, device in nodes if not holds(ip, device, index, path)]


def left_on(found, objects, lumps, node):
    """Objects that a device has, wanted there or not."""
    return [path for index, path, _ in places(found, objects, lumps)
            if holds(node.ip, node.lump_device, index, path)]


# Scenes.


def killed(found, objects, lumps, name):
    """The service of a store is killed while objects are written, and comes back."""
    node = random.Random(name).choice(found.nodes)
    with Writing(objects, lumps, name, SIZES) as writing:
        time.sleep(3)
        node.service.kill9()
        time.sleep(4)
        node.start_service()
        time.sleep(2)
    passes = heal(found, objects, lumps, lambda: missing(found, objects, lumps))
    return f"{node.lump_device}, {writing.done} changes meanwhile, whole after {passes} passes"


def away(found, objects, lumps, name):
    """A node stops answering while objects are written, and comes back with what it had."""
    node = random.Random(name).choice(found.nodes)
    node.stop_server()
    with Writing(objects, lumps, name, SIZES) as writing:
        time.sleep(found.away)
    objects.none_lost("while the node is away")
    node.start_service()
    node.start_server()
    node.wait_server()
    passes = heal(found, objects, lumps, lambda: missing(found, objects, lumps))
    return f"{node.lump_device}, {writing.done} changes meanwhile, whole after {passes} passes"


def destroyed(found, objects, lumps, name):
    """A disk is gone, with all that was on it; an empty one takes its place."""
    node = random.Random(name).choice(found.nodes)
    node.destroy_disk()
    with Writing(objects, lumps, name, SIZES[:5]) as writing:
        time.sleep(3)
        node.make_disk()
        node.start_service()
        begun = time.monotonic()
        found.once("replicator", *(["reconstructor"] if "ec-lumps" in lumps else []))
    passes = heal(found, objects, lumps, lambda: missing(found, objects, lumps))
    seconds = time.monotonic() - begun
    return f"{node.lump_device}, {writing.done} changes meanwhile, full after {passes + 1} passes, {seconds:.0f} s"


def rotten(found, objects, lumps, name):
    """Bits on a disk change at rest; the auditor finds them, and the others heal them."""
    node = random.Random(name).choice(found.nodes)
    node.service.stop()
    hit = rot(node, name)
    node.start_service()
    found.once("auditor", nodes=[node])
    with open(os.path.join(found.folder, f"auditor{node.number}.log"), errors="replace") as log:
        seen = log.read().count("failed audit and was quarantined")
    # A place may be that of an object that was removed.
    check(seen > 0, f"the auditor has told of {seen} objects, {hit} places were hit")
    passes = heal(found, objects, lumps, lambda: missing(found, objects, lumps))
    return f"{node.lump_device}, {hit} lumps hit, {seen} told by the auditor, whole after {passes} passes"


def rot(node, name):
    """Flips a bit in each of a few lumps of a store that nobody has open, where their bytes are. Answers how many."""
    pick = random.Random(name)
    hit = 0
    with open(node.disk.device, "r+b", buffering=0) as disk:
        # Behind the journal, which keeps small files, too.
        size = disk.seek(0, os.SEEK_END)
        places = []
        for at in range(size // 64 >> 20 << 20, size, 1 << 20):
            disk.seek(at)
            part = disk.read(1 << 20)
            place = part.find(b"LSWF")
            while place >= 0:
                if place % 512 == 0:
                    places.append(at + place)
                place = part.find(b"LSWF", place + 1)
        for place in pick.sample(places, min(5, len(places))):
            disk.seek(place)
            block = bytearray(disk.read(512))
            block[pick.randrange(512)] ^= 1 << pick.randrange(8)
            disk.seek(place)
            disk.write(block)
            hit += 1
        os.fsync(disk.fileno())
    if not hit:
        raise Failed("there was no lump to hit")
    return hit


def drained(found, objects, lumps, name):
    """A device is taken out of the ring while objects are written, its disk exchanged, and it is added again."""
    node = random.Random(name).choice(found.nodes)
    with Writing(objects, lumps, name, SIZES) as writing:
        found.weigh(node, 0)
    empty = heal(found, objects, lumps, lambda: missing(found, objects, lumps) or left_on(found, objects, lumps, node))
    objects.none_lost(f"with {node.lump_device} empty")
    node.service.kill9()
    node.disk.close()
    node.make_disk()
    node.start_service()
    with Writing(objects, lumps, name + "-again", SIZES) as again:
        found.weigh(node, 100)
    passes = heal(found, objects, lumps, lambda: missing(found, objects, lumps))
    check(left_on(found, objects, lumps, node), f"{node.lump_device} has objects again")
    changes = writing.done + again.done
    return f"{node.lump_device}, {changes} changes meanwhile, empty after {empty} passes, whole after {passes}"


def late(found, objects, lumps, name):
    """The databases of containers do not answer while objects are put, some of which expire. The updaters tell the
    databases later, and then the expirer knows what to remove."""
    client = objects.client
    kept, soon = ([f"{policy}/{name}-{kind}{number}" for policy in lumps for number in range(4)] for kind in ("kept", "soon"))

    def listed():
        return {f"{policy}/{line}" for policy in lumps for line in client.good("GET", policy)[1].decode().split("\n")}

    listed()
    found.containers.kill9()
    for path in kept:
        objects.put(*path.split("/"), bytes_of(path, 25_000))
    for path in soon:
        client.good("PUT", path, bytes_of(path, 25_000), **{"X-Delete-After": "2"})
    found.start_containers()
    check(listed().isdisjoint([*kept, *soon]), "the databases know of none of them")
    found.once("updater")
    check(listed().issuperset([*kept, *soon]), f"after a pass of the updaters they know of all {2 * len(kept)}")
    found.tell_accounts()
    time.sleep(3)
    found.once("expirer", nodes=found.nodes[:1])
    left = listed()
    check(left.issuperset(kept) and left.isdisjoint(soon), f"after a pass of the expirer they know of the {len(kept)} that stay")
    return f"{len(kept)} told later, {len(soon)} expired"


SCENES = [("service killed", killed), ("node away", away), ("disk destroyed", destroyed), ("bits rot", rotten),
          ("device drained", drained), ("databases away", late)]
