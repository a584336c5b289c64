"""The metadata engines that run here, each with a folder of its own and on loopback only."""

import os

from machine import Process, find, run

REDIS_PORT = 6379
MARIADB_PORT = 3306


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


ENGINES = {"sqlite": Sqlite, "redis": Redis, "redis-everysec": RedisEverysec, "mariadb": Mariadb}
