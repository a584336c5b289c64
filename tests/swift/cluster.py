"""A cluster of Swift on this machine: four nodes in two zones, each with a disk that Lumpscope serves and one with xfs."""

import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

import machine
from machine import Disk, Drive, Process, note, run, until

NODES = 4
PART_POWER = 5
USER, KEY = "test:tester", "testing"
# Name, type, whether its files are lumps, ring.
POLICIES = [
    ("lumps", "replication", True),
    ("xfs", "replication", False),
    ("ec-lumps", "erasure_coding", True),
    ("ec-xfs", "erasure_coding", False),
]
OBJECT, CONTAINER, ACCOUNT, PROXY, MEMCACHED = 6200, 6201, 6202, 8080, 11211
# An object that is deleted is forgotten by its disks after so many seconds.
RECLAIM = 3600


def program(name):
    """A program of Swift, or one beside it."""
    return os.path.join(os.path.dirname(sys.executable), name)


def own_etc(folder):
    """A folder /etc/swift that only this namespace of mounts sees: Swift's daemons read swift.conf nowhere else."""
    os.makedirs(folder)
    run(["mount", "-t", "tmpfs", "swift", folder])
    upper, work = os.path.join(folder, "upper"), os.path.join(folder, "work")
    os.makedirs(upper)
    os.makedirs(work)
    run(["mount", "-t", "overlay", "swift", "-o", f"lowerdir=/etc,upperdir={upper},workdir={work}", "/etc"])
    os.makedirs("/etc/swift", exist_ok=True)
    run(["mount", "-t", "tmpfs", "swift", "/etc/swift"])
    return "/etc/swift"


def keep_log(path, file):
    """Writes down what is sent to a socket of syslog, while this process lives."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)

    def write():
        with open(file, "wb", buffering=0) as log:
            while True:
                log.write(listener.recv(1 << 16).replace(b"#012", b"\n    ") + b"\n")

    threading.Thread(target=write, daemon=True).start()


class Node:
    """A node: its service of Lumpscope with one store, its object server, and what runs once when asked to."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number
        self.ip = f"127.0.0.{number}"
        self.folder = os.path.join(cluster.folder, f"node{number}")
        self.devices = os.path.join(self.folder, "devices")
        self.lump_device, self.xfs_device = f"d{number}", f"x{number}"
        os.makedirs(os.path.join(self.devices, self.lump_device))
        os.makedirs(os.path.join(self.devices, self.xfs_device))
        self.socket = os.path.join(self.folder, "s")
        self.disk = self.xfs = self.service = self.server = None

    def make_disk(self):
        """A new disk with an empty store."""
        folder = os.path.join(self.folder, f"disk{time.monotonic_ns()}")
        os.makedirs(folder)
        self.disk = self.cluster.disk(folder, self.cluster.size)
        run([self.cluster.binary, "format", self.disk.device])

    def destroy_disk(self):
        """The disk of its store is gone, with all that was on it."""
        self.service.kill9()
        run(["blkdiscard", "-f", self.disk.device], good=False)
        self.disk.close()

    def mount_xfs(self):
        folder = os.path.join(self.folder, "xfs")
        os.makedirs(folder)
        self.xfs = self.cluster.disk(folder, max(self.cluster.size, 320 << 20))
        run(["mkfs.xfs", "-q", self.xfs.device])
        run(["mount", self.xfs.device, os.path.join(self.devices, self.xfs_device)])

    def write_conf(self):
        swift_dir = self.cluster.swift_dir
        self.conf = os.path.join(self.folder, "object-server.conf")
        with open(self.conf, "w") as file:
            file.write(f"""[DEFAULT]
bind_ip = {self.ip}
bind_port = {OBJECT}
user = root
swift_dir = {swift_dir}
devices = {self.devices}
mount_check = false
workers = 0
log_level = INFO
log_address = {self.cluster.log_socket}
lumpscope_address = unix:{self.socket}
reclaim_age = {RECLAIM}
commit_window = 0
replication_concurrency = 0
replication_concurrency_per_device = 0
fallocate_reserve = 1%
ring_ip = {self.ip}
recon_cache_path = {self.folder}
[pipeline:main]
pipeline = healthcheck object-server
[app:object-server]
use = egg:swift#object
[filter:healthcheck]
use = egg:swift#healthcheck
[object-replicator]
sync_method = ssync
concurrency = 4
[object-reconstructor]
concurrency = 4
[object-auditor]
files_per_second = 0
bytes_per_second = 0
zero_byte_files_per_second = 0
[object-updater]
[object-expirer]
dequeue_from_legacy = true
""")

    def start_service(self):
        words = [self.cluster.binary, "serve", "--store", f"{self.lump_device}={self.disk.device}",
                 "--listen", f"{self.ip}:7070", "--metrics-listen", f"{self.ip}:7071", "--unix-socket", self.socket]
        if self.cluster.traced:
            # A request is explained with its trace if that is exported; nobody listens there.
            words += ["--otlp-endpoint", "http://127.0.0.1:4317", "--trace-ratio", "1"]
        self.service = Process(words, os.path.join(self.folder, "service.log"))
        ready = f"http://{self.ip}:7071/readyz"
        self.service.until_ready("Lumpscope", lambda: answers(ready))

    def start_server(self):
        self.server = self.cluster.process(["swift-object-server", self.conf], f"object{self.number}")

    def wait_server(self):
        self.server.until_ready("object server", lambda: answers(f"http://{self.ip}:{OBJECT}/healthcheck"))

    def stop_server(self):
        """As if the node were gone: neither the server nor the service answers."""
        self.server.kill9()
        self.service.kill9()

    def explained(self):
        """The slowest requests of its store, explained."""
        words = ["explain", "--slowest", "1000", "--json", "--server", f"unix:{self.socket}"]
        return run([self.cluster.binary, *words])

    def begin(self, daemon, *how):
        """Begins a daemon."""
        words = [f"swift-object-{daemon}", self.conf, *how]
        return self.cluster.process(words, f"{daemon}{self.number}")


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


