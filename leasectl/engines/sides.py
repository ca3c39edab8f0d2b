"""What an engine has beside leases, for the backend over it; most commands use none of it."""

from __future__ import annotations

from leasectl.typed.hints import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.members import Members
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import PoolAdmin
    from leasectl.engines.values import Values


class Sides(Protocol):
    """The other sides of one store; each is opened, and its modules loaded, when asked for."""

    @property
    def pools(self) -> PoolAdmin:
        """Its pools, to be shown and changed."""

    @property
    def events(self) -> EventLog:
        """What happened in its pools."""

    @property
    def members(self) -> Members:
        """In which pool each name is, and may be."""

    @property
    def notes(self) -> Notes:
        """What is noted at its claims."""

    @property
    def values(self) -> Values:
        """What is kept under keys beside its pools."""
