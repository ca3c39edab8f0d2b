"""A pool and its resources, with indexes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from leasectl.engines.facts import PoolSettings
from leasectl.engines.memory.queue import Kept, Place, Queue
from leasectl.engines.memory.ranking import Ranking
from leasectl.engines.pacing import after_change, after_grant, next_grant_at
from leasectl.model import Claimant, Lease


@dataclass(eq=False)
class Stock:
    """A resource; ``lease`` is its last one, current while there is a claim key.

    So is the claimant whose it is, and since when, on the elapsed clock. Of a claim that was ended
    by force ``ended`` says why; its key finds it no more, but it is kept for its holder. A note is
    what others have said of the claim.
    """

    pool: StockedPool
    name: str
    lease: Lease | None = None
    claim_key: str | None = None
    expires_at: float | None = None
    claimant: Claimant | None = None
    ended: str | None = None
    granted_at: float = 0.0
    note: str | None = None


@dataclass(eq=False)
class StockedPool:
    """A pool.

    Args:
        type: Its type.
        settings: How it grants.
        now: The elapsed clock.
        queue: Who waits.
        stock: Its resources, by name.
        free: Those that nobody holds, least recently acquired first: ranked by their last fences.
        held: Those that somebody holds, longest held first.
        expiries: Those whose leases expire, ranked by when.
        called: Who was woken as it could claim, and hasn't come since; since when, or from when on
            the pace lets it, on the elapsed clock.
        last_ticket: The last number that a ticket got.
        last_grant: The last number that an acquisition got.
        paid_until: What its pace has paid for, as `pacing` has it, on the elapsed clock.
    """

    type: str
    settings: PoolSettings
    now: Callable[[], float]
    queue: Queue
    stock: dict[str, Stock] = field(default_factory=dict)
    free: Ranking = field(default_factory=Ranking)
    held: OrderedDict[str, Stock] = field(default_factory=OrderedDict)
    expiries: Ranking = field(default_factory=Ranking)
    called: dict[Place, float] = field(default_factory=dict)
    last_ticket: int = 0
    last_grant: int = 0
    paid_until: float = 0.0

    @property
    def next_grant_at(self) -> float | None:
        """When its pace allows the next grant, on the elapsed clock; None when it does so now."""
        if not self.settings.pace_seconds:
            return None
        return next_grant_at(self.settings, self.paid_until, self.now())

    def pay(self) -> None:
        """Have its pace pay for a grant that it allows."""
        if self.settings.pace_seconds:
            self.paid_until = after_grant(self.settings, self.paid_until, self.now())

    def change(self, settings: PoolSettings) -> None:
        """Have it grant as these settings say, those who wait included."""
        now = self.now()
        self.paid_until = after_change(settings, self.paid_until, now)
        self.settings = settings
        self.queue.aging_seconds = settings.aging_seconds
        for place, called_at in self.called.items():
            self.called[place] = min(called_at, now)
        self.wake_all()

    def is_free_for(self, place: Place, name: str, kept: Kept) -> bool:
        """Tell whether what nobody holds would do for a place, and isn't kept for a better one."""
        return self.queue.could_use(place, name) and not kept.has(name)

    def wake_all(self) -> None:
        """Wake everybody in the queue."""
        for place in self.queue:
            place.wake()
