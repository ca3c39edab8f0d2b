"""What objects say is read back, and whatever anybody makes of them is no crash."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from leasectl.engines.cluster.changes import (
    claimed,
    new_pool,
    new_resource,
    new_ticket,
    released,
    renewed_ticket,
    revoked,
    with_belonging,
)
from leasectl.engines.cluster.objects import (
    BelongingObject,
    Claim,
    Found,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.facts import PoolSettings
from leasectl.engines.kubernetes.edited import as_it_counts
from leasectl.engines.kubernetes.encoding import body_of, new_expectations, parse_object
from leasectl.engines.kubernetes.names import (
    EXPECT,
    KIND,
    OBJECT_OF_BELONGING,
    new_ticket_object,
    object_of_pool,
    object_of_resource,
)
from leasectl.engines.rules.membership import Lifetime, Member, Pools
from leasectl.model import Claimant, Request
from leasectl.system.process import this_process

MEMBER = Member(
    "T--00",
    "T",
    expected="T",
    by_default=True,
    cordoned=True,
    leaves=True,
    lifetime=Lifetime(this_process(), None),
    joined=3,
    properties=(("region", "eu"), ("size", "big")),
)
CLAIM = Claim(
    claim_key="state/handle/1",
    ticket="leasectl-ticket-1",
    place=7,
    grant=9000,
    fence=9001,
    holder_identity="job/1/host/handle",
    acquire_time=1_700_000_000.123456,
    renew_time=1_700_000_000.123456,
    renewed="2023-11-14T22:13:20.123456Z",
    ttl_seconds=10.5,
    transitions=4,
    labels=(("pr", "7"), ("note", "two\u00e9 words")),
    holder_pid=77,
    release_after_seconds=1200.0,
)


def as_read(
    new: Found | dict[str, Any], version: int = 12, seen: Found | None = None
) -> dict[str, Any]:
    """An object as a server answers it."""
    body = new if isinstance(new, dict) else body_of(new, seen)
    raw: dict[str, Any] = json.loads(json.dumps(body))
    raw["metadata"].update(uid="uid-1", resourceVersion=str(version), namespace="ns")
    return raw


def the_resource(raw: dict[str, Any]) -> ResourceObject:
    found = parse_object(raw)
    assert isinstance(found, ResourceObject), found
    return found


def free(member: Member, *, grace_seconds: float = 0.0) -> dict[str, Any]:
    """A name that nobody holds, as a server answers it."""
    name = object_of_resource(member.name)
    return as_read(new_resource(name, member, grace_seconds=grace_seconds))


def held_as(raw: dict[str, Any]) -> dict[str, Any]:
    """The same with a claim."""
    seen = the_resource(raw)
    return as_read(claimed(seen, CLAIM), 13, seen)


def a_ticket() -> TicketObject:
    request = Request("T", 2, labels=(("a", "b"),), priority=3, where=(("region", "eu", False),))
    claimant = Claimant("handle/1", "job/1/host/handle", request, this_process())
    return new_ticket(
        new_ticket_object(), claimant, "state/handle/1", ttl_seconds=60.0, wall=1.7e9, life=""
    )


def all_kinds() -> list[dict[str, Any]]:
    resource = free(MEMBER, grace_seconds=30.0)
    held = held_as(resource)
    seen = the_resource(held)
    return [
        resource,
        held,
        as_read(revoked(seen, "by an admin"), 14, seen),
        as_read(a_ticket()),
        as_read(a_pool()),
        as_read(belonging(Pools(frozenset(), "T", 30.0, {"edge-*": "T"}))),
        as_read(new_expectations({"edge-*": "T"})),
    ]


def a_pool() -> PoolObject:
    return new_pool(object_of_pool("T"), "T", PoolSettings(20.0, 3, 1800.0))


def belonging(pools: Pools, before: BelongingObject | None = None) -> BelongingObject:
    return with_belonging(before, OBJECT_OF_BELONGING, pools)


class TestWhatIsWritten:
    def test_of_a_claim_is_read_back(self) -> None:
        raw = held_as(free(Member("T--00", "T")))
        held = the_resource(raw)
        assert held.claim == CLAIM
        assert (held.fence, held.last_holder, held.transitions) == (9001, "job/1/host/handle", 4)
        assert raw["spec"]["leaseDurationSeconds"] == 11  # never less
        assert raw["spec"]["leaseTransitions"] == 4

    def test_of_a_release_leaves_what_the_next_claim_needs(self) -> None:
        held = the_resource(held_as(free(Member("T--00", "T"))))
        raw = as_read(released(held, held.member._replace(holder=None)), 14, held)
        released_one = the_resource(raw)
        assert (released_one.claim, released_one.fence, released_one.transitions) == (None, 9001, 4)
        assert not {"holderIdentity", "leaseDurationSeconds", "renewTime"} & raw["spec"].keys()

    def test_by_others_stays(self) -> None:
        raw = free(Member("T--00", "T"))
        raw["metadata"]["annotations"]["example.com/note"] = "mine"
        raw["metadata"]["labels"]["example.com/label"] = "mine"
        raw["metadata"]["finalizers"] = ["example.com/finalizer"]
        seen = the_resource(raw)
        body = body_of(claimed(seen, CLAIM), seen)
        assert body["metadata"]["annotations"]["example.com/note"] == "mine"
        assert body["metadata"]["labels"]["example.com/label"] == "mine"
        assert body["metadata"]["finalizers"] == ["example.com/finalizer"]
        assert body["metadata"]["managedFields"] == [{}]

    def test_a_ticket_keeps_its_place_when_it_is_renewed_or_edited(self) -> None:
        found = parse_object(as_read(a_ticket(), 55))
        assert isinstance(found, TicketObject)
        raw = as_read(renewed_ticket(found, wall=1.7e9 + 20, counts_as=5), 70, found)
        renewed = parse_object(raw)
        assert isinstance(renewed, TicketObject)
        assert (renewed.place, renewed.counts_as) == (55, 5)
        assert renewed.mark != found.mark
        raw["metadata"]["annotations"]["leasectl.dev/place"] = "99999"
        edited = parse_object(raw)
        assert isinstance(edited, TicketObject)
        assert edited.place == 70

    def test_of_a_manifest_is_a_pending_change_of_what_is_there(self) -> None:
        made = parse_object(as_read(new_expectations({"gpu-3": "T"})))
        assert isinstance(made, BelongingObject)
        assert made.pools == Pools(frozenset())
        assert made.pending == Pools(frozenset(), patterns={"gpu-3": "T"})
        pools = Pools(frozenset(), "U", 30.0, {"edge-*": "T", "gpu-3": "U"})
        raw = as_read(belonging(pools))
        raw["metadata"]["annotations"][EXPECT] = '{"gpu-3": "T"}'  # kubectl adds it
        applied = parse_object(raw)
        assert isinstance(applied, BelongingObject)
        pending = pools._replace(patterns={"edge-*": "T", "gpu-3": "T"})
        assert (applied.pools, applied.pending) == (pools, pending)
        settled = as_read(belonging(pending, applied), 13, applied)
        assert EXPECT not in settled["metadata"]["annotations"]
        said = parse_object(settled)
        assert isinstance(said, BelongingObject)
        assert (said.pools, said.pending) == (pending, None)

    def test_of_a_manifest_is_found_also_without_its_label(self) -> None:
        raw = as_read(new_expectations({"gpu-3": "T"}))
        label = raw["metadata"]["labels"].pop(KIND)
        body = as_it_counts(raw)
        assert body is not None
        assert body["metadata"]["labels"][KIND] == label


class TestWhatOthersWrite:
    def test_a_lease_of_another_program_is_nothing_of_ours(self) -> None:
        raw = {"metadata": {"name": "kube-scheduler", "resourceVersion": "1"}, "spec": {}}
        assert parse_object(raw) is None

    def test_a_holder_without_a_claim_is_somebody_else(self) -> None:
        raw = free(Member("T--00", "T"))
        raw["spec"] = {"holderIdentity": "me", "leaseDurationSeconds": 15}
        held = the_resource(raw)
        assert held.claim is not None
        assert (held.claim.claim_key, held.claim.holder_identity) == ("", "me")
        assert held.claim.ttl_seconds == 15

    def test_who_takes_the_holder_out_by_hand_takes_no_claim_away(self) -> None:
        raw = held_as(free(Member("T--00", "T")))
        raw["spec"] = {"holderIdentity": "", "leaseDurationSeconds": 1}
        assert the_resource(raw).claim == CLAIM

    @pytest.mark.parametrize("name", ["T--01", "t--00"])
    def test_what_says_that_it_is_another_is_unreadable(self, name: str) -> None:
        raw = free(Member("T--00", "T"))
        raw["metadata"]["annotations"]["leasectl.dev/name"] = name
        found = parse_object(raw)
        assert isinstance(found, Unreadable)
        assert name in found.why

    def test_what_has_the_label_of_another_pool_is_in_none(self) -> None:
        raw = free(Member("T--00", "T"))
        raw["metadata"]["labels"]["leasectl.dev/pool"] = "U"
        found = parse_object(raw)
        assert found is not None
        view = PoolView("U").fill([found], 20)
        assert (view.resources, len(view.unreadable)) == ({}, 1)

    def test_a_ticket_that_cant_be_read_could_use_anything_for_a_while(self) -> None:
        raw = as_read(a_ticket(), 55)
        raw["metadata"]["annotations"]["leasectl.dev/ticket"] = "{"
        found = parse_object(raw)
        assert isinstance(found, TicketObject)
        assert (found.place, found.want.is_particular, found.ttl_seconds) == (55, False, 60.0)

    def test_whatever_it_is_it_is_no_crash(self) -> None:
        chance = random.Random(3)
        kinds = all_kinds()
        read = 0
        for _ in range(6000):
            raw = copy.deepcopy(chance.choice(kinds))
            for _ in range(chance.randint(1, 2)):
                _spoil(raw, chance)
            found = parse_object(raw)
            read += found is not None and not isinstance(found, Unreadable)
            view = PoolView("T").fill([found] if found else [], 100)
            assert view.version == 100
        assert 1000 < read < 5900  # or nothing was spoilt, or all of it


def _spoil(value: Any, chance: random.Random) -> None:
    """Change something somewhere in an object."""
    junk: list[Any] = [
        None,
        0,
        -1,
        10**30,
        1.5,
        float("nan"),
        "",
        "x",
        "{",
        "[]",
        "\x1b[2J",
        [],
        {},
        True,
    ]
    while isinstance(value, (dict, list)) and value:
        key = (
            chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        )
        if isinstance(value[key], (dict, list)) and value[key] and chance.random() < 0.8:
            value = value[key]
            continue
        text = value[key]
        if isinstance(text, str) and len(text) > 2 and text[0] in "{[" and chance.random() < 0.7:
            inner = json.loads(text)
            _spoil(inner, chance)
            value[key] = json.dumps(inner)
        elif isinstance(value, dict) and chance.random() < 0.3:
            del value[key]
        else:
            value[key] = chance.choice(junk)
        return
