"""What a server tells of its leases, beside granting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from leasectl.engines.notes import ClaimNews, NoteListener


class Timing(NamedTuple):
    """How long the leases at an address last.

    Args:
        ttl_seconds: After their last renewal, in the worst case.
        said_seconds: The ttl that people give and read, without the worst case.
        renew_seconds: How often they are renewed.
    """

    ttl_seconds: float
    said_seconds: float
    renew_seconds: float


class TypeCounts(NamedTuple):
    """How many resources of a type there are.

    Args:
        type: Which.
        states: How many are in each state, as the server calls it.
        owners: How many each owner has; free resources are under the empty name.
        free_state: The state of free resources.
    """

    type: str
    states: Mapping[str, int]
    owners: Mapping[str, int]
    free_state: str


# Renews what a claim key holds, which are those names as far as is known; returns the names that
# it still holds.
Renew = Callable[[str, Sequence[str]], "tuple[str, ...]"]


class RenewalTerms(NamedTuple):
    """What one thread renews, and how.

    Args:
        state_id: Of the state directory.
        ttl_seconds: Of the leases. No renewal takes longer than a third of it.
        noted: Told by each renewal, in that thread, what is noted at the claims.
        put_off: Called if some of a renewal was put off to the answer of a note, and is to be
            repeated soon; None to put nothing off.
    """

    state_id: str
    ttl_seconds: float
    noted: NoteListener
    put_off: Callable[[], object] | None = None


class ClosingRenewals:
    """Renews over connections of its own, which it can end.

    Args:
        renew: As `Renew`.
        close: Ends the connections.
    """

    def __init__(self, renew: Renew, close: Callable[[], object]) -> None:
        self._renew = renew
        self.close = close

    def __call__(self, claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
        return self._renew(claim_key, names)


class ClaimWatch(Protocol):
    """Tells a holder at once that another process has changed its claims.

    Attributes:
        fd: Readable when that may be so.
    """

    @property
    def fd(self) -> int: ...

    def take(self) -> ClaimNews:
        """Get ready for the next change, and return what has changed so far."""

    def close(self) -> None:
        """Watch no longer."""


class ClosingClaimWatch:
    """A `ClaimWatch` over connections of its own, which it ends.

    Args:
        watch: The watch.
        close: Ends the connections.
    """

    def __init__(self, watch: ClaimWatch, close: Callable[[], object]) -> None:
        self._watch = watch
        self._close = close

    @property
    def fd(self) -> int:
        return self._watch.fd

    def take(self) -> ClaimNews:
        return self._watch.take()

    def close(self) -> None:
        self._watch.close()
        self._close()
