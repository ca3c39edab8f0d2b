"""A lease as a reclaim sees it: the facts that its steps are decided by."""

from __future__ import annotations

from leasectl.leases.marks import Mark, parse_mark
from leasectl.typed.tuples import NamedTuple

# What tells a lease from those that the same resource has had, and will have: name and fence.
LeaseId = tuple[str, int]


class Held(NamedTuple):
    """A lease, and what is noted at it.

    Args:
        name: The resource.
        fence: Of the lease.
        group: Whose it counts as when those with most unused names come first.
        holder_identity: For people.
        held_seconds: For how long it has been held, as far as that is known.
        is_in_use: It is in use now, as far as that can be seen.
        used_at: When a use of it ended last, likewise, on the elapsed clock; None for never.
        note: What is noted at it; None for nothing.
    """

    name: str
    fence: int
    group: str
    holder_identity: str = ""
    held_seconds: float = 0.0
    is_in_use: bool = False
    used_at: float | None = None
    note: str | None = None

    @property
    def id(self) -> LeaseId:
        return self.name, self.fence

    @property
    def mark(self) -> Mark | None:
        """The mark at it; None for none, whatever else may be noted there."""
        return None if self.note is None else parse_mark(self.note)
