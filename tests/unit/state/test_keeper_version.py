"""leasectl.state.keeper_version: whom it asks to make way, and whom it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import pytest

import leasectl
from leasectl.model import Process
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.keeper_version import (
    CODE_FOLDER,
    Registered,
    hand_over,
    note,
    registered,
    send,
)
from leasectl.state.releasing import GivingBack
from leasectl.state.rows import insert
from leasectl.system.process import identify, own_pid_namespace, this_process
from tests.kit.support import eventually

StartKeeper = Callable[[Optional[str]], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[StartKeeper]:
    """Starts what looks like a keeper whose code is in a folder, if it says so; USR1 ends it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: str | None) -> subprocess.Popen[bytes]:
        others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env = others if folder is None else {**others, "PYTHONPATH": folder}
        process = subprocess.Popen(["sleep", "1000"], env=env)
        started.append(process)
        eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        return process

    yield start
    for each in started:
        each.kill()
        each.wait()


def register(state: State, process: Process) -> None:
    row = {"pid_namespace": own_pid_namespace(), "process": process.encode()}
    insert(state.db, "keeper", row, replace=True)


def asked(state: State) -> bool:
    with state.transaction() as db:
        return hand_over(db)


def test_without_a_keeper_there_is_none_to_ask(state: State, start: StartKeeper) -> None:
    assert registered(state.db) is None
    assert not asked(state)
    process = start(CODE_FOLDER)
    register(state, identify(process.pid))
    note(state.db, identify(process.pid))
    process.kill()
    process.wait()
    assert not asked(state)


def test_nothing_is_to_be_asked_of_this_version_nor_asked_twice() -> None:
    ours = leasectl.__version__
    settled = [Registered(this_process(), *said).is_settled for said in ((ours,), ("0", ours))]
    assert settled == [True, True]
    open_ = [Registered(this_process(), *said).is_settled for said in ((), ("0",), ("0", "1"))]
    assert open_ == [False, False, False]


def test_one_of_this_version_is_left_alone(state: State, start: StartKeeper) -> None:
    keeper = start(CODE_FOLDER)
    register(state, identify(keeper.pid))
    note(state.db, identify(keeper.pid))
    assert asked(state)
    assert keeper_process.is_kept(state)
    assert keeper.poll() is None


@pytest.mark.parametrize("folder", [CODE_FOLDER, f"{CODE_FOLDER}/leasectl/.."])
def test_one_of_another_version_in_our_place_is_sent_usr1(
    state: State, start: StartKeeper, folder: str
) -> None:
    keeper = start(folder)
    register(state, identify(keeper.pid))
    assert keeper_process.is_kept(state)
    assert keeper.wait(timeout=10) == -signal.SIGUSR1


def test_it_is_sent_that_once(state: State, start: StartKeeper) -> None:
    keeper = start(CODE_FOLDER)
    process = identify(keeper.pid)
    register(state, process)
    row = {"pid_namespace": own_pid_namespace(), "process": process.encode(), "version": "0"}
    insert(state.db, "keeper_version", {**row, "asked": leasectl.__version__})
    assert asked(state)
    assert keeper.poll() is None


def test_one_from_elsewhere_that_never_said_its_version_is_to_be_replaced(
    state: State, start: StartKeeper
) -> None:
    keeper = start("/elsewhere")
    register(state, identify(keeper.pid))
    assert not asked(state)
    assert not keeper_process.is_kept(state)
    assert keeper.poll() is None  # by whoever has another ready


def test_one_from_elsewhere_that_said_its_version_goes_on_beside_this(
    state: State, start: StartKeeper
) -> None:
    keeper = start("/elsewhere")
    process = identify(keeper.pid)
    register(state, process)
    row = {"pid_namespace": own_pid_namespace(), "process": process.encode(), "version": "0"}
    insert(state.db, "keeper_version", {**row, "asked": ""})
    assert asked(state)
    assert registered(state.db) == Registered(process, "0", leasectl.__version__)
    assert keeper_process.is_kept(state)
    # A signal would have ended it before this one, which is the larger number.
    send(process, signal.SIGUSR2)
    assert keeper.wait(timeout=10) == -signal.SIGUSR2


def test_one_whose_starter_did_not_say_where_its_code_is_is_to_be_replaced(
    state: State, start: StartKeeper
) -> None:
    keeper = start(None)
    register(state, identify(keeper.pid))
    assert not asked(state)
    assert keeper.poll() is None


def test_whoever_asks_is_not_asked(state: State) -> None:
    register(state, this_process())
    assert asked(state)
    assert registered(state.db) == Registered(this_process())


def test_what_was_said_of_another_keeper_does_not_count(state: State, start: StartKeeper) -> None:
    first, second = (identify(start("/elsewhere").pid) for _ in range(2))
    register(state, first)
    note(state.db, first)
    assert registered(state.db) == Registered(first, leasectl.__version__)
    register(state, second)
    assert registered(state.db) == Registered(second)


def test_what_one_was_asked_is_not_said_of_its_successor(state: State, start: StartKeeper) -> None:
    first, second = (identify(start("/elsewhere").pid) for _ in range(2))
    register(state, first)
    row = {"pid_namespace": own_pid_namespace(), "process": first.encode(), "version": "0"}
    insert(state.db, "keeper_version", {**row, "asked": "2"})
    note(state.db, second)
    register(state, second)
    assert registered(state.db) == Registered(second, leasectl.__version__)


def test_a_keeper_begins_if_it_is_the_one_and_remembers_what_it_was_asked(state: State) -> None:
    me = this_process()
    assert not keeper_process.begin(state, me)
    register(state, me)
    row = {"pid_namespace": own_pid_namespace(), "process": me.encode(), "version": "0"}
    insert(state.db, "keeper_version", {**row, "asked": "2"})
    giving_back = GivingBack(state, "http://there")
    with state.transaction():  # as that version was, when it became this one
        giving_back.start(["a"], me)
    assert keeper_process.begin(state, me)
    assert registered(state.db) == Registered(me, leasectl.__version__, "2")
    assert giving_back.processes("a") == []


def test_a_signal_for_one_that_has_ended_goes_nowhere(start: StartKeeper) -> None:
    process = start("/elsewhere")
    name = identify(process.pid)
    process.kill()
    process.wait()
    before = os.listdir("/proc/self/fd")
    send(name, signal.SIGUSR1)
    send(name._replace(pid=os.getpid()), signal.SIGUSR1)
    send(this_process(), signal.SIGURG)  # which isn't heeded
    assert os.listdir("/proc/self/fd") == before
