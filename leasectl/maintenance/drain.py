"""Evict the pods of a node.

This is repeated until none is left, or the maintenance is over. Evictions respect disruption
budgets. A pod that a budget holds back is tried again, and the other pods don't wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from leasectl.errors import AccessRefused, BackendUnreachable
from leasectl.maintenance.api_cluster import Cluster
from leasectl.maintenance.facts import Drain
from leasectl.maintenance.objects import Pod
from leasectl.text.durations import format_duration

# How often to look which pods have gone.
LOOK_SECONDS = 2.0
# An eviction goes by a uid that was listed no longer ago.
_FRESH_SECONDS = 10.0
# How often to try again what a budget holds back, or a server fails at: as kubectl does.
AGAIN_SECONDS = 5.0
_MOST_NAMES = 2
# Until when a pod is held, and why, that was never asked.
_NEVER = (0.0, "its eviction is no longer retried")


class DrainOptions(NamedTuple):
    """What may be evicted, as kubectl drain has it.

    Args:
        force: Also pods that no controller would replace.
        deletes_local_data: Also pods with data in an emptyDir.
        grace_seconds: How long a pod may take to end; None for as long as it says itself.
        timeout_seconds: Evict nothing more after that; None for as long as it lasts.
    """

    force: bool = False
    deletes_local_data: bool = False
    grace_seconds: int | None = None
    timeout_seconds: float | None = None


def why_not(pod: Pod, options: DrainOptions) -> str | None:
    """Why a pod may not be evicted at all; None if it may.

    A finished one has neither work nor data that anybody waits for.
    """
    if pod.has_finished:
        return None
    if not pod.is_managed and not options.force:
        return "no controller would replace it; evict it with --force"
    if pod.has_local_data and not options.deletes_local_data:
        return "it has local data; evict it with --delete-emptydir-data"
    return None


class NodeDrain:
    """The drain of one node in one maintenance.

    Args:
        cluster: Where.
        node: The name of the node.
        options: What may be evicted.
        say: Called with a line for people, about each eviction.

    Attributes:
        drain: What the last time round has shown; None before the first.
        due_at: When to do the next request, on the elapsed clock.
    """

    def __init__(
        self, cluster: Cluster, node: str, options: DrainOptions, say: Callable[[str], None]
    ) -> None:
        self.drain: Drain | None = None
        self.due_at = 0.0
        self._cluster = cluster
        self._node = node
        self._options = options
        self._say = say
        self._todo: list[Pod] = []
        self._listed_at = 0.0
        self._left: list[tuple[Pod, str]] = []
        self._held: dict[str, tuple[float, str]] = {}  # by uid: until when, and why

    @property
    def is_under_way(self) -> bool:
        """Whether pods of the last list are still to be evicted."""
        return bool(self._todo)

    def turn(self, now: float, lasted_seconds: float) -> bool:
        """Do the next request; returns whether something more is known by `drain` then.

        Args:
            now: On the elapsed clock.
            lasted_seconds: How long the maintenance has lasted.

        Raises:
            BackendUnreachable: No answer; it begins anew, a little later.
        """
        limit = self._options.timeout_seconds
        if limit is None:
            limit = math.inf
        has_given_up = lasted_seconds >= limit
        try:
            if self._todo and not has_given_up and now - self._listed_at <= _FRESH_SECONDS:
                self._evict(self._todo.pop(), now)
            else:
                self._look(now, evicts=not has_given_up)
        except BackendUnreachable as error:
            self._todo = []
            self.due_at = now + LOOK_SECONDS
            if isinstance(error, AccessRefused):
                # That lasts until somebody mends it, who may only read the status.
                left = 1 if self.drain is None else max(1, self.drain.left)
                self.drain = Drain(left, f"the pods can't be listed: {error}")
            raise
        if self._todo:
            self.due_at = now
            return False
        self.due_at = now + LOOK_SECONDS
        reason = described(self._left)
        if has_given_up:
            reason = f"stopped evicting after {format_duration(limit)}; {reason}"
        before, self.drain = self.drain, Drain(len(self._left), reason)
        return self.drain != before

    def _look(self, now: float, *, evicts: bool) -> None:
        """List the pods that are left, and choose those that can be evicted."""
        self._listed_at = now
        pods = [each for each in self._cluster.pods(self._node) if not each.is_of_node]
        self._left, self._todo = [], []
        for pod in pods:
            held_until, held_why = self._held.get(pod.uid, _NEVER)
            stopped = why_not(pod, self._options)
            if pod.is_ending:
                self._left.append((pod, "is ending"))
            elif stopped is not None:
                self._left.append((pod, stopped))
            elif held_until > now or not evicts:
                self._left.append((pod, held_why))
            else:
                self._todo.append(pod)
        # From the end: those that were never asked first, or some might never be.
        self._todo.sort(key=lambda each: self._held.get(each.uid, _NEVER)[0], reverse=True)

    def _evict(self, pod: Pod, now: float) -> None:
        try:
            evicted = self._cluster.evict(pod, grace_seconds=self._options.grace_seconds)
        except BackendUnreachable:
            # What is wrong may be with this pod alone: the others come first then.
            self._held[pod.uid] = (now + AGAIN_SECONDS, "the API didn't answer its eviction")
            raise
        if evicted.outcome == "going":
            self._say(f"{self._node}: {pod} is being evicted")
            self._left.append((pod, "is ending"))
        elif evicted.outcome != "gone":
            _, known = self._held.get(pod.uid, _NEVER)
            if evicted.outcome == "failed" and evicted.reason != known:
                # In full, and once: the status has room for a part of it.
                self._say(f"{self._node}: {pod} can't be evicted: {evicted.reason}")
            self._left.append((pod, evicted.reason))
            again_at = now + max(AGAIN_SECONDS, evicted.again_seconds)
            self._held[pod.uid] = (again_at, evicted.reason)


def described(left: Sequence[tuple[Pod, str]]) -> str:
    """Which pods are left and why, in a line: those alike together, a few of them by name."""
    alike: dict[str, list[str]] = {}
    for pod, why in left:
        alike.setdefault(why, []).append(str(pod))
    parts = []
    for why, names in alike.items():
        shown = ", ".join(sorted(names)[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        parts.append(f"{shown}{more} ({why})")
    return "; ".join(parts)
