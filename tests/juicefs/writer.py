"""Writes files into a mount, each acknowledged by fsync, and says so: `writer.py MOUNT`; ends after SIGTERM.

A process of its own: a program that holds a file of a mount that does not answer cannot start others.
"""

import os
import signal
import sys
import time

from machine import Process
from volume import Files

SIZE = 9 << 20


def name(number):
    return f"written/{number}"


def size(number):
    return SIZE + number


def write(files):
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    number = 0
    while going:
        began = time.monotonic()
        try:
            files.write(name(number), size(number))
            said = "acknowledged"
        except OSError as error:
            said = f"refused: {error.strerror}"
        print(f"{number} {time.monotonic() - began:.1f} {said}", flush=True)
        number += 1


class Writer:
    """A program that writes files, each acknowledged by fsync, until it is told to stop."""

    def __init__(self, mountpoint, log):
        self.files = Files(mountpoint)
        self.process = Process([sys.executable, "-B", os.path.abspath(__file__), mountpoint], log)

    def lines(self):
        """Number, seconds and outcome of each file so far."""
        return [line.split(" ", 2) for line in self.process.said().splitlines()]

    def acknowledged(self):
        return sum(said == "acknowledged" for _, _, said in self.lines())

    def refused(self):
        return [f"{name(int(number))} {said}" for number, _, said in self.lines() if said != "acknowledged"]

    def longest(self):
        return max(float(seconds) for _, seconds, _ in self.lines())

    def stop(self):
        """Ends it after the file under way. Answers the files that were acknowledged."""
        self.process.stop()
        for number, _, said in self.lines():
            if said == "acknowledged":
                self.files.expect(name(int(number)), size(int(number)))
        return self.files


if __name__ == "__main__":
    write(Files(sys.argv[1]))
