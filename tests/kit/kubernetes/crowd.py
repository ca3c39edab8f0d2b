"""Many who wait on one pool at a real API server, and what they cost it.

Each is a process, as those are who wait in steps of CI: with connections, watches and a memory of
its own. They are forked, so that hundreds fit into one machine; threads of one process would share
a watch, and show nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from leasectl.model import Request
from leasectl.system import afterwards
from tests.kit.forking import end_all, ending, fork
from tests.kit.history import Recorder, read_history, violations
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.waits import PATIENCE_SECONDS

# So many begin at once: as many as a server lets in without keeping any waiting for long.
_AT_ONCE = 20
# When nothing but renewals was asked for so long, all have begun to wait.
_SETTLED_SECONDS = 2.0


class Crowd(NamedTuple):
    """What a crowd of waiters costs.

    Args:
        waiters: How many there were.
        memory_kib: Of the server, for each of them.
        idle_share: Of a core, that the server takes for all of them while nothing happens.
        idle_requests: Of each of them in a minute meanwhile, by verb.
        write_ms: Of a core, that the server takes for a write in their pool.
        alone_ms: The same, when nobody waited there.
        served_seconds: From the release until the last of them had its turn.
        requests: For each of them since then, by verb.
        wrong: What in their history can't be true.
    """

    waiters: int
    memory_kib: float
    idle_share: float
    idle_requests: dict[str, float]
    write_ms: float
    alone_ms: float
    served_seconds: float
    requests: dict[str, float]
    wrong: list[str]

    def __str__(self) -> str:
        return (
            f"{self.waiters} waiters: {self.memory_kib:.0f} KiB of the server each; idle "
            f"{self.idle_share * 100:.1f} % of a core, each asks {_shown(self.idle_requests)} a "
            f"minute; a write costs the server {self.write_ms:.1f} ms of a core, alone "
            f"{self.alone_ms:.1f} ms; all had their turn in {self.served_seconds:.1f} s, "
            f"each asked {_shown(self.requests)} for that"
        )


def crowd(
    namespace: Namespace, folder: Path, *, waiters: int, ttl_seconds: float, idle_seconds: float
) -> Crowd:
    """Let many wait on one resource, measure them for a while, and then release it.

    Args:
        namespace: Where; on a server of our own.
        folder: For a kubeconfig and the history.
        waiters: How many.
        ttl_seconds: Of their tickets.
        idle_seconds: How long nothing happens.
    """
    kubeconfig, history = namespace.account.kubeconfig(folder / "kubeconfig"), folder / "history"
    server = _Server(namespace)
    holder = Access(kubeconfig, state_id="holder")
    holder.pools.create_pool("T", ["r0", "r1"])
    first = holder.acquire("holder", Request("T", count=2))
    alone_ms = server.write_ms("r1")
    memory = server.memory_kib()

    def wait(number: int) -> None:
        own, recorder = Access(kubeconfig, state_id=f"host-{number}"), Recorder(history)
        leases = own.acquire("waiter", Request("T", name="r0", ttl_seconds=ttl_seconds))
        recorder.write("granted", str(number), leases)
        recorder.write("releasing", str(number), leases)
        own.engine.free("waiter", [lease.name for lease in leases])
        afterwards.finish()  # as a command does

    made = server.requests()["create"]
    pids: list[int] = []
    try:
        for number in range(waiters):
            pids.append(fork(lambda n=number: wait(n)))  # type: ignore[misc]
            if len(pids) % _AT_ONCE == 0 or len(pids) == waiters:
                server.until_asked("create", made + len(pids))
        server.until_settled()
        memory = server.memory_kib() - memory
        asked, took, start = server.requests(), server.seconds(), time.monotonic()
        time.sleep(idle_seconds)
        idle = time.monotonic() - start
        took, asked = server.seconds() - took, server.requests() - asked
        write_ms = server.write_ms("r1")
        before, start = server.requests(), time.monotonic()
        holder.engine.free("holder", [lease.name for lease in first])
        assert [ending(pid) for pid in pids] == [0] * waiters
        served = time.monotonic() - start
    finally:
        end_all()
    return Crowd(
        waiters,
        memory / waiters,
        took / idle,
        _each(asked, waiters * idle / 60),
        write_ms,
        alone_ms,
        served,
        _each(server.requests() - before, waiters),
        violations(read_history(history), capacity=1),
    )


class _Server:
    """The API server, from outside."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._pid = namespace.servers.pid()

    def memory_kib(self) -> float:
        with open(f"/proc/{self._pid}/status") as file:
            return next(float(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def seconds(self) -> float:
        """The processor time of the server so far, in seconds."""
        with open(f"/proc/{self._pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def requests(self) -> Counter[str]:
        """What clients have asked so far, by verb."""
        return Counter(each.verb for each in self._namespace.asked())

    def until_asked(self, verb: str, times: int) -> None:
        """Wait until clients have asked for something so often; it costs the server nothing."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.requests()[verb] < times:
            assert time.monotonic() < deadline, f"fewer than {times} have asked to {verb}"
            time.sleep(0.5)

    def until_settled(self) -> None:
        """Wait until clients send nothing but renewals."""
        deadline, before = time.monotonic() + PATIENCE_SECONDS, -1
        while (asked := self._asked_beside_renewals()) != before:
            assert time.monotonic() < deadline, "there is no end to what those ask who wait"
            before = asked
            time.sleep(_SETTLED_SECONDS)

    def _asked_beside_renewals(self) -> int:
        return sum(number for verb, number in self.requests().items() if verb != "update")

    def write_ms(self, name: str, times: int = 100) -> float:
        """The processor time of one write of an object, in milliseconds."""
        path = f"{self._namespace.leases}/{name}"
        api, start = self._namespace.administrator, self.seconds()
        for number in range(times):
            change = {"metadata": {"annotations": {"example.com/number": str(number)}}}
            api.ok("PATCH", path, change, content_type="application/merge-patch+json")
        time.sleep(0.5)  # for all to have been told
        return (self.seconds() - start) / times * 1e3


def _each(asked: Counter[str], parts: float) -> dict[str, float]:
    return {verb: number / parts for verb, number in sorted(asked.items())}


def _shown(each: dict[str, float]) -> str:
    verbs = ", ".join(f"{verb} {number:.2f}" for verb, number in each.items())
    return f"{sum(each.values()):.2f} ({verbs})"
