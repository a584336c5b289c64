"""What is done with volumes, and what must be so then."""

import os
import re
import time

from machine import Failed, check, note, run, say, until
from nodes import ACCESS, BUCKET, SECRET
from volume import NAME, Files, Volume, settled
from writer import Writer


def blocks(keys):
    """The blocks of files among keys of a bucket, with their sizes."""
    return {key: size for key, size in keys.items() if key.startswith(f"{NAME}/chunks/")}


def all_blocks(nodes):
    """The blocks on all nodes; one that is on two is a mistake."""
    found = {}
    for node in nodes:
        here = blocks(node.s3.keys())
        if found.keys() & here.keys():
            raise Failed("a block is on two nodes")
        found |= here
    return found


def in_order(volume, nodes):
    """fsck is clean, and finds exactly the objects that a list of the buckets has."""
    listed = all_blocks(nodes)
    for node in nodes:
        keys = node.s3.keys()
        if node.s3.keys(page=7 if len(keys) < 500 else 501) != keys:
            raise Failed("a list in other pages is another list")
    found = volume.fsck()
    check(found == (len(listed), sum(listed.values())), f"fsck is clean: {found[0]} blocks, {found[1]:,} bytes, as listed")


def without_records(node):
    """Every block is one lump whose id is its key: the catalogue knows nothing of it."""
    listed = blocks(node.s3.keys())
    check(listed.keys() == set(node.s3.without_records()), f"all {len(listed)} blocks, and nothing else, are without records")


def empty(nodes):
    """Nothing is left of a volume: no key, and no lump of an object."""
    for node in nodes:
        keys = node.s3.keys()
        check(not keys, f"node {node.number} has no key (lumps by kind: {dict(node.until_empty())})")


def fsck_is_no_formality(volume, node):
    """A block that is taken away is missed."""
    key = sorted(blocks(node.s3.keys()))[-1]
    body = node.s3.good("GET", key)
    node.s3.good("DELETE", key)
    code, said = volume.fsck(good=False)
    node.s3.good("PUT", key, body)
    check(code != 0 and "objects are lost" in said, "fsck finds a block that was taken away")
    volume.fsck()


def collect(volume, nodes, files):
    """gc finds what belongs to no file, deletes that, and nothing else."""
    before = all_blocks(nodes)
    leaked = [f"{NAME}/chunks/0/999/{number}_0_4096" for number in (999_001, 999_002, 999_003)]
    check(volume.gc()["leaked"] == 0, "gc finds nothing leaked")
    for key in leaked:
        nodes[0].s3.good("PUT", key, bytes(4096))
    count = volume.gc()
    check(count["leaked"] == len(leaked), f"gc finds {count['leaked']} planted blocks among {count['scanned']} objects")
    check(all_blocks(nodes).keys() == before.keys() | set(leaked), "gc without --delete deletes nothing")
    volume.gc("--delete")
    check(all_blocks(nodes) == before, f"gc --delete has deleted these, and none of the {len(before)} blocks in use")
    files.compare()


