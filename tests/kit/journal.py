"""A journal for tests that are about a store, or a backend, and not about handles' records."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.model import Lease


class NoJournal:
    """Writes nothing down."""

    def enqueuing(self) -> None:
        """Not noted."""

    def granted(self, leases: Sequence[Lease]) -> None:
        """Not noted."""

    def gave_up(self) -> None:
        """Not noted."""

    def to_undo(self) -> None:
        """Not noted."""
