"""`run` is killed at every one of its calls into the system: the lease follows the command."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from leasectl.model import Handle
from leasectl.pools import admin
from leasectl.state import keeper_process
from tests.crash.contenders import CONTENDER
from tests.crash.sweeping import Sweep, among_contenders
from tests.kit.forking import ending, fork, leasectl
from tests.kit.killing import kill_at
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS, eventually, wait_readable

# Says what it knows of its lease, and ends when it is told to, with the code that it is told.
COMMAND = """
echo "command $$ $LEASECTL_HANDLE $LEASECTL_NAMES $LEASECTL_FENCE" >"$1"
read -r code <"$2" && exit "$code"
"""


class Said(NamedTuple):
    """What a command said of itself."""

    pid: int
    handle_id: str
    names: tuple[str, ...]
    fences: tuple[str, ...]


NEVER = 1 << 30  # an event that doesn't come


class Run:
    """A `run` that is about to be killed.

    `run`, what it forks, and the command that comes of it hold a pipe open; so its end is the end
    of them all.

    Args:
        sweep: On whose state directory.
        options: Of the command line, the type excepted.
        number: The event at which it is killed.
        generation: 0 for `run`, 1 for what it forks.
    """

    def __init__(self, sweep: Sweep, options: Sequence[str], number: int, generation: int) -> None:
        self._said, said = os.pipe()
        told, self._told = os.pipe()
        command = ["sh", "-c", COMMAND, "sh", f"/proc/self/fd/{said}", f"/proc/self/fd/{told}"]

        def work() -> None:
            os.set_inheritable(said, True)
            os.set_inheritable(told, True)
            os.close(self._told)

            def before_poll(frame: FrameType) -> None:
                caller = frame.f_back  # of `sleep`
                if caller is not None and caller.f_code.co_name == "_sleep":
                    os.write(said, b"asleep %d\n" % caller.f_locals["child"].pid)

            kill_at(number, generation=generation, before_poll=before_poll)
            argv = ["run", "-q", "-t", "T", *options, "--", *command]
            leasectl(sweep.cli.state_dir, sweep.output, *argv)

        self._pid = fork(work)
        self._pidfd = os.pidfd_open(self._pid)
        os.close(said)
        os.close(told)

    def settle(self) -> Said | None:
        """Wait until the command waits to be told something and `run` is asleep or killed.

        Returns:
            What the command said; None when there is none, and never will be.
        """
        text = b""
        while True:
            words = [line.split() for line in text.decode().splitlines()]
            asleep = {pid for what, pid, *_ in words if what == "asleep"}
            for what, pid, *rest in words:
                if what == "command" and (pid in asleep or self.is_dead()):
                    path, names, fences = rest
                    return Said(int(pid), Path(path).name, _split(names), _split(fences))
            watched = [self._said, *([] if self.is_dead() else [self._pidfd])]
            try:
                readable = wait_readable(*watched, what=f"run sleeps or ends; said {text!r}")
            except AssertionError:
                os.kill(self._pid, signal.SIGABRT)  # it shows where it is
                raise
            if self._said in readable:
                said = os.read(self._said, 4096)
                if not said:
                    return None
                text += said

    def is_dead(self) -> bool:
        return bool(select.select([self._pidfd], [], [], 0)[0])

    def kill(self) -> None:
        """KILL `run` now, and see it gone."""
        os.kill(self._pid, signal.SIGKILL)
        select.select([self._pidfd], [], [])

    def tell(self, code: int) -> None:
        """Have the command end."""
        os.write(self._told, b"%d\n" % code)

    def tell_no_more(self) -> None:
        """Have a command that still waits end, too."""
        os.close(self._told)

    def ending(self) -> int:
        """Wait for the end of `run` and of the command; how `run` ended."""
        code = ending(self._pid)
        while select.select([self._said], [], [], PATIENCE_SECONDS)[0]:
            if not os.read(self._said, 4096):
                break
        else:
            raise AssertionError("somebody has outlived run and the command")
        os.close(self._said)
        os.close(self._pidfd)
        return code


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


class RunSweep:
    """KILLs at `run`.

    Args:
        sweep: On what.

    Attributes:
        sweep: The same.
        outlived: How many commands have outlived their `run`.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.outlived = 0
        self._cli = sweep.cli

    def kill_everywhere(
        self,
        *options: str,
        codes: Sequence[int] = (0,),
        generation: int = 0,
        stride: int = 1,
        at_least: int = 0,
    ) -> None:
        """Run a command, and KILL `run` at its 1st, 2nd, 3rd, … event.

        Args:
            options: Of `run`.
            codes: What the command ends with in one attempt after the other.
            generation: 1 to KILL what `run` forks, instead of `run`.
            stride: As for `Sweep.kill_each`.
            at_least: As for `Sweep.kill_each`.
        """

        def attempt(number: int) -> int:
            run = Run(self.sweep, options, number, generation)
            try:
                for code in codes:
                    said = run.settle()
                    if said is None:
                        break
                    self._check_lease(run, said, number)
                    run.tell(code)
            finally:
                run.tell_no_more()
            ended = run.ending()
            self._keeper_frees(number)
            self.sweep.check(f"run {options} killed at event {number}")
            return ended

        self.sweep.kill_each(attempt, stride=stride, at_least=at_least)

    def kill_beside_its_command(self, *options: str) -> None:
        """Run a command, and KILL `run` while it waits for the command's end."""
        run = Run(self.sweep, options, NEVER, 0)
        try:
            said = run.settle()
            assert said is not None
            run.kill()
            self._check_lease(run, said, NEVER)
        finally:
            run.tell_no_more()
        run.ending()
        self._keeper_frees(NEVER)
        self.sweep.check(f"run {options} killed beside its command")

    def _check_lease(self, run: Run, said: Said, number: int) -> None:
        """A command that runs has the lease that it was told of, also when `run` is no more."""
        handle = self._handle_of(said)
        self.sweep.recorder.write("granted", handle.id, handle.leases)
        if run.is_dead():
            self.outlived += 1
            with self._cli.service(owner="sweep@host") as service:
                admin.show(service)
            self._handle_of(said)
        self.sweep.recorder.write("releasing", handle.id, handle.leases)
        if run.is_dead() and handle.release_at is not None and self.outlived % 2:
            self._let_its_time_come(handle)
            eventually(lambda: not self._remaining(), what=f"released in time, event {number}")

    def _handle_of(self, said: Said) -> Handle:
        with self._cli.service() as service:
            handle = service.handles.require(said.handle_id)
        assert handle.state == "held"
        assert (handle.names, handle.fences) == (said.names, said.fences)
        assert handle.guard is not None
        assert handle.guard.pid == said.pid
        assert {self._cli.held().get(name) for name in said.names} == {handle.id}
        return handle

    def _let_its_time_come(self, handle: Handle) -> None:
        with self._cli.service() as service, service.state.transaction() as db:
            db.execute("UPDATE timer SET due = 0 WHERE handle = ?", (handle.id,))
            keeper_process.wake(service.state)

    def _keeper_frees(self, number: int) -> None:
        """Whatever is left is freed by nobody but the keeper."""
        eventually(lambda: not self._remaining(), what=f"all is free, killed at event {number}")

    def _remaining(self) -> list[tuple[object, ...]]:
        """Who isn't one of the others, and holds something or wants to."""
        rows = self._cli.query(
            "SELECT id, state FROM handle WHERE owner <> ? AND state <> 'released'", CONTENDER
        )
        return [row for row in rows if row[0] not in self.sweep.kept]


