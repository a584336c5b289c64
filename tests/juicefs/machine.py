"""Namespaces, processes and folders that go with the process that made them, also after kill -9."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

# Longest that a program may take to be ready, or to end when asked, in seconds.
READY = 60
# Longest that one command may take, in seconds.
COMMAND = 600
# Set in the environment of the process that is already inside.
INSIDE = "LUMPSCOPE_JUICEFS_INSIDE"


class Failed(Exception):
    """Something is not as it must be. The message says what, and where to look."""


def say(text):
    print(f"\n--> {text}", file=sys.stderr, flush=True)


def note(text):
    print(f"    {text}", file=sys.stderr, flush=True)


def spread(values, form):
    """The median and the range, each in this form."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})".replace("%", " %")


def check(truth, text):
    """Fails unless it is true; says it otherwise."""
    if not truth:
        raise Failed(f"not so: {text}")
    note(text)


def dies_with_parent():
    """The kernel kills this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# --- Namespaces ---------------------------------------------------------------------------------------------------


def inside(work, own_network):
    """Runs this program again in namespaces of its own: mounts are seen there only, every process ends with the first,
    and with a network of its own every port is free. Answers when already inside; ends with its exit code otherwise."""
    if os.environ.get(INSIDE):
        if own_network:
            loopback_up()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
        return os.environ[INSIDE]
    folder = new_folder(work)
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words += ["--net"] if own_network else []
    child = None

    def give_up(*_):
        if child is not None:
            child.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, give_up)
    try:
        child = subprocess.Popen(
            [*words, sys.executable, *sys.argv],
            env={**os.environ, INSIDE: folder},
            preexec_fn=dies_with_parent,
        )
        code = child.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code if code >= 0 else 128 - code)


def end_all():
    """Ends every process of the namespace. Where this is not its first process, there is none of ours."""
    if os.environ.get(INSIDE) and os.getpid() == 1:
        # A thread that waits for a mount ends only when nobody serves the mount any more.
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass


def new_folder(work):
    """A folder for this run; what a killed one has left is removed."""
    os.makedirs(work, exist_ok=True)
    for name in os.listdir(work):
        old = os.path.join(work, name)
        if name.startswith("run.") and not locked(old):
            shutil.rmtree(old, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix="run.", dir=work)
    # The lock ends with this process, whatever ends it.
    new_folder.lock = open(os.path.join(folder, "lock"), "w")
    fcntl.flock(new_folder.lock, fcntl.LOCK_EX)
    return folder


def locked(folder):
    try:
        with open(os.path.join(folder, "lock")) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up_and_running = 0x1 | 0x40
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14s", b"lo", up_and_running, b""))


# --- Programs -----------------------------------------------------------------------------------------------------


def find(name):
    """Where a program is: on PATH, or in the system's folders."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if not found:
        raise Failed(f"{name} is not installed: ./dev juicefs installs what is missing")
    return found


def run(words, good=True, seconds=COMMAND, **more):
    """Runs a command to its end. Answers what it printed, both streams; without `good`, exit code and that."""
    done = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL if "input" not in more else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        text=True,
        errors="replace",
        preexec_fn=dies_with_parent,
        **more,
    )
    if not good:
        return done.returncode, done.stdout
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode} of {' '.join(str(word) for word in words)}:\n{done.stdout}")
    return done.stdout


def until(what, test, seconds=READY, pause=0.05):
    """Waits until `test` answers something; answers that."""
    end = time.monotonic() + seconds
    while True:
        found = test()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(pause)


class Process:
    """A program that goes on. It is ended by its own process id."""

    def __init__(self, words, log, **more):
        self.log = log
        with open(log, "a") as output:
            self.child = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_parent,
                **more,
            )

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def alive(self):
        return self.child.poll() is None

    def until_ready(self, what, test, seconds=READY):
        def ready():
            if not self.alive():
                raise Failed(f"{what}: it ended with {self.child.returncode}: {self.said()[-2000:]}")
            return test()

        return until(what, ready, seconds)

    def stop(self):
        """SIGTERM, and SIGKILL to one that does not end. Answers its exit code."""
        if self.alive():
            self.child.terminate()
        try:
            return self.child.wait(READY)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise Failed(f"process {self.child.pid} did not end within {READY} s; {self.log}") from None

    def kill9(self):
        self.child.kill()
        self.child.wait()


# --- Disks --------------------------------------------------------------------------------------------------------


class Disk:
    """A loop device over a sparse file of `size` bytes. It vanishes with its last user, this process among them."""

    def __init__(self, folder, size):
        image = os.path.join(folder, "disk")
        with open(image, "wb") as file:
            file.truncate(size)
        self._take(run(["losetup", "--find", "--show", "--direct-io=on", image]))
        os.unlink(image)

    def _take(self, device):
        self.device = device.strip()
        self.keep = os.open(self.device, os.O_RDONLY | os.O_CLOEXEC)
        # While it is open this only says: with the last user.
        run(["losetup", "--detach", self.device])

    def close(self):
        os.close(self.keep)


class Drive(Disk):
    """An emulated disk, whose arm crosses it in the time that it needs for the whole drive."""

    def __init__(self, binary, drive, size):
        words = [binary, "platter", "attach", "--drive", drive, "--size", str(size), "--whole-stroke"]
        # It may add that the machine is busy.
        self._take(run(words).splitlines()[0])


class Ext4(Disk):
    """Such a disk with that file system, mounted."""

    def __init__(self, folder, size):
        super().__init__(folder, size)
        run(["mkfs.ext4", "-q", self.device])
        self.mountpoint = os.path.join(folder, "ext4")
        os.makedirs(self.mountpoint)
        run(["mount", self.device, self.mountpoint])

    def close(self):
        until("nobody uses the disk", lambda: run(["umount", self.mountpoint], good=False)[0] == 0)
        super().close()
