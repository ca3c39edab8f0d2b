"""What counts as a change of nodes and leases, and how their watches go on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Union

import pytest

from leasectl.engines.kubernetes.api.address import Collection, leases
from leasectl.engines.kubernetes.api.requests import Listed
from leasectl.engines.kubernetes.api.watching import EventType, WatchEvent
from leasectl.errors import BackendUnreachable
from leasectl.http.no_answer import WatchEnded
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import Us
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import BEGUN_BY, CORDON_MARK, REQUEST, REQUEST_WORD, STATUS
from leasectl.maintenance.watching import WatchedChanges
from leasectl.system.poll import is_readable
from tests.kit.waits import join, next_in, wait_readable

pytestmark = pytest.mark.once

US = "machine-remediation"
SETTINGS = Settings(Us(US), "window-{node}")
Object = dict[str, Any]
Said = Union[WatchEvent, Exception]


def node(name: str, *, cordoned: bool = False, seen: int = 0, **annotations: str) -> Object:
    """A Node; ``seen`` is something that its kubelet writes."""
    keys = {"request": REQUEST, "word": REQUEST_WORD, "status": STATUS, "mark": CORDON_MARK}
    keys["window"] = BEGUN_BY
    noted = {keys[key]: text for key, text in annotations.items()}
    metadata = {"name": name, "uid": f"uid-{name}", "annotations": noted}
    return {"metadata": metadata, "spec": {"unschedulable": cordoned}, "status": {"seen": seen}}


def lease(name: str, holder: str, seconds: int | None = 60, second: int = 0) -> Object:
    """A Lease that was renewed in some second."""
    spec: Object = {"holderIdentity": holder, "renewTime": f"2001-01-01T00:00:{second:02}.000000Z"}
    if seconds:
        spec["leaseDurationSeconds"] = seconds
    return {"metadata": {"name": name}, "spec": spec}


def event(kind: EventType, said: Object) -> WatchEvent:
    return WatchEvent(kind, said)


class ScriptedWatch:
    """A watch on which a test says what happens."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.events: queue.SimpleQueue[Said] = queue.SimpleQueue()

    def __enter__(self) -> Iterator[WatchEvent]:
        first = self.events.get()
        if isinstance(first, Exception):
            raise first
        return self._events(first)

    def __exit__(self, *reason: object) -> None:
        pass

    def cut(self) -> None:
        self.events.put(WatchEnded("cut"))

    def _events(self, said: Said) -> Iterator[WatchEvent]:
        while True:
            if isinstance(said, Exception):
                raise said
            yield said
            said = self.events.get()


class ScriptedApi:
    """What is there, by the kind of objects; and what is said on watches."""

    def __init__(self) -> None:
        self.there: dict[str, list[Object]] = {"nodes": [], "leases": []}
        self.refusal: Exception | None = None
        self.lists = 0
        self.watches: dict[str, queue.SimpleQueue[ScriptedWatch]] = {
            "nodes": queue.SimpleQueue(),
            "leases": queue.SimpleQueue(),
        }

    def list(self, collection: Collection) -> Listed:
        self.lists += 1
        if self.refusal is not None:
            raise self.refusal
        return Listed(tuple(self.there[collection.plural]), str(self.lists))

    def watch(self, collection: Collection, *, resource_version: str) -> ScriptedWatch:
        watch = ScriptedWatch(resource_version)
        self.watches[collection.plural].put(watch)
        return watch


