"""Work on a mount over a raw store, once for each way to observe its disk: metadata operations, and a tree of C sources."""

import os
import re
import shutil
import statistics
import time
import urllib.request

from machine import Failed, note, run, spread
from nodes import ACCESS, BUCKET, SECRET
from volume import Volume

# Options of the service, and whether it observes its disk with them. The first two differ by noise only.
MODES = {
    "not loaded": (["--no-probes"], False),
    "not loaded, again": (["--no-probes"], False),
    "histograms": (["--program-statistics", "--event-one-in", "0"], True),
    "events": (["--program-statistics"], True),
}
OFF = "not loaded"
# Folders in each, and how deep: files are in the deepest, one in each.
WIDTH, DEPTH = 10, 3

# The published cost of observing with BoesFS, on other machines, on ext4 with the sources of Linux 4.19 (built with
# `make tinyconfig`): seconds without and with, per cent.
PUBLISHED = {"tar": (82.31, 87.23, 5.98), "untar": (9.13, 9.67, 5.91), "build": (7.44, 7.95, 6.85)}


def levels(root):
    """The folders of the tree, level by level."""
    found = [[root]]
    for _ in range(DEPTH):
        found.append([os.path.join(above, f"d{number}") for above in found[-1] for number in range(WIDTH)])
    return found[1:]


def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def operations(root):
    """Each metadata operation: its name, what does one, and what for."""
    folders = levels(root)
    files = [os.path.join(folder, "f") for folder in folders[-1]]
    renamed = [file + "2" for file in files]
    return [
        ("mkdir", os.mkdir, [folder for level in folders for folder in level]),
        ("create", create, files),
        ("stat", os.stat, files),
        ("setattr", lambda file: os.chmod(file, 0o600), files),
        ("readdir", os.listdir, [folder for level in folders for folder in level]),
        ("rename", lambda file: os.rename(file, file + "2"), files),
        ("unlink", os.unlink, renamed),
        ("rmdir", os.rmdir, [folder for level in reversed(folders) for folder in level]),
    ]


def metadata(mountpoint):
    """Seconds of each operation on the whole tree, and how many there were."""
    root, figures = os.path.join(mountpoint, "tree"), {}
    os.mkdir(root)
    for name, one, paths in operations(root):
        begun = time.monotonic()
        for path in paths:
            one(path)
        figures[name] = time.monotonic() - begun, len(paths)
    os.rmdir(root)
    return figures


def sources(mountpoint, archive):
    """Seconds to unpack, build and pack a tree of sources."""
    folder, figures = os.path.join(mountpoint, "sources"), {}
    os.mkdir(folder)
    shutil.copy(archive, folder)
    own = os.path.join(folder, os.path.basename(archive))

    def timed(name, words, where):
        begun = time.monotonic()
        run(words, cwd=where, seconds=3600)
        # Writing back the dirty pages is part of the work.
        descriptor = os.open(mountpoint, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        figures[name] = time.monotonic() - begun, 1

    timed("untar", ["tar", "-zxf", own], folder)
    tree = next(entry.path for entry in os.scandir(folder) if entry.is_dir())
    timed("tar", ["tar", "-zcf", "again.tar.gz", os.path.basename(tree)], folder)
    timed("build", ["make", "-j2", "MALLOC=libc", "OPTIMIZATION=-O0", "DEBUG="], tree)
    run([os.path.join(tree, "src", "redis-server"), "--version"])
    shutil.rmtree(folder)
    return figures


def metric(node, name):
    """The sum of a metric of the service; 0 where it has none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.web}/metrics", timeout=30) as reply:
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", reply.read().decode(), re.MULTILINE))


def observing(node):
    """Processor seconds of the programs in the kernel, and of the thread that reads what they hand out."""
    names = ("lumpscope_probe_program_run_seconds_total", "lumpscope_observer_cpu_seconds_total")
    return sum(metric(node, name) for name in names)


def spent():
    """Processor seconds of every process of this namespace, and of those that have ended."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                # User, system, and both of children that were waited for.
                ticks += sum(int(word) for word in file.read().rpartition(")")[2].split()[11:15])
        except FileNotFoundError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def compare(node, folder, engine, rounds, archive):
    """All of it, `rounds` times in each mode, in another order each time. Prints the table."""
    node.start()
    volume = Volume(folder, engine.url, f"{node.endpoint}/{BUCKET}", ACCESS, SECRET)
    volume.format()
    runs, shares = [], {}
    for number in range(rounds):
        names = list(MODES)
        seconds = {}
        for name in names[number % len(names):] + names[:number % len(names)]:
            words, wanted = MODES[name]
            node.process.stop()
            node.start(*words)
            if (metric(node, "lumpscope_probe_attached") > 0) != wanted:
                raise Failed(f"{name}: the disk is not observed as asked; `lumpscope doctor` says what is missing")
            volume.mount()
            before = observing(node), spent()
            seconds[name] = metadata(volume.mountpoint) | sources(volume.mountpoint, archive)
            after = observing(node), spent()
            volume.umount()
            shares.setdefault(name, []).append((after[0] - before[0]) / (after[1] - before[1]))
            note(f"round {number + 1}, {name}: " + ", ".join(f"{what} {took:.1f} s" for what, (took, _) in seconds[name].items()))
        runs.append(seconds)
    volume.destroy()
    print_table(runs)
    for name in ("histograms", "events"):
        print(f"{name}: observation had {spread(shares[name], '.2%')} of the work's processor time", flush=True)


def print_table(runs):
    """Medians without probes, and what each other mode took more in the same round."""
    others = [name for name in MODES if name != OFF]
    print("\n| | " + " | ".join([f"{OFF}, s", "a second", *others, "published, BoesFS"]) + " |\n|" + "---|" * (len(others) + 4))
    for figure, (_, count) in runs[0][OFF].items():
        base = statistics.median(one[OFF][figure][0] for one in runs)
        cells = [figure, f"{base:.2f}", f"{count / base:.0f}" if count > 1 else ""]
        cells += [spread([one[name][figure][0] / one[OFF][figure][0] - 1 for one in runs], "+.1%") for name in others]
        without, with_it, cost = PUBLISHED.get(figure, (0, 0, 0))
        cells.append(f"{without} s, {with_it} s: {cost:+.1f} %" if cost else "")
        print("| " + " | ".join(cells) + " |", flush=True)
