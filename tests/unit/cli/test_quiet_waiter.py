"""A quiet waiter sleeps until something changes for it, as strace sees it."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.local.queues import LocalQueues
from leasectl.leases.acquire import acquire
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Claimant, Handle, Request, whole
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.kit.support import Cli, Started
from tests.kit.waits import PATIENCE_SECONDS, eventually

# Not a look at what there is by now, which has no time.
_SLEEP = re.compile(r"^(?:p?poll|restart_syscall)\((?!\[[^\]\n]*\], \d+, 0\))", re.MULTILINE)
# A call that hasn't returned yet, which is the last thing that strace says, as far as its time.
_ASLEEP = re.compile(
    r"^(?:poll\([^\n]*\], \d+, (?!0\Z)-?\d+|restart_syscall\([^\n]*>)\Z", re.MULTILINE
)


class Strace:
    """strace, attached to a process.

    Attributes:
        text: What it has said until now.
    """

    def __init__(self, pid: int) -> None:
        self._process = subprocess.Popen(
            ["strace", "-f", "-p", str(pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.text = ""

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Read on until a condition is true."""
        assert self._process.stderr is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            left = deadline - time.monotonic()
            readable = select.select([self._process.stderr], [], [], max(0.0, left))[0]
            said = os.read(self._process.stderr.fileno(), 65536) if readable else b""
            assert said, f"{what}: not to be seen; strace says:\n{self.text}"
            self.text += said.decode("utf-8", "replace")

    def is_asleep(self) -> bool:
        """Whether the process sits in poll(2)."""
        return bool(_ASLEEP.search(self.text))

    def sleeps(self, since: int) -> int:
        """How often the process has gone to sleep since so much had been said."""
        return len(_SLEEP.findall(self.text, since))

    def detach(self) -> None:
        """Let go of the process, and read the rest."""
        assert self._process.stderr is not None
        self._process.send_signal(signal.SIGINT)
        self.text += self._process.stderr.read().decode("utf-8", "replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture
def strace() -> Iterator[Callable[[Started], Strace]]:
    """Attaches strace to a command, and sees it asleep."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    attached: list[Strace] = []

    def attach(command: Started) -> Strace:
        strace = Strace(command.pid)
        attached.append(strace)
        strace.wait(strace.is_asleep, "that strace may trace and the command sleeps in poll(2)")
        return strace

    yield attach
    for each in attached:
        each.close()


def queue(service: Service, pool_type: str, number: int) -> list[Handle]:
    """Put tickets into a queue, all of them this process's, which doesn't listen."""
    queues = LocalQueues(service.state, lost=lambda *_: None, clock=Clock())
    handles = []
    with service.state.transaction():
        for position in range(number):
            handle = Handle(
                id=f"{pool_type}-{position:06d}",
                backend="local:",
                request=Request(pool_type),
                owner="test@host",
                holder_identity=f"test@host/{position}",
                state="acquiring",
                acquisition=1,
                waiter=this_process(),
            )
            service.handles.create(handle, remote=False)
            claimant = Claimant(handle.id, "test@host", handle.request, handle.waiter)
            queues.put(claimant, position + 1, "nobody-listens")
            handles.append(handle)
    return handles


def test_a_quiet_waiter_behind_a_thousand_sleeps_while_nothing_changes_for_it(
    cli: Cli, strace: Callable[[Started], Strace]
) -> None:
    cli.pool("T", "only")
    cli.pool("other")
    cli.hold("T")
    with cli.service() as service:
        ahead = queue(service, "T", 1000)
        waiter = cli.start("acquire", "-q", "-t", "T")
        eventually(lambda: len(cli.waiting()) == 1001, what="it waits")
        # The one thing that it does of its own accord: so many may not come.
        eventually(cli.keepers, what="it has seen to it that there is a witness")
        trace = strace(waiter)
        before = len(trace.text)
        for _ in range(100):
            finish(service, acquire(service, Request("other"), patience=Patience()))
        for handle in ahead[:500]:
            release(service, whole(handle))
        assert len(cli.waiting()) == 501
        # This it has to notice: the trace sees it, and goes on from the sleep that it was in.
        release(service, whole(ahead[-1]))
        trace.wait(
            lambda: trace.sleeps(before) > 0 and trace.is_asleep(), "that its place has changed"
        )
        trace.detach()
        assert trace.sleeps(before) == 1, trace.text
