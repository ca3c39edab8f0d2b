"""Find, start and wake the keeper.

There is one keeper per state directory (and pid namespace: it can only watch processes that it
can see). Who it is stands in the database. It decides to end in a transaction, and whatever
needs it is registered in one, in which a keeper that has just left gets a successor: so at no
instant is there something to keep and nobody who does, whoever is killed then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from leasectl.errors import LeaseError, NotFound
from leasectl.model import Process
from leasectl.state import keeper_version, timers
from leasectl.state.database import errors_of
from leasectl.state.directory import State, removed
from leasectl.system.process import identify, open_files, own_pid_namespace

# What an interpreter may need to start, and what later backends read paths from; no secrets.
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

# Blocked from before the keeper's first instruction until it can heed them: at its defaults, one
# that comes while it starts would end it with nothing done.
KEEPER_SIGNALS = (signal.SIGTERM,)
# For a keeper whose pipe was removed. One that begins ignores it.
CALL = signal.SIGURG

_RESET = (*KEEPER_SIGNALS, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def pipe_path(state: State) -> str:
    """The named pipe that wakes this pid namespace's keeper."""
    return state.path(f"keeper.{own_pid_namespace()}")


def registered(state: State) -> Process | None:
    """The keeper of this pid namespace, dead or alive; None when it ended of its own accord."""
    keeper = _look(state)
    return None if keeper is None else keeper.process


def running(state: State) -> Process | None:
    """The keeper of this pid namespace, if it lives."""
    keeper = _look(state)
    return keeper.process if keeper is not None and keeper.is_alive else None


def is_kept(state: State) -> bool:
    """Tell whether a keeper lives that can go on; one of an older version can't."""
    keeper = _look(state)
    if keeper is None or not keeper.is_alive or keeper_version.is_older(keeper.version):
        return False
    return keeper_version.is_fit(keeper.process)


def _look(state: State) -> keeper_version.Registered | None:
    with errors_of(state.path("state.db")):
        return keeper_version.registered(state.db)


def wake(state: State) -> None:
    """Inside a transaction: have the keeper look again once it has ended, or start one with it.

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
    """Inside a transaction: forget a keeper that keeps another state directory, if it does.

    This one is a copy of that, or came back from a backup, and says of its keeper what was so of
    the other. What keeps this one can be woken, or is about to be.
    """
    keeper = running(state)
    if keeper is not None and _keeps_another(state, keeper):
        resign(state)


def _keeps_another(state: State, process: Process) -> bool:
    """Tell whether a process has another directory's ``state.lock`` open, and not this one's."""
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
        keeper_version.send(keeper, CALL)


def begin(state: State, process: Process) -> bool:
    """In a keeper that can be woken: begin to keep, with all that was registered before this.

    Returns:
        Whether that process is the keeper; another candidate may have been faster.
    """
    with state.transaction() as db:
        is_chosen = registered(state) == process
        if is_chosen:
            keeper_version.note(db, process)
            timers.begin_anew(state, process)  # it may have handed over to itself
    return is_chosen


def resign(state: State) -> None:
    """Inside the keeper's last transaction: from here on there is no keeper."""
    state.db.execute("DELETE FROM keeper WHERE pid_namespace = ?", (own_pid_namespace(),))


def remove_dead(state: State) -> None:
    """Remove the record of a killed keeper that needs no successor."""
    if registered(state) is not None:
        with state.transaction():
            if running(state) is None:
                resign(state)


def ensure(state: State) -> None:
    """Start a keeper unless one lives that can go on; inside a transaction, with its commit.

    A candidate is forked first and then entered in the database; it becomes the keeper only when
    it finds itself there. So two starters at once make one keeper, and a starter that is killed
    half-way makes either one or none.

    Whoever will need one calls this first, as it takes long, and again in the transaction in which
    that is registered: meanwhile the keeper may have found nothing to keep, and ended.

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
        # It isn't in a transaction of its own, and what else it has begun the next one finishes.
        keeper_version.send(before, signal.SIGKILL)
    keeper_version.note(state.db, candidate)


def _wake_heads(state: State) -> None:
    """Have those whose turn it is watch the new keeper too: without it, who would tell them?

    It may be that of anybody who waits for a name, as far as the first who takes any.
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
    """What runs as the keeper of a state directory.

    Raises:
        LeaseError: Python doesn't know its own path, or the code is gone.
    """
    if not sys.executable:
        raise LeaseError("can't start the keeper: the path of the Python interpreter is not known")
    for path in (sys.executable, keeper_version.CODE_FOLDER):
        if not os.path.exists(path):
            raise LeaseError(
                f"can't start the keeper: {path}, which this process was started from, is gone; "
                "run leasectl from where it is installed now"
            )
    return [sys.executable, "-m", "leasectl.keeper", directory]


def environment() -> dict[str, str]:
    """The keeper's environment, without the secrets of the process that started it."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": keeper_version.CODE_FOLDER, "PYTHONSAFEPATH": "1"}


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
    for signum in _RESET:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, KEEPER_SIGNALS)
    os.read(go, 1)
    os.close(go)
    os.execve(argv[0], list(argv), env)
