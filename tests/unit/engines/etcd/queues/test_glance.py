"""What a ticket sees once the one before it has gone: by a glance, where that is enough."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future
from typing import Any

import pytest

from leasectl.backends.contract import Withdrawn
from leasectl.engines.etcd.gateway.requests import read_all
from leasectl.engines.etcd.queues.look import look
from leasectl.model import Lease, Request
from tests.kit.etcd.access import Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.waits import eventually, result_of

ONE, ALL = Request("T"), Request("T", count=4)


class Waiting:
    """Who waits in the queue of a pool of four, of which one is held.

    Args:
        store: What their processes have of it.
        etcd: The cluster.
        prefix: Below which it is.
    """

    def __init__(self, store: Access, etcd: EtcdServer, prefix: str) -> None:
        self._store = store
        self._endpoints, self._prefix = etcd.endpoints, prefix
        self._queue: list[str] = []
        store.acquire("holder", ONE)

    def begin(self, claim_key: str, request: Request) -> Future[tuple[Lease, ...]]:
        """Have somebody wait, as if in a process of its own, as the last."""
        pending = Access(self._endpoints, self._prefix).begin(claim_key, request)
        self._await_in_queue(claim_key, len(self._queue))
        return pending

    def begin_process(self, claim_key: str, request: Request) -> int:
        """The same in a real process, whose id this is."""
        pid = fork(lambda: Access(self._endpoints, self._prefix).acquire(claim_key, request))
        self._await_in_queue(claim_key, len(self._queue))
        return pid

    def begin_first(self, claim_key: str, request: Request) -> Future[tuple[Lease, ...]]:
        """The same as the first, by its priority."""
        pending = Access(self._endpoints, self._prefix).begin(claim_key, request)
        self._await_in_queue(claim_key, 0)
        return pending

    def _await_in_queue(self, claim_key: str, index: int) -> None:
        self._queue.insert(index, claim_key)
        eventually(lambda: self._store.queue() == self._queue)

    def leave(self, claim_key: str) -> None:
        """Expect one no longer that has got its leases."""
        self._queue.remove(claim_key)

    def withdraw(self, claim_key: str) -> None:
        self._queue.remove(claim_key)
        self._store.engine.withdraw(claim_key)


@pytest.fixture
def waiting(store: Access, etcd: EtcdServer, prefix: str) -> Waiting:
    return Waiting(store, etcd, prefix)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who has looked at a queue, each time."""
    seen: list[str] = []

    def note(gateway: Any, keys: Any, ticket: Any, *args: Any, **options: Any) -> Any:
        seen.append(ticket.claimant.claim_key)
        return look(gateway, keys, ticket, *args, **options)

    monkeypatch.setattr("leasectl.engines.etcd.queues.queues.look", note)
    return seen


class TestGlance:
    def test_who_is_next_need_not_look_where_enough_is_free(
        self, waiting: Waiting, store: Access, looks: list[str]
    ) -> None:
        """Once in some tries: who is stopped just before it sleeps looks all the same."""
        counts = []
        for number in range(5):
            ahead, key = f"first-{number}", f"me-{number}"
            first, me = waiting.begin(ahead, ALL), waiting.begin(key, ONE)
            waiting.withdraw(ahead)
            assert len(result_of(me)) == 1
            with pytest.raises(Withdrawn):
                result_of(first)
            counts.append(looks.count(key))
            waiting.leave(key)
            store.engine.free(key)
        assert 0 in counts

    def test_who_was_behind_the_one_before_is_not_passed(
        self, waiting: Waiting, store: Access, looks: list[str]
    ) -> None:
        first, _, me = (
            waiting.begin(*each) for each in (("first", ALL), ("second", ONE), ("me", ONE))
        )
        waiting.withdraw("second")
        eventually(lambda: "me" in looks)
        assert store.grants() == 1
        store.engine.free("holder")
        assert len(result_of(first)) == 4
        store.engine.free("first")
        assert result_of(me)[0].grant == 3

    def test_where_too_little_is_free_it_looks_and_waits(
        self, waiting: Waiting, store: Access, looks: list[str]
    ) -> None:
        first, me = waiting.begin("first", ALL), waiting.begin("me", ONE)
        store.engine.free("holder")
        assert len(result_of(first)) == 4
        eventually(lambda: "me" in looks)
        assert store.queue() == ["me"]
        store.engine.free("first")
        assert result_of(me)[0].grant == 3

    def test_a_waiter_that_died_is_told_of_by_who_was_behind_it(
        self, waiting: Waiting, store: Access, looks: list[str]
    ) -> None:
        pid = waiting.begin_process("first", ALL)
        me = waiting.begin("me", ONE)
        os.kill(pid, signal.SIGKILL)  # it would queue again, and be told of itself
        ending(pid)
        (found,) = store.gateway.read(read_all(store.keys.tickets("T"))).answers
        first = min(found.items, key=lambda kv: kv.create_revision)
        store.gateway.revoke(first.etcd_lease_id)
        assert len(result_of(me)) == 1
        assert "me" in looks
        store.engine.free("me")
        assert [key for key in keys_left(store) if key.startswith("queued")] == []

    def test_somebody_better_who_came_meanwhile_is_not_passed(
        self, waiting: Waiting, store: Access, looks: list[str]
    ) -> None:
        waiting.begin("first", ALL)
        me = waiting.begin("me", ONE)
        better = waiting.begin_first("better", ALL._replace(priority=5))
        waiting.withdraw("first")
        eventually(lambda: "me" in looks)
        assert store.grants() == 1
        store.engine.free("holder")
        assert [each.grant for each in result_of(better)] == 4 * [2]
        store.engine.free("better")
        assert result_of(me)[0].grant == 3

    @pytest.mark.parametrize(
        "request_", [Request("T", name="T--1"), Request("T", where=(("a", "1", False),))]
    )
    def test_whoever_wants_something_in_particular_looks(
        self, waiting: Waiting, looks: list[str], request_: Request
    ) -> None:
        waiting.begin("first", ALL)
        me = waiting.begin("me", request_)
        looks.clear()
        waiting.withdraw("first")
        assert len(result_of(me)) == 1
        assert "me" in looks