class Watched:
    """Changes, as their controller hears of them."""

    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.said: list[str] = []
        self.paused: queue.SimpleQueue[float] = queue.SimpleQueue()
        cluster: Any = SimpleNamespace(api=self.api, lease_collection=leases("here"))
        self.changes = WatchedChanges(cluster, SETTINGS, self.said.append, wait=self._wait)
        self.nodes = self.leases = ScriptedWatch("")

    def _wait(self, closed: threading.Event, seconds: float) -> bool:
        self.paused.put(seconds)
        return closed.is_set()

    def begin(self) -> set[str]:
        """Begin; returns what is there."""
        self.changes.begin()
        self.nodes = next_in(self.api.watches["nodes"])
        self.leases = next_in(self.api.watches["leases"])
        return self.changes.take()

    def heard(self) -> set[str]:
        """What is heard of next, whenever that is."""
        wait_readable(self.changes.fd)
        return self.changes.take()

    def after(self, *happened: WatchEvent) -> set[str]:
        """What was heard of by the time that all of these have been taken in."""
        for each in happened:
            (self.nodes if "status" in each.object else self.leases).events.put(each)
        for watch, last in (
            (self.nodes, event("ADDED", node("last-node", request="1h"))),
            (self.leases, event("ADDED", lease("window-last-lease", "them"))),
        ):
            watch.events.put(last)
        names = set[str]()
        while not names >= {"last-node", "last-lease"}:
            names |= self.heard()
        for watch, gone in (
            (self.nodes, event("DELETED", node("last-node"))),
            (self.leases, event("DELETED", lease("window-last-lease", "them"))),
        ):
            watch.events.put(gone)
        gone_names = set[str]()
        while not gone_names >= {"last-node", "last-lease"}:
            gone_names |= self.heard()
        return (names | gone_names) - {"last-node", "last-lease"}


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.changes.close()


class TestWhatIsThere:
    def test_is_what_there_may_be_something_to_do_about(self, watched: Watched) -> None:
        watched.api.there["nodes"] = [
            node("idle"),
            node("by-hand", cordoned=True),
            node("over", status="ended"),
            node("asks", request="30m"),
            node("asks-again", request="30m", status="ended"),
            node("in-vain", request=""),
            node("under-way", status="active"),
            node("marked", status="ended", mark=US, cordoned=True),
            node("recorded", window=US),
        ]
        watched.api.there["leases"] = [
            lease("window-held", US),
            lease("window-back", US, None),
            lease("window-theirs", "upgrader"),
            lease("window-was-theirs", "upgrader", None),
            lease("somebodys", "upgrader"),
            lease(LEASE_NAME, "another"),
        ]
        asking = {"asks", "asks-again", "in-vain", "under-way", "marked", "recorded"}
        assert watched.begin() == asking | {"held", "theirs", "was-theirs", LEASE_NAME}
        assert watched.changes.take() == set()
        assert not is_readable(watched.changes.fd, 0)  # or whoever sleeps on it never would

    def test_cannot_be_asked_and_then_nothing_begins(self, watched: Watched) -> None:
        watched.api.refusal = BackendUnreachable("it is away")
        with pytest.raises(BackendUnreachable):
            watched.changes.begin()
        assert watched.api.watches["nodes"].empty()


class TestWhatHappens:
    def test_to_a_lease_counts_by_whose_it_is(self, watched: Watched) -> None:
        watched.begin()
        theirs = lease("window-a", "upgrader")
        assert watched.after(event("ADDED", theirs)) == {"a"}
        assert watched.after(event("MODIFIED", theirs)) == set()
        assert watched.after(event("MODIFIED", lease("window-a", "upgrader", 60, 1))) == {"a"}
        assert watched.after(event("DELETED", lease("window-a", "upgrader", 60, 1))) == {"a"}
        assert watched.after(event("ADDED", lease("somebodys", "upgrader"))) == set()
        assert watched.after(event("ADDED", lease("window-a", US, None))) == set()
        assert watched.after(event("MODIFIED", lease("window-a", US))) == {"a"}
        assert watched.after(event("MODIFIED", lease("window-a", US, None))) == {"a"}

    def test_to_the_lease_of_leaders_counts_when_another_leads_or_nobody(
        self, watched: Watched
    ) -> None:
        watched.begin()
        assert watched.after(event("ADDED", lease(LEASE_NAME, "a"))) == {LEASE_NAME}
        assert watched.after(event("MODIFIED", lease(LEASE_NAME, "a", 60, 1))) == set()
        assert watched.after(event("MODIFIED", lease(LEASE_NAME, "b", 60, 1))) == {LEASE_NAME}
        assert watched.after(event("MODIFIED", lease(LEASE_NAME, "b", None))) == {LEASE_NAME}
        assert watched.after(event("DELETED", lease(LEASE_NAME, "b", None))) == {LEASE_NAME}

    def test_a_bookmark_is_of_nobody(self, watched: Watched) -> None:
        watched.begin()
        bookmark = {"kind": "Node", "metadata": {"resourceVersion": "7"}, "status": {}}
        assert watched.after(event("BOOKMARK", bookmark)) == set()


