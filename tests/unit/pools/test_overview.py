"""What is shown and counted of pools: merged with the records, written as JSON and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.rules.membership import Cordon, Lifetime, Member
from leasectl.errors import CorruptState
from leasectl.leases.marks import encode_mark, new_mark
from leasectl.model import Handle, Lease, Process, Request
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.overview import (
    NOTHING_SAID,
    Holder,
    Overview,
    ShownLease,
    ShownMark,
    ShownMembership,
    parse_holder,
)
from leasectl.pools.overview_builder import OverviewBuilder
from leasectl.pools.overview_json import (
    are_counts,
    encode_counts,
    encode_overview,
    parse_counts,
    parse_overview,
)
from leasectl.system.clock import Clock
from leasectl.system.process import own_pid_namespace, this_process

NOW = 1_700_000_000.0
BOOTTIME = 5_000.0
CLOCK = Clock(elapsed=lambda: BOOTTIME, wall=lambda: NOW)
IDENTITY = "periodic-e2e/1894762183746583552/pod-7/T-aB3xYz"
LEASE = Lease("T--00", 4, 3, 2, IDENTITY, NOW - 60, NOW - 5, 30.0, 1, (("team", "x=y"),))
FOREIGN = Resource("T--00", LEASE, "@elsewhere/T-aB3xYz/1", 25.0, 4711, 1200.0)
GUARD = Process("boot", own_pid_namespace(), 4711, 1)
RUN = Process("boot", own_pid_namespace(), 4700, 1)
HANDLE = Handle(
    "T-aB3xYz",
    "etcd://x",
    Request("T", ttl_seconds=30.0),
    "periodic-e2e/1894762183746583552",
    IDENTITY,
    "held",
    1,
)


def shown(resource: Resource, handle: Handle | None = None, *, shared: bool = True) -> ShownLease:
    handles = {} if handle is None else {resource.claim_key or "": handle}
    pool = OverviewBuilder(handles, {}, {}, shared=shared, clock=CLOCK).pool(
        Pool("T", (resource,), ())
    )
    lease = pool.resources[0].lease
    assert lease is not None
    return lease


class TestHolder:
    def test_of_a_job(self) -> None:
        assert parse_holder(IDENTITY) == Holder(
            identity=IDENTITY,
            owner="periodic-e2e/1894762183746583552",
            job="periodic-e2e",
            build="1894762183746583552",
            host="pod-7",
            handle="T-aB3xYz",
        )

    def test_of_a_person(self) -> None:
        identity = "me@laptop/laptop/T-aB3xYz"
        assert parse_holder(identity) == Holder(
            identity, "me@laptop", None, None, "laptop", "T-aB3xYz"
        )

    @pytest.mark.parametrize("identity", ["", "/", "//", "one", "a/b", "a/b/c/d/e/f", "///x"])
    def test_of_nobody_of_ours_it_fails_for_none(self, identity: str) -> None:
        assert parse_holder(identity).identity == identity


class TestOfAnotherStateDirectory:
    def test_it_is_what_the_store_tells(self) -> None:
        lease = shown(FOREIGN)
        assert (lease.guard, lease.guard_pid, lease.pid) == ("unknown", None, 4711)
        assert (lease.expires_in_seconds, lease.renewed_by) == (25.0, None)
        assert lease.release_time == NOW - 60 + 1200

    def test_a_release_that_should_be_over_was_put_off(self) -> None:
        assert shown(FOREIGN._replace(release_after_seconds=59.0)).release_time is None

    def test_a_pool_of_this_directory_alone_has_no_such_lease(self) -> None:
        lease = shown(FOREIGN, shared=False)
        assert (lease.guard, lease.renewed_by) == ("none", "nobody")


class TestWithItsRecord:
    def test_an_unguarded_one_is_renewed_by_the_keeper(self) -> None:
        lease = shown(FOREIGN, HANDLE)
        assert (lease.guard, lease.guard_pid, lease.pid) == ("none", None, None)
        assert (lease.renewed_by, lease.release_time) == ("keeper", None)

    def test_run_comes_before_its_guard_and_renews(self) -> None:
        lease = shown(FOREIGN, HANDLE._replace(guard=GUARD, runner=RUN))
        assert (lease.guard, lease.guard_pid, lease.pid) == ("here", 4711, 4700)
        assert lease.renewed_by == "keeper"  # which follows a run that has ended
        living = shown(FOREIGN, HANDLE._replace(guard=GUARD, runner=this_process()))
        assert living.renewed_by == "run"

    def test_nobody_renews_a_lease_of_a_whole_test(self) -> None:
        request = HANDLE.request._replace(scope="test")
        assert shown(FOREIGN, HANDLE._replace(request=request)).renewed_by == "nobody"

    def test_a_guard_in_another_pid_namespace_is_elsewhere(self) -> None:
        lease = shown(FOREIGN, HANDLE._replace(guard=GUARD._replace(pid_namespace=1)))
        assert (lease.guard, lease.guard_pid) == ("elsewhere", 4711)

    def test_the_time_of_its_release_is_that_of_the_timer(self) -> None:
        lease = shown(FOREIGN, HANDLE._replace(release_at=BOOTTIME + 90))
        assert lease.release_time == NOW + 90

    def test_what_a_client_of_serve_may_not_know_of_is_unconfirmed(self) -> None:
        assert shown(FOREIGN, HANDLE._replace(served=True, unconfirmed=True)).unconfirmed


WAITING = (
    QueueEntry(7, "pr-e2e/18/pod-8/T-Qw8rTy", 2, NOW - 3, "k", 99, None, (("why", "test"),)),
    QueueEntry(8, "me@laptop/laptop/T-zzzzzz", 1, NOW - 1.25, "l", None, "T--00"),
    QueueEntry(9, "me@laptop/laptop/T-yyyyyy", 1, NOW, "m", where=(("a", "b=c", True),)),
)
CORDONED = Member(
    "T--02",
    "T",
    cordoned=True,
    expected="T",
    properties=(("a", "b=c"), ("z", "")),
    cordon=Cordon("me@laptop/laptop", NOW - 60, "disk full"),
)
LEAVING = Member(
    "T--00",
    "T",
    moves_to="U",
    leaves=True,
    lifetime=Lifetime(process=GUARD, ttl_seconds=60.0),
    properties=(("a", "ü"),),
)
MARK = new_mark("me@there", seconds=180.0, now=NOW).answered("keep")


def overview() -> Overview:
    resources = (
        FOREIGN._replace(member=LEAVING, note=encode_mark(MARK), leaves_in_seconds=12.5),
        Resource("T--01"),
        FOREIGN._replace(claim_key="mine", note="no mark"),
        Resource("T--02", member=CORDONED),
        Resource("T--03", member=Member("T--03", "T", by_default=True), held_back_seconds=3.0),
    )
    handle = HANDLE._replace(release_at=BOOTTIME + 90, guard=GUARD, served=True, unconfirmed=True)
    pool = OverviewBuilder({"mine": handle}, {}, {}, shared=True, clock=CLOCK).pool(
        Pool("T", resources, WAITING, default_grace_seconds=120.0)
    )
    return Overview("etcd://x", NOW, (pool,))


def read_back(fields: Any) -> Overview:
    return parse_overview(json.loads(json.dumps(fields)), backend="http://there")


class TestJson:
    def test_it_reads_what_it_has_written(self) -> None:
        assert read_back(encode_overview(overview())) == overview()._replace(backend="http://there")

    def test_a_free_resource_has_the_same_keys_as_a_held_one(self) -> None:
        held, free, *_ = encode_overview(overview())["pools"][0]["resources"]  # type: ignore[index]
        assert list(held) == list(free)
        own = {"properties": {}, "membership": NOTHING_SAID._asdict(), "in_use": False}
        assert free == {**dict.fromkeys(held), "name": "T--01", "state": "free", **own}

    def test_an_older_version_says_nothing_of_memberships(self) -> None:
        fields: Any = json.loads(json.dumps(encode_overview(overview())))
        del fields["pools"][0]["default_grace_seconds"]
        for waiter in fields["pools"][0]["queue"]:
            del waiter["where"]
        for resource in fields["pools"][0]["resources"]:
            del resource["membership"], resource["properties"], resource["mark"]
        pool = read_back(fields).pools[0]
        assert {each.membership for each in pool.resources} == {NOTHING_SAID}
        assert (pool.default_grace_seconds, pool.queue[2].where) == (None, ())

    def test_the_state_of_what_nobody_gets_says_why(self) -> None:
        fields: Any = encode_overview(overview())["pools"][0]  # type: ignore[index]
        assert [each["state"] for each in fields["resources"]][3:] == ["cordoned", "held back"]
        assert [fields[each] for each in ("capacity", "free", "held")] == [5, 1, 2]

    def test_what_a_newer_version_adds_is_ignored(self) -> None:
        fields: Any = json.loads(json.dumps(encode_overview(overview())))
        fields["more"] = fields["pools"][0]["more"] = [1]
        fields["pools"][0]["resources"][0]["guard"] = "a new kind"
        fields["pools"][0]["resources"][0]["renewed_by"] = "a new kind"
        found = read_back(fields).pools[0].resources[0].lease
        assert found is not None
        assert (found.guard, found.renewed_by) == ("unknown", None)

    def test_hostile_text_is_made_safe_to_show(self) -> None:
        fields: Any = json.loads(json.dumps(encode_overview(overview())))
        fields["pools"][0]["queue"][0]["holder_identity"] = "\x1b[2J\u202e/\n" * 1000
        fields["pools"][0]["queue"][0]["labels"] = {"\x1b": "\r\n"}
        waiter = read_back(fields).pools[0].queue[0]
        assert waiter.holder.identity.isprintable()
        assert len(waiter.holder.identity) <= 2000
        assert waiter.labels == (("\\x1b", "\\r\\n"),)

    @pytest.mark.parametrize(
        ("where", "what"),
        [
            (("pools",), None),
            (("pools", 0, "type"), "a;b\x1b"),
            (("pools", 0, "resources", 0, "name"), "../x"),
            (("pools", 0, "resources", 0, "acquire_time"), "yesterday"),
            (("pools", 0, "resources", 0, "labels"), [1]),
            (("pools", 0, "resources", 0, "expires_in_seconds"), float("inf")),
            (("pools", 0, "resources", 0, "properties"), {"../x": "y"}),
            (("pools", 0, "resources", 0, "membership", "moves_to"), "a;b"),
            (("pools", 0, "resources", 0, "mark"), "yes"),
            (("pools", 0, "queue", 0, "where"), ["x"]),
            (("pools", 0, "queue", 0, "count"), {}),
            (("pools", 0, "queue", 0), "text"),
            (("at",), 5),
        ],
    )
    def test_what_no_version_writes_is_refused(self, where: tuple[Any, ...], what: object) -> None:
        fields: Any = json.loads(json.dumps(encode_overview(overview())))
        inner = fields
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = what
        with pytest.raises(CorruptState, match="http://there: what it tells of its pools"):
            read_back(fields)


class TestMembership:
    def test_is_what_the_store_tells(self) -> None:
        first, second, other, cordoned, held_back = overview().pools[0].resources
        assert first.membership == ShownMembership(
            moves_to="U", leaves=True, ttl_seconds=60.0, leaves_in_seconds=12.5, pid=4711
        )
        assert first.mark == ShownMark("keep", "me@there")
        assert (second.membership, second.is_unavailable, other.mark) == (NOTHING_SAID, False, None)
        assert (cordoned.properties, cordoned.is_unavailable) == ((("a", "b=c"), ("z", "")), True)
        assert (held_back.membership.held_back_seconds, held_back.is_unavailable) == (3.0, True)


class TestWhatHasChanged:
    def test_time_alone_changes_nothing(self) -> None:
        before = overview()
        lease = shown(FOREIGN)
        later = lease._replace(
            expires_in_seconds=24.0,
            lease=lease.lease._replace(renew_time=NOW),
        )
        pool = before.pools[0]
        resources = (pool.resources[0]._replace(lease=later), *pool.resources[1:])
        after = before._replace(at=NOW + 1, pools=(pool._replace(resources=resources),))
        assert after != before
        assert after.timeless() == before.timeless()

    def test_what_is_no_longer_held_back_is_a_change(self) -> None:
        before = overview()
        pool = before.pools[0]
        resources = (*pool.resources[:4], pool.resources[4]._replace(membership=NOTHING_SAID))
        changed = before._replace(pools=(pool._replace(resources=resources),))
        assert changed.timeless() != before.timeless()


COUNTS = Counts(
    "boskos+http://b",
    1_700_000_000.0,
    (
        CountedType(
            "T",
            1,
            {"dirty": 1, "free": 1, "leased": 3},
            (
                CountedOwner("job/1/host/T-abcdef/7", 2, "T-abcdef", ("a", "b"), 1_690_000_000.0),
                CountedOwner("somebody", 1),
            ),
            4,
            (CountedLoss("c", "job/1/host/T-ghijkl", 1_695_000_000.0),),
        ),
    ),
)


def test_it_reads_back_what_it_writes() -> None:
    told = encode_counts(COUNTS)
    assert are_counts(told)
    assert parse_counts(told, backend="http://s") == COUNTS._replace(backend="http://s")


def test_what_somebody_has_is_held() -> None:
    (found,) = COUNTS.types
    assert (found.capacity, found.held, found.free) == (5, 3, 1)


@pytest.mark.parametrize(
    "told", [None, [], "x", {}, {"backend": 1}, {"backend": "x:"}, {"backend": "etcd://e:1"}]
)
def test_what_only_a_pool_or_nobody_tells_is_no_count(told: object) -> None:
    assert not are_counts(told)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "../T"),
        ("free", "many"),
        ("states", ["free"]),
        ("owners", [{"owner": "o"}]),
        ("waiting", None),
        ("lost", [{"name": "a b", "holder_identity": "", "at": ""}]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field: str, value: object) -> None:
    told: Any = encode_counts(COUNTS)
    told["pools"][0][field] = value
    with pytest.raises(CorruptState, match="can't be read") as raised:
        parse_counts(told, backend="http://s")
    assert "\n" not in str(raised.value)


def test_text_of_others_is_made_safe_to_show() -> None:
    told: Any = encode_counts(COUNTS)
    told["pools"][0]["owners"][1]["owner"] = "evil\x1b[2J"
    (found,) = parse_counts(told, backend="http://s").types
    assert "\x1b" not in found.owners[1].owner
