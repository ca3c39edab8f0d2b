"""Find, start and wake the keeper.

There is one keeper per state directory (and pid namespace: it can only watch processes that it can
see). The database names it. It decides to end in a transaction. A command that needs it registers
that in a transaction too, and starts a successor there if the keeper has just ended. So there is a
keeper whenever there is something to keep, whichever process is killed.

A keeper loads most of its code as it starts, and the rest when it first needs it. After an upgrade
that soon fails, so a process that needs a keeper stops an older one and starts its own. Only a
higher version number replaces a lower one: two processes of two versions that use one directory
can't replace each other's keeper for ever. Nothing gets lost, since a keeper's work is recorded in
the database.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import leasectl
from leasectl.errors import LeaseError, NotFound
from leasectl.model import Process, parse_process
from leasectl.state import timers
from leasectl.state.directory import State, removed
from leasectl.state.rows import insert
from leasectl.system.process import (
    identify,
    liveness,
    open_files,
    open_pidfd,
    own_pid_namespace,
    this_process,
)

if TYPE_CHECKING:
    import sqlite3

# Variables that an interpreter may need to start, or backends for paths; no secrets.
_KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "TMPDIR",
    "LEASECTL_KEEP_EVENTS",
)

# Blocked from before the keeper's first instruction until it handles them: with the default action,
# a signal that comes while it starts would end it before it has done anything.
KEEPER_SIGNALS = (signal.SIGTERM,)
# Wakes a keeper whose pipe was removed. One that is just starting ignores it.
CALL = signal.SIGURG

_RESET = (*KEEPER_SIGNALS, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def pipe_path(state: State) -> str:
    """Return the named pipe that wakes this pid namespace's keeper."""
    return state.path(f"keeper.{own_pid_namespace()}")


class Registered(NamedTuple):
    """The keeper of this pid namespace, dead or alive.

    Args:
        process: The keeper.
        version: The version of leasectl that it runs.
    """

    process: Process
    version: str


def registration(state: State) -> Registered | None:
    """Return the keeper of this pid namespace, dead or alive; None if it ended by itself."""
    rows = state.query(
        "SELECT process, version FROM keeper WHERE pid_namespace = ?", own_pid_namespace()
    )
    return Registered(parse_process(rows[0]["process"]), rows[0]["version"]) if rows else None


def registered(state: State) -> Process | None:
    """Return the process of the `registration`."""
    keeper = registration(state)
    return None if keeper is None else keeper.process


def running(state: State) -> Process | None:
    """Return the keeper of this pid namespace, if it lives."""
    process = registered(state)
    return process if process is not None and liveness(process) == "alive" else None


def is_kept(state: State) -> bool:
    """Return whether a keeper lives that can go on; one of an older version can't."""
    keeper = registration(state)
    if keeper is None or liveness(keeper.process) != "alive" or is_older(keeper.version):
        return False
    return is_fit(keeper.process)


def wake(state: State) -> None:
    """Let the keeper look again after this transaction, or start a keeper with it.

    Raises:
        LeaseError: No process could be started.
    """
    is_heard = state.wake(pipe_path(state))
    if not is_heard:
        _disown(state)
    if not is_kept(state):
        ensure(state)
    elif not is_heard:
        call(state)


def _disown(state: State) -> None:
    """Forget the registered keeper if it keeps another state directory; inside a transaction.

    This directory is then a copy of the other, or was restored from a backup, and its record of the
    keeper is the other's. A keeper of this directory can be woken, or is about to be.
    """
    keeper = running(state)
    if keeper is not None and _keeps_another(state, keeper):
        resign(state)


def _keeps_another(state: State, process: Process) -> bool:
    """Return whether a process has another directory's ``state.lock`` open, and not this one's."""
    try:
        found = list(open_files(process.pid))
    except OSError:
        return False
    locks = [file for path, file in found if os.path.basename(path) == "state.lock"]
    return bool(locks) and not any(map(state.has_lock_file, locks))


def call(state: State) -> None:
    """Make a keeper without a pipe create it again, and look when the lock is free."""
    keeper = running(state)
    if keeper is not None:
        send(keeper, CALL)


def begin(state: State, process: Process) -> bool:
    """In a keeper that can be woken: begin to keep all that was registered before.

    Returns:
        Whether that process is the keeper; another candidate may have been faster.
    """
    with state.transaction() as db:
        is_chosen = registered(state) == process
        if is_chosen:
            note(db, process)
            timers.begin_anew(
                state, process
            )  # it may have been another program with this pid before
    return is_chosen


def resign(state: State) -> None:
    """Record, inside the keeper's last transaction, that there is no keeper from here on."""
    state.db.execute("DELETE FROM keeper WHERE pid_namespace = ?", (own_pid_namespace(),))


def remove_dead(state: State) -> None:
    """Remove the record of a killed keeper that needs no successor."""
    if registered(state) is not None:
        with state.transaction():
            if running(state) is None:
                resign(state)


def ensure(state: State) -> None:
    """Start a keeper unless one lives that can go on; inside a transaction, with its commit.

    A candidate is forked first and then entered in the database; it becomes the keeper only when it
    finds itself there. So two starters at once make one keeper, and a starter that is killed
    half-way makes either one or none.

    A command that will need a keeper calls this first, as it takes long, and again in the
    transaction that registers its work: meanwhile an idle keeper may have ended.

    Raises:
        LeaseError: No process could be started.
        StateUnwritable: The state directory was removed or replaced.
    """
    if is_kept(state):
        return
    if state.was_removed():
        raise removed(state.directory)
    candidate, started = _fork_candidate(command(state.directory))
    state.close_afterwards(started)
    with contextlib.suppress(NotFound), state.transaction():
        if not is_kept(state):
            _register(state, identify(candidate))
            _wake_heads(state)


