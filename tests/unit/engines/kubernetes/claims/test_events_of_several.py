"""Events of claims that end together, although each of them takes a write of its own."""

from __future__ import annotations

from typing import cast

import pytest

from leasectl.engines.cluster.objects import Told
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.names import object_of_resource
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.engines.kubernetes.posting import Posting
from leasectl.errors import BackendUnreachable
from leasectl.model import Request
from leasectl.state.event import Event
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

KEY, NAMES = "h/1", ("a", "b", "c")
WRITE = "update"


class Post:
    """Keeps what would be sent to the cluster."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, told: Told) -> None:
        self.events += told.events


class Place:
    """Three claims of one request with a ttl, and a process whose events are kept."""

    def __init__(self, clock: ManualClock) -> None:
        self.api, self.clock, self.post = MadeUpApi(), clock, Post()
        self.holder = Process(self.api, clock.clock)
        self.holder.pools.create_pool("T", NAMES)
        assert len(self.holder.acquire(KEY, Request("T", count=3, ttl_seconds=60))) == 3
        self.was_renewed: tuple[str, ...] = ()
        clock.advance(1)
        self.teller: Opened = open_kubernetes(
            cast("Api", self.api),
            "ns",
            state_id="state",
            clock=clock.clock,
            posting=cast("Posting", self.post),
        )

    def renew_before_the_write_of(self, name: str) -> None:
        """Have the holder renew once, right before the teller writes a resource."""

        def before(number: int) -> None:
            if self.api.asked[number] == (WRITE, object_of_resource(name)):
                self.api.before = lambda number: None
                self.was_renewed = self.holder.engine.renew(KEY)

        self.api.before = before

    def told(self, kind: str) -> list[str]:
        return sorted(name for each in self.post.events if each.kind == kind for name in each.names)


@pytest.fixture
def place(manual_clock: ManualClock) -> Place:
    return Place(manual_clock)


@pytest.mark.parametrize("name", NAMES)
def test_a_release_is_told_once_of_each_although_a_write_is_refused(
    place: Place, name: str
) -> None:
    place.renew_before_the_write_of(name)
    assert sorted(place.teller.engine.free(KEY)) == list(NAMES)
    assert place.told("released") == list(NAMES)
    assert place.was_renewed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_once", [False, True])
def test_force_is_told_once_of_each_although_a_write_is_refused(
    place: Place, name: str, at_once: bool
) -> None:
    place.renew_before_the_write_of(name)
    ended = place.teller.pools.end_early(KEY, NAMES, guard=None, reason="ann", at_once=at_once)
    assert sorted(ended) == list(NAMES)
    assert place.told("lost") == list(NAMES)
    assert place.was_renewed
    assert place.told("released") == (list(NAMES) if at_once else [])


def test_a_release_that_fails_half_way_is_told_of_what_it_did(place: Place) -> None:
    def before(number: int) -> None:
        if place.api.asked[number] == (WRITE, object_of_resource("c")):
            raise BackendUnreachable("no answer")

    place.api.before = before
    with pytest.raises(BackendUnreachable):
        place.teller.engine.free(KEY)
    assert place.told("released") == ["a", "b"]


def test_force_is_told_as_of_before_its_first_write(place: Place) -> None:
    written_at: list[float] = []

    def after(number: int) -> None:
        if place.api.asked[number][0] == WRITE:
            written_at.append(place.clock.clock.wall())
        place.clock.advance(1)  # each request takes its time

    place.api.after = after
    assert place.teller.pools.end_early(KEY, NAMES, guard=None, reason="ann", at_once=False)
    (lost,) = (each for each in place.post.events if each.kind == "lost")
    assert len(written_at) == 3
    assert lost.time <= written_at[0]  # its holder may release the first one right then
