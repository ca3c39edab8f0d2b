"""Requests to etcd that are lost, before or after they are carried out; against a real server."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Callable

import pytest

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import Json, Outcome, read_all
from leasectl.engines.values import ValueChange
from leasectl.errors import (
    BackendUnreachable,
    NoLease,
    NotAllowed,
)
from leasectl.model import Request
from leasectl.system.clock import boottime_seconds
from tests.kit.etcd.access import NAMES, SHORT, Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.killing import Victim, each_answer_lost
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.relay import Relay
from tests.kit.support import ManualClock
from tests.kit.waits import eventually


def whole_story(access: Access) -> None:
    """Everything that a holder does with leases, and what comes of it."""
    leases = access.acquire("me", Request("T", count=3, ttl_seconds=60), wait=0)
    assert [lease.name for lease in leases] == NAMES[:3]
    assert {lease.grant for lease in leases} == {1}
    assert access.engine.renew("me") == tuple(NAMES[:3])
    assert access.engine.renew("me", ttl_seconds=90) == tuple(NAMES[:3])
    assert access.engine.renew("me") == tuple(NAMES[:3])
    assert access.engine.free("me", NAMES[:1]) == (NAMES[0],)
    assert access.engine.free("me") == tuple(NAMES[1:3])
    (named,) = access.acquire("me", Request("T", name=NAMES[1]), wait=0)
    assert named.grant == 2
    assert access.engine.renew("me") == (NAMES[1],)
    with pytest.raises(NoLease):
        access.acquire("other", Request("T", count=4), wait=0)
    assert access.engine.free("me") == (NAMES[1],)


def story_of(access: Access) -> list[tuple[str, list[str], str]]:
    """What is told of it: what happened, to which resources, by whom."""
    return [(event.kind, list(event.names), event.by) for event in access.events.read()]


def end_early(access: Access, *names: str) -> None:
    assert access.pools.end_early("me", names, guard=None, reason="by an admin") == names


class TestLostAnswers:
    def test_whichever_answer_is_lost_the_story_is_the_same(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        for losing in each_answer_lost(between, more_than=20):
            place = f"{prefix}/{losing.number}"
            direct = Access(etcd.endpoints, place)
            direct.pools.create_pool("T", NAMES)
            losing.begin()
            through = Access([between.endpoint], place)
            whole_story(through)
            assert (through.lost, keys_left(direct), direct.held()) == ([], [], []), losing.number
            assert story_of(direct)[1:] == [
                ("queued", [], ""),
                ("granted", NAMES[:3], ""),
                ("released", NAMES[:1], "command"),
                ("released", NAMES[1:3], "command"),
                ("queued", [NAMES[1]], ""),
                ("granted", [NAMES[1]], ""),
                ("queued", [], ""),
                ("gave up", [], ""),
                ("released", [NAMES[1]], "command"),
            ], losing.number

    def test_whichever_answer_is_lost_a_pool_is_changed_once(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        for losing in each_answer_lost(between, more_than=12):
            place = f"{prefix}/{losing.number}"
            direct = Access(etcd.endpoints, place)
            losing.begin()
            through = Access([between.endpoint], place)
            through.pools.create_pool("T", NAMES)
            direct.acquire("me", Request("T", name=NAMES[0]))
            add_resources(through.members, "T", ["T--4", "T--5"])
            remove_resources(through.members, "T", [NAMES[1], NAMES[0]], force=True)
            names = [resource.name for resource in through.pool().resources]
            assert names == [*NAMES[2:], "T--4", "T--5"], losing.number
            assert through.lost == [("me", (NAMES[0],))], losing.number
            through.pools.delete_pool("T", force=False)
            (found,) = direct.gateway.read(read_all(direct.keys.prefix, keys_only=True)).answers
            kinds = {kv.key[len(direct.keys.prefix) :].split("/")[0] for kv in found.items}
            assert kinds == {"event", "bucket"}, losing.number
            assert story_of(direct) == [
                ("pool made", NAMES, ""),
                ("queued", NAMES[:1], ""),
                ("granted", NAMES[:1], ""),
                ("pool changed", ["T--4", "T--5"], ""),
                ("lost", NAMES[:1], "removal"),
                ("released", NAMES[:1], "removal"),
                ("pool changed", [NAMES[1], NAMES[0]], ""),
                ("pool deleted", names, ""),
            ], losing.number

    def test_whichever_answer_is_lost_what_is_taken_by_force_is_taken_once_and_kept(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        for losing in each_answer_lost(between, more_than=4):
            place = f"{prefix}/{losing.number}"
            direct = Access(etcd.endpoints, place)
            direct.pools.create_pool("T", NAMES)
            direct.acquire("me", Request("T", count=3, ttl_seconds=60))
            losing.begin()
            through = Access([between.endpoint], place)
            end_early(through, NAMES[0])
            end_early(through, *NAMES[1:3])
            assert sum((names for _, names in through.lost), ()) == tuple(NAMES[:3]), losing.number
            assert direct.engine.renew("me") == ()
            assert direct.held() == NAMES[:3]
            direct.engine.free("me")
            assert (keys_left(direct), direct.held()) == ([], []), losing.number
            assert story_of(direct)[3:] == [
                ("lost", NAMES[:1], "force"),
                ("lost", NAMES[1:3], "force"),
                ("released", NAMES[:3], "force"),
            ], losing.number

    def test_who_has_not_answered_can_be_left_alone_for_a_while(self, between: Relay) -> None:
        time = ManualClock()
        gateway = Gateway(
            EtcdAddress((between.endpoint,)),
            clock=time.clock,
            deadline_seconds=1.0,
            rest_seconds=5.0,
            pause=time.advance,
        )
        between.cut()
        with pytest.raises(BackendUnreachable, match="no answer from etcd within 1s") as first:
            gateway.read()
        between.mend()
        time.advance(4.9)
        with pytest.raises(BackendUnreachable) as second:
            gateway.read()
        assert str(second.value) == str(first.value)
        assert between.paths == []
        time.advance(0.2)
        gateway.read()
        assert len(between.paths) == 1

    def test_what_is_no_etcd_is_named(self, between: Relay, prefix: str) -> None:
        access = Access([between.endpoint + "/nowhere"], prefix, seconds=1.0)
        with pytest.raises(BackendUnreachable, match=r"404.*etcd"):
            access.acquire("me", Request("T"))


def lost_before(between: Relay, number: int, happens: Callable[[], object]) -> None:
    """Have a request be lost, counted from here, after something else has happened."""
    lost = len(between.paths) + number

    def lose(at: int, _path: str) -> None:
        if at == lost:
            happens()
            between.cut()
            between.mend()

    between.listen(before=lose)


def test_what_is_kept_for_a_time_stays_kept_although_its_writer_was_never_told(
    store: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, numbers = store.gateway.commit, itertools.count(1)

    def commit_and_be_away(*parts: Sequence[Json]) -> Outcome:
        outcome = commit(*parts)
        if next(numbers) == 2:
            raise BackendUnreachable("it was away for too long")
        return outcome

    with monkeypatch.context() as patch, pytest.raises(BackendUnreachable, match="too long"):
        patch.setattr(store.gateway, "commit", commit_and_be_away)
        store.values.change([ValueChange("t/a/x", b"1", keep_seconds=60)])
    (found,) = store.values.read("t/")
    assert found.content == b"1"


class TestOvertaken:
    """A request is lost before it is carried out, and somebody else is faster than the next try."""

    def test_a_release_is_not_taken_for_anothers(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=2, ttl_seconds=60))
        slow = Access([between.endpoint], prefix)
        told: list[tuple[str, ...]] = []
        lost_before(between, 3, lambda: told.append(store.engine.free("holder")))  # after two looks
        told.append(slow.engine.free("holder"))
        assert told == [tuple(NAMES[:2]), ()]

    def test_a_pool_that_has_come_into_use_is_not_said_to_be_deleted(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        slow = Access([between.endpoint], prefix)
        lost_before(between, 3, lambda: store.acquire("holder", Request("T")))
        with pytest.raises(NotAllowed, match="in use"):
            slow.pools.delete_pool("T", force=False)
        assert store.held() == [NAMES[0]]


class TestGrantedLate:
    def test_a_claim_that_is_told_of_after_its_ttl_is_given_back(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        def hold_back(_number: int, _path: str) -> None:
            if store.held():
                between.listen()  # that one, and none after it
                # It may have the next one at once.
                eventually(lambda: store.held() == [] or store.grants() > 1, what="it has run out")

        late = Access([between.endpoint], prefix)
        between.listen(after=hold_back)
        # It has queued again for another, as who was stopped does.
        (lease,) = late.acquire("late", Request("T", ttl_seconds=SHORT))
        assert (lease.grant, store.held()) == (2, [lease.name])
        late.engine.free("late")
        assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4


def test_what_was_to_be_taken_by_force_lasts_for_as_long_as_it_would_have_whoever_is_killed(
    etcd: EtcdServer, between: Relay, prefix: str
) -> None:
    """At each of its requests, when it is done and nobody has heard of it."""
    renewed: list[tuple[Access, float]] = []
    fatal, is_killed = 0, True
    while is_killed:
        fatal += 1
        store = Access(etcd.endpoints, f"{prefix}/{fatal}")
        store.pools.create_pool("T", NAMES[:1])
        store.acquire("me", Request("T", ttl_seconds=SHORT))
        renewed.append((store, boottime_seconds()))
        store.engine.renew("me")
        force = Access([between.endpoint], store.keys.prefix)
        victim = Victim(between, "after", fatal)
        is_killed = victim.run(lambda f=force: end_early(f, NAMES[0]))  # type: ignore[misc]
    assert fatal > 4
    for store, sent_at in renewed:
        store.acquire("next", Request("T"), wait=20)
        assert boottime_seconds() - sent_at >= SHORT
        store.engine.free("next")
