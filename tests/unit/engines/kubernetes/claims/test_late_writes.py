"""A claim that nobody has answered, and that is still on its way when its waiter looks for it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Callable

import pytest

from leasectl.engines.cluster.waiter import ClusterWaiter
from leasectl.engines.kubernetes.api.address import Collection, Json
from leasectl.engines.kubernetes.api.refusals import Absent, Conflict
from leasectl.engines.kubernetes.names import object_of_resource
from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Lease, Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.pool_changes import add_resources
from tests.kit.support import ManualClock

Unanswered = Callable[[Request, str], ClusterWaiter]

KEY = "h/1"
NAMES = ["b", "c", "d", "e"]
# As many as there are from the look for it to the end of the next claim, and a few more.
MOMENTS = range(12)


class LateApi(MadeUpApi):
    """One on whose way a claim of one resource hangs, once, until it arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = ""  # the object of that resource
        self._arrive: Callable[[], object] | None = None

    def replace(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        if name != self.hangs:
            return super().replace(collection, name, body, is_repeatable=is_repeatable)
        sent: Any = copy.deepcopy(body)
        self.hangs = ""
        self._arrive = lambda: MadeUpApi.replace(self, collection, name, sent)
        raise BackendUnreachable("no answer")

    def arrive(self) -> None:
        """Have it be carried out, if it can be."""
        arrive, self._arrive = self._arrive, None
        if arrive is not None:
            with contextlib.suppress(Absent, Conflict):
                arrive()

    def arrive_before(self, number: int) -> None:
        """The same right before a request, counted from here."""
        first = len(self.asked)

        def before(at: int) -> None:
            if at == first + number:
                self.before = lambda at: None
                self.arrive()

        self.before = before


@pytest.fixture
def api() -> LateApi:
    return LateApi()


@pytest.fixture
def process(api: LateApi, manual_clock: ManualClock) -> Process:
    process = Process(api, manual_clock.clock)
    process.pools.create_pool("T", NAMES)
    return process


@pytest.fixture
def others(process: Process, api: LateApi, manual_clock: ManualClock) -> Process:
    return Process(api, manual_clock.clock)


@pytest.fixture
def unanswered(api: LateApi, process: Process) -> Iterator[Unanswered]:
    """Makes a waiter whose claim of a resource hangs on its way."""
    waiters: list[ClusterWaiter] = []

    def make(request: Request, name: str) -> ClusterWaiter:
        waiter = process.engine.waiter(Claimant(KEY, "job/1/host/1", request), until=None)
        waiters.append(waiter)
        api.hangs = object_of_resource(name)
        waiter.enqueue()
        with pytest.raises(BackendUnreachable):
            waiter.claim()
        return waiter

    yield make
    for each in waiters:
        each.close()


def granted(waiter: ClusterWaiter) -> tuple[Lease, ...]:
    while (leases := waiter.claim().leases) is None:
        pass
    return leases


@pytest.mark.parametrize(
    ("request_", "hanging"),
    [
        (Request("T", ttl_seconds=60), "b"),
        (Request("T", count=2, ttl_seconds=60), "b"),
        (Request("T", count=2, ttl_seconds=60), "c"),
    ],
    ids=["the only one", "the first of two", "the second of two"],
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_it_arrives_nothing_is_held_that_nobody_knows_of(
    api: LateApi,
    process: Process,
    others: Process,
    unanswered: Unanswered,
    request_: Request,
    hanging: str,
    moment: int,
) -> None:
    waiter = unanswered(request_, hanging)
    api.arrive_before(moment)
    names = sorted(each.name for each in granted(waiter))
    api.arrive()  # unless it has
    assert len(names) == request_.count
    assert sorted(process.held()) == names
    assert sorted(others.engine.renew(KEY)) == names
    assert sorted(others.engine.free(KEY, names)) == names
    assert process.held() == {}


def test_what_has_come_free_meanwhile_is_taken_instead_and_it_is_in_vain(
    api: LateApi, process: Process, others: Process, unanswered: Unanswered
) -> None:
    waiter = unanswered(Request("T", ttl_seconds=60), "b")
    add_resources(others.members, "T", ["a"])
    (lease,) = granted(waiter)
    api.arrive()
    assert lease.name == "a"
    assert list(process.held()) == ["a"]


def test_who_has_given_up_gets_nothing_by_it(
    api: LateApi, process: Process, unanswered: Unanswered
) -> None:
    waiter = unanswered(Request("T", ttl_seconds=60), "b")
    waiter.dequeue()
    api.arrive()
    assert process.held() == {}


def test_who_has_it_meanwhile_keeps_it(
    api: LateApi, process: Process, others: Process, unanswered: Unanswered
) -> None:
    waiter = unanswered(Request("T", name="b", ttl_seconds=60), "b")
    assert others.acquire("h/2", Request("T", name="b", ttl_seconds=60))
    assert waiter.claim().leases is None
    api.arrive()
    assert others.engine.renew("h/2") == ("b",)
    assert process.held() == {"b": "job/1/host/h/2"}


def test_its_time_counts_from_when_it_was_sent(
    api: LateApi, process: Process, unanswered: Unanswered, manual_clock: ManualClock
) -> None:
    waiter = unanswered(Request("T", ttl_seconds=60), "b")
    api.arrive()
    manual_clock.advance(59)
    (lease,) = granted(waiter)
    assert lease.name == "b"
    manual_clock.advance(1)
    assert process.engine.renew(KEY) == ()
