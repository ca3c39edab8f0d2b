"""leasectl.state.keeper_version: which keeper another replaces, and which is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

import leasectl
from leasectl.model import Process
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.keeper_process import Registered, is_older, note, registration, send
from leasectl.state.timers import GivingBack
from leasectl.system.process import identify, this_process
from tests.kit.waits import eventually

StartKeeper = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[StartKeeper]:
    """Starts what looks like a keeper."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "1000"])
        started.append(process)
        eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        return process

    yield start
    for each in started:
        each.kill()
        each.wait()


def register(state: State, process: Process, version: str) -> None:
    note(state.db, process)
    state.db.execute("UPDATE keeper SET version = ?", (version,))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.2", False),
        ("1.2.0", False),
        ("1.2.1", False),
        ("1.10", False),
        ("2", False),
        ("1.2.dev3", False),
        ("1.1.9", True),
        ("0.99", True),
        ("1", True),
        ("", True),
        ("another", True),
    ],
)
def test_versions_are_compared_as_numbers(
    monkeypatch: pytest.MonkeyPatch, version: str, expected: bool
) -> None:
    monkeypatch.setattr(leasectl, "__version__", "1.2")
    assert is_older(version) == expected


def test_of_two_versions_at_most_one_replaces_the_keeper_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = ["0.4.0", "0.4", "0.10", "1.0.0rc1", "1.0.0", "1.0.1.dev2", "a", ""]

    def replaces(new: str, old: str) -> bool:
        monkeypatch.setattr(leasectl, "__version__", new)
        return is_older(old)

    for one in versions:
        for other in versions:
            assert not (replaces(one, other) and replaces(other, one))


@pytest.mark.parametrize("version", [leasectl.__version__, "999"])
def test_keeper_of_this_or_a_newer_version_is_left_alone(
    state: State, start: StartKeeper, version: str
) -> None:
    keeper = start()
    register(state, identify(keeper.pid), version)
    assert keeper_process.is_kept(state)
    keeper_process.ensure(state)
    assert keeper.poll() is None
    assert registration(state) == Registered(identify(keeper.pid), version)


def test_keeper_of_an_older_version_is_stopped_and_replaced(
    state: State, start: StartKeeper
) -> None:
    keeper = start()
    register(state, identify(keeper.pid), "0.0.1")
    assert not keeper_process.is_kept(state)
    keeper_process.ensure(state)
    assert keeper.wait() == -signal.SIGKILL
    found = registration(state)
    assert found is not None
    assert found.version == leasectl.__version__
    assert found.process.pid != keeper.pid


def test_a_keeper_begins_if_it_is_the_one_and_registers_its_version(state: State) -> None:
    me = this_process()
    assert not keeper_process.begin(state, me)
    register(state, me, "0")
    giving_back = GivingBack(state, "http://there")
    with state.transaction():  # as that version was, when it became this one
        giving_back.start(["a"], me)
    assert keeper_process.begin(state, me)
    assert registration(state) == Registered(me, leasectl.__version__)
    assert giving_back.processes("a") == []


def test_a_signal_for_one_that_has_ended_goes_nowhere(start: StartKeeper) -> None:
    process = start()
    name = identify(process.pid)
    process.kill()
    process.wait()
    before = os.listdir("/proc/self/fd")
    send(name, signal.SIGUSR1)
    send(name._replace(pid=os.getpid()), signal.SIGUSR1)
    send(this_process(), signal.SIGURG)  # which isn't heeded
    assert os.listdir("/proc/self/fd") == before
