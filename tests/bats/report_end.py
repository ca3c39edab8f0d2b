"""Run a command and print, after its own output, how it ended: ``exit 3`` or ``signal TERM``.

Bash can't tell a child that died of TERM from one that exited with 143, and lets the commands it
runs in the background ignore INT.

usage: report_end.py COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import signal
import subprocess
import sys

SECONDS = 300  # as the other waits of the tests


def _heed_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_DFL)


def main() -> None:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_heed_signals)
    try:
        code = child.wait(SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        print(f"killed after {SECONDS} seconds")
    else:
        print(f"exit {code}" if code >= 0 else f"signal {signal.Signals(-code).name[3:]}")


main()
