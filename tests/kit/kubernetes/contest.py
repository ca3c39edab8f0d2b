"""Processes that take turns at a pool on a real API server, and what it has cost them.

Each takes a lease, holds it for no time, gives it back, and asks again at once. They write down
what they saw, so that it can be judged; what they have asked, the server's own log says. In between
the floor is measured, under the same load, so that what is slow on a busy machine is slow for both.
"""

from __future__ import annotations

import os
import select
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from leasectl.model import Request
from leasectl.system import afterwards
from tests.kit.forking import ending, fork
from tests.kit.history import Event, Recorder, read_history, violations
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.floor import PREFIX, floor
from tests.kit.kubernetes.namespaces import Namespace

# So often the floor is measured while they take turns: seldom enough to be no load.
_FLOOR_SECONDS = 0.25


class Contest(NamedTuple):
    """What came of it; times in seconds.

    Args:
        hand_offs: From the call of each release until the next grant of the same resource.
        floors: What they are measured by.
        grants_per_second: All of them together.
        requests: How many of each verb, but those of the floor.
        wrong: What in the history can't be true.
    """

    hand_offs: Sequence[float]
    floors: Sequence[float]
    grants: int
    grants_per_second: float
    requests: Counter[str]
    wrong: Sequence[str]

    @property
    def times_floor(self) -> float:
        """The median hand-off, as a multiple of the median floor."""
        return statistics.median(self.hand_offs) / statistics.median(self.floors)

    def __str__(self) -> str:
        each = {verb: f"{n / self.grants:.2f}" for verb, n in sorted(self.requests.items())}
        return (
            f"hand-off {_times(self.hand_offs)}, floor {_times(self.floors)}: "
            f"{self.times_floor:.2f} x; {self.grants_per_second:.1f} grants/s, "
            f"{sum(self.requests.values()) / self.grants:.2f} requests a grant {each}"
        )


def contest(
    namespace: Namespace,
    folder: Path,
    *,
    processes: int,
    resources: int,
    seconds: float,
    more_than: int = 0,
) -> Contest:
    """Run processes that take turns at a pool for some time.

    It takes longer where there are no more grants than so many by then: on a busy machine. They
    send events, as commands do: that is done beside, but not for nothing.
    """
    kubeconfig = namespace.account.kubeconfig(folder / "kubeconfig")
    history = folder / "history"
    history.touch()
    names = [f"r{number}" for number in range(resources)]
    Access(kubeconfig).pools.create_pool("T", names)

    def take_turns(number: int) -> None:
        os.close(stop_write)
        own = Access(kubeconfig, state_id=f"host-{number}", tells_events=True)
        recorder = Recorder(history)
        turn = 0
        while not select.select([stop_read], [], [], 0)[0]:
            turn += 1
            claim_key = f"{number}.{turn}"
            leases = own.acquire(claim_key, Request("T", ttl_seconds=60.0))
            recorder.write("granted", claim_key, leases)
            recorder.write("releasing", claim_key, leases)
            own.engine.free(claim_key, [lease.name for lease in leases])
        afterwards.finish()  # as a command does

    with floor(kubeconfig) as once:
        stop_read, stop_write = os.pipe()
        before = _requests(namespace)
        pids = [fork(lambda n=n: take_turns(n)) for n in range(processes)]  # type: ignore[misc]
        os.close(stop_read)
        start = time.monotonic()
        floors = []
        while time.monotonic() < start + seconds or _grants(history) <= more_than:
            floors.append(once())
            time.sleep(_FLOOR_SECONDS)
        took = time.monotonic() - start
        asked = _requests(namespace)
        os.close(stop_write)
        assert [ending(pid) for pid in pids] == [0] * processes
    events = read_history(history)
    grants = _grants(history)
    return Contest(
        _hand_offs(events),
        floors,
        grants,
        grants / took,
        asked - before,
        violations(events, capacity=resources),
    )


def _requests(namespace: Namespace) -> Counter[str]:
    asked = (each for each in namespace.asked() if not each.name.startswith(PREFIX))
    return Counter(
        f"{each.verb} {each.resource}" if each.resource != "leases" else each.verb for each in asked
    )


def _hand_offs(events: Sequence[Event]) -> list[float]:
    """The times between a release and the next grant of each resource."""
    released: dict[str, int] = {}
    taken = []
    for event in events:
        if event.kind == "releasing":
            released[event.name] = event.at
        elif event.kind == "granted" and event.name in released:
            taken.append((event.at - released.pop(event.name)) / 1e9)
    return taken


def _times(seconds: Sequence[float]) -> str:
    p95 = statistics.quantiles(seconds, n=20)[-1]
    return f"{statistics.median(seconds) * 1e3:.1f} ms (p95 {p95 * 1e3:.1f})"


def _grants(history: Path) -> int:
    return sum(event.kind == "granted" for event in read_history(history))
