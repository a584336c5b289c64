"""Writes files into a mount, each acknowledged by fsync, and says so: `writer.py MOUNT`; ends after SIGTERM.

A process of its own: a program that holds a file of a mount that does not answer cannot start others.
"""

import signal
import sys
import time

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


if __name__ == "__main__":
    write(Files(sys.argv[1]))
