"""What the pool algorithm needs of a store.

An engine keeps pools, tickets and claims, and tells of changes. It decides nothing: who may
claim, and when, is `leasectl.backends.pool`. A ticket or claim whose owner is dead disappears
without anybody's help; how an engine knows that (a process, a ttl) is its own affair.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import AbstractContextManager
from typing import Callable, Protocol, TypeVar

from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Lease, Pool, Process, Standing, Ticket

# Told of names that an owner lost without giving them back: expired, or taken by force. No names:
# it died while it waited, and its ticket was taken away.
LostListener = Callable[[str, Sequence[str]], None]


class TicketGone(Exception):
    """The ticket was taken out of the queue by somebody else."""


class TicketExpired(BackendUnreachable):
    """The ticket went by itself: the store had heard nothing of its waiter for too long."""


class Waiter(Protocol):
    """One waiter's ear."""

    @property
    def has_place(self) -> bool:
        """Whether its ticket may be in the queue still, as far as that can be told unasked."""

    def open(self) -> None:
        """Start listening, unless it does already: before anybody can see its ticket."""

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        """Tell what to sleep on until something may have changed for this ticket.

        Args:
            predecessor: The ticket to wait for; None at the head, which waits for resources.
            processes: Their end is of interest as well.

        Returns:
            Descriptors to poll for reading, and whether one of the processes, or the
            predecessor's, has already ended.
        """

    def heard(self, woken: Set[int]) -> bool:
        """Get ready for the next sleep; whoever calls this has to look again afterwards.

        Args:
            woken: Those of the descriptors that had something to say.

        Returns:
            Whether a process has ended.
        """

    def close(self) -> None:
        """Stop listening."""


AWaiter = TypeVar("AWaiter", bound=Waiter)


class Engine(Protocol[AWaiter]):
    """The store of one set of pools.

    Attributes:
        undoes: What was done inside `atomic` is undone when it raises.
    """

    @property
    def undoes(self) -> bool: ...

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once where the store can do that, else each on its own."""

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """Steps inside aren't waited for much longer than that, where a server may not answer.

        Args:
            until: On the elapsed clock; None for as long as they take by themselves.
        """

    def has_queue(self, pool_type: str) -> bool:
        """A hint whether a new ticket would have others before it."""

    def waiter(self, claimant: Claimant) -> AWaiter:
        """An ear for the ticket that the claimant is going to put."""

    def enqueue(self, claimant: Claimant, waiter: AWaiter) -> Ticket:
        """Put a ticket at the end of the queue of ``claimant.request.type``.

        Args:
            claimant: Who puts it.
            waiter: As from `waiter`; open, or to be opened inside the same `atomic`.

        Raises:
            NotFound: No such pool, or no such resource in it.
            InvalidRequest: The pool could never satisfy the request.
        """

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        """The nearest living ticket before this one; dead ones are taken away.

        Raises:
            TicketGone: The ticket itself is no longer in the queue.
            TicketExpired: Nor is it, and for want of a sign of life.
        """

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        """Claim what the ticket asks for, least recently acquired first, and take the ticket away.

        Returns:
            All of the leases, or None, with nothing claimed, while there are too few.

        Raises:
            InvalidRequest: The pool has become too small ever to satisfy the request.
            TicketGone, TicketExpired: The ticket isn't in the queue any more.
            BackendUnreachable: It may have been claimed; the next call finds that out.
        """

    def next_expiry(self, pool_type: str) -> float | None:
        """When the next claim of the pool expires that nobody would tell of, engine's clock."""

    def dequeue(self, ticket: Ticket) -> None:
        """Take a ticket away, if it is still there, or free what it was claimed with unheard of:
        a store may have claimed although `claim` had to raise."""

    def withdraw(self, claim_key: str) -> None:
        """Take away whatever ticket an owner has, and wake it."""

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Free an owner's claims, all or some; returns those that were its own."""

    def renew(self, claim_key: str) -> tuple[str, ...]:
        """Give all of an owner's claims their full duration again; returns what it still holds."""


class PoolAdmin(Protocol):
    """What makes and shows pools."""

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once where the store can do that, else each on its own."""

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        """All pools, or the one; NotFound when there is no such type.

        Args:
            pool_type: Which; None for all.
            expiries: Ask as well when each lease runs out, where that costs extra.
        """

    def standing(self, pool_type: str, ticket: int) -> Standing:
        """What `Pool.standing` tells, without fetching the whole pool, where that takes long.

        Raises:
            NotFound: No such type.
        """

    def create_pool(self, pool_type: str, names: Sequence[str]) -> None:
        """Make a pool; InvalidRequest when it is there or a name is taken."""

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        """Add free resources to a pool; InvalidRequest when a name is taken."""

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        """Take resources out; NotAllowed when one is held, unless forced: its lease is lost."""

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        """Remove a pool; NotAllowed when it is in use, unless forced: its leases are lost."""
