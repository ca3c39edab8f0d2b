"""A waiter is woken by one watch, and another watch hasn't heard of it yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from leasectl.engines.cluster.objects import Happened
from leasectl.engines.cluster.waiter import ClusterWaiter
from leasectl.engines.kubernetes.encoding import identity_of
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock
from tests.kit.waits import wait_readable

ONE = Request("T", ttl_seconds=60.0)


class SlowWatch:
    """A watch that tells of nothing before a test lets it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[Happened] = []
        self._is_cut = False

    def tell(self, event: Happened) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def cut(self) -> None:
        with self._changed:
            self._is_cut = True
            self._changed.notify_all()

    def __enter__(self) -> Iterator[Happened]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._is_cut)
                if self._is_cut:
                    return
                event = self._events.pop(0)
            yield event

    def __exit__(self, *reason: object) -> None:
        pass


class Watches:
    """The watches of a process, by what they are of."""

    def __init__(self, process: Process) -> None:
        self._of_object: dict[str, SlowWatch] = {}
        objects: Any = process.opened.objects
        objects.watch = lambda which, since: (
            self.of_object(which.name) if which.name else SlowWatch()
        )

    def of_object(self, name: str) -> SlowWatch:
        return self._of_object.setdefault(name, SlowWatch())


def queue(process: Process, key: str) -> ClusterWaiter:
    waiter = process.engine.waiter(Claimant(key, f"job/1/host/{key}", ONE), until=None)
    waiter.enqueue()
    assert waiter.claim().leases is None
    return waiter


def test_who_is_woken_far_behind_sees_why(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = MadeUpApi()
    others, process = (Process(api, manual_clock.clock) for _ in range(2))
    others.pools.create_pool("T", ["a"])
    assert others.acquire("h/1", ONE)
    first = queue(others, "h/2")
    watches = Watches(process)
    second = queue(process, "h/3")
    second.listen(())  # it follows the pool, and that watch stays for a moment
    monkeypatch.setattr(KubernetesObjects, "few_next", 1)
    monkeypatch.setattr(KubernetesObjects, "few_before", 1)
    assert second.claim().is_behind
    fds, _ = second.listen(())  # and now the ticket before it
    others.engine.free("h/1")
    first.dequeue()
    name = first.ticket.object_name
    raw = {"metadata": {"name": name, "uid": "u", "resourceVersion": str(api.list_version())}}
    watches.of_object(name).tell(Happened("gone", identity_of(raw)))
    (fd,) = fds
    wait_readable(fd)
    second.heard({fd})
    leases = second.claim().leases
    assert leases is not None
    assert [each.name for each in leases] == ["a"]
    second.close()
    first.close()
