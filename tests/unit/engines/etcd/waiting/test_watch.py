"""Who waits alone, and the stream that goes on from one of its waits to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from leasectl.engines.etcd.gateway.requests import KeyValue, delete, put
from leasectl.engines.etcd.waiting.targets import WatchTarget, behind
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, Access, begin_listening
from tests.kit.relay import Relay
from tests.kit.waits import eventually, result_of

ONE = Request("T")
OWN = 1


class Sleeper:
    """Notes that it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        self.woken += 1

    def note(self, news: KeyValue) -> None:
        raise AssertionError


@pytest.fixture
def watch(store: Access) -> Iterator[EtcdWatch]:
    watch = EtcdWatch(store.gateway, may_skip=True)
    watch.start()
    yield watch
    watch.close()


def begin_for_a_part(
    store: Access, watch: EtcdWatch, sleeper: Sleeper, *, is_gone: bool = False
) -> tuple[WatchTarget, str]:
    """Have somebody listen to what is urgent of its target only, a little after its look.

    Args:
        store: Where its ticket is.
        watch: Its own.
        sleeper: Who it is.
        is_gone: The ticket before it has gone in between; else something else was written.

    Returns:
        The target, and the ticket before it.
    """
    found: list[tuple[WatchTarget, str]] = []

    def listens_to_a_part() -> bool:
        own, before, other = (
            store.keys.ticket("T", OWN),
            store.keys.ticket("T", OWN + 1 + len(found)),
            store.keys.value("other"),
        )
        revision = store.gateway.commit((), [put(own, ""), put(before, "")]).revision
        target = behind(store.keys, "T", OWN, before, revision, has_time=True)
        found.append((target, before))
        store.gateway.commit((), [delete(before) if is_gone else put(other, "")])
        return not watch.listen(sleeper, target)

    eventually(listens_to_a_part, what="its stream goes on")
    # What comes before that is found later.
    eventually(lambda: has_begun(watch), what="what it has asked for has begun")
    return found[-1]


def has_begun(watch: EtcdWatch) -> bool:
    with watch._changed:
        return watch._watches is not None and watch._watches.have_begun


class TestOneStream:
    def test_who_comes_to_the_head_listens_on_the_stream_that_it_has(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        store.begin("first", ONE)
        eventually(lambda: store.queue() == ["first"])
        pending = begin_listening(Access([between.endpoint], prefix), between, ONE)
        store.engine.withdraw("first")
        eventually(lambda: store.queue() == ["waiter"])
        store.engine.free("holder", NAMES[:1])
        assert len(result_of(pending)) == 1
        assert between.paths.count("/v3/watch") <= 2  # a second if it was so fast as to find none

    def test_where_requests_are_held_back_until_their_end_it_is_made_anew_with_an_end(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        between.awaits_ends = True
        store.acquire("holder", Request("T", count=4))
        pending = begin_listening(Access([between.endpoint], prefix), between, ONE)
        store.engine.free("holder")
        assert len(result_of(pending)) == 1


class TestWhatThereIsTimeFor:
    def test_the_end_of_the_ticket_before_is_told_at_once(
        self, store: Access, watch: EtcdWatch
    ) -> None:
        sleeper = Sleeper()
        _, before = begin_for_a_part(store, watch, sleeper)
        woken = sleeper.woken
        store.gateway.commit((), [delete(before)])
        eventually(lambda: sleeper.woken > woken)

    def test_that_it_has_gone_before_its_watch_began_is_found_later(
        self, store: Access, watch: EtcdWatch
    ) -> None:
        sleeper = Sleeper()
        target, _ = begin_for_a_part(store, watch, sleeper, is_gone=True)
        woken = sleeper.woken
        watch.complete(sleeper, target)
        eventually(lambda: sleeper.woken > woken)

    def test_its_own_end_is_found_later(self, store: Access, watch: EtcdWatch) -> None:
        sleeper = Sleeper()
        target, _ = begin_for_a_part(store, watch, sleeper)
        woken = sleeper.woken
        store.gateway.commit((), [delete(store.keys.ticket("T", OWN))])
        watch.complete(sleeper, target)
        eventually(lambda: sleeper.woken > woken)

    def test_who_was_woken_meanwhile_has_said_anew_what_it_listens_for(
        self, store: Access, watch: EtcdWatch
    ) -> None:
        sleeper = Sleeper()
        target, before = begin_for_a_part(store, watch, sleeper)
        woken = sleeper.woken
        store.gateway.commit((), [delete(before)])
        eventually(lambda: sleeper.woken > woken)
        new, _ = begin_for_a_part(store, watch, sleeper)
        watch.complete(sleeper, target)  # which it doesn't listen for any more
        woken = sleeper.woken
        store.gateway.commit((), [delete(store.keys.ticket("T", OWN))])
        watch.complete(sleeper, new)
        eventually(lambda: sleeper.woken > woken)
