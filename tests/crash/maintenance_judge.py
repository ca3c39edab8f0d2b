"""What an API server told of nodes and leases under maintenance, and what of it may not be.

The history is what a watch told of each change. All objects are in one etcd, so their versions say
in which order that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from leasectl.maintenance.facts import Lease, Node
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import parse_lease, parse_node, parse_time, request_of

US, THEM = "machine-remediation", "upgrader"
# A node's clock is this machine's, as all are here; what is written takes its time.
_SLACK_SECONDS = 0.5


class Happened(NamedTuple):
    """One change of one object.

    Args:
        version: Of the object, which grows with every change of anything.
        kind: ``Node`` or ``Lease``.
        name: Of the object.
        said: As it was then.
    """

    version: int
    kind: str
    name: str
    said: dict[str, Any]


class Eviction(NamedTuple):
    """A request for one.

    Args:
        at: When it came, in seconds since the epoch.
        process: Which process it came from.
        path: Of the request.
    """

    at: float
    process: int
    path: str


class Seen(NamedTuple):
    """What was seen of one node, change by change.

    Args:
        violations: What may not be.
        windows: How often its lease was acquired by us.
        cordons: How often it was cordoned.
        late_seconds: How long after a lease's end it was seen to, at most.
        is_theirs: Another had its lease when we were to uncordon it.
    """

    violations: list[str]
    windows: int
    cordons: int
    late_seconds: float
    is_theirs: bool


def judge_node(name: str, history: Sequence[Happened], *, by_hand: bool) -> Seen:
    """Judge what became of a node.

    Args:
        name: Of the node.
        history: Everything, in order.
        by_hand: Somebody had cordoned it before.
    """
    judge = _Judge(name, cordoned=by_hand)
    for each in history:
        if each.name != name:
            continue
        if each.kind == "Node":
            judge.see_node(parse_node(each.said), request_of(each.said))
        else:
            judge.see_lease(parse_lease(each.said))
    return Seen(judge.violations, judge.windows, judge.cordons, judge.late_seconds, judge.is_theirs)


class _Judge:
    def __init__(self, name: str, *, cordoned: bool) -> None:
        self.violations: list[str] = []
        self.windows = self.cordons = 0
        self.late_seconds = 0.0
        self.is_theirs = False
        self._name = name
        self._node = Node("", "", cordoned)
        self._lease = Lease("", 0, None)
        self._request: str | None = None

    def see_node(self, node: Node, request: str | None) -> None:
        before, self._node = self._node, node
        if node.is_unschedulable and not before.is_unschedulable:
            self.cordons += 1
            self._must(node.marked_by == US, "was cordoned without a mark")
            self.is_theirs = False
            self._must(self._is_ours(), "was cordoned without its lease")
        if before.is_unschedulable and not node.is_unschedulable:
            self._must(before.marked_by == US, "was uncordoned, which somebody else had cordoned")
            self._must(not node.marked_by, "was uncordoned, and kept its mark")
            self._must(self._is_ours(), f"was uncordoned in a lease of {self._lease.holder}'s")
        if before.marked_by and not node.marked_by and node.is_unschedulable:
            theirs = self._lease.holder == THEM and self._lease.duration_seconds > 0
            self._must(theirs, "lost its mark, and nobody else has it")
            self.is_theirs = True
        if node.marked_by and not before.marked_by:
            self._must(not before.is_unschedulable, "was marked, and cordoned before")
        if node.status == "ended" and before.status != "ended":
            self._must(request is None, "has ended, and is asked for")
            self._must(not node.marked_by, "has ended, and is marked")
        if self._request is not None and request is None and node.status != before.status:
            self._must(node.status == "ended", "lost its request, and hasn't ended")
        self._request = request

    def see_lease(self, lease: Lease) -> None:
        before, self._lease = self._lease, lease
        if lease.holder == US and lease.acquired_at != before.acquired_at:
            self.windows += 1
        if lease.holder == US and before.holder == THEM and before.duration_seconds:
            unchanged = (lease.renewed_at or 0) - (before.renewed_at or 0)
            too_soon = unchanged < before.duration_seconds
            self._must(not too_soon, f"lease was taken after {unchanged:.1f}s of another's")
        if lease.holder == US and not lease.duration_seconds and before.duration_seconds:
            still = self._node.is_unschedulable and self._node.marked_by == US
            self._must(not still, "lease was given back, and it is cordoned")
        if lease.holder == US == before.holder and before.duration_seconds:
            late = (lease.renewed_at or 0) - (before.ends_at or 0)
            self.late_seconds = max(self.late_seconds, late)

    def _is_ours(self) -> bool:
        return self._lease.holder == US and self._lease.duration_seconds > 0

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.violations.append(f"{self._name} {what}")


def reigns(history: Sequence[Happened]) -> list[tuple[float, int]]:
    """From when on which process led, as they wrote it themselves."""
    found: list[tuple[float, int]] = []
    for each in history:
        if each.kind != "Lease" or each.name != LEASE_NAME:
            continue
        spec = each.said["spec"]
        process = int(spec["holderIdentity"].split("_")[-2])
        acquired_at = parse_time(spec["acquireTime"])
        assert acquired_at is not None
        if not found or found[-1] != (acquired_at, process):
            found.append((acquired_at, process))
    return found


def judge_evictions(evictions: Sequence[Eviction], history: Sequence[Happened]) -> Iterator[str]:
    """Say which evictions came from a process that didn't lead then: so that two drain at once."""
    leaders = reigns(history)
    for eviction in evictions:
        led = [process for since, process in leaders if since <= eviction.at + _SLACK_SECONDS]
        now = [process for since, process in leaders if since <= eviction.at - _SLACK_SECONDS]
        if eviction.process not in {*led[-1:], *now[-1:]}:
            yield f"{eviction.path} by {eviction.process} while {led[-1:]} led"
