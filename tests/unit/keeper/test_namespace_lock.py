"""Containers that share a state directory: what one that was killed held is granted again.

Each has a pid namespace of its own, and the host name and pids of the others.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasectl.system.namespaces import is_gone, lock_path
from leasectl.system.process import is_in_first_pid_namespace
from tests.kit.support import Cli, Finished, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

# The host name of the machine, and a /proc of its own; process 1 is the guard.
_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "1000"]
Start = Callable[[], "Container"]


class Container:
    """Processes in a pid namespace of their own, on the state directory of the test."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._unshare = cli.spawn(_CONTAINER)
        self._init = eventually(self._find_init, what="the container starts")
        self.namespace = Path(f"/proc/{self._init}/ns/pid").stat().st_ino

    def _find_init(self) -> int | None:
        if self._unshare.process.poll() is not None:
            pytest.skip(f"no pid namespaces here: {self._unshare.finish().err}")
        pid = self._unshare.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # It is `unshare` until /proc is mounted.
        is_ready = children and Path(f"/proc/{children[0]}/comm").read_text() == "sleep\n"
        return int(children[0]) if is_ready else None

    def start(self, *argv: str) -> Started:
        """Start a program in it."""
        entry = ["nsenter", "--target", str(self._init), "--pid", "--mount", "--"]
        return self._cli.spawn([*entry, *argv])

    def leasectl(self, *args: str) -> Finished:
        """Run leasectl in it, to its end."""
        return self.start(*self._cli.command(*args)).finish()

    def acquire(self, *, wait: str = "0") -> Finished:
        """Acquire a lease that its first process guards."""
        return self.leasectl("acquire", "-q", "own", "-w", wait, "--guard-pid", "1")

    def pids_of_keeper(self) -> tuple[int, int] | None:
        """The pids, on the outside, of its keeper and of that one's anchor, once both are there."""
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "ns" / "pid").stat().st_ino != self.namespace:
                    continue
                pid = int(path.name)
                children = (path / "task" / path.name / "children").read_text().split()
                if b"leasectl.keeper" in (path / "cmdline").read_bytes() and children:
                    return pid, int(children[0])
        return None

    def await_lock(self) -> tuple[int, int]:
        """Wait until its keeper and the anchor have the lock; their pids."""
        path = Path(lock_path(str(self._cli.state_dir), self.namespace))
        eventually(path.exists, what="the keeper takes the lock")
        return self.await_anchor()

    def await_anchor(self, *, other_than: int = 0) -> tuple[int, int]:
        """Wait until its keeper has an anchor; their pids."""

        def find() -> list[tuple[int, int]]:
            pids = self.pids_of_keeper()
            return [pids] if pids is not None and pids[1] != other_than else []

        return eventually(find, what="the keeper has an anchor")[0]

    def is_gone(self) -> bool:
        return is_gone(str(self._cli.state_dir), self.namespace)

    def kill(self) -> None:
        """End its first process, and so all of it: unshare ends when the last one has."""
        subprocess.run(["kill", "-KILL", str(self._init)], check=True)
        self._unshare.process.wait()


def kill_outright(pid: int) -> None:
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    eventually(lambda: not Path(f"/proc/{pid}/fd/0").exists(), what=f"process {pid} ends")


@pytest.fixture
def start(cli: Cli) -> Iterator[Start]:
    cli.pool("own", "own--00")
    containers: list[Container] = []

    def start_one() -> Container:
        containers.append(Container(cli))
        return containers[-1]

    yield start_one


def test_guarded_lease_of_a_killed_container_is_granted_again(start: Start) -> None:
    former = start()
    assert former.acquire().code == 0
    former.await_lock()
    restarted = start()
    assert restarted.acquire().code == 75
    former.kill()
    assert restarted.acquire(wait="5m").code == 0


def test_waiter_gets_the_lease_of_a_container_that_is_killed_meanwhile(
    cli: Cli, start: Start
) -> None:
    former, restarted = start(), start()
    assert former.acquire().code == 0
    former.await_lock()
    waiter = restarted.start(*cli.command("acquire", "-q", "own", "-w", "5m"))
    eventually(cli.waiting, what="it waits")
    former.kill()
    assert waiter.finish().code == 0


def test_lease_of_a_run_in_a_killed_container_is_granted_again(cli: Cli, start: Start) -> None:
    former = start()
    former.start(*cli.command("run", "-q", "own", "--", "sleep", "1000"))
    eventually(cli.held, what="run has its lease")
    former.await_lock()
    restarted = start()
    assert restarted.acquire().code == 75
    former.kill()
    assert restarted.acquire(wait="5m").code == 0


def test_waiter_of_a_killed_container_keeps_nobody_back(cli: Cli, start: Start) -> None:
    former, other = start(), start()
    handle = other.acquire().handle
    former.start(*cli.command("acquire", "-q", "own"))
    eventually(cli.waiting, what="it waits")
    former.await_lock()
    former.kill()
    assert cli.waiting()
    assert other.leasectl("release", "--handle", handle).code == 0
    assert other.acquire(wait="5m").code == 0


def test_lease_is_kept_while_the_container_lives_without_its_keeper(start: Start) -> None:
    living, other = start(), start()
    assert living.acquire().code == 0
    keeper, anchor = living.await_lock()
    kill_outright(keeper)
    assert not living.is_gone()
    assert other.acquire().code == 75
    assert living.leasectl("status").code == 0  # which starts another keeper
    assert living.await_lock()[0] != keeper
    eventually(lambda: not Path(f"/proc/{anchor}/fd/0").exists())
    assert other.acquire().code == 75
    living.kill()
    assert other.acquire(wait="5m").code == 0


def test_killed_anchor_is_replaced(start: Start) -> None:
    living, other = start(), start()
    assert living.acquire().code == 0
    keeper, anchor = living.await_lock()
    kill_outright(anchor)
    living.await_anchor(other_than=anchor)
    kill_outright(keeper)
    assert not living.is_gone()
    assert other.acquire().code == 75


def test_keeper_that_ends_in_order_leaves_neither_lock_nor_anchor(cli: Cli, start: Start) -> None:
    container = start()
    handle = container.acquire().handle
    keeper, anchor = container.await_lock()
    assert container.leasectl("release", "--handle", handle).code == 0
    eventually(lambda: not Path(f"/proc/{keeper}/fd/0").exists(), what="the keeper ends")
    eventually(lambda: not Path(f"/proc/{anchor}/fd/0").exists(), what="the anchor ends")
    assert not Path(lock_path(str(cli.state_dir), container.namespace)).exists()


def test_command_removes_the_lock_of_an_earlier_namespace_of_its_number(
    cli: Cli, start: Start
) -> None:
    """The kernel reuses the numbers, and a record of the new one must not be taken for dead."""
    container = start()
    left = Path(lock_path(str(cli.state_dir), container.namespace))
    left.touch(0o600)
    assert container.is_gone()
    assert container.leasectl("acquire", "-q", "own").code == 0
    assert not left.exists()


def test_first_pid_namespace_needs_no_lock(cli: Cli) -> None:
    if not is_in_first_pid_namespace():
        pytest.skip("these tests run in a container themselves")
    cli.pool("own")
    cli.ok("acquire", "-q", "own", "--release-after", "300s")
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and "started" in log.read_text(), what="a keeper starts")
    cli.ok("release", "--names", "own--00", "--force")
    eventually(lambda: "ended" in log.read_text(), what="the keeper ends")
    assert not list(cli.state_dir.glob("namespace.*"))
