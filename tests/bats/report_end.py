"""Run a command and print, after its own output, how it ended: ``exit 3`` or ``signal TERM``.

Bash can't tell a child that died of TERM from one that exited with 143, and lets the commands it
runs in the background ignore INT. It runs hundreds of times, so it imports only what starts fast.

usage: report_end.py COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import os
import select
import sys

SECONDS = 300  # as the other waits of the tests
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "PIPE": 13, "TERM": 15, "XFSZ": 25}


def main() -> None:
    os.closerange(3, 1024)  # of bats, which would wait for whoever has them
    child = os.posix_spawnp(
        sys.argv[1],
        sys.argv[1:],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        setsigdef=[number for name, number in SIGNALS.items() if name != "KILL"],
    )
    has_ended = select.poll()
    has_ended.register(os.pidfd_open(child), select.POLLIN)
    if not has_ended.poll(SECONDS * 1000):
        os.kill(child, SIGNALS["KILL"])
        print(f"killed after {SECONDS} seconds")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    names = {-number: name for name, number in SIGNALS.items()}
    print(f"exit {code}" if code >= 0 else f"signal {names.get(code, -code)}")


main()