def _register(state: State, candidate: Process) -> None:
    """Register a candidate as the keeper, inside a transaction."""
    before = running(state)
    if before is not None and not _keeps_another(state, before):
        # It is in no transaction, since we are; the next keeper finishes its other work.
        send(before, signal.SIGKILL)
    note(state.db, candidate)


def _wake_heads(state: State) -> None:
    """Make the waiters at the heads of the queues watch the new keeper too.

    A waiter for a named resource can be at the head for that name, so they count as well.
    """
    rows = state.query(
        "SELECT pipe FROM ticket WHERE number <= coalesce((SELECT MIN(first.number) "
        "FROM ticket AS first LEFT JOIN handle ON handle.id = first.owner "
        "LEFT JOIN suspended ON suspended.type = first.type AND suspended.number = first.number "
        "WHERE first.type = ticket.type AND handle.name IS NULL AND suspended.number IS NULL), "
        "number)"
    )
    for row in rows:
        state.wake(state.waiter_pipe(row["pipe"]))


def command(directory: str) -> list[str]:
    """Return the command line of a state directory's keeper.

    Raises:
        LeaseError: Python doesn't know its own path, or the code is gone, or there is no device for
            the keeper's streams.
    """
    if not os.path.exists(os.devnull):
        raise LeaseError(
            f"can't start the keeper: there is no {os.devnull}; mount /dev in this container"
        )
    if not sys.executable:
        raise LeaseError("can't start the keeper: the path of the Python interpreter is not known")
    for path in (sys.executable, CODE_FOLDER):
        if not os.path.exists(path):
            raise LeaseError(
                f"can't start the keeper: {path}, which this process was started from, is gone; "
                "run leasectl from where it is installed now"
            )
    return [sys.executable, "-m", "leasectl.keeper", directory]


def environment() -> dict[str, str]:
    """Return the keeper's environment, without the secrets of the process that started it."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": CODE_FOLDER, "PYTHONSAFEPATH": "1"}


def _fork_candidate(argv: Sequence[str]) -> tuple[int, int]:
    """Fork a process of its own session that runs the command once a descriptor is closed.

    It is forked twice, so that it isn't our child and leaves no zombie. It runs a fresh
    interpreter: its command line is its own (a ``pkill -f`` for the caller's command must not hit
    it), and so is its environment.

    Returns:
        Its pid, and the descriptor whose closing (or this process's death) lets it start.
    """
    if _has_threads():
        return _launch_candidate(argv)
    pid_read, pid_write = os.pipe()
    go_read, go_write = os.pipe()
    env = environment()
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, KEEPER_SIGNALS)
    try:
        middle = os.fork()
    except OSError as error:
        for fd in (pid_read, pid_write, go_read, go_write):
            os.close(fd)
        raise LeaseError(f"can't start the keeper: {error.strerror}") from error
    finally:
        if os.getpid() == parent:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if middle == 0:
        try:
            os.setsid()
            pid = os.fork()
            if pid:
                os.write(pid_write, str(pid).encode())
            else:
                _become(argv, env, go_read)
        finally:
            os._exit(1)
    os.close(pid_write)
    os.close(go_read)
    with contextlib.suppress(ChildProcessError):  # the caller's SIGCHLD is ignored, or it reaps all
        os.waitpid(middle, 0)
    text = os.read(pid_read, 32)
    os.close(pid_read)
    if not text:
        os.close(go_write)
        raise LeaseError("can't start the keeper: no process could be forked")
    return int(text), go_write


def _has_threads() -> bool:
    return len(os.listdir("/proc/self/task")) > 1


def _launch_candidate(argv: Sequence[str]) -> tuple[int, int]:
    """Do the same as `_fork_candidate`, by a program of its own.

    In a process with several threads, a fork may copy a lock that another thread holds, so its
    child must only execute a program. This one has no threads, and forks.
    """
    import subprocess  # few processes with threads start a keeper

    script = f"from {__name__} import _report_candidate; _report_candidate({list(argv)!r})"
    go_read, go_write = os.pipe()
    try:
        launched = subprocess.run(
            [sys.executable, "-c", script, str(go_read)],
            env=environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(go_read,),
            start_new_session=True,
            check=True,
        )
        return int(launched.stdout), go_write
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        os.close(go_write)
        raise LeaseError(f"can't start the keeper: {error}") from error
    finally:
        os.close(go_read)


def _report_candidate(argv: Sequence[str]) -> None:
    """In the launched program: fork the candidate and print its pid."""
    signal.pthread_sigmask(signal.SIG_SETMASK, KEEPER_SIGNALS)
    pid = os.fork()
    if not pid:
        try:
            _become(argv, environment(), int(sys.argv[1]))
        finally:
            os._exit(1)
    os.write(1, str(pid).encode())
    os._exit(0)


def _become(argv: Sequence[str], env: dict[str, str], go: int) -> None:
    """In the forked process: drop everything that was the caller's, wait, run."""
    from leasectl.system.background import close_all_but  # no command needs it

    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but((go,))
    for signum in _RESET:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, KEEPER_SIGNALS)
    os.read(go, 1)
    os.close(go)
    os.execve(argv[0], list(argv), env)


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
            pairs = (each.partition(b"=") for each in file.read().split(b"\0"))
    except OSError:
        return None
    variables = {name: value for name, _, value in pairs}
    folder = variables.get(b"PYTHONPATH", b"")
    # Who is just being started, as a fork of its starter, still shows that one's variables.
    is_set_by_starter = variables.get(b"PYTHONSAFEPATH") == b"1"
    return os.path.realpath(os.fsdecode(folder)) if folder and is_set_by_starter else None
