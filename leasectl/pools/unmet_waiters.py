"""Whose requests can't be met as a pool is now: a pure function of what is shown of it.

A request that can't be met when it comes is refused. One that can't be met any more, as somebody
has taken resources out, moved or cordoned them, waits on: they may come back. Whoever has done that
is to hear whom it concerns.
"""

from __future__ import annotations

from typing import NamedTuple

from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.matching import Want
from leasectl.text.wording import counted


class UnmetWaiter(NamedTuple):
    """A request that waits for more than there is.

    Args:
        type: The pool that it waits in.
        entry: Its place in the queue.
        usable: How many resources there are that it could use, held ones included.
    """

    type: str
    entry: QueueEntry
    usable: int


def unmet_waiters(pool: Pool) -> tuple[UnmetWaiter, ...]:
    """Those who wait in a pool for more than it has for them, in the order of the queue."""
    found = (UnmetWaiter(pool.type, entry, _usable(pool, entry)) for entry in pool.queue)
    return tuple(each for each in found if each.usable < each.entry.count)


def described(each: UnmetWaiter) -> str:
    """Say whose request that is, what it waits for, and what there is, for people."""
    entry = each.entry
    wanted = f'"{entry.name}"' if entry.name is not None else counted(entry.count, "resource")
    where = " and ".join(f"{k}{'=' if is_so else '!='}{v}" for k, v, is_so in entry.where)
    there = {0: "there is none", 1: "there is 1"}.get(each.usable, f"there are {each.usable}")
    return (
        f'pool "{each.type}": {entry.holder_identity} waits for {wanted}'
        f"{f' with {where}' if where else ''}, and {there} that it could get now; it waits on"
    )


def _usable(pool: Pool, entry: QueueEntry) -> int:
    want = Want(entry.name, entry.where)
    return sum(_could_use(want, each) for each in pool.resources)


def _could_use(want: Want, resource: Resource) -> bool:
    member = resource.member
    if member is None:  # nothing is said of it but that it is there
        return want.could_use(resource.name, ())
    return member.takes_holders and want.could_use(resource.name, member.properties)
