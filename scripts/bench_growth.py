"""Rows of scripts/bench about growth: what a command costs beside 10,000, against beside 100.

It is processor time, the least of some runs: what else the machine does is in every other figure.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Callable

from scripts.bench_rows import Row, row_of, spread_of

if TYPE_CHECKING:
    from leasectl.leases.service import Service
    from leasectl.model import Handle, Process

_FEW, _MANY = 100, 10_000
_RUNS = 5
_WAKES = 20


def measure() -> list[Row]:
    """All rows."""
    _allow_many_files()
    few, many = _figures(_FEW), _figures(_MANY)
    rows = []
    for what, costs in many.items():
        limit = 3 if "beside" in what else 2
        base = min(few[what])
        rows.append(row_of(what.replace(" N ", f" {_FEW} "), _in_ms(few[what]), "ms CPU", None))
        growth = f"{what.replace(' N ', ' ')}, {_MANY:,} against {_FEW}"
        spread = (spread_of(costs) + spread_of(few[what])) / base
        rows.append(Row(growth, min(costs) / base, "x", limit, True, spread))
    for number in (1000, _MANY):
        what = f"keeper, woken by one of {number:,} guarded handles"
        rows.append(row_of(what, _in_ms(keeper_wakes(number)), "ms CPU", 12))
    return rows


def _in_ms(seconds: list[float]) -> list[float]:
    return [each * 1e3 for each in seconds]


def _figures(number: int) -> dict[str, list[float]]:
    """What each costs beside so many, in seconds, in some runs."""
    return {
        **beside_held(number),
        "acquire -w 0 behind N tickets": behind_tickets(number),
        "acquire after N killed waiters": after_killed_waiters(number),
        "cat after the killed keeper of N handles": after_killed_keeper(number),
    }


def beside_held(number: int) -> dict[str, list[float]]:
    """Commands that show all beside so many leases, one for each handle."""
    with _state(number) as folder:
        mine = _service(folder)
        for _ in range(number):
            _held(mine)
        commands = (["status"], ["status", "--json"], ["doctor"])
        return {
            f"{' '.join(argv)} beside N leases": [_cost(folder, *argv) for _ in range(_RUNS)]
            for argv in commands
        }


def behind_tickets(number: int) -> list[float]:
    """An acquire that doesn't wait, behind so many who do."""
    with _state(1) as folder:
        _held(_service(folder))
        with _waiters(folder, number):
            argv = ("acquire", "-t", "T", "-w", "0")
            return [_cost(folder, *argv, status=75) for _ in range(_RUNS)]


def after_killed_waiters(number: int) -> list[float]:
    """An acquire of what has become free, with so many before it of whom nobody lives."""
    from leasectl.leases.release import finish

    with _state(1) as folder:
        mine = _service(folder)
        handle = _held(mine)
        with _waiters(folder, number):
            pass
        _as_if_each_had_its_own_process(mine)
        finish(mine, handle)
        return _cost_of_copies(folder, "acquire", "-t", "T")


def after_killed_keeper(number: int) -> list[float]:
    """A command that finds so many handles with a guard, and the keeper dead."""
    from leasectl.state import keeper_process

    with _state(number) as folder, _guards(number) as guards:
        mine = _service(folder)
        names = [_held(mine, guard).id for guard in guards]
        keeper = keeper_process.running(mine.state)
        assert keeper is not None, "no keeper"
        os.kill(keeper.pid, signal.SIGKILL)
        _until(lambda: keeper_process.running(mine.state) is None)
        return _cost_of_copies(folder, "cat", "--handle", mine.state.names_path(names[0]))


def keeper_wakes(number: int) -> list[float]:
    """What the keeper of so many guarded handles does each time as one more comes and goes."""
    from leasectl.leases.release import finish
    from leasectl.state import keeper_process

    with _state(number + 1) as folder, _guards(number) as guards:
        mine = _service(folder)
        for guard in guards:
            _held(mine, guard)
        keeper = keeper_process.running(mine.state)
        assert keeper is not None, "no keeper"
        _until(lambda: _is_at_rest(keeper.pid))
        wakes = []
        for _ in range(_WAKES):
            before = _cpu_seconds(keeper.pid)
            handle = _held(mine, guards[0])
            _until(lambda: _is_at_rest(keeper.pid))
            finish(mine, handle)
            _until(lambda: _is_at_rest(keeper.pid))
            wakes.append((_cpu_seconds(keeper.pid) - before) / 2)
        os.kill(keeper.pid, signal.SIGKILL)
        _until(lambda: keeper_process.running(mine.state) is None)
    return wakes


