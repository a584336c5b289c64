"""The metadata engines that run here, each with a folder of its own and on loopback only."""

import os
import urllib.request

from machine import Process, find, run

REDIS_PORT = 6379
MARIADB_PORT = 3306
ETCD_PORT = 2379


class Sqlite:
    """A file. No server."""

    label = "SQLite"

    def __init__(self, folder):
        self.url = f"sqlite3://{os.path.join(folder, 'meta.db')}"

    def close(self):
        pass


class Redis:
    """One server that writes its log before it answers (`always`), or once a second."""

    label = "Redis, appendfsync always"
    fsync = "always"

    def __init__(self, folder):
        data = os.path.join(folder, "redis")
        os.makedirs(data)
        # Debian's redis-server is this program under another name, in a package that would start a service.
        program = os.path.join(data, "redis-server")
        os.symlink(find("redis-check-rdb"), program)
        words = [program, "--bind", "127.0.0.1", "--port", REDIS_PORT, "--dir", data, "--save", "", "--appendonly", "yes"]
        words += ["--appendfsync", self.fsync, "--maxmemory-policy", "noeviction", "--daemonize", "no"]
        self.process = Process(words, os.path.join(data, "redis.log"))
        ask = [find("redis-cli"), "-p", REDIS_PORT, "ping"]
        self.process.until_ready("Redis answers", lambda: "PONG" in run(ask, good=False)[1])
        self.url = f"redis://127.0.0.1:{REDIS_PORT}/1"

    def close(self):
        self.process.stop()


class RedisEverysec(Redis):
    """What is less than a second old may be lost with the machine."""

    label = "Redis, appendfsync everysec"
    fsync = "everysec"


class Mariadb:
    """One server with its own defaults: every commit is flushed."""

    label = "MariaDB"

    def __init__(self, folder):
        data = os.path.join(folder, "mariadb")
        os.makedirs(data)
        first = os.path.join(data, "first.sql")
        with open(first, "w") as file:
            file.write(
                "create database if not exists juicefs;\n"
                "create user if not exists juicefs@'127.0.0.1' identified by 'of-these-tests-only';\n"
                "grant all on juicefs.* to juicefs@'127.0.0.1';\n"
            )
        common = ["--no-defaults", "--user=root", f"--datadir={data}/data"]
        run([find("mariadb-install-db"), *common, "--skip-test-db", "--auth-root-authentication-method=normal"])
        words = [find("mariadbd"), *common, f"--socket={data}/socket", "--bind-address=127.0.0.1", f"--port={MARIADB_PORT}"]
        words += [f"--init-file={first}", "--skip-name-resolve"]
        self.process = Process(words, os.path.join(data, "mariadb.log"))
        self.process.until_ready("MariaDB serves", lambda: "ready for connections" in self.process.said())
        self.url = f"mysql://juicefs:of-these-tests-only@(127.0.0.1:{MARIADB_PORT})/juicefs"

    def close(self):
        self.process.stop()


class Etcd:
    """One member: every commit is flushed."""

    label = "etcd"
    members = 1

    def __init__(self, folder):
        self.folder = os.path.join(folder, "etcd")
        os.makedirs(self.folder)
        self.processes = [self._begin(number) for number in range(self.members)]
        for number, process in enumerate(self.processes):
            process.until_ready("etcd answers", lambda at=number: self._healthy(at))
        self.url = "etcd://" + ",".join(self._client(number) for number in range(self.members)) + "/juicefs"

    def _client(self, number):
        return f"127.0.0.1:{ETCD_PORT + 10 * number}"

    def _begin(self, number):
        peers = [f"http://127.0.0.1:{ETCD_PORT + 1 + 10 * other}" for other in range(self.members)]
        client = f"http://{self._client(number)}"
        words = [find("etcd"), "--name", f"m{number}", "--data-dir", os.path.join(self.folder, f"m{number}")]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number]]
        words += ["--initial-cluster", ",".join(f"m{other}={peer}" for other, peer in enumerate(peers))]
        return Process(words, os.path.join(self.folder, f"m{number}.log"))

    def _healthy(self, number):
        try:
            with urllib.request.urlopen(f"http://{self._client(number)}/health", timeout=5) as reply:
                return b'"true"' in reply.read()
        except OSError:
            return False

    def _leads(self, number):
        with urllib.request.urlopen(f"http://{self._client(number)}/metrics", timeout=5) as reply:
            return b"\netcd_server_is_leader 1\n" in reply.read()

    def kill_leader(self):
        """kill -9 of the member that leads; answers its number."""
        number = next(number for number in range(self.members) if self._leads(number))
        self.processes[number].kill9()
        return number

    def restart(self, number):
        self.processes[number] = self._begin(number)
        self.processes[number].until_ready("etcd answers", lambda: self._healthy(number))

    def close(self):
        for process in self.processes:
            process.stop()


class Etcd3(Etcd):
    """Three members: a commit is on the disks of two."""

    label = "etcd, three members"
    members = 3


ENGINES = {"sqlite": Sqlite, "redis": Redis, "redis-everysec": RedisEverysec, "mariadb": Mariadb, "etcd": Etcd,
           "etcd-3": Etcd3}
