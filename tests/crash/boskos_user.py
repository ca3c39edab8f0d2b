"""A command under a lease of Boskos: it uses what it has, and writes down when.

usage: boskos_user.py LOG SECONDS

Each line has the pid, the name and a time in ns of CLOCK_BOOTTIME. It is written while the use goes
on, so whoever is killed has used it until its last line.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    names = os.environ["LEASECTL_NAMES"].split(",")

    def note() -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.write(log, "".join(f"{os.getpid()} {name} {now}\n" for name in names).encode())

    def end(*_: object) -> None:
        note()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        note()
        time.sleep(0.05)
    end()


if __name__ == "__main__":
    main()
