"""Other modules that a row of `kinds` names, for requests beside acquiring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt

if TYPE_CHECKING:
    from leasectl.engines.notes import ClaimNews, NoteListener
    from leasectl.engines.pool_admin import Sides


# Gives what a claim key holds its full time again, which are those names as far as is known;
# returns the names that it still holds.
Renew = Callable[[str, Sequence[str]], "tuple[str, ...]"]


class ClaimWatch(Protocol):
    """Tells a holder at once that somebody else has changed what it holds.

    Attributes:
        fd: Readable when that may be so.
    """

    @property
    def fd(self) -> int: ...

    def take(self) -> ClaimNews:
        """Get ready for the next change, and return what has changed so far."""

    def close(self) -> None:
        """Watch no longer."""


class ClaimServer(Protocol):
    """The module that a kind's row names for what its server is asked of claims that are held."""

    def open_renewals(
        self,
        url: str,
        *,
        state_id: str,
        settings: Settings,
        ttl_seconds: float,
        noted: NoteListener,
        put_off: Callable[[], object] | None,
        clock: Clock,
    ) -> Renew:
        """Open what renews in a thread of its own; as `opening.open_renewals`."""

    def open_claim_watch(
        self,
        url: str,
        *,
        state_id: str,
        settings: Settings,
        claim_key: str,
        fence: int,
        clock: Clock,
    ) -> ClaimWatch | None:
        """Open what tells a holder of changes; as `opening.open_claim_watch`."""

    def open_probe(
        self, url: str, settings: Settings, *, clock: Clock
    ) -> Callable[[], None] | None:
        """Open what finds out whether the server works; as `opening.open_probe`."""


class PoolServer(ClaimServer, Protocol):
    """The same where the server has pools of ours: what a shell asks of them besides."""

    def pool_types(
        self, url: str, settings: Settings, *, seconds: float, clock: Clock
    ) -> Sequence[str]:
        """The types of its pools, for a shell that completes them.

        Args:
            url: Of the server.
            settings: How to talk to it.
            seconds: How long that may take.
            clock: Where times come from.

        Raises:
            LeaseError: They can't be had in that time.
        """

    def resource_names(
        self,
        url: str,
        settings: Settings,
        begin: str,
        types: Collection[str],
        *,
        seconds: float,
        clock: Clock,
    ) -> Sequence[str]:
        """Names in its pools, for a shell that completes them; as `opening.resource_names`."""

    def open_to_look(
        self, url: str, settings: Settings, *, seconds: float, clock: Clock
    ) -> Sides | None:
        """Its pools and what is beside them, for a shell; as `opening.open_to_look`."""


class Locator(Protocol):
    """The module that a kind's row names for where its server is, which its URLs needn't say."""

    def locate(self, url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
        """Add to settings which server is meant; as `opening.located`."""


class PlaceSource(Protocol):
    """The module that a kind's row names for where leases are, which its URLs needn't say."""

    def place(self, url: str, settings: Settings) -> str:
        """Where they are; as `places.place_of`."""


class StatusServer(Protocol):
    """The module that a kind's row names for what its server tells of the pools behind it."""

    def ask_status(
        self, url: str, settings: Settings, *, pool_type: str | None, clock: Clock
    ) -> object:
        """Ask for pools as they are; as `opening.ask_status`."""


class Timing(NamedTuple):
    """How long the leases at an address last.

    Args:
        ttl_seconds: After their last renewal, in the worst case.
        said_seconds: What people say that is, who know of no worst case.
        renew_seconds: How often they are renewed.
    """

    ttl_seconds: float
    said_seconds: float
    renew_seconds: float


class TimingSource(Protocol):
    """The module that a kind's row names for how long its leases last."""

    def timing(self, url: str) -> Timing:
        """Implements `opening.timing`."""


class TypeCounts(NamedTuple):
    """How many resources of a type there are.

    Args:
        type: Which.
        states: How many are in each state, as the server calls it.
        owners: How many each owner has; those that nobody has are under the empty name.
        free_state: The state of those that can be had.
    """

    type: str
    states: Mapping[str, int]
    owners: Mapping[str, int]
    free_state: str


class CountServer(Protocol):
    """The module that a kind's row names for how many resources its server tells of."""

    def ask_counts(
        self,
        url: str,
        settings: Settings,
        pool_type: str,
        *,
        interrupts: Sequence[Interrupt],
        clock: Clock,
    ) -> TypeCounts:
        """Ask for a type; as `opening.ask_counts`.

        Raises:
            NotFound: There is none of it.
            BackendUnreachable: No answer, or none to us.
        """
