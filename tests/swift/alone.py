"""Runs of their own, without the scenes: Swift's own tests, a disk that is filled again, speed, JuiceFS."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import cluster as clusters
import scenes
from cluster import KEY, USER
from machine import Failed, check, note, say, spread, until
from metadata import Sqlite
from volume import Files, Volume
from writer import Writer

# Swift's own tests.


def functional(found, options):
    """Swift's test/functional on each of the two replicated policies; the outcomes must be equal."""
    # An account that nobody has used answers HEAD otherwise, which only the first of the two would see.
    found.client().good("POST", "")
    counts = {}
    for name in ("lumps", "xfs"):
        # As the default: what SWIFT_TEST_POLICY asks for, tests of several policies do not expect.
        found.prefer(name)
        counts[name] = one_functional(found, options, name)
        print(f"{name}: {counts[name][0]}", flush=True)
    different = sorted(set(counts["lumps"][1].items()) ^ set(counts["xfs"][1].items()))
    for test, outcome in different:
        print(f"differs: {test}: {outcome}")
    for test, outcome in sorted(set(counts["lumps"][1].items()) & set(counts["xfs"][1].items())):
        if outcome in ("FAILED", "ERROR"):
            print(f"on both: {test}: {outcome}")
    check(not different, "the outcomes are equal")


