"""What each answer of an API means for maintenance, and for how long it is waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import pytest

from leasectl.engines.kubernetes.api.address import Collection
from leasectl.engines.kubernetes.api.refusals import (
    Absent,
    AlreadyExists,
    Busy,
    Conflict,
    LostAnswer,
    Refused,
)
from leasectl.engines.kubernetes.api.requests import Listed
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NotAllowed,
)
from leasectl.maintenance.api_cluster import ApiCluster, Evicted
from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.objects import Pod
from tests.kit.support import ManualClock

pytestmark = pytest.mark.once

US = "machine-remediation"
NODE: dict[str, Any] = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}
LEASE = Lease(US, 60, 1.0, 1.0)
POD = Pod("default", "web", "uid-web")


class Asked:
    """An API that gives one answer, or raises it, and what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.time = ManualClock()
        self.limits: list[float | None] = []
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._answer = answer
        self._is_limited = False
        api: Any = self
        self.cluster = ApiCluster(api, namespace="ns", identity=US, clock=self.time.clock)

    @contextlib.contextmanager
    def limited(self, until: float | None) -> Iterator[None]:
        assert until is not None
        self.limits.append(until - self.time.clock.elapsed())
        self._is_limited = True
        yield
        self._is_limited = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any, **options: Any) -> Any:
            assert self._is_limited
            self.asked.append((name, args, options))
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._answer

        return ask


# Each of what a cluster is asked; what that is of its API; and what it says that it was done.
REQUESTS: tuple[tuple[Callable[[ApiCluster], Any], str], ...] = (
    (lambda cluster: cluster.node("a"), "get"),
    (lambda cluster: cluster.lease("a"), "get"),
    (lambda cluster: cluster.nodes(), "list"),
    (lambda cluster: cluster.leases(), "list"),
    (lambda cluster: cluster.pods("a"), "list"),
    (lambda cluster: cluster.write_node(NODE, NodeWrite("active")), "patch"),
    (lambda cluster: cluster.ask_for("a", "30m"), "patch"),
    (lambda cluster: cluster.write_lease("a", None, LEASE), "create"),
    (lambda cluster: cluster.write_lease("a", NODE, LEASE), "replace"),
)
IDS = ("node", "lease", "nodes", "leases", "pods", "write", "ask", "create", "replace")


def refused(kind: type[Refused]) -> Refused:
    return kind("the server's words")


@pytest.mark.parametrize(("request_", "verb"), REQUESTS, ids=IDS)
class TestEach:
    def test_is_asked_for_a_few_seconds(
        self, request_: Callable[[ApiCluster], Any], verb: str
    ) -> None:
        asked = Asked(Listed((), "1") if verb == "list" else {})
        request_(asked.cluster)
        assert asked.limits == [4.0]  # less than a leader takes each to last at most
        assert [each[0] for each in asked.asked] == [verb]

    @pytest.mark.parametrize(
        ("error", "kind", "exit_code"),
        [
            (InvalidRequest("not so"), AccessRefused, 64),
            (CorruptState("what?"), AccessRefused, 65),
            (AccessRefused(NotAllowed("it may not")), AccessRefused, 77),
            (BackendUnreachable("it is away"), BackendUnreachable, 69),
            (LostAnswer("nobody knows"), BackendUnreachable, 69),
            (refused(Refused), BackendUnreachable, 69),
        ],
        ids=["invalid", "corrupt", "access", "away", "lost", "refused"],
    )
    def test_is_no_end_of_whoever_asks_whatever_refuses_it(
        self,
        request_: Callable[[ApiCluster], Any],
        verb: str,
        error: Exception,
        kind: type[BackendUnreachable],
        exit_code: int,
    ) -> None:
        with pytest.raises(kind, match=str(error)) as raised:
            request_(Asked(error).cluster)
        assert raised.value.exit_code == exit_code


def test_what_is_there_is_said_as_it_is() -> None:
    assert Asked(NODE).cluster.node("a") == NODE
    assert Asked(NODE).cluster.lease("a") == NODE
    assert Asked(Listed((NODE,), "1")).cluster.nodes() == (NODE,)
    assert Asked(Listed((NODE,), "1")).cluster.leases() == (NODE,)
    assert Asked(NODE).cluster.write_lease("a", None, LEASE) == NODE
    assert Asked(NODE).cluster.write_lease("a", NODE, LEASE) == NODE
    (pod,) = Asked(Listed((NODE,), "1")).cluster.pods("a")
    assert (pod.name, pod.uid) == ("a", "u")


