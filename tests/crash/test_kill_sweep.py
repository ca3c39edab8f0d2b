"""Each command is killed at every one of its calls into the system, while others go on.

Afterwards one ordinary command runs, and everything is as it should be: no repair is asked for.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.backends.base import Patience
from leasectl.liveness import this_process
from leasectl.model import Request
from leasectl.service import Service
from leasectl.targets import whole
from tests.crash.contenders import CONTENDER, contention
from tests.crash.forking import ending, fork, leasectl
from tests.crash.history import Recorder, read_history, violations
from tests.crash.invariants import broken_invariants
from tests.crash.killing import kill_at
from tests.support import Cli

CAPACITY = 3
# That often in a row it must have come to its end before the sweep believes that it was the end:
# how many calls a command makes depends on how long it waits.
UNHARMED = 3
LONGEST_SWEEP = 3000
EVERY_KILL = bool(os.environ.get("LEASECTL_TEST_EVERY_KILL"))


class Sweep:
    """A state directory on which commands are killed.

    Args:
        cli: Whose state directory it is.
        tmp_path: Where output and history go.
    """

    def __init__(self, cli: Cli, tmp_path: Path) -> None:
        self.cli = cli
        self.output = tmp_path / "output"
        self.history = tmp_path / "history"
        self.kills = 0
        self._recorder = Recorder(self.history)
        with cli.service(owner="sweep@host") as service:
            service.pools.create_pool("T", [f"T--{n}" for n in range(CAPACITY)])
            service.pools.create_pool("kept", ["kept"])
            # Something for the keeper to do all the time, so that it isn't started for each kill.
            self._kept = self.acquire(service, Request("kept"), guarded=True)

    def acquire(self, service: Service, request: Request, *, guarded: bool = False) -> str:
        """Take a lease beside the command that is killed; returns the handle's id."""
        guard = this_process() if guarded else None
        handle = service.acquire(request, patience=Patience(), guard=guard)
        service.told(handle)
        return handle.id

    def kill_everywhere(
        self, arguments: Callable[[], list[str]], *, stride: int = 1, at_least: int = 0
    ) -> None:
        """Run a command again and again, and KILL it at its 1st, 2nd, 3rd, … event.

        Args:
            arguments: Called before each run, for the command's arguments.
            stride: 3 for every third event, on each version of Python another third. All events
                on each version with LEASECTL_TEST_EVERY_KILL=1.
            at_least: Take more of the events until the whole test has had so many kills.
        """
        stride = 1 if EVERY_KILL else stride
        for turn in range(stride):
            self._kill_each(arguments, 1 + (sys.version_info[1] + turn) % stride, stride)
            if self.kills >= at_least:
                return
        raise AssertionError(f"only {self.kills} kills")

    def _kill_each(self, arguments: Callable[[], list[str]], first: int, stride: int) -> None:
        unharmed = 0
        for number in range(first, LONGEST_SWEEP, stride):
            args = arguments()
            pid = fork(lambda: self._command(number, args))  # noqa: B023
            code = ending(pid)
            assert code in (0, -signal.SIGKILL), self._said()
            unharmed = unharmed + 1 if code == 0 else 0
            self.kills += code != 0
            self.check(f"{args} killed at event {number}")
            if unharmed == UNHARMED:
                return
        raise AssertionError(f"still being killed after {LONGEST_SWEEP} events")

    def check(self, when: str) -> None:
        """Let one more command run, and see that all is well; then give back what is left."""
        with self.cli.service(owner="sweep@host") as service:
            service.inspect()
            assert broken_invariants(self.cli.state_dir) == [], when
            for handle in service.handles.active():
                if handle.owner != CONTENDER and handle.id != self._kept:
                    # Whoever got it and lived holds it, until we give it back.
                    self._recorder.write("granted", handle.id, handle.leases)
                    self._recorder.write("releasing", handle.id, handle.leases)
                    service.release(whole(handle))

    def _command(self, number: int, args: list[str]) -> None:
        kill_at(number)
        leasectl(self.cli.state_dir, self.output, *args)

    def _said(self) -> str:
        return Path(f"{self.output}.err").read_text()


@pytest.fixture
def sweep(cli: Cli, tmp_path: Path) -> Iterator[Sweep]:
    """A sweep among contenders; at its end the history is checked, and that all is free."""
    # Else the first run of a command is also killed while it imports: nothing is at stake there.
    for name in ("acquire", "release", "reacquire"):
        importlib.import_module(f"leasectl.cli.{name}")
    sweep = Sweep(cli, tmp_path)
    choices = [
        lambda rng: Request("T", count=rng.randint(1, 2)),
        lambda rng: Request("T", name=f"T--{rng.randrange(CAPACITY)}"),
    ]
    with contention(cli.state_dir, sweep.history, choices):
        yield sweep
    sweep.check("at the end")
    assert set(cli.held()) == {"kept"}
    history = read_history(sweep.history)
    assert violations(history, capacity=CAPACITY) == []
    print(f"{sweep.kills} kills, {sum(event.kind == 'granted' for event in history)} leases")


def test_acquire_can_be_killed_anywhere(sweep: Sweep) -> None:
    guarded = ["--guard-pid", str(os.getpid()), "--release-after", "1h"]
    sweep.kill_everywhere(lambda: ["acquire", "-q", "-t", "T", "-c", "2", *guarded], stride=2)
    names = ["acquire", "-t", "T", "--output", "names"]
    sweep.kill_everywhere(lambda: names, stride=3, at_least=200)


def test_release_can_be_killed_anywhere(sweep: Sweep, cli: Cli) -> None:
    def held() -> str:
        with cli.service() as service:
            return sweep.acquire(service, Request("T", count=2, release_after_seconds=3600.0))

    later = ["--delay", "1h", "--detach"]
    sweep.kill_everywhere(lambda: ["release", "--handle", held()])
    sweep.kill_everywhere(lambda: ["release", "--handle", held(), *later], stride=2, at_least=200)


def test_reacquire_can_be_killed_anywhere(sweep: Sweep, cli: Cli) -> None:
    def held() -> str:
        with cli.service() as service:
            return sweep.acquire(service, Request("T", count=2, release_after_seconds=3600.0))

    again = ["reacquire", "-q", "--handle"]
    sweep.kill_everywhere(lambda: [*again, held()], stride=2, at_least=200)
