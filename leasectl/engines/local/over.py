"""What is over in the embedded pools: leases that have expired, and what the dead have left.

Whether there is any is asked first, without the lock: to look at many processes takes long, and
most often there is nothing to be done.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.local.absent import REMOVED_AT_ONCE, dead_ones, remove_dead_ones
from leasectl.engines.local.early_ends import LocalEarlyEnds
from leasectl.engines.local.store import LocalStore
from leasectl.state.pipes import tidy
from leasectl.state.snapshot import snapshot
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead


def remove_what_is_over(store: LocalStore, pool_types: Iterable[str], *, clock: Clock) -> None:
    """Free what is over and take the dead out of the queues, each pool in a transaction.

    Args:
        store: The pools.
        pool_types: Which of them.
        clock: Where times come from.

    Raises:
        StateUnwritable: The disk is full or read-only.
    """
    if store.state.names_files.are_changing:
        with store.state.transaction():  # it begins by writing anew what the killed left half-way
            pass
    early_ends = LocalEarlyEnds(store)
    for each in pool_types:
        with snapshot(store.state):
            dead = dead_ones(store.queues, each)
            expiry = store.next_expiry(each)
            is_over = expiry is not None and expiry <= clock.elapsed()
            is_over = is_over or any(map(is_dead, early_ends.guards(each)))
            if not is_over and store.is_any_special():
                is_over = store.memberships().is_any_over(each)
        if is_over:
            with store.state.transaction():
                store.expire(each)
                early_ends.free_what_the_dead_had(each)
        while dead:  # in parts, or those who live would wait for all of them
            some, dead = dead[-REMOVED_AT_ONCE:], dead[:-REMOVED_AT_ONCE]
            with store.state.transaction():
                remove_dead_ones(store.queues, each, reversed(some))
    tidy(store.state)
