"""The keeper ends at each instant of a command that comes to rely on it: no instant leaves it none.

Whoever is killed right there is seen to by nobody who isn't there.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.journal import RecordJournal
from leasectl.leases.release import arm, release
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Request, parse_process, whole
from leasectl.state import keeper_process
from leasectl.state.handles import new_id
from leasectl.system.process import is_dead, this_process
from tests.kit.forking import ending, fork
from tests.kit.killing import EVERY_KILL, at_each_event
from tests.kit.reclaiming import Operator
from tests.kit.support import Cli

# How the process of a command ends: as nobody sees to what it has made; well, after the end of the
# keeper; well, as the keeper was needed by then.
LEFT_ALONE, WITHOUT_IT, TOO_LATE = 3, 4, 5
LONGEST = 1000
ENDS = 3


class Ending:
    """A keeper that ends at an event of the process that this is in, if nothing needs it then.

    Args:
        directory: The state directory.
        number: Of the event.

    Attributes:
        came: To what it has come.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._directory = directory
        self._number = number
        self.came = TOO_LATE  # if the process comes to its end before that event

    def act(self, event: int) -> None:
        """At each event: end at that one; leave this process when there is none who is needed."""
        if event == self._number:
            self._end()
        if self.came == WITHOUT_IT and self._is_watched() and not self._is_kept():
            os._exit(LEFT_ALONE)

    def _end(self) -> None:
        with open(self._directory / "state.lock", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.came = 0
                return  # in the middle of a transaction, for whose end a keeper would wait
            self.came = TOO_LATE if self._is_watched() else WITHOUT_IT
            if self.came == WITHOUT_IT:
                self._query("DELETE FROM keeper")

    def _is_watched(self) -> bool:
        return bool(self._query("SELECT 1 FROM handle WHERE watched = 1 AND state <> 'released'"))

    def _is_kept(self) -> bool:
        found = self._query("SELECT process FROM keeper")
        return any(not is_dead(parse_process(process)) for (process,) in found)

    def _query(self, sql: str) -> list[tuple[str]]:
        with closing(sqlite3.connect(self._directory / "state.db", isolation_level=None)) as db:
            return db.execute(sql).fetchall()


def run(service: Service) -> None:
    handle = acquire(service, Request("T"), patience=Patience(wait_seconds=0), followed=True)
    announce(service, handle, guard=this_process(), runner=this_process())


def acquire_guarded(service: Service) -> None:
    guard = this_process()
    announce(
        service, acquire(service, Request("T"), patience=Patience(wait_seconds=0), guard=guard)
    )


def acquire_for_some_time(service: Service) -> None:
    request = Request("T", release_after_seconds=3600.0)
    announce(service, acquire(service, request, patience=Patience(wait_seconds=0)))


def ask_a_server(service: Service) -> None:
    request = Request("T")
    handle = new_handle(service, request, new_id("T"))._replace(backend="http://127.0.0.1:1")
    journal = RecordJournal(service, handle)
    keeper_process.ensure(service.state)
    journal.enqueuing()


def release_later(service: Service) -> None:
    (handle,) = service.handles.active()
    assert arm(service, whole(handle), 3600.0)


def ask_to_give_back(service: Service) -> None:
    (handle,) = service.handles.active()
    Operator(service.backend_of(handle).notes).mark(handle)


@pytest.fixture
def keeper(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A keeper that does nothing but live, whoever starts one."""
    cli.pool("T")
    pid = fork(signal.pause)

    def fork_candidate(_argv: Sequence[str]) -> tuple[int, int]:
        return pid, os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(keeper_process, "_fork_candidate", fork_candidate)
    yield
    os.kill(pid, signal.SIGKILL)
    ending(pid)


@pytest.mark.parametrize(
    ("command", "is_held"),
    [
        (run, False),
        (acquire_guarded, False),
        (acquire_for_some_time, False),
        (ask_a_server, False),
        (release_later, True),
        (ask_to_give_back, True),
    ],
)
def test_whoever_relies_on_a_keeper_has_one_whenever_that_may_have_ended(
    cli: Cli, keeper: None, command: Callable[[Service], None], is_held: bool
) -> None:
    stride = 1 if EVERY_KILL else 10
    came: list[int] = []
    for turn in range(stride):
        for number in range(1 + (sys.version_info[1] + turn) % stride, LONGEST, stride):
            came.append(_came(cli, command, number, is_held=is_held))
            assert came[-1] in (0, WITHOUT_IT, TOO_LATE), f"the keeper ended at event {number}"
            if came[-1] == TOO_LATE:
                break
        if came.count(WITHOUT_IT) >= ENDS:
            break
    print(f"{came.count(WITHOUT_IT)} ends of {len(came)}")
    assert came.count(WITHOUT_IT) >= ENDS


def _came(cli: Cli, command: Callable[[Service], None], number: int, *, is_held: bool) -> int:
    """Let a command go, and the keeper end at an event of it; returns what came of it."""
    if is_held:
        cli.hold("T")
    with cli.service() as service:
        keeper_process.ensure(service.state)
    came = ending(fork(lambda: _with_an_end(cli, command, number)))
    with cli.service() as service:
        for handle in service.handles.active():
            if handle.backend == "local:":
                release(service, whole(handle))
            service.handles.forget(handle.id, handle.acquisition)
    return came


def _with_an_end(cli: Cli, command: Callable[[Service], None], number: int) -> None:
    keeper = Ending(cli.state_dir, number)
    with cli.service() as service:
        at_each_event(keeper.act)
        command(service)
        sys.setprofile(None)
    os._exit(keeper.came)