def use(volume, nodes, sizes=Files.SIZES):
    """Writes, reads, overwrites, removes; everything is compared, also through a new mount."""
    files = Files(volume.mountpoint)
    files.write_all("kept", sizes)
    files.write_all("gone", sizes)
    files.compare()
    files.overwrite("kept/fïle 8", sizes[8], sizes[8] // 3, sizes[8] // 3)
    before = settled(lambda: len(all_blocks(nodes)))
    files.remove("gone")
    after = settled(lambda: len(all_blocks(nodes)))
    check(after < before, f"removed files free their blocks: {before}, then {after}")
    volume.umount()
    volume.mount()
    files.compare()
    return files


def one_node(node, volume, measure, sizes=Files.SIZES):
    """The whole life of a volume. Answers what `measure` did."""
    volume.format()
    volume.mount()
    files = use(volume, [node], sizes)
    figures = measure(volume)
    settled(lambda: len(node.s3.keys()))
    in_order(volume, [node])
    without_records(node)
    fsck_is_no_formality(volume, node)
    collect(volume, [node], files)
    in_order(volume, [node])
    volume.umount()
    volume.destroy()
    empty([node])
    return figures


# --- Three nodes as shards ------------------------------------------------------------------------------------------


def readable(files):
    """How many of the files can be read at this moment, and how many answer an error."""
    good, refused = 0, 0
    for name, digest in list(files.known.items()):
        try:
            if files.digest(name) != digest:
                raise Failed(f"{name} has other bytes than were acknowledged")
            good += 1
        except OSError:
            refused += 1
    return good, refused


def one_of_three_stops(volume, nodes, seconds):
    """kill -9 of one node while a client writes; it comes back; nothing that was acknowledged is lost."""
    program = Writer(volume.mountpoint, os.path.join(volume.folder, "writer.log"))
    until("eight files are written", lambda: program.acknowledged() >= 8)
    nodes[1].process.kill9()
    before = program.acknowledged()
    time.sleep(seconds)
    while_down = program.acknowledged() - before
    nodes[1].start()
    back = time.monotonic()
    wanted = before + while_down + 3
    until("files are written again after the node is back", lambda: program.acknowledged() >= wanted, 300)
    recovered = time.monotonic() - back
    files = program.stop()
    note(f"node 1 was down for {seconds} s: {before} files acknowledged before, {while_down} while it was down")
    note(f"three more were acknowledged {recovered:.1f} s after it was back; the longest write took {program.longest():.1f} s")
    note(f"errors that the program saw: {program.refused() or 'none'}")
    volume.umount()
    volume.mount()
    files.compare()
    return files


def metadata_without_its_leader(engine, volume, node, seconds):
    """kill -9 of the leading member of the metadata while a client writes; it comes back; nothing is lost."""
    volume.format()
    volume.mount()
    program = Writer(volume.mountpoint, os.path.join(volume.folder, "writer.log"))
    until("eight files are written", lambda: program.acknowledged() >= 8)
    gone = engine.kill_leader()
    before = program.acknowledged()
    until("files are written without it", lambda: program.acknowledged() >= before + 8, 300)
    time.sleep(seconds)
    engine.restart(gone)
    before = program.acknowledged()
    until("files are written with it", lambda: program.acknowledged() >= before + 8, 300)
    files = program.stop()
    note(f"member {gone}, which led, was killed: {len(files.known)} files acknowledged in all, the longest write took {program.longest():.1f} s")
    note(f"errors that the program saw: {program.refused() or 'none'}")
    volume.umount()
    volume.mount()
    files.compare()
    volume.umount()
    in_order(volume, [node])
    volume.destroy()
    empty([node])


def reading_with_one_down(volume, nodes, files, seconds):
    """What can be read while a node is down: all that lies on the others."""
    volume.umount()
    volume.mount("--io-retries", "1", "--get-timeout", "5s")
    nodes[2].process.kill9()
    began = time.monotonic()
    good, refused = readable(files)
    note(f"node 2 down, --io-retries 1: {good} files can be read, {refused} answer an error ({time.monotonic() - began:.0f} s)")
    time.sleep(seconds)
    nodes[2].start()
    check(readable(files) == (len(files.known), 0), "all of them can be read once it is back, without a new mount")


def three_nodes(nodes, volume, measure, seconds=10):
    """A volume over shards, one of which goes and comes back. Answers what `measure` did."""
    volume.format()
    volume.mount()
    files = use(volume, nodes)
    figures = measure(volume)
    settled(lambda: len(all_blocks(nodes)))
    shares = [len(blocks(node.s3.keys())) for node in nodes]
    check(min(shares) > 0, f"each node has a share of the blocks: {shares}")
    say(f"node 1 is killed while a client writes, and is back after {seconds} s")
    written = one_of_three_stops(volume, nodes, seconds)
    files.compare()
    say("node 2 is killed while a client reads")
    reading_with_one_down(volume, nodes, written, 1)
    volume.umount()
    # What the kill left half done belongs to no file.
    note(f"gc after the kills: {volume.gc('--delete')}")
    in_order(volume, nodes)
    volume.mount()
    files.compare()
    written.compare()
    volume.umount()
    volume.destroy()
    empty(nodes)
    return figures


# --- What an operator does wrong ------------------------------------------------------------------------------------


def said_by(output):
    """What the service said, in what JuiceFS printed."""
    answers = re.findall(r"StatusCode: (\d+), .*?api error ([^\n\[,]*)", output)
    return " ".join(answers[-1]).strip() if answers else output[-200:]


def wrong_access(folder, node, engine):
    """Wrong secret, unknown key, a bucket that the key has no right to: refused at format, and nothing is left."""
    for what, access, secret, bucket in [
        ("a wrong secret", ACCESS, SECRET + "x", BUCKET),
        ("an unknown access key", "AKNOBODY", SECRET, BUCKET),
        ("a bucket of others", ACCESS, SECRET, "others"),
    ]:
        own = os.path.join(folder, what)
        os.makedirs(own)
        volume = Volume(own, engine(own).url, f"{node.endpoint}/{bucket}", access, secret)
        code, output = volume.format(good=False)
        check(code != 0, f"{what}: format is refused: {said_by(output)!r}")
    node.until_empty()


def full_store(volume, node):
    """A store that is full: writes fail, nothing acknowledged is lost, and it goes on when space is free."""
    volume.format()
    volume.mount("--io-retries", "1", "--put-timeout", "10s")
    files, refused = Files(volume.mountpoint), None
    files.write("kept/first", 5 << 20)
    for number in range(1000):
        try:
            files.write(f"filler/{number}", 16 << 20)
        except OSError as error:
            refused = error.strerror
            break
    check(refused is not None, f"a full store refuses a write after {len(files.known)} files: {refused}")
    files.compare()
    run(["rm", "-rf", os.path.join(volume.mountpoint, "filler")])
    files.known = {name: digest for name, digest in files.known.items() if not name.startswith("filler/")}
    settled(lambda: len(node.s3.keys()))
    files.write("kept/second", 16 << 20)
    files.compare()
    volume.umount()
    volume.destroy()
    empty([node])