@pytest.fixture
def runs(cli: Cli, tmp_path: Path) -> Iterator[RunSweep]:
    """KILLs at `run`, among contenders."""
    sweep = Sweep(cli, tmp_path)
    with among_contenders(sweep):
        yield RunSweep(sweep)


def test_run_can_be_killed_anywhere(runs: RunSweep) -> None:
    runs.sweep.keep_a_keeper()
    runs.kill_everywhere("--release-after", "1h", stride=28)
    for _ in range(
        2
    ):  # which of them has its delayed release brought forward depends on the number
        runs.kill_beside_its_command("--release-after", "1h")
    runs.kill_everywhere(
        "--ttl", "10m", "--attempts", "2", "--retry-on", "4", codes=(4, 0), stride=38, at_least=36
    )
    assert runs.outlived > 0, "no command has outlived its run"


def test_run_can_be_killed_anywhere_while_it_holds_its_command_back(runs: RunSweep) -> None:
    runs.sweep.keep_a_keeper()
    held_back = ("--release-after", "1h", "--start-jitter", "0.02")
    runs.kill_everywhere(*held_back, stride=30)
    runs.kill_everywhere(*held_back, generation=1, stride=5)


def test_what_run_forks_can_be_killed_anywhere_before_it_becomes_the_command(
    runs: RunSweep,
) -> None:
    runs.sweep.keep_a_keeper()
    runs.kill_everywhere("--release-after", "1h", generation=1)


def test_a_run_that_starts_the_keeper_can_be_killed_anywhere(runs: RunSweep) -> None:
    runs.kill_everywhere("--release-after", "1h", stride=36)
