"""All or none of N leases, from a server that grants one for each request.

A request that holds a part and waits for the rest keeps that part from others that do the same: two
that each hold what the other waits for would wait for ever. So the rest is waited for with a limit;
then all is given back and requested again after a random pause. There is no queue in this: a
request for many may be overtaken for as long as others ask for few.

One acquisition: `acquire_one_by_one` asks the server (`Grants`) for one after the other -> the
journal records each the moment it arrives -> after too long a wait for the rest, `_give_all_back`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from leasectl.backends.contract import RemoteJournal
from leasectl.model import Lease
from leasectl.system.backoff import Backoff, Pauses, draw
from leasectl.system.clock import earliest
from leasectl.text.durations import format_duration

# With a part in hand the rest is waited for this long, times 1 to 2.
PART_SECONDS = 45.0
# And this much longer for each second that a ghost stays: who gives up must leave the others time
# to get what it gave back, before they give up likewise.
_PART_FOR_GHOSTS = 3.0
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=60.0, chance=1.0)
# A wait that is longer than a ghost's by this isn't kept from a free resource by an earlier one.
_GHOST_MARGIN = 5.0
# An older release of a name is soon over, one way or the other.
_RELEASE_SECONDS = (0.1, 1.0)


class Grants(Protocol):
    """A server that grants one at a time.

    Attributes:
        ghost_seconds: How long a request that was given up keeps its position in the server's
            queue, and so holds back those behind it.
    """

    @property
    def ghost_seconds(self) -> float: ...

    def ask_for_one(self, until: float | None) -> str | None:
        """Ask for one, and wait.

        Args:
            until: When to give up, CLOCK_BOOTTIME in seconds; None for never.

        Returns:
            The name of what was granted; None when there was none in time.

        Raises:
            LeaseError: There won't be one.
        """

    def give_back(self, name: str) -> None:
        """Give back what was granted to this acquisition.

        Raises:
            BackendUnreachable: It is not certain that it was given back.
        """

    def pause(self, seconds: float) -> None:
        """Let time pass; raises what ends the wait."""


def acquire_one_by_one(
    server: Grants,
    count: int,
    journal: RemoteJournal,
    *,
    deadline: float | None,
    now: Callable[[], float],
    chance: Callable[[], float] = draw,
) -> tuple[Lease, ...] | None:
    """Acquire so many leases, or none.

    If this raises, what has arrived is on record, and the caller gives it back.

    Args:
        server: Where they come from.
        count: How many.
        journal: Records each as it arrives.
        deadline: When to give up, CLOCK_BOOTTIME in seconds; None for never.
        now: That clock.
        chance: Returns a random number from 0 to 1.

    Returns:
        The leases; None if not all arrived in time. Those that had arrived are on record then, too.

    Raises:
        LeaseError: The server's refusal, or what ended the wait.
    """
    pauses = Pauses(BACKOFF)
    while True:
        leases: list[Lease] = []
        while len(leases) < count:
            until = deadline
            if leases:
                seconds = PART_SECONDS + _PART_FOR_GHOSTS * server.ghost_seconds
                until = earliest(deadline, now() + seconds * (1 + chance()))
            lease = _get_one(server, journal, until, chance)
            if lease is None:
                break
            leases.append(lease)
        else:
            return tuple(leases)
        if deadline is not None and now() >= deadline:
            return None
        _give_all_back(server, journal, leases)
        # Before the ghost of the request that was given up is gone, another would only be in the
        # way of those who get on.
        seconds = server.ghost_seconds + pauses.next()
        server.pause(seconds if deadline is None else max(0.0, min(seconds, deadline - now())))
        if deadline is not None and now() >= deadline:
            return None


def short_wait_hint(wait_seconds: float | None, ghost_seconds: float) -> str:
    """Return what an error adds after a wait so short that a loop of such waits gets nothing."""
    if not ghost_seconds or wait_seconds is None or wait_seconds >= ghost_seconds + _GHOST_MARGIN:
        return ""
    ghost, least = format_duration(ghost_seconds), format_duration(ghost_seconds + _GHOST_MARGIN)
    return (
        f"; Boskos keeps this ended request in its queue for {ghost}, and your next request queues "
        f"behind it: use one wait of -w {least} or longer instead of many short ones"
    )


def _get_one(
    server: Grants, journal: RemoteJournal, until: float | None, chance: Callable[[], float]
) -> Lease | None:
    while True:
        name = server.ask_for_one(until)
        if name is None:
            return None
        lease = journal.arrived(name)
        if lease is not None:
            return lease
        # An older release of this name is still under way and could hit the new grant.
        server.give_back(name)
        shortest, longest = _RELEASE_SECONDS
        server.pause(shortest + (longest - shortest) * chance())


def _give_all_back(server: Grants, journal: RemoteJournal, leases: Sequence[Lease]) -> None:
    for lease in leases:
        journal.returning(lease.name)
        server.give_back(lease.name)
        journal.returned(lease.name)
