"""Whose requests can't be met as a pool is now: a pure function of what is shown of it.

A request that can't be met when it comes is refused. One that can't be met any more, as somebody
has taken resources out, moved or cordoned them, waits on: they may come back. Whoever has done that
is to hear whom it concerns.
"""

from __future__ import annotations

from leasectl.engines.facts import Pool, QueueEntry
from leasectl.engines.membership import Member
from leasectl.engines.possible import Unmet, unmet
from leasectl.model import Request
from leasectl.typed.tuples import NamedTuple


class UnmetWaiter(NamedTuple):
    """A request that waits for what a pool can't give it now.

    Args:
        entry: Its place in the queue.
        why: What the pool has instead.
    """

    entry: QueueEntry
    why: Unmet


def unmet_waiters(pool: Pool) -> tuple[UnmetWaiter, ...]:
    """Those who wait in a pool for what it can't give them, in the order of the queue."""
    # Of what nothing is said, all that is known is that it is there.
    members = [each.member or Member(each.name, pool.type) for each in pool.resources]
    found = ((each, unmet(_request(pool.type, each), members)) for each in pool.queue)
    return tuple(UnmetWaiter(entry, why) for entry, why in found if why is not None)


def described(each: UnmetWaiter) -> str:
    """Say whose request that is, and why it can't be met, for people."""
    return f"{each.entry.holder_identity} waits on, as {each.why}"


def _request(pool_type: str, entry: QueueEntry) -> Request:
    return Request(pool_type, count=entry.count, name=entry.name, where=entry.where)
