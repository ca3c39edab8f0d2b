"""What events of any engine on a server are made of: of whom they are, and in how many words.

There a claim key is all that says whose something is. Times between two dates are never negative,
whatever clocks say.
"""

from __future__ import annotations

from leasectl.model import Claimant, ReleasedBy
from leasectl.state.event import Event, EventKind

# What ends by these its holder didn't mean to end.
AGAINST_ITS_WILL: tuple[ReleasedBy, ...] = ("ttl", "force", "removal")
_LONGEST_REASON = 300


def of_claimant(kind: EventKind, claimant: Claimant, now: float) -> Event:
    """An event of whoever asks for leases.

    Args:
        kind: What happened.
        claimant: To whom.
        now: Wall clock, in seconds; so it is below.
    """
    handle, acquisition = handle_of(f"/{claimant.claim_key}")
    request = claimant.request
    return Event(
        0,
        now,
        kind,
        request.type,
        wanted(request.name),
        handle=handle,
        acquisition=acquisition,
        holder_identity=claimant.holder_identity,
        count=request.count,
        priority=request.priority,
    )


def gave_up(claimant: Claimant, *, ticket: int, now: float, waited: float, why: str) -> Event:
    """A ticket is taken away that became nothing, after so many seconds."""
    return of_claimant("gave up", claimant, now)._replace(
        ticket=ticket, wait_seconds=max(0.0, waited), reason=short(why)
    )


def handle_of(claim_key: str) -> tuple[str, int]:
    """The handle and the acquisition that a claim key with its state id stands for."""
    _, _, key = claim_key.partition("/")
    handle, _, acquisition = key.rpartition("/")
    if handle and acquisition.isdecimal() and acquisition.isascii():
        return handle, int(acquisition)
    return key, 0


def wanted(name: str | None) -> tuple[str, ...]:
    """The one resource that a ticket waits for, where it does."""
    return () if name is None else (name,)


def short(reason: str) -> str:
    """Why something happened, no longer than anybody reads."""
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"
