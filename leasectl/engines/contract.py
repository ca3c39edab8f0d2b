"""The interface between the pool algorithm and an engine.

An engine keeps pools, tickets and claims, and reports changes. `leasectl.backends.pool` decides who
waits for how long, and what to do after a failure. Of the order, an engine knows one rule, and
keeps it inside the step that claims: a ticket may take a resource only if no better ticket that
isn't suspended could use that resource (`rules.turns`). A ticket is better if it has the higher
effective priority, and among equals if it came earlier. A ticket for a name could use that one
resource; any other ticket could use each, also while it waits for more of them, or for the pool's
pace. That pace (`rules.pace`) is kept inside the step that claims, too.

A ticket or claim whose holder is dead is removed automatically; an engine finds that out by a
process or by a ttl. A waiter that lives and doesn't run is found by a witness. A process that makes
a claim possible also wakes the witness. It gives the waiter that could claim
`SUSPENDED_AFTER_SECONDS` on its own clock, and then suspends the ticket. Only the ticket's owner
ends the suspension, in the same step as its next claim. Where tickets have a ttl, that is enough:
such a waiter keeps its position for one ttl, then it queues again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Lease, Process, ReleasedBy

if TYPE_CHECKING:
    from leasectl.engines.facts import Standing

# Told of names that were lost under a claim key without being given back: expired, or taken by
# force. No names: whoever waited under it has died, and its ticket was taken away.
LostListener = Callable[[str, Sequence[str]], None]


# How long a waiter that could claim is waited for by those whom its ticket keeps from it.
SUSPENDED_AFTER_SECONDS = 10.0


class TicketGone(Exception):
    """The ticket was taken out of the queue by another process."""


class TicketExpired(BackendUnreachable):
    """The ticket went by itself: the store had heard nothing of its waiter for too long."""


class Outlook(NamedTuple):
    """The result of a try to claim, or of a look: the leases, or what to wait for.

    Args:
        leases: All that was asked for, and the ticket is gone; None, with nothing claimed, while it
            isn't its turn or there is too little.
        is_head: It is its turn, so it waits for resources: no better ticket keeps them from it,
            except some that wait for a name.
        is_behind: Better tickets keep something from it that it could use; their waiters may stop.
        look_again_at: When to look again without being woken, since a claim expires silently; on
            the engine's elapsed clock, None for never.
        pool_type: If several types would do, that of the leases; else None.
        next_grant_at: It is its turn and there is enough, but the pool's pace makes it wait until
            then, on the elapsed clock; None if it waits for anything else.
        impossible: Why the pool can't meet it any more, a line for people. Until that changes, its
            ticket holds no other back; then it counts again, in its old position.
        is_ready: Of a look: all that was asked for could be claimed now.
    """

    leases: tuple[Lease, ...] | None = None
    is_head: bool = False
    is_behind: bool = False
    look_again_at: float | None = None
    pool_type: str | None = None
    next_grant_at: float | None = None
    impossible: str | None = None
    is_ready: bool = False


class Waiter(Protocol):
    """One request, from before its ticket is put to its leases or its end.

    Its steps are taken one after the other, by one thread. Those that ask a store aren't waited
    for much beyond the time that `Engine.waiter` was given.
    """

    @property
    def has_place(self) -> bool:
        """Whether its ticket may be in the queue still, as far as that can be told unasked."""

    def check(self) -> None:
        """Look whether the request could be met by what there is; nothing changes.

        Raises:
            NotFound, InvalidRequest: As `enqueue`.
        """

    def enqueue(self, *, again: bool = False) -> None:
        """Put a ticket at the end of the queue of the type that is asked for.

        Args:
            again: It was in there before, so it may wait also where it can't be met now.

        Raises:
            NotFound: No such pool, or no such resource in it.
            InvalidRequest: What is in the pool can't meet it, see `rules.possible`.
        """

    def claim(self) -> Outlook:
        """Claim all that is asked for, least recently acquired first, if it is the ticket's turn.

        A claim takes the ticket away. If there is none, whatever changes from here on for this
        ticket ends the next sleep. The first may go by what was so when the ticket was put, and
        then that holds from there on. Tickets of the dead that are in its way are taken away. If it
        was suspended, it isn't any more, but for one that can't be met as it is: that is suspended.

        Raises:
            NotFound: The pool has gone.
            TicketGone, TicketExpired: The ticket isn't in the queue any more.
            BackendUnreachable: It may have been claimed; the next call finds that out.
        """

    def standing(self) -> Standing:
        """How things stand for it, for people.

        Raises:
            NotFound: The pool has gone.
        """

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        """Tell what to sleep on until something may have changed since `claim`.

        Args:
            processes: Their end is of interest as well.

        Returns:
            Descriptors to poll for reading, and whether one of the processes, or that of the
            ticket before it, has already ended.
        """

    def heard(self, woken: Set[int]) -> bool:
        """Get ready for the next sleep; the caller has to `claim` again afterwards.

        Args:
            woken: The descriptors that had an event.

        Returns:
            Whether a process has ended.
        """

    def dequeue(self, why: str = "") -> None:
        """Remove the ticket, if it is still there, and free what it may have been granted.

        A store may have put it, or claimed, although its answer was lost.

        Args:
            why: It is given up, for people, for the record of events.
        """

    def close(self) -> None:
        """Stop listening."""


class PoolWaiter(Waiter, Protocol):
    """A waiter in the queue of one pool.

    If its request needs resources of each of several pools (`Request.needs_all`), it has a waiter
    in each. They claim together, by `Engine.claim_all`. Before that a ticket may be *parked*: it
    keeps its position, but others pass it as if it were suspended.
    """

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        """Put a ticket at the end of the queue.

        Args:
            again: As `Waiter.enqueue` has it.
            beside: Another waiter of the request, which has its ticket already. Both tickets rank
                alike, so that two such requests have the same order in all pools that both need.

        Raises:
            NotFound, InvalidRequest: As `Waiter.enqueue`.
        """

    def look(self) -> Outlook:
        """Look as `claim` does, but claim nothing, and leave the ticket parked or not.

        The outlook is that of a ticket that isn't parked.
        """

    def park(self, is_parked: bool) -> None:
        """Let others pass its ticket, or let it count again."""


class Engine(Protocol):
    """The store of one set of pools.

    Attributes:
        undoes: What was done inside `atomic` is undone when it raises.
    """

    @property
    def undoes(self) -> bool: ...

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once where the store can do that, else each on its own."""

    def waiter(self, claimant: Claimant, *, until: float | None) -> PoolWaiter:
        """Return the waiter of a claimant; no other process can see it yet.

        One claim key may have tickets in several queues, each with a waiter of its own.

        Args:
            claimant: The request and its holder; of several types, the first counts.
            until: How long its steps may wait for a store that doesn't answer, on the elapsed
                clock; None for the usual limits.

        Raises:
            InvalidRequest: This engine can't meet such a request.
        """

    def claim_all(self, waiters: Sequence[PoolWaiter]) -> tuple[Lease, ...] | None:
        """Claim for all waiters of one request, all or nothing, and take their tickets away.

        Args:
            waiters: The last `look` of each was ready, or the last call of this one failed.

        Returns:
            The leases, in the order of the waiters; None, with nothing claimed, if a resource was
            taken in the meantime.

        Raises:
            BackendUnreachable: Some may have been claimed; the next call finds that out.
        """

    def withdraw(self, claim_key: str, why: str = "") -> None:
        """Take away whatever tickets have a claim key, in all queues; wake who waits with them.

        Args:
            claim_key: What finds them.
            why: For people, for the record of events.
        """

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        """Free the claims that a claim key finds, all or some.

        Args:
            claim_key: What finds them.
            names: Which; None for all.
            by: Who ends them, for the record of events.

        Returns:
            The names freed.
        """

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        """Give the claims that a claim key finds their full time again; returns what they hold.

        Args:
            claim_key: What finds them.
            ttl_seconds: A ttl that they have from now on, those that have one; None for their own.
        """
