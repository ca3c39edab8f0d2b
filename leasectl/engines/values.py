"""What is kept in a store under keys beside pools: small things, and results of a megabyte.

A change may be guarded by what was there, and by a claim, so that who has lost its lease changes
nothing; and it may give that claim back in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from leasectl.state.event import Event

LONGEST_VALUE = 1024 * 1024  # bytes


class Value(NamedTuple):
    """What is kept under a key.

    Args:
        key: Words that `text.naming` allows, with "/" between them.
        content: What is kept.
        version: Grows with each change of it.
        written_at: Wall clock of whoever did that, seconds since the epoch, for people.
    """

    key: str
    content: bytes
    version: int
    written_at: float


class ValueChange(NamedTuple):
    """What is to become of what is kept under a key.

    Args:
        key: Which.
        content: What is kept then; None for nothing.
        version: That it has to have; 0 for nothing there, None for whatever.
        keep_seconds: For how long it is kept, at least; None for good.
    """

    key: str
    content: bytes | None
    version: int | None = None
    keep_seconds: float | None = None


class Guard(NamedTuple):
    """The claim by which a change is allowed.

    Args:
        claim_key: Whose.
        name: Of its resource.
        fence: Of the claim.
        frees: It is given back with the change.
    """

    claim_key: str
    name: str
    fence: int
    frees: bool = False


class Values(Protocol):
    """What an engine keeps under keys."""

    def read(self, prefix: str) -> tuple[Value, ...]:
        """What is kept under keys that begin so, by key, and isn't over."""

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        """Change what is kept, all of it at once.

        Args:
            changes: At most 20, of which one may be large.
            guard: The claim by which that is allowed; None for anybody.
            event: What is written of it if it is done; its number doesn't count.

        Returns:
            Whether it was done; else nothing has changed: the claim is another's, or a version
            isn't what it has to be.

        Raises:
            BackendUnreachable: It may have been done.
        """
