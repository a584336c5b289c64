"""A JuiceFS volume: its commands, its mount, and the files whose bytes are known."""

import hashlib
import json
import os
import random
import re
import shutil
import time

from machine import Failed, Process, find, note, run, until

# A volume's name. Every key of its objects begins with it.
NAME = "vol"


class Volume:
    """One volume: where its objects and its metadata are."""

    def __init__(self, folder, url, bucket, access, secret, shards=0):
        self.program = find("juicefs")
        self.url, self.bucket, self.shards = url, bucket, shards
        self.access, self.secret = access, secret
        self.folder = os.path.join(folder, f"juicefs{len(os.listdir(folder))}")
        self.mountpoint = os.path.join(self.folder, "mnt")
        os.makedirs(self.mountpoint)
        self.mounted = None
        # Its caches and logs belong into this run's folder; young objects are to be seen by gc.
        self.environment = {**os.environ, "HOME": self.folder, "JFS_GC_SKIPPEDTIME": "0"}
        # Go 1.26 takes several addresses of etcd for a wrong port otherwise.
        self.environment["GODEBUG"] = "urlstrictcolons=0"

    def command(self, name, *words, good=True, seconds=600):
        """A command of JuiceFS. The verbs that want the metadata get it."""
        return run([self.program, name, *words], good=good, seconds=seconds, env=self.environment)

    def format(self, *more, good=True, storage="minio"):
        words = ["--storage", storage, "--bucket", self.bucket, "--access-key", self.access, "--trash-days", "0"]
        words += ["--shards", self.shards] if self.shards else []
        # The secret goes by the environment: command lines are seen by everybody on the machine.
        environment = {**self.environment, "SECRET_KEY": self.secret}
        words = [self.program, "format", *words, *more, self.url, NAME]
        return run(words, good=good, env=environment)

    def mount(self, *more):
        """Mounts without a cache for data, so that what is read comes from the store."""
        words = [self.program, "mount", "--no-usage-report", "--no-color", "--cache-dir", os.path.join(self.folder, "cache")]
        words += ["--cache-size", "0", "--backup-meta", "0", "--metrics", "127.0.0.1:0", *more, self.url, self.mountpoint]
        self.mounted = Process(words, os.path.join(self.folder, "mount.log"), env=self.environment)
        self.mounted.until_ready("the volume is mounted", lambda: os.path.ismount(self.mountpoint))

    def umount(self):
        if self.mounted is None:
            return
        self.command("umount", self.mountpoint)
        until("the mount has ended", lambda: not self.mounted.alive())
        self.mounted = None

    def status(self):
        said = self.command("status", "--no-color", self.url)
        # Log lines may stand around it.
        return json.JSONDecoder().raw_decode(said, said.index("{\n"))[0]

    def fsck(self, good=True):
        """Blocks and bytes that were found; without `good`, exit code and what was said."""
        answer = self.command("fsck", "--no-color", self.url, good=good)
        if not good:
            return answer
        found = re.search(r"Found (\d+) blocks \((\d+) bytes\)", answer)
        if not found or "lost" in answer:
            raise Failed(f"fsck said: {answer}")
        return int(found[1]), int(found[2])

    def gc(self, *words):
        """What gc counted: objects scanned, valid, leaked, ..."""
        said = self.command("gc", "--no-color", *words, self.url)
        line = re.search(r"scanned \d+ objects.*", said)
        if not line:
            raise Failed(f"gc said: {said}")
        return {word: int(count) for count, word in re.findall(r"(\d+) (scanned|valid|leaked|skipped)", line[0])} | {
            "scanned": int(re.search(r"scanned (\d+)", line[0])[1])
        }

    def destroy(self):
        self.umount()
        uuid = self.status()["Setting"]["UUID"]
        # A session of a client that was killed is still listed for a while: --force does not wait for it.
        return self.command("destroy", "--force", "--yes", self.url, uuid)

    def bench(self, big, small_count):
        """The values of the table of `juicefs bench`, by item."""
        words = ["--big-file-size", big, "--small-file-count", small_count, "--no-color", self.mountpoint]
        said = self.command("bench", *words)
        rows = re.findall(r"^\|\s*([A-Z][^|]*?)\s*\|\s*([0-9.]+ [^|]*?)\s*\|\s*([0-9.]+ [^|]*?)\s*\|$", said, re.MULTILINE)
        # Of operations it says the number, and what one costs.
        values = {item: cost.removesuffix("/op") if value.endswith("operations") else value for item, value, cost in rows}
        if "Write big file" not in values:
            raise Failed(f"bench said: {said}")
        return values

    def fio(self, megabytes, jobs=4):
        """The big write of the published comparison, MiB/s."""
        words = ["fio", "--name=big-write", f"--directory={self.mountpoint}", "--rw=write", "--refill_buffers", "--bs=4M"]
        words += [f"--size={megabytes // jobs}M", f"--numjobs={jobs}", "--end_fsync=1", "--group_reporting"]
        result = json.loads(run([*words, "--output-format=json"]))
        for number in range(jobs):
            os.unlink(os.path.join(self.mountpoint, f"big-write.{number}.0"))
        return result["jobs"][0]["write"]["bw_bytes"] / (1 << 20)


class Files:
    """Files in a mount whose bytes are known: made from a seed, written, synced, compared by checksum."""

    # Empty, less than a block of a disk, around JuiceFS's block of 4 MiB, more than its chunk of 64 MiB.
    SIZES = (0, 1, 4095, 65_536, 1_000_003, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9_999_999, (64 << 20) + 5)

    def __init__(self, root):
        self.root = root
        self.known = {}

    @staticmethod
    def content(name, size):
        return random.Random(name).randbytes(size)

    def write(self, name, size):
        """Writes one file. It is acknowledged when fsync and close have answered."""
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = self.content(name, size)
        with open(path, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view[: 1 << 20]) :]
            os.fsync(file.fileno())
        self.known[name] = hashlib.sha256(data).digest()

    def expect(self, name, size):
        """Knows of a file that another process has written."""
        self.known[name] = hashlib.sha256(self.content(name, size)).digest()

    def write_all(self, folder, sizes=SIZES):
        for number, size in enumerate(sizes):
            self.write(f"{folder}/fïle {number}", size)

    def digest(self, name):
        with open(os.path.join(self.root, name), "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    def compare(self):
        """Reads everything back."""
        wrong = [name for name, digest in self.known.items() if self.digest(name) != digest]
        if wrong:
            raise Failed(f"files have other bytes than were written: {wrong}")
        note(f"{len(self.known)} files have the bytes that were written")

    def overwrite(self, name, size, at, length):
        """Writes into a file of `size` bytes, once, which makes a new slice over the old one."""
        whole, new = bytearray(self.content(name, size)), self.content(f"{name}/{at}", length)
        whole[at : at + length] = new
        with open(os.path.join(self.root, name), "r+b") as file:
            file.seek(at)
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        self.known[name] = hashlib.sha256(whole).digest()

    def remove(self, folder):
        shutil.rmtree(os.path.join(self.root, folder))
        self.known = {name: digest for name, digest in self.known.items() if not name.startswith(f"{folder}/")}


def settled(count, seconds=30):
    """Waits until a number no longer changes: JuiceFS deletes objects in the background. Answers it."""
    last, since = count(), time.monotonic()
    end = since + seconds
    while time.monotonic() < min(since + 2, end):
        time.sleep(0.2)
        now = count()
        if now != last:
            last, since = now, time.monotonic()
    return last