def one_functional(found, options, name):
    text = f"""[func_test]
auth_uri = http://127.0.0.1:{clusters.PROXY}/auth/v1.0
s3_storage_url = http://127.0.0.1:{clusters.PROXY}/
account = test
username = tester
password = testing
s3_access_key = test:tester
s3_secret_key = testing
account2 = test2
username2 = tester2
password2 = testing2
s3_access_key2 = test2:tester2
s3_secret_key2 = testing2
username3 = tester3
password3 = testing3
s3_access_key3 = test:tester3
s3_secret_key3 = testing3
account5 = test5
username5 = tester5
password5 = testing5
service_prefix = SERVICE
account6 = admin
username6 = admin
password6 = admin
[unit_test]
fake_syslog = False
"""
    path = os.path.join(found.swift_dir, "test.conf")
    with open(path, "w") as file:
        file.write(text)
    report = os.path.join(found.folder, f"{name}.txt")
    # pytest and what the tests import are the caller's to have in PYTHONPATH.
    paths = [options.functional, found.env["PYTHONPATH"], os.environ.get("PYTHONPATH", "")]
    env = {**found.env, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    words = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test/functional"]
    words += ["-k", options.tests] if options.tests else []
    with open(report, "w") as file:
        subprocess.run(words, cwd=options.functional, env=env, stdout=file, stderr=subprocess.STDOUT)
    outcomes, last = {}, ""
    with open(report, errors="replace") as file:
        for line in file:
            word, _, rest = line.partition(" ")
            if word in ("PASSED", "FAILED", "ERROR", "SKIPPED"):
                outcomes[rest.split(" - ")[0].strip()] = word
            last = line.strip() or last
    if "PASSED" not in outcomes.values():
        raise Failed(f"no test has passed on {name}: {last}")
    return last, outcomes


# A disk that is full again.

FILLED_WITH = [25_000, 300_000, 1 << 20, (4 << 20) - 1]


def on_disk(found, objects, node):
    """What the ring wants on the disk of lumps of a node: index of the policy and path on the device, with bytes."""
    return {(index, path): objects.wanted[path.split("/", 2)[2]][0][1]
            for index, path, nodes in scenes.places(found, objects, ["lumps"])
            if any(device == node.lump_device for _, device in nodes)}


def filled(found, options):
    """A disk with that much on it is destroyed and replaced by an empty one, while objects are written and read. The
    replicators run by themselves, as they do by default."""
    client, node, wanted = found.client(), found.nodes[1], options.fill << 20
    client.containers(found.policies)
    objects, number, kept = scenes.Objects(client), 0, {}
    daemons = [one.begin("replicator", "-v") for one in found.nodes]
    say(f"objects, until the disk has {options.fill} MiB")

    def put(number):
        size = FILLED_WITH[number % len(FILLED_WITH)]
        objects.put("lumps", f"kept-{number}", scenes.bytes_of(f"kept-{number}", size))

    with ThreadPoolExecutor(4) as pool:
        while sum(kept.values()) < wanted:
            list(pool.map(put, range(number, number + 100)))
            number += 100
            kept = on_disk(found, objects, node)
    before = objects.refused
    say(f"the disk is destroyed: {len(kept)} objects, {sum(kept.values()) >> 20} MiB")
    node.destroy_disk()
    with scenes.Writing(objects, ["lumps"], "meanwhile", scenes.SIZES[:6]) as writing:
        time.sleep(10)
        node.make_disk()
        node.start_service()
        begun = time.monotonic()
        left = list(kept)
        while left:
            time.sleep(2)
            left = [(index, path) for index, path in left
                    if not scenes.holds(node.ip, node.lump_device, index, path)]
            if time.monotonic() - begun > options.patience:
                raise Failed(f"after {options.patience} s {len(left)} objects are not on the new disk")
        seconds = time.monotonic() - begun
    dead = [one.said()[-2000:] for one in daemons if not one.alive()]
    if dead:
        raise Failed(f"replicators ended: {dead}")
    objects.none_lost("the disk is full again")
    print(f"{len(kept)} objects, {sum(kept.values()) >> 20} MiB: full again {seconds:.0f} s after the empty disk was there,"
          f" {sum(kept.values()) / seconds / (1 << 20):.1f} MiB/s")
    print(f"meanwhile {writing.done} changes, {objects.refused - before} refused; {objects.reads} reads, "
          f"{objects.refused_reads} refused", flush=True)


# Speed.

SPEED_OBJECTS, SPEED_CLIENTS = 64, 4


def speed(found, options):
    """Puts and gets of 1 MiB a second, on lumps and on xfs in turns."""
    client = found.client()
    client.containers(found.policies)
    data = scenes.bytes_of("speed", 1 << 20)
    rates = {(what, policy): [] for what in ("put", "get") for policy in ("lumps", "xfs")}
    with ThreadPoolExecutor(SPEED_CLIENTS) as pool:
        for pair in range(-1, options.speed):
            for policy in ("lumps", "xfs") if pair % 2 else ("xfs", "lumps"):
                names = [f"{policy}/{pair}-{number}" for number in range(SPEED_OBJECTS)]
                for what, each in (("put", lambda name: client.good("PUT", name, data)),
                                   ("get", lambda name: client.good("GET", name)[1] == data)):
                    begun = time.monotonic()
                    if not all(list(pool.map(each, names))):
                        raise Failed(f"{what} on {policy}: other bytes")
                    # The first pair warms up.
                    if pair >= 0:
                        rates[what, policy].append(SPEED_OBJECTS / (time.monotonic() - begun))
                list(pool.map(lambda name: client.good("DELETE", name), names))
    for what in ("put", "get"):
        lumps, xfs = rates[what, "lumps"], rates[what, "xfs"]
        print(f"{what}s a second of 1 MiB: lumps {spread(lumps, '.1f')}, xfs {spread(xfs, '.1f')}; "
              f"lumps to xfs {spread([one / two for one, two in zip(lumps, xfs)], '.2f')}", flush=True)


# JuiceFS.


def juicefs(found, options):
    """A volume on Swift's S3, three copies: used; then a node is away, then a disk destroyed, while files are written."""
    for node in found.nodes:
        node.begin("replicator", "-v")
    folder = os.path.join(found.folder, "juicefs")
    os.makedirs(folder)
    volume = Volume(folder, Sqlite(folder).url, f"http://127.0.0.1:{clusters.PROXY}/jfs", USER, KEY)
    volume.format()
    volume.mount()
    files = Files(volume.mountpoint)
    files.write_all("kept")
    files.compare()
    for item, value in volume.bench(64, 50).items():
        note(f"{item}: {value}")
    # Bench leaves nothing, and what it removed goes in the background.
    volume.umount()
    volume.mount()
    note(f"fsck is clean: {volume.fsck()[0]} blocks")
    program = Writer(volume.mountpoint, os.path.join(folder, "writer.log"))

    def more():
        wanted = program.acknowledged() + 4
        until("four more files are written", lambda: program.acknowledged() >= wanted, options.patience)

    more()
    say(f"a node is away for {found.away} s and more")
    away, lost = found.nodes[0], found.nodes[2]
    away.stop_server()
    time.sleep(found.away)
    more()
    away.start_service()
    away.start_server()
    away.wait_server()
    more()
    say("a disk of another node is destroyed")
    lost.destroy_disk()
    more()
    lost.make_disk()
    lost.start_service()
    more()
    written = program.stop()
    note(f"errors that the program saw: {program.refused() or 'none'}; the longest write took {program.longest():.1f} s")
    volume.umount()
    volume.mount()
    files.compare()
    written.compare()
    check(not program.refused(), f"{len(files.known) + len(written.known)} files were acknowledged, none refused or lost")
    volume.umount()
    blocks, size = volume.fsck()
    note(f"fsck is clean: {blocks} blocks, {size >> 20} MiB")
    volume.destroy()


# Runs by the option that asks for them, with the policies that each needs.
RUNS = {
    "functional": (("lumps", "xfs"), functional),
    "fill": (("lumps",), filled),
    "speed": (("lumps", "xfs"), speed),
    "juicefs": (("lumps",), juicefs),
}