class TestAWatchThatEnds:
    def test_is_followed_by_a_list_that_shows_what_has_happened_meanwhile(
        self, watched: Watched
    ) -> None:
        watched.api.there["nodes"] = [node("gone", request="1h"), node("same", request="1h")]
        watched.begin()
        watched.api.there["nodes"] = [node("same", request="1h"), node("new", request="1h")]
        watched.nodes.events.put(WatchEnded("it was cut"))
        again = next_in(watched.api.watches["nodes"])
        assert watched.changes.take() == {"gone", "new"}
        assert again.version == "3"  # of the list
        watched.nodes = again
        assert watched.after(event("DELETED", node("new"))) == {"new"}
        assert watched.said == []

    def test_is_begun_again_ever_more_seldom_until_it_says_something(
        self, watched: Watched
    ) -> None:
        watched.begin()
        watch, pauses = watched.nodes, list[float]()
        for _ in range(30):
            watch.events.put(WatchEnded("it was cut"))
            pauses.append(next_in(watched.paused))
            watch = next_in(watched.api.watches["nodes"])
        assert 0.1 <= pauses[0] <= 0.2
        assert 0.2 <= pauses[1] <= 0.4
        assert all(2.5 <= each <= 5.0 for each in pauses[8:])
        watch.events.put(event("ADDED", node("a", request="1h")))
        watch.events.put(WatchEnded("it was cut"))
        assert next_in(watched.paused) <= 0.2

    def test_or_may_not_be_is_said_once_although_the_list_may(self, watched: Watched) -> None:
        watched.begin()
        watch = watched.nodes
        for _ in range(5):
            watch.events.put(BackendUnreachable("it may not watch nodes"))
            watch = next_in(watched.api.watches["nodes"])
        assert next_in(watched.paused) <= 0.2
        assert watched.said == ["it may not watch nodes; trying again"]
        watch.events.put(event("ADDED", node("a", request="1h")))
        watch.events.put(BackendUnreachable("it may not watch nodes"))
        next_in(watched.api.watches["nodes"])
        assert len(watched.said) == 2

    def test_goes_on_where_the_list_fails_for_a_while(self, watched: Watched) -> None:
        watched.begin()
        watched.api.refusal = BackendUnreachable("it is away")
        watched.nodes.events.put(WatchEnded("it was cut"))
        for _ in range(4):
            next_in(watched.paused)
        watched.api.there["nodes"] = [node("new", request="1h")]
        watched.api.refusal = None
        assert watched.heard() == {"new"}
        assert watched.said == ["it is away; trying again"]


def _followers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "leasectl-node-watch"}


def test_what_nobody_has_expected_ends_whoever_listens(watched: Watched) -> None:
    watched.begin()
    watched.nodes.events.put(ZeroDivisionError("a mistake of ours"))
    wait_readable(watched.changes.fd)
    with pytest.raises(ZeroDivisionError):
        watched.changes.take()


def test_closing_ends_both_and_what_would_begin_then() -> None:
    watched, before = Watched(), _followers()
    watched.begin()
    running = _followers() - before
    assert [each.daemon for each in running] == [True, True]  # no process lasts for them
    watched.changes.close()
    for each in running:
        join(each)
        assert not each.is_alive()
    assert watched.api.lists == 2
    watched.changes.begin()  # nothing is followed by then
    for each in _followers() - before:
        join(each)
        assert not each.is_alive()
