"""A drain, request by request: whom it asks to go, in which order, and what it says is left."""

from __future__ import annotations

import pytest

from leasectl.errors import AccessRefused, BackendUnreachable, NotAllowed
from leasectl.maintenance.api_cluster import Evicted
from leasectl.maintenance.drain import DrainOptions, NodeDrain, described, why_not
from leasectl.maintenance.facts import Drain
from leasectl.maintenance.objects import Pod
from tests.unit.maintenance.fake_cluster import FakeCluster

pytestmark = pytest.mark.once

NODE = "worker-1"
BUDGET = "a disruption budget forbids it now"
LOOK_SECONDS, AGAIN_SECONDS = 2.0, 5.0


def pod(name: str, **facts: bool) -> Pod:
    return Pod("default", name, f"uid-{name}", **facts)


class Draining:
    """The drain of a node with some pods, as its controller goes on with it."""

    def __init__(self, *pods: Pod, options: DrainOptions | None = None) -> None:
        self.cluster = FakeCluster()
        self.cluster.add_node(NODE)
        self.cluster.running[NODE] = list(pods)
        self.said: list[str] = []
        self.drain = NodeDrain(self.cluster, NODE, options or DrainOptions(), self.said.append)
        self.now = 0.0

    def turn(self, at: float | None = None) -> bool:
        """Do the next request when it is due, or at a time."""
        self.now = max(self.now, self.drain.due_at) if at is None else at
        return self.drain.turn(self.now, self.now)

    def during(self, seconds: float) -> None:
        """Go on for as long."""
        end = self.now + seconds
        while max(self.now, self.drain.due_at) < end:
            self.turn()

    @property
    def reason(self) -> str:
        assert self.drain.drain is not None
        return self.drain.drain.reason


class TestWhoMayGo:
    @pytest.mark.parametrize(
        ("facts", "without", "with_force", "with_delete"),
        [
            ({}, None, None, None),
            ({"is_managed": False}, "--force", None, "--force"),
            ({"has_local_data": True}, "emptydir", "emptydir", None),
            ({"is_managed": False, "has_local_data": True}, "--force", "emptydir", "--force"),
            (
                {"is_managed": False, "has_local_data": True, "has_finished": True},
                None,
                None,
                None,
            ),
        ],
    )
    def test_is_as_the_options_have_it(
        self,
        facts: dict[str, bool],
        without: str | None,
        with_force: str | None,
        with_delete: str | None,
    ) -> None:
        allowed = (
            (DrainOptions(), without),
            (DrainOptions(force=True), with_force),
            (DrainOptions(deletes_local_data=True), with_delete),
            (DrainOptions(force=True, deletes_local_data=True), None),
        )
        for options, words in allowed:
            why = why_not(pod("a", **facts), options)
            assert (why is None) == (words is None), options
            assert words is None or words in (why or "")

    def test_leaves_the_others_where_they_are_and_says_so(self) -> None:
        draining = Draining(pod("a", is_managed=False), pod("b"))
        draining.during(3)
        assert draining.drain.drain == Drain(
            1, "default/a (no controller would replace it; evict it with --force)"
        )
        assert draining.cluster.evicted == ["default/b"]


class TestOneRequestAtATime:
    def test_a_list_is_followed_by_evictions_at_once_and_by_another_list_later(self) -> None:
        draining = Draining(pod("a"), pod("b"))
        assert not draining.turn(100.0)
        assert (draining.drain.due_at, draining.drain.is_under_way) == (100.0, True)
        assert not draining.turn(100.5)
        assert (draining.drain.due_at, draining.drain.is_under_way) == (100.5, True)
        assert draining.drain.drain is None  # nothing is known before all were asked
        assert draining.turn(101.0)
        assert (draining.drain.due_at, draining.drain.is_under_way) == (101 + LOOK_SECONDS, False)
        assert draining.drain.drain == Drain(
            2,
            "default/b, default/a (is ending)".replace(
                "default/b, default/a", "default/a, default/b"
            ),
        )
        assert draining.cluster.requests == ["pods", "evict", "evict"]
        assert draining.turn()
        assert draining.drain.drain == Drain(0)
        assert draining.cluster.requests[3:] == ["pods"]

    def test_each_that_was_asked_to_go_is_said_and_has_the_time_that_was_said(self) -> None:
        draining = Draining(pod("a"), options=DrainOptions(grace_seconds=7))
        draining.during(1)
        assert draining.said == [f"{NODE}: default/a is being evicted"]
        assert draining.cluster.graces == [7]


