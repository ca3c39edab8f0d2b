"""Which of the leases in excess are asked for first: a pure function of what is seen of them.

As the handshake that this comes from does it: the holder with the most unused names first, and of
one holder as many as are needed. Of its names those that it has held for longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from leasectl.reclaim.held import Held


class Unused(NamedTuple):
    """A lease that could be asked for, and of how many such it is one.

    Args:
        lease: The lease.
        number: Of unused names that its holder, or its group, has.
    """

    lease: Held
    number: int


def in_order(unused: Iterable[Held]) -> list[Unused]:
    """Those that could be asked for, in the order in which they are."""
    leases = list(unused)
    numbers = Counter(each.group for each in leases)
    counted = [Unused(each, numbers[each.group]) for each in leases]
    return sorted(counted, key=lambda each: (-each.number, each.lease.group, *_age(each.lease)))


def _age(lease: Held) -> tuple[int, str]:
    return lease.fence, lease.name