@contextmanager
def _state(resources: int) -> Iterator[str]:
    """A folder with a state directory ``state``, in which a pool ``T`` is."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"T--{number:05d}" for number in range(resources)]
        _service(folder).pools.create_pool("T", names)
        yield folder
        _end_keeper(folder)


def _service(folder: str) -> Service:
    from leasectl.cli.context import open_service

    os.environ["LEASECTL_STATE_DIR"] = os.path.join(folder, "state")
    return open_service("local:")


def _held(service: Service, guard: Process | None = None) -> Handle:
    from leasectl.backends.contract import Patience
    from leasectl.leases.acquire import acquire, announce
    from leasectl.model import Request

    handle = acquire(service, Request("T"), patience=Patience(), guard=guard, listed=True)
    announce(service, handle)
    return handle


@contextmanager
def _waiters(folder: str, number: int) -> Iterator[None]:
    """A process that waits so many times, until it is killed."""
    from leasectl.backends.contract import Patience
    from leasectl.leases.acquire import turn
    from leasectl.model import Request
    from leasectl.state.handles import new_id

    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            service = _service(folder)
            turns = []
            for _ in range(number):
                made = turn(service, Request("T"), handle_id=new_id("T"), patience=Patience())
                next(made)
                turns.append(made)
            os.write(ready_write, b"!")
            while True:
                time.sleep(600)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)
    os.close(ready_write)
    try:
        assert os.read(ready_read, 1), "the waiters failed"
        yield
    finally:
        os.close(ready_read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _as_if_each_had_its_own_process(service: Service) -> None:
    """Have the tickets of a killed process be of as many: no pid of theirs is as old as that."""
    with service.state.transaction() as db:
        (text,) = db.execute("SELECT process FROM ticket LIMIT 1").fetchone()
        boot, namespace, _, _ = text.split(":")
        found = db.execute("SELECT type, number, owner FROM ticket").fetchall()
        for pid, (pool_type, number, owner) in enumerate(found, start=2):
            process = f"{boot}:{namespace}:{pid}:0"
            db.execute(
                "UPDATE ticket SET process = ? WHERE type = ? AND number = ?",
                (process, pool_type, number),
            )
            db.execute("UPDATE handle SET waiter = ? WHERE id = ?", (process, owner))


@contextmanager
def _guards(number: int) -> Iterator[list[Process]]:
    """So many processes that sleep."""
    from leasectl.system.process import identify

    program = (
        "import os, signal, sys\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        while True: signal.pause()\n"
        "    print(pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-SEI", "-c", program, str(number)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdin is not None
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(number)]
    try:
        yield [identify(pid) for pid in pids]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        parent.stdin.close()
        parent.wait()


def _cost_of_copies(folder: str, *argv: str) -> list[float]:
    """As `_cost`, each time of a copy of the state directory."""
    costs = []
    for _ in range(_RUNS):
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree(
                os.path.join(folder, "state"),
                os.path.join(other, "state"),
                ignore=shutil.ignore_patterns("keeper.[0-9]*", "witness", "waiters"),
            )
            os.mkdir(os.path.join(other, "state", "waiters"), 0o700)
            costs.append(_cost(other, *(each.replace(folder, other) for each in argv)))
            _end_keeper(other)
    return costs


def _cost(folder: str, *argv: str, status: int = 0) -> float:
    """The processor time of a command, in seconds."""
    leasectl = os.path.join(os.path.dirname(sys.executable), "leasectl")
    os.environ["LEASECTL_STATE_DIR"] = os.path.join(folder, "state")
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    pid = os.posix_spawn(leasectl, [leasectl, *argv], os.environ, file_actions=actions)
    _, ended, used = os.wait4(pid, 0)
    os.close(null)
    if os.waitstatus_to_exitcode(ended) != status:
        sys.exit(f"{' '.join(argv)} ended with {os.waitstatus_to_exitcode(ended)}")
    return used.ru_utime + used.ru_stime


def _end_keeper(folder: str) -> None:
    from leasectl.state import keeper_process
    from leasectl.state.directory import State

    state = State.open(os.path.join(folder, "state"))
    with suppress(ProcessLookupError):
        keeper = keeper_process.running(state)
        if keeper is not None:
            os.kill(keeper.pid, signal.SIGKILL)
            _until(lambda: keeper_process.running(state) is None)
    state.close()


def _is_at_rest(pid: int) -> bool:
    """Tell whether a process has used nothing for a moment."""
    before = _cpu_seconds(pid)
    time.sleep(0.05)
    return before == _cpu_seconds(pid)


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def _until(condition: Callable[[], bool], *, limit_seconds: float = 60) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("what was waited for didn't happen")
        time.sleep(0.001)


def _allow_many_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