class Cluster:
    """All of it. `lumps_only`: without the policies on xfs. `traced`: each request of a node's service is. `drive`: the
    disks are emulated."""

    def __init__(self, binary, folder, site, size, lumps_only=False, away=6, traced=True, drive=None):
        self.binary, self.folder, self.size, self.traced, self.drive = binary, folder, size, traced, drive
        self.policies = [one for one in POLICIES if one[2] or not lumps_only]
        self.swift_dir = own_etc(os.path.join(folder, "etc"))
        self.log_socket = os.path.join(folder, "syslog")
        keep_log(self.log_socket, os.path.join(folder, "swift.log"))
        self.env = {**os.environ, "PYTHONPATH": site, "PYTHONDONTWRITEBYTECODE": "1", "SWIFT_TEST_CONFIG_FILE":
                    os.path.join(self.swift_dir, "test.conf")}
        self.away = away
        self.nodes = [Node(self, number + 1) for number in range(NODES)]
        self.others = []
        self.containers = self.proxy = None

    def process(self, words, log):
        return Process([program(words[0]), *words[1:]], os.path.join(self.folder, log + ".log"), env=self.env)

    def disk(self, folder, size):
        return Drive(self.binary, self.drive, size) if self.drive else Disk(folder, size)

    def index(self, name):
        return [one[0] for one in POLICIES].index(name)

    # Making it.

    def start(self):
        """Disks, rings, configurations, and everything that runs."""
        self._write_swift_conf()
        self._write_rings()
        self._write_other_confs()
        self.others = [
            Process(["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(MEMCACHED)],
                    os.path.join(self.folder, "memcached.log")),
            self.process(["swift-account-server", os.path.join(self.swift_dir, "account-server.conf")], "account"),
        ]
        self.start_containers()
        for node in self.nodes:
            node.make_disk()
            if any(not one[2] for one in self.policies):
                node.mount_xfs()
            node.write_conf()
            node.start_service()
            node.start_server()
        for node in self.nodes:
            node.wait_server()
        self._start_proxy()

    def start_containers(self):
        """Starts the server of the databases of containers."""
        conf = os.path.join(self.swift_dir, "container-server.conf")
        self.containers = self.process(["swift-container-server", conf], "container")
        health = f"http://127.0.0.1:{CONTAINER}/healthcheck"
        self.containers.until_ready("container server", lambda: answers(health))

    def tell_accounts(self):
        """One pass of what tells the accounts which containers there are."""
        conf = os.path.join(self.swift_dir, "container-server.conf")
        self._end_well(self.process(["swift-container-updater", conf, "once", "-v"], "container-updater"))

    def weigh(self, node, weight):
        """Gives the device of a node another weight in the rings of lumps, and waits until all have read them."""
        from swift.common.ring import RingBuilder
        for name, _, lumps in self.policies:
            if not lumps:
                continue
            index = self.index(name)
            path = os.path.join(self.swift_dir, f"object-{index}" if index else "object")
            builder = RingBuilder.load(path + ".builder")
            device = next(one for one in builder.devs if one["device"] == node.lump_device)
            builder.set_dev_weight(device["id"], weight)
            builder.pretend_min_part_hours_passed()
            builder.rebalance(seed=1)
            builder.get_ring().save(path + ".ring.gz")
            builder.save(path + ".builder")
        # They look at the files each 15 s.
        time.sleep(16)

    def prefer(self, policy):
        """Makes a policy the default one, which only the proxy asks for."""
        self._write_swift_conf(policy)
        self.proxy.stop()
        self._start_proxy()

    def _start_proxy(self):
        self.proxy = self.process(["swift-proxy-server", os.path.join(self.swift_dir, "proxy-server.conf")], "proxy")
        self.proxy.until_ready("proxy", lambda: answers(f"http://127.0.0.1:{PROXY}/healthcheck"))

    def _write_swift_conf(self, default="lumps"):
        text = "[swift-hash]\nswift_hash_path_prefix = of\nswift_hash_path_suffix = tests\n"
        for name, kind, lumps in self.policies:
            text += f"[storage-policy:{self.index(name)}]\nname = {name}\npolicy_type = {kind}\n"
            text += "default = yes\n" if name == default else ""
            if kind == "erasure_coding":
                text += "ec_type = liberasurecode_rs_vand\nec_num_data_fragments = 2\nec_num_parity_fragments = 1\n"
                text += "ec_object_segment_size = 1048576\n"
            if lumps:
                text += f"diskfile_module = egg:lumpscope-swift#{kind}.lumps\n"
        self._write("swift.conf", text)

    def _write_rings(self):
        from swift.common.ring import RingBuilder
        rings = [("account", 1, ACCOUNT, None), ("container", 1, CONTAINER, None)]
        for name, _, lumps in self.policies:
            index = self.index(name)
            rings.append((f"object-{index}" if index else "object", 3, OBJECT, lumps))
        for name, replicas, port, lumps in rings:
            builder = RingBuilder(PART_POWER, replicas, 0)
            for node in self.nodes[:None if lumps is not None else 1]:
                device = "db" if lumps is None else node.lump_device if lumps else node.xfs_device
                builder.add_dev({"region": 1, "zone": (node.number + 1) // 2, "ip": node.ip, "port": port,
                                 "device": device, "weight": 100})
            builder.rebalance(seed=1)
            builder.get_ring().save(os.path.join(self.swift_dir, name + ".ring.gz"))
            builder.save(os.path.join(self.swift_dir, name + ".builder"))

    def _write(self, name, text):
        with open(os.path.join(self.swift_dir, name), "w") as file:
            file.write(text)

    def _write_other_confs(self):
        devices = os.path.join(self.folder, "databases")
        os.makedirs(os.path.join(devices, "db"))
        for kind, port in (("account", ACCOUNT), ("container", CONTAINER)):
            self._write(f"{kind}-server.conf", f"""[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = root
swift_dir = {self.swift_dir}
devices = {devices}
mount_check = false
workers = 0
log_address = {self.log_socket}
[pipeline:main]
pipeline = healthcheck {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
allow_versions = true
[filter:healthcheck]
use = egg:swift#healthcheck
[{kind}-replicator]
[{kind}-updater]
[{kind}-auditor]
""")
        filters = ["catch_errors", "gatekeeper", "healthcheck", "cache", "listing_formats", "bulk", "tempurl", "s3api",
                   "tempauth", "staticweb", "copy", "container_quotas", "account_quotas", "slo", "dlo",
                   "versioned_writes", "symlink"]
        uses = {"cache": "memcache"}
        more = {
            "tempauth": "user_test_tester = testing .admin\nuser_test2_tester2 = testing2 .admin\n"
                        "user_test_tester3 = testing3\nuser_admin_admin = admin .admin .reseller_admin\n"
                        "user_test5_tester5 = testing5 service\naccount_prefix = AUTH\nrequire_group =\n",
            "cache": f"memcache_servers = 127.0.0.1:{MEMCACHED}\n",
            "versioned_writes": "allow_versioned_writes = true\nallow_object_versioning = true\n",
            "s3api": "s3_acl = no\ncheck_bucket_owner = false\n",
        }
        text = f"""[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {PROXY}
user = root
swift_dir = {self.swift_dir}
workers = 0
log_address = {self.log_socket}
[pipeline:main]
pipeline = {' '.join(filters)} proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
node_timeout = 20
conn_timeout = 2
error_suppression_interval = 2
error_suppression_limit = 10
"""
        for name in filters:
            text += f"[filter:{name}]\nuse = egg:swift#{uses.get(name, name)}\n{more.get(name, '')}"
        self._write("proxy-server.conf", text)
        # Of the expirer.
        self._write("internal-client.conf", f"""[DEFAULT]
swift_dir = {self.swift_dir}
log_address = {self.log_socket}
[pipeline:main]
pipeline = catch_errors cache proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
{more["cache"]}""")

    # Daemons.

    def once(self, *daemons, nodes=None):
        """One pass of each daemon on every node that is up, all nodes at the same time."""
        for daemon in daemons:
            begun = [node.begin(daemon, "once", "-v") for node in nodes or self.nodes if node.server.alive()]
            for process in begun:
                self._end_well(process)

    def _end_well(self, process):
        name = os.path.basename(process.child.args[0])
        until(f"a pass of {name}", lambda: not process.alive(), 300)
        if process.child.returncode:
            raise machine.Failed(f"{name} ended with {process.child.returncode}: {process.said()[-3000:]}")

    def client(self):
        return Client(f"127.0.0.1:{PROXY}")


class Client:
    """A user of the cluster."""

    def __init__(self, proxy):
        self.proxy = proxy
        request = urllib.request.Request(f"http://{proxy}/auth/v1.0", headers={"X-Auth-User": USER, "X-Auth-Key": KEY})
        with urllib.request.urlopen(request, timeout=30) as reply:
            self.url, self.token = reply.headers["X-Storage-Url"], reply.headers["X-Auth-Token"]
        self.transactions = []

    def ask(self, method, path, data=None, **headers):
        """Status, headers and body of one request."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.url}/{path}", data, {"X-Auth-Token": self.token, **headers},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                self.transactions.append(reply.headers["X-Trans-Id"])
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def good(self, method, path, data=None, **headers):
        """As `ask`, of a request that must succeed."""
        status, found, body = self.ask(method, path, data, **headers)
        if status // 100 != 2:
            raise machine.Failed(f"{method} {path}: {status} {body[:300]!r}")
        return found, body

    def containers(self, policies):
        for name, _, _ in policies:
            self.good("PUT", name, **{"X-Storage-Policy": name})


def say_versions():
    import swift
    note(f"swift {swift.__version__}, python {sys.version.split()[0]}")

