"""Finding, starting and waking the keeper, from the side of those who need one.

There is one keeper per state directory (and pid namespace: it can only watch processes that it
can see). Who it is stands in the database. It decides to end in a transaction, and whatever
needs it is registered in one, so that nothing is registered with a keeper that has just left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import leasectl
from leasectl.errors import LeaseError, NotFound
from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.system.process import Liveness, identify, liveness, own_pid_namespace

# What an interpreter may need to start, and what later backends read paths from; no secrets.
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR")

# Blocked from before the keeper's first instruction until it can heed them: at its defaults, one
# that comes while it starts would end it with nothing done.
KEEPER_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def pipe_path(state: State) -> str:
    """The named pipe that wakes this pid namespace's keeper."""
    return state.path(f"keeper.{own_pid_namespace()}")


def registered(state: State) -> Process | None:
    """The keeper of this pid namespace, dead or alive; None when it ended of its own accord."""
    rows = state.query("SELECT process FROM keeper WHERE pid_namespace = ?", own_pid_namespace())
    return parse_process(rows[0][0]) if rows else None


def running(state: State) -> Process | None:
    """The keeper of this pid namespace, if it lives."""
    process = registered(state)
    alive = process is not None and liveness(process) is Liveness.ALIVE
    return process if alive else None


def wake(state: State) -> bool:
    """Inside a transaction: have the keeper look again; returns whether there is one."""
    state.wake(pipe_path(state))
    return running(state) is not None


def resign(state: State) -> None:
    """Inside the keeper's last transaction: from here on there is no keeper."""
    state.db.execute("DELETE FROM keeper WHERE pid_namespace = ?", (own_pid_namespace(),))


def remove_dead(state: State) -> None:
    """Take a killed keeper out of the database that nobody needs a successor of."""
    if registered(state) is not None:
        with state.transaction():
            if running(state) is None:
                resign(state)


def ensure(state: State) -> None:
    """Start a keeper unless one lives. Not to be called inside a transaction.

    A candidate is forked first and then entered in the database; it becomes the keeper only when
    it finds itself there. So two starters at once make one keeper, and a starter that is killed
    half-way makes either one or none.

    Raises:
        LeaseError: No process could be started.
    """
    if running(state) is not None:
        return
    candidate, started = _fork_candidate(command(state.directory))
    try:
        with contextlib.suppress(NotFound), state.transaction() as db:
            if running(state) is None:
                db.execute(
                    "INSERT OR REPLACE INTO keeper VALUES (?, ?)",
                    (own_pid_namespace(), identify(candidate).encode()),
                )
                _wake_heads(state)
    finally:
        os.close(started)


def _wake_heads(state: State) -> None:
    """Have the heads of the queues watch the new keeper too: without it, who would tell them?"""
    for pipe, _ in state.query("SELECT pipe, MIN(number) FROM ticket GROUP BY type"):
        state.wake(state.waiter_pipe(pipe))


def command(directory: str) -> list[str]:
    """What runs as the keeper of a state directory.

    Raises:
        LeaseError: Python doesn't know its own path.
    """
    if not sys.executable:
        raise LeaseError("can't start the keeper: the path of the Python interpreter is not known")
    return [sys.executable, "-m", "leasectl.keeper", directory]


def environment() -> dict[str, str]:
    """The keeper's environment: it outlives whoever started it and must not carry its secrets."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    package_root = os.path.dirname(os.path.dirname(os.path.abspath(leasectl.__file__)))
    return {**kept, "PYTHONPATH": package_root, "PYTHONSAFEPATH": "1"}


def _fork_candidate(argv: Sequence[str]) -> tuple[int, int]:
    """Fork a process of its own session that runs the command once a descriptor is closed.

    It is forked twice, so that it is nobody's child and leaves no zombie. It runs a fresh
    interpreter: its command line is its own (a ``pkill -f`` for the caller's command must not
    hit it), and so is its environment.

    Returns:
        Its pid, and the descriptor whose closing (or this process's death) lets it start.
    """
    pid_read, pid_write = os.pipe()
    go_read, go_write = os.pipe()
    env = environment()
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, KEEPER_SIGNALS)
    try:
        middle = os.fork()
    except OSError as error:
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
    os.waitpid(middle, 0)
    text = os.read(pid_read, 32)
    os.close(pid_read)
    if not text:
        os.close(go_write)
        raise LeaseError("can't start the keeper: no process could be forked")
    return int(text), go_write


def _become(argv: Sequence[str], env: dict[str, str], go: int) -> None:
    """In the forked process: let go of everything that was the caller's, wait, run."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, go):
            with contextlib.suppress(OSError):
                os.close(int(name))
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, KEEPER_SIGNALS)
    os.read(go, 1)
    os.close(go)
    os.execve(argv[0], list(argv), env)