class TestWhatIsHeld:
    @pytest.mark.parametrize(
        ("answer", "seconds"),
        [
            (Evicted("held", BUDGET), AGAIN_SECONDS),
            (Evicted("held", BUDGET, 1.0), AGAIN_SECONDS),
            (Evicted("held", BUDGET, 10.0), 10.0),
            (Evicted("failed", "oh", 30.0), 30.0),
        ],
    )
    def test_is_tried_again_no_sooner_than_it_may(self, answer: Evicted, seconds: float) -> None:
        draining = Draining(pod("a"))
        draining.cluster.answers["a"] = answer
        draining.turn(100.0)
        draining.turn(100.0)
        assert draining.drain.drain == Drain(1, f"default/a ({answer.reason})")
        draining.turn(100 + seconds - 0.1)
        assert not draining.drain.is_under_way
        assert draining.drain.drain == Drain(1, f"default/a ({answer.reason})")
        assert draining.cluster.requests == ["pods", "evict", "pods"]
        draining.turn(100 + seconds)
        assert draining.drain.is_under_way

    def test_is_noted_and_only_what_fails_is_said_and_that_once(self) -> None:
        draining = Draining(pod("a"), pod("b"))
        draining.cluster.answers.update(a=Evicted("held", BUDGET), b=Evicted("failed", "oh no"))
        draining.during(20)
        assert draining.said == [f"{NODE}: default/b can't be evicted: oh no"]
        assert draining.cluster.requests.count("evict") > 4
        draining.cluster.answers["b"] = Evicted("failed", "something else")
        draining.during(20)
        assert draining.said[1:] == [f"{NODE}: default/b can't be evicted: something else"]

    def test_comes_after_those_that_were_never_asked(self) -> None:
        pods = [pod(f"p-{number:02}") for number in range(30)]
        draining = Draining(*pods)
        draining.cluster.held = {each.name for each in pods[5:]}
        while draining.now < 200:
            draining.turn()
            draining.now += 1.0  # each request takes a second
        assert len(draining.cluster.evicted) == 5


class TestTheTimeLimit:
    OPTIONS = DrainOptions(timeout_seconds=30.0)

    def test_ends_evictions_and_nothing_else(self) -> None:
        draining = Draining(pod("a"), pod("b"), options=self.OPTIONS)
        draining.cluster.held = {"a"}
        draining.during(29)
        assert draining.reason == f"default/a ({BUDGET})"
        draining.cluster.held.clear()
        draining.cluster.requests.clear()
        draining.turn(30.0)
        assert draining.reason == f"stopped evicting after 30s; default/a ({BUDGET})"
        draining.cluster.running[NODE].append(pod("c"))
        draining.turn()
        assert draining.cluster.requests == ["pods", "pods"]
        assert "default/c (its eviction is no longer retried)" in draining.reason

    def test_ends_them_also_for_those_that_were_listed_before(self) -> None:
        draining = Draining(pod("a"), pod("b"), options=self.OPTIONS)
        draining.turn(29.0)
        assert draining.drain.is_under_way
        draining.turn(30.0)
        draining.turn(32.0)
        assert draining.cluster.requests == ["pods", "pods", "pods"]
        assert draining.drain.drain is not None
        assert draining.drain.drain.left == 2


def refusing(node: str) -> list[Pod]:
    raise AccessRefused(NotAllowed("it may not list pods"))


class TestFailures:
    def test_it_begins_anew_a_little_later(self) -> None:
        draining = Draining(pod("a"), pod("b"))
        draining.cluster.fails_at = 2
        draining.turn(100.0)
        with pytest.raises(BackendUnreachable):
            draining.turn(101.0)
        assert (draining.drain.due_at, draining.drain.is_under_way) == (101 + LOOK_SECONDS, False)
        assert draining.drain.drain is None
        draining.during(5)
        assert draining.cluster.requests[2] == "pods"

    def test_one_whose_eviction_is_never_answered_keeps_nobody_else_from_going(self) -> None:
        draining = Draining(pod("a"), pod("b"), pod("c"))
        draining.cluster.answers["c"] = BackendUnreachable("no answer")
        failures = 0
        while draining.now < 30:
            try:
                draining.turn()
            except BackendUnreachable:
                failures += 1
        assert sorted(draining.cluster.evicted) == ["default/a", "default/b"]
        assert failures == 5  # at the first look that comes AGAIN_SECONDS later

    def test_what_may_not_be_seen_is_no_end_of_it_and_says_so(self) -> None:
        draining = Draining(pod("a"), pod("b"))
        sound, draining.cluster.pods = draining.cluster.pods, refusing  # type: ignore[method-assign]
        with pytest.raises(AccessRefused):
            draining.turn()
        assert draining.drain.drain == Drain(1, "the pods can't be listed: it may not list pods")
        draining.cluster.pods = sound  # type: ignore[method-assign]
        draining.cluster.held = {"a", "b"}
        draining.during(5)
        assert draining.drain.drain == Drain(2, f"default/a, default/b ({BUDGET})")
        draining.cluster.pods = refusing  # type: ignore[method-assign]
        with pytest.raises(AccessRefused):
            draining.turn()
        assert draining.drain.drain.left == 2

    def test_nor_where_nothing_was_left_before(self) -> None:
        draining = Draining()
        draining.turn()
        assert draining.drain.drain == Drain(0)
        draining.cluster.pods = refusing  # type: ignore[method-assign]
        with pytest.raises(AccessRefused):
            draining.turn()
        assert draining.drain.drain.left == 1


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ("", ""),
        ("a:x", "default/a (x)"),
        ("b:x a:x", "default/a, default/b (x)"),
        ("c:x a:x b:x", "default/a, default/b and 1 more (x)"),
        ("a:x b:y c:x", "default/a, default/c (x); default/b (y)"),
        ("a:x b:x c:x d:x e:y", "default/a, default/b and 2 more (x); default/e (y)"),
    ],
)
def test_what_is_left_is_said_in_a_line(left: str, text: str) -> None:
    pairs = [each.split(":") for each in left.split()]
    assert described([(pod(name), why) for name, why in pairs]) == text
