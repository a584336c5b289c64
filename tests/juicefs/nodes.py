"""What stores the objects: nodes of Lumpscope, each on a disk of its own, and what they are compared with."""

import os
import re
import urllib.request
from collections import Counter

from machine import Disk, Ext4, Failed, Process, run, until
from s3 import S3

ACCESS = "AKJUICEFS"
SECRET = "a-secret-of-these-tests-only"
BUCKET = "jfs"
# Kinds of lumps that hold no object: the record of the bucket, and that a volume exists (docs/objects.md).
EMPTY_KINDS = {1, 5}


def s3_keys(folder, name="keys.toml", bucket="*"):
    """A file of access keys: one that may do everything with this bucket."""
    path = os.path.join(folder, name)
    with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(
            f'[[key]]\nname = "juicefs"\naccess = "{ACCESS}"\nsecret = "{SECRET}"\n'
            f'[[key.allow]]\nbucket = "{bucket}"\nprefix = ""\nrights = ["read", "write"]\n'
        )
    return path


class Node:
    """One service over one store. `kind`: raw (a loop device) or ext4 (a file on that file system)."""

    def __init__(self, binary, folder, number=0, size=4 << 30, kind="raw", bucket="*"):
        self.binary, self.number, self.kind = binary, number, kind
        self.folder = os.path.join(folder, f"node{number}-{kind}")
        os.makedirs(self.folder)
        if kind == "raw":
            self.disk = Disk(self.folder, size)
            self.path = self.disk.device
            run([binary, "format", self.path])
        else:
            self.disk = Ext4(self.folder, size)
            self.path = os.path.join(self.disk.mountpoint, "store.lusf")
            run([binary, "format", self.path, "--capacity", f"{(size >> 20) * 8 // 10}M"])
        self.keys = s3_keys(self.folder, bucket=bucket)
        self.grpc, self.web, self.port = (base + number for base in (50050, 9460, 9000))
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.s3 = S3(self.endpoint, BUCKET, ACCESS, SECRET)
        self.process = None

    def start(self, *more):
        """Starts the service, and waits until it serves."""
        words = [self.binary, "serve", "--store", f"store={self.path}"]
        words += ["--listen", f"127.0.0.1:{self.grpc}", "--metrics-listen", f"127.0.0.1:{self.web}"]
        words += ["--s3-listen", f"127.0.0.1:{self.port}", "--s3-credentials", self.keys, *more]
        before = os.path.getsize(self.log()) if os.path.exists(self.log()) else 0
        self.process = Process(words, self.log())
        self.process.until_ready("the service is ready", lambda: "lumpscope ready" in self.process.said()[before:])
        return self

    def log(self):
        return os.path.join(self.folder, "service.log")

    def client(self, *words):
        """A command of the client of gRPC."""
        return run([self.binary, *words, "--server", f"http://127.0.0.1:{self.grpc}"])

    def kinds(self):
        """How many lumps of each kind of objects the store holds."""
        ids = re.findall(r"^[0-9a-f]{1,32}\b", self.client("list", "store"), re.MULTILINE)
        ids = [word.rjust(32, "0") for word in ids]
        other = [word for word in ids if not word.startswith("5333")]
        if other:
            raise Failed(f"lumps that belong to no object: {other[:3]}")
        return Counter(int(word[4:6], 16) for word in ids)

    def until_empty(self):
        """Waits until nothing of an object is left: data is freed a moment after its object is gone. Answers what is."""

        def rest():
            kinds = self.kinds()
            return (kinds,) if set(kinds) <= EMPTY_KINDS else None

        return until("no lump of an object is left", rest, seconds=10)[0]

    def close(self):
        """Ends the service, checks the store at rest, and gives the disk back."""
        if self.process is not None:
            code = self.process.stop()
            if code != 0:
                raise Failed(f"the service ended with {code}: {self.process.said()[-2000:]}")
            run([self.binary, "check", self.path])
        self.disk.close()


class Minio:
    """MinIO over a directory on ext4, on a disk of the same size."""

    def __init__(self, program, folder, size=4 << 30):
        self.folder = os.path.join(folder, "minio")
        os.makedirs(self.folder)
        self.disk = Ext4(self.folder, size)
        self.endpoint = "http://127.0.0.1:9100"
        words = [program, "server", "--quiet", "--address", "127.0.0.1:9100", "--certs-dir", self.folder]
        words += [os.path.join(self.disk.mountpoint, "data")]
        settings = {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "HOME": self.folder}
        settings |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        self.process = Process(words, os.path.join(self.folder, "minio.log"), env={**os.environ, **settings})
        self.process.until_ready("MinIO is ready", self.ready)

    def ready(self):
        try:
            return urllib.request.urlopen(f"{self.endpoint}/minio/health/ready", timeout=5).status == 200
        except OSError:
            return False

    def close(self):
        self.process.kill9()
        self.disk.close()
