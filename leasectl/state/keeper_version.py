"""Which version a keeper runs, and having one of another version make way for this one.

A keeper imports what it needs when it needs it, and opens the database anew for some work; after an
upgrade it can do neither for long. One whose code was replaced is sent USR1: it becomes the version
that is installed where it came from, and goes on with the same pid. One that came from elsewhere
would only become itself again. It goes on beside this version while both read the database; one
that can't read it any more has to be replaced.
"""

from __future__ import annotations

import os

import leasectl
from leasectl.model import Process, parse_process
from leasectl.state.rows import insert
from leasectl.system import c_signal as signal
from leasectl.system.process import (
    liveness,
    open_pidfd,
    own_pid_namespace,
    this_process,
)
from leasectl.typed.hints import TYPE_CHECKING
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    import sqlite3

CODE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(leasectl.__file__)))


class Registered(NamedTuple):
    """The keeper of this pid namespace, dead or alive.

    Args:
        process: It.
        version: That it runs; empty when it is of a version that doesn't say.
        asked: The version that it was last asked to make way for; empty for none.
    """

    process: Process
    version: str = ""
    asked: str = ""

    @property
    def is_alive(self) -> bool:
        return liveness(self.process) == "alive"

    @property
    def is_settled(self) -> bool:
        """Whether this version has nothing to ask of it, or has asked it already."""
        return leasectl.__version__ in (self.version, self.asked)


def registered(db: sqlite3.Connection) -> Registered | None:
    """Who is registered; None when the last keeper ended of its own accord."""
    row = db.execute(
        "SELECT keeper.process, version, asked FROM keeper LEFT JOIN keeper_version AS said "
        "ON said.pid_namespace = keeper.pid_namespace AND said.process = keeper.process "
        "WHERE keeper.pid_namespace = ?",
        (own_pid_namespace(),),
    ).fetchone()
    if row is None:
        return None
    return Registered(parse_process(row["process"]), row["version"] or "", row["asked"] or "")


def note(db: sqlite3.Connection, process: Process) -> None:
    """Note that a keeper runs this version; inside a transaction."""
    before = registered(db)
    asked = before.asked if before is not None and before.process == process else ""
    _write(db, Registered(process, leasectl.__version__, asked))


def hand_over(db: sqlite3.Connection) -> bool:
    """Ask a keeper of another version, once, to make way; inside a transaction.

    Returns:
        Whether there is a keeper that can go on by itself. If not, the caller has to start one, and
        to end what `registered` tells of.
    """
    keeper = registered(db)
    if keeper is None or not keeper.is_alive:
        return False
    if keeper.is_settled or keeper.process == this_process():
        return True
    is_ours = _code_folder_of(keeper.process) == os.path.realpath(CODE_FOLDER)
    if not is_ours and not keeper.version:
        return False  # it reads schema 2 only
    _write(db, keeper._replace(asked=leasectl.__version__))
    if is_ours:
        send(keeper.process, signal.SIGUSR1)
    return True


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


def _write(db: sqlite3.Connection, keeper: Registered) -> None:
    row = {
        "pid_namespace": own_pid_namespace(),
        "process": keeper.process.encode(),
        "version": keeper.version,
        "asked": keeper.asked,
    }
    insert(db, "keeper_version", row, replace=True)


def _code_folder_of(process: Process) -> str | None:
    """Where a keeper's code is, as its starter told it; None while that can't be told."""
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
