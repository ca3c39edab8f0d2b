"""Short notes at claims, from others to the holder and back.

Each step is guarded by the fence of the claim and by the note that was seen, so that who has read
something older changes nothing. Several may be one request, but each is done or not by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from leasectl.model import ReleasedBy

LONGEST_NOTE = 4096  # characters


class Note(NamedTuple):
    """What is noted at the claim of one resource.

    Args:
        type: Of its pool.
        name: The resource.
        fence: Of the claim.
        text: What is noted.
    """

    type: str
    name: str
    fence: int
    text: str


# Told what is noted at the claims that were renewed.
NoteListener = Callable[[Sequence[Note]], None]


class ClaimNews(NamedTuple):
    """What others have changed at a holder's claims.

    Args:
        reason: Who has taken something by force and why; empty for nothing.
        notes: All present notes, if only notes have changed; else None, and the holder has to look
            what is left.
    """

    reason: str = ""
    notes: tuple[Note, ...] | None = None


class NoteChange(NamedTuple):
    """What is to become of a note.

    Args:
        type: Of its pool.
        name: The resource.
        fence: Of the claim; of any other the note isn't changed.
        before: What has to be noted; None for nothing.
        after: What is noted then; None for nothing.
        told: What the record of events says of it, for people; empty for no event.
        renews: The holder changes it. Where a note is a write of its own, the same write gives the
            claim its full time again, so that it needs no other. No holder counts on that.
    """

    type: str
    name: str
    fence: int
    before: str | None
    after: str | None
    told: str = ""
    renews: bool = False


class NoteWatch(Protocol):
    """Tells that something else may be noted in a pool, or that a claim with a note has ended.

    Attributes:
        fd: Readable when that may be so.
    """

    @property
    def fd(self) -> int: ...

    def clear(self) -> object:
        """Get ready for the next change; the caller has to look again afterwards."""

    def close(self) -> None:
        """Watch no longer."""


class Notes(Protocol):
    """The notes at an engine's claims; the end of a claim ends its notes."""

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        """All that is noted in a pool, by name.

        Raises:
            NotFound: No such type.
        """

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        """All that is noted at the claims that a claim key finds."""

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        """Change notes; their holders are told, and of each that is done there is an event.

        Returns:
            Of each whether it was done: the claim and the note were as they had to be.
        """

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        """Free what is noted just so.

        Args:
            notes: What has to be noted at which claims.
            by: Who ends them, for the record of events.

        Returns:
            The names freed.
        """

    def watch(self, pool_type: str) -> NoteWatch:
        """Watch for changes in a pool from now on; the caller looks once more afterwards."""
