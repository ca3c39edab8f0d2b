"""Whether a keeper has to be replaced.

A keeper loads most of its code as it starts, and the rest when it first needs it. After an upgrade
that soon fails, so a process that needs a keeper stops an older one and starts its own. Only a
higher version number replaces a lower one: two processes of two versions that use one directory
can't replace each other's keeper for ever. Nothing gets lost, since a keeper's work is recorded in
the database.
"""

from __future__ import annotations

import math
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import leasectl
from leasectl.model import Process, parse_process
from leasectl.state.rows import insert
from leasectl.system.process import (
    liveness,
    open_pidfd,
    own_pid_namespace,
    this_process,
)

if TYPE_CHECKING:
    import sqlite3

# The limits that can stop a keeper's work, by their names in /proc.
LIMITS = (
    "Max cpu time",
    "Max file size",
    "Max data size",
    "Max processes",
    "Max open files",
    "Max address space",
)
CODE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(leasectl.__file__)))


# A command asks several times, and each look takes half a millisecond on a busy machine.
_LOOK_AGAIN_SECONDS = 1.0
_fit_until: dict[Process, float] = {}


class Registered(NamedTuple):
    """The keeper of this pid namespace, dead or alive.

    Args:
        process: The keeper.
        version: The version of leasectl that it runs.
    """

    process: Process
    version: str

    @property
    def is_alive(self) -> bool:
        return liveness(self.process) == "alive"


def registered(db: sqlite3.Connection) -> Registered | None:
    """Return the registered keeper; None if the last one ended by itself."""
    row = db.execute(
        "SELECT process, version FROM keeper WHERE pid_namespace = ?", (own_pid_namespace(),)
    ).fetchone()
    return None if row is None else Registered(parse_process(row["process"]), row["version"])


def is_older(version: str) -> bool:
    """Return whether a version comes before this one, by the numbers that it begins with."""
    return version != leasectl.__version__ and _numbers(version) < _numbers(leasectl.__version__)


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split("."):
        if not (part.isascii() and part.isdecimal()):
            break
        numbers.append(int(part))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def is_fit(process: Process) -> bool:
    """Return whether a living keeper can do its work as well as one that this process starts.

    Its installation may have been deleted, as a virtual environment in a workspace is. And it keeps
    the limits of its starter for life: with a file size limit, it can't write its records. It makes
    way only for a keeper that is better in every respect, so no two replace each other for ever.
    """
    now = time.monotonic()
    if process == this_process() or now < _fit_until.get(process, 0.0):
        return True
    is_fit = (missing_code(process) is None or not has_code(CODE_FOLDER)) and not _is_limited(
        process
    )
    if is_fit:
        _fit_until.clear()
        _fit_until[process] = now + _LOOK_AGAIN_SECONDS
    return is_fit


def missing_code(process: Process) -> str | None:
    """Return where a keeper's code was, if it is gone; None if it exists, or that isn't known."""
    folder = _code_folder_of(process)
    return None if folder is None or has_code(folder) else folder


def has_code(folder: str) -> bool:
    """Return whether a keeper can be started from a folder, or from an archive."""
    return os.path.isdir(os.path.join(folder, "leasectl", "keeper")) or os.path.isfile(folder)


def _is_limited(process: Process) -> bool:
    """Return whether a process has some lower limit than this one, and no higher limit."""
    try:
        its, own = _hard_limits(process.pid), _hard_limits(os.getpid())
    except (OSError, ValueError):  # it has ended, or a security module hides it
        return False
    pairs = [(its[name], own[name]) for name in LIMITS]
    return any(each < ours for each, ours in pairs) and all(each <= ours for each, ours in pairs)


def _hard_limits(pid: int) -> dict[str, float]:
    """Return the hard limits of a process; `resource` would take longer to load."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        return {
            line[:26].rstrip(): _number(line[47:68].rstrip()) for line in file if line[0] == "M"
        }


def _number(text: str) -> float:
    return math.inf if text == "unlimited" else float(text)


def note(db: sqlite3.Connection, process: Process) -> None:
    """Register a keeper that runs this version; inside a transaction."""
    row = {
        "pid_namespace": own_pid_namespace(),
        "process": process.encode(),
        "version": leasectl.__version__,
    }
    insert(db, "keeper", row, replace=True)


def send(process: Process, signum: int) -> None:
    """Send a signal to that very process; nothing happens if it has ended."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


def _code_folder_of(process: Process) -> str | None:
    """Return where a keeper's code is, as its starter told it; None while that isn't known."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    for each in variables:
        name, _, value = each.partition(b"=")
        if name == b"PYTHONPATH":
            return os.path.realpath(os.fsdecode(value))
    return None
