"""What maintenance needs of a cluster, and no more: what can be asked of it and done there.

All raise `BackendUnreachable` where the answer is missing (then a write may have been done all the
same), and in that form what forbids it; each takes a few seconds at most.
"""

from __future__ import annotations

from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.objects import Json, Pod
from leasectl.typed.hints import Literal, Protocol
from leasectl.typed.tuples import NamedTuple


class Evicted(NamedTuple):
    """What became of an eviction.

    Args:
        outcome: It is ``going``; is ``gone``, as it had gone before; is ``held``, for now; or the
            server ``failed`` at it.
        reason: Why it is still there.
        again_seconds: Not to be tried again before.
    """

    outcome: Literal["going", "gone", "held", "failed"]
    reason: str = ""
    again_seconds: float = 0.0


class Cluster(Protocol):
    """A cluster with nodes, as maintenance sees it. Used by one thread."""

    def node(self, name: str) -> Json | None:
        """A Node as it is now; None if there is none."""
        ...

    def write_node(self, read: Json, write: NodeWrite) -> bool:
        """Change a Node, in one write, if it is still as it was read; returns whether it was."""
        ...

    def lease(self, name: str) -> Json | None:
        """A Lease as it is now, of those that we look after; None if there is none."""
        ...

    def write_lease(
        self, name: str, read: Json | None, lease: Lease, *, node: str = ""
    ) -> Json | None:
        """Write a Lease, if it is still as it was read, or still isn't there.

        Args:
            name: Of the Lease.
            read: As it was read; None if there was none.
            lease: What it is to say.
            node: The Node that it goes with; empty for none.

        Returns:
            It as it was written; None if it wasn't.
        """
        ...

    def pods(self, node: str) -> list[Pod]:
        """The pods on a node, as they are now."""
        ...

    def evict(self, pod: Pod, *, grace_seconds: int | None) -> Evicted:
        """Have one pod evicted, if no disruption budget is against it.

        Args:
            pod: As it was just listed: of another uid, it is another.
            grace_seconds: How long it may take to end; None for as long as it says itself.
        """
        ...
