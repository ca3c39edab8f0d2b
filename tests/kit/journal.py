"""A journal for tests that are about a store, or a backend, and not about handles' records."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.model import Lease


class NoJournal:
    """Writes nothing down.

    Attributes:
        leases: What was granted last; None while nothing has been.
    """

    leases: tuple[Lease, ...] | None = None

    def enqueuing(self) -> None:
        """Not noted."""

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        """Only kept, for the test."""
        self.leases = tuple(leases)

    def gave_up(self) -> None:
        """Not noted."""

    def to_undo(self) -> None:
        """Not noted."""
