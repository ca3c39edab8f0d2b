"""Which of the leases in excess are asked for first: a pure function of what is seen of them.

As the handshake that this comes from does it: the holder with the most unused names first, and of
one holder as many as are needed. Of its names those that it has held for longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from leasectl.reclaim.held import Held


def in_order(unused: Iterable[Held]) -> list[Held]:
    """Those that could be asked for, in the order in which they are."""
    leases = list(unused)
    numbers = Counter(each.group for each in leases)
    return sorted(leases, key=lambda each: (-numbers[each.group], each.group, *_age(each)))


def _age(lease: Held) -> tuple[int, str]:
    return lease.fence, lease.name