def test_what_is_not_there_is_none() -> None:
    absent = Asked(refused(Absent)).cluster
    assert absent.node("a") is None
    assert absent.lease("a") is None
    assert not absent.write_node(NODE, NodeWrite("active"))
    assert not absent.ask_for("a", None)
    assert absent.write_lease("a", NODE, LEASE) is None


def test_what_has_changed_is_not_written() -> None:
    for kind in (Conflict, AlreadyExists):
        changed = Asked(refused(kind)).cluster
        assert not changed.write_node(NODE, NodeWrite("active"))
        assert changed.write_lease("a", None, LEASE) is None
        assert changed.write_lease("a", NODE, LEASE) is None


def test_a_request_of_a_person_may_be_written_twice() -> None:
    asked = Asked(NODE)
    assert asked.cluster.ask_for("a", "30m")
    ((_, (_, name, _), options),) = asked.asked
    assert (name, options) == ("a", {"is_repeatable": True})


class TestEvictions:
    def evicted(self, answer: Any) -> Evicted:
        return Asked(answer).cluster.evict(POD, grace_seconds=None)

    @pytest.mark.parametrize("grace_seconds", [None, 0, 7])
    def test_one_is_of_the_pod_that_was_listed(self, grace_seconds: int | None) -> None:
        asked = Asked({})
        assert asked.cluster.evict(POD, grace_seconds=grace_seconds) == Evicted("going")
        assert asked.limits == [4.0]
        ((verb, (collection, body), options),) = asked.asked
        assert (verb, collection) == ("create", Collection("v1", "pods", "default"))
        assert options == {"name": "web", "subresource": "eviction"}
        expected: dict[str, Any] = {"preconditions": {"uid": "uid-web"}}
        if grace_seconds is not None:
            expected["gracePeriodSeconds"] = grace_seconds
        assert body["deleteOptions"] == expected
        assert body["metadata"] == {"name": "web", "namespace": "default"}

    @pytest.mark.parametrize(
        ("is_budget", "retry_after", "why"),
        [
            (True, None, "a disruption budget forbids it now"),
            (True, 10.0, "a new disruption budget forbids it now"),
            (False, None, "the server delays its eviction: the server's words"),
            (False, 10.0, "the server delays its eviction: the server's words"),
        ],
    )
    def test_one_that_is_put_off_is_held(
        self, is_budget: bool, retry_after: float | None, why: str
    ) -> None:
        busy = Busy(
            "the server's words",
            retry_after_seconds=retry_after,
            is_budget=is_budget,
        )
        assert self.evicted(busy) == Evicted("held", why, retry_after or 0.0)

    def test_only_one_that_is_not_there_is_gone(self) -> None:
        assert self.evicted(refused(Absent)) == Evicted("gone")
        changed = Evicted("held", "the pod has just changed: the server's words")
        assert self.evicted(refused(Conflict)) == changed

    @pytest.mark.parametrize(
        ("status", "words", "seconds"),
        [
            (500, "This pod has more than one PodDisruptionBudget", 30.0),
            (500, "a webhook failed", 0.0),
            (503, "This pod has more than one PodDisruptionBudget", 0.0),
            (0, "PodDisruptionBudget", 0.0),
        ],
    )
    def test_one_that_the_server_failed_at_is_said_so(
        self, status: int, words: str, seconds: float
    ) -> None:
        twice = "more than one disruption budget covers it, so the API can't evict it"
        why = twice if seconds else "nobody knows"
        lost = LostAnswer("nobody knows", status=status, words=words)
        assert self.evicted(lost) == Evicted("failed", why, seconds)

    @pytest.mark.parametrize(
        "error",
        [
            refused(Refused),
            AccessRefused(NotAllowed("it may not")),
            InvalidRequest("not so"),
            CorruptState("what?"),
        ],
        ids=["refused", "access", "invalid", "corrupt"],
    )
    def test_one_that_is_refused_keeps_no_other_from_going(self, error: Exception) -> None:
        assert self.evicted(error) == Evicted("failed", str(error))
