"""The keeper is killed at every one of its calls into the system, while others go on.

Afterwards one ordinary command runs, and everything is as it should be; what is due only later is
done by the next keeper.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Callable, NamedTuple

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import LeaseError
from leasectl.keeper import loop as keeper
from leasectl.keeper.server import load_code_for
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import arm, release
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, whole
from leasectl.state import keeper_process
from leasectl.system.process import identify
from tests.crash.sweeping import Sweep, among_contenders
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_at
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS


class Candidate:
    """A process that becomes the keeper when it is told to. No database may be open meanwhile.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        go, self._go = os.pipe()
        self._asleep, asleep = os.pipe()

        def keep() -> None:
            os.close(self._go)
            number = os.read(go, 16)
            if number:
                kill_at(int(number), before_poll=before_poll)
                keeper.main(str(directory))

        def before_poll(_frame: FrameType) -> None:
            os.write(asleep, b".")

        self.pid = fork(keep)
        os.close(go)
        os.close(asleep)

    def start(self, number: int) -> None:
        """Let it become the keeper, to be killed at its event of that number."""
        os.write(self._go, b"%d" % number)

    def settle(self, done: Callable[[], bool]) -> bool:
        """Wait until it is asleep and something is done, or it is dead; whether it is asleep."""
        while select.select([self._asleep], [], [], PATIENCE_SECONDS)[0]:
            if not os.read(self._asleep, 4096):
                return False
            if done():
                return True
        raise AssertionError("the keeper sleeps, and has something to do")

    def ending(self) -> int:
        code = ending(self.pid)
        os.close(self._go)
        os.close(self._asleep)
        return code


class Work(NamedTuple):
    """What a keeper is given to do, as ids of handles.

    Args:
        guarded: Two handles whose guards die, one before and one after the keeper has started.
        due: What is to be released when it starts.
        sooner: What is to be released later, and then is to be released at once.
        later: What is to be released much later.
        renewed: What it has to renew.
    """

    guarded: tuple[str, str]
    due: tuple[str, ...]
    sooner: str
    later: str
    renewed: str


class KeeperSweep:
    """KILLs at keepers.

    Each keeper is forked before it is needed: it starts faster than a fresh interpreter does, and
    it can be killed at a known event. It is registered as any other is.

    Args:
        sweep: On what.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._cli = sweep.cli
        self._pid = os.getpid()
        self._guards: set[int] = set()
        self._candidate = Candidate(self._cli.state_dir)
        with self._service() as service:
            service.pools.create_pool("own", [f"own--{number}" for number in range(6)])

    def fork_candidate(self, _argv: Sequence[str]) -> tuple[int, int]:
        """Stand in for the function of `keeping`: one that is there already waits to be told."""
        if os.getpid() != self._pid:
            raise LeaseError("the others start no keepers")
        return self._candidate.pid, os.open(os.devnull, os.O_RDONLY)

    def kill_everywhere(self, *, by_term: bool, stride: int = 1, at_least: int = 0) -> None:
        """Give keepers work, and KILL them at their 1st, 2nd, 3rd, … event.

        Args:
            by_term: One that isn't killed ends by TERM, and not because nothing is left.
            stride: As for `Sweep.kill_each`.
            at_least: As for `Sweep.kill_each`.
        """

        def attempt(number: int) -> int:
            keeper = self._candidate
            guards = fork(signal.pause), fork(signal.pause)
            self._guards.update(guards)
            with self._service() as service:
                work = self._give_work(service, guards)
            self._keep(keeper, number, work, guards, by_term=by_term)
            self._candidate = Candidate(self._cli.state_dir)
            code = keeper.ending()
            self._end(guards[1])
            self._sweep.next_command(f"keeper killed at event {number}")
            assert self._is_free(*work.guarded, *work.due), f"killed at event {number}"
            self._sweep.kept = set() if self._is_free(work.later) else {work.later}
            self._sweep.give_back()
            return code

        self._sweep.kill_each(attempt, stride=stride, at_least=at_least)

    def close(self) -> None:
        """Let the next keeper go, and what it would have had to release."""
        self._sweep.kept = set()
        self._sweep.give_back()
        os.kill(self._candidate.pid, signal.SIGKILL)
        self._candidate.ending()

    def _give_work(self, service: Service, guards: tuple[int, int]) -> Work:
        def take(request: Request, guard: int | None = None) -> Handle:
            process = None if guard is None else identify(guard)
            handle = acquire(service, request, patience=Patience(), guard=process)
            announce(service, handle)
            return handle

        due = [take(Request("own"))]
        # What the keeper that was killed was to release later.
        due += [service.handles.require(handle_id) for handle_id in self._sweep.kept]
        later = Request("own", release_after_seconds=3600.0)
        # Not two of those that the others want: they may be waiting in between for the first.
        work = Work(
            guarded=(take(Request("own"), guards[0]).id, take(Request("T"), guards[1]).id),
            due=tuple(handle.id for handle in due),
            sooner=take(later).id,
            later=take(later).id,
            renewed=take(Request("own", ttl_seconds=3600.0), os.getpid()).id,
        )
        for handle in due:
            arm(service, whole(handle), 0.0)
        return work

    def _keep(
        self, keeper: Candidate, number: int, work: Work, guards: tuple[int, int], *, by_term: bool
    ) -> None:
        """Let a keeper work, one thing after the other, until it ends or is killed."""
        self._end(guards[0])
        keeper.start(number)
        if not keeper.settle(lambda: self._is_done(work)):
            return
        self._end(guards[1])
        if not keeper.settle(lambda: self._is_free(*work.guarded)):
            return
        with self._service() as service:
            arm(service, whole(service.handles.require(work.sooner)), 0.0)
        if not keeper.settle(lambda: self._is_free(work.sooner)):
            return
        if by_term:
            os.kill(keeper.pid, signal.SIGTERM)
            return
        with self._service() as service, service.state.transaction():
            for handle_id in (work.later, work.renewed):
                release(service, whole(service.handles.require(handle_id)))
            keeper_process.wake(service.state)

    def _is_done(self, work: Work) -> bool:
        """Whether a keeper has done what is due when it starts."""
        ((renewed,),) = self._cli.query(
            "SELECT renew_time > acquire_time FROM lease WHERE handle = ?", work.renewed
        )
        return bool(renewed) and self._is_free(work.guarded[0], *work.due)

    def _is_free(self, *handle_ids: str) -> bool:
        return not set(handle_ids).intersection(self._cli.held().values())

    def _end(self, guard: int) -> None:
        if guard in self._guards:
            self._guards.remove(guard)
            os.kill(guard, signal.SIGKILL)
            ending(guard)

    def _service(self) -> AbstractContextManager[Service]:
        return self._cli.service(owner="sweep@host")


@pytest.fixture
def keepers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeeperSweep]:
    """KILLs at keepers, among contenders."""
    sweep = Sweep(cli, tmp_path)
    keepers = KeeperSweep(sweep)
    monkeypatch.setattr(keeper_process, "_fork_candidate", keepers.fork_candidate)
    load_code_for("local:")  # or most kills would strike while a keeper imports its modules
    with among_contenders(sweep):
        yield keepers
        keepers.close()


def test_the_keeper_can_be_killed_anywhere(keepers: KeeperSweep) -> None:
    keepers.kill_everywhere(by_term=False, stride=28)
    keepers.kill_everywhere(by_term=True, stride=42, at_least=30)
