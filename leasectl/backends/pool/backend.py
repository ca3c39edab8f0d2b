"""The backend over an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from leasectl.backends.contract import Journal, Patience, Turn
from leasectl.backends.kinds import Backend, HasSides
from leasectl.engines.contract import Engine
from leasectl.model import Claimant, ReleasedBy
from leasectl.system.clock import Clock
from leasectl.system.poll import sleep_through

if TYPE_CHECKING:
    from leasectl.engines.pool_admin import Sides


class PoolBackend(Backend):
    """Leases from an engine's pools.

    Args:
        url: What chose it.
        engine: The store.
        sides: The other sides of the same store; most commands never look at them.
        clock: The engine's clock.
        limited: As `Backend` has it, where the store is a server.
        release_seconds: How long a release may take in all there; None for as long as is usual.
        close: Ends the connections of the store.
    """

    remote = False
    has_pools = True
    can_be_served = True
    events = HasSides.events

    def __init__(
        self,
        url: str,
        engine: Engine,
        sides: Sides,
        *,
        clock: Clock,
        limited: Callable[[float | None], AbstractContextManager[object]] = nullcontext,
        release_seconds: float | None = None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.url = url
        self._engine = engine
        self._clock = clock
        self._sides = sides
        self._limited = limited
        self._release_seconds = release_seconds
        self._close = close

    @property
    def sides(self) -> Sides:
        return self._sides

    def atomic(self) -> AbstractContextManager[object]:
        return self._engine.atomic()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return self._limited(until)

    def close(self) -> None:
        self._close()

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self._engine.withdraw(claim_key, why)

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        if self._release_seconds is None:
            return self._release(claim_key, names, by)
        with self.limited(self._clock.elapsed() + self._release_seconds):
            return self._release(claim_key, names, by)

    def _release(self, claim_key: str, names: Sequence[str], by: ReleasedBy) -> tuple[str, ...]:
        if names:
            return self._engine.free(claim_key, names, by=by)
        if self.remote:
            from leasectl.engines.rules.events import why_left

            self._engine.withdraw(claim_key, why_left(by))
        return self._engine.free(claim_key, by=by)

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        return self._engine.renew(claim_key, ttl_seconds=ttl_seconds)

    def acquire(self, claimant: Claimant, journal: Journal, patience: Patience) -> None:
        steps = self.turn(claimant, journal, patience)
        sleep_through(
            steps,
            interrupts=patience.interrupts,
            now=self._clock.elapsed,
            at_first_sleep=patience.at_first_sleep,
        )

    def turn(self, claimant: Claimant, journal: Journal, patience: Patience) -> Turn:
        from leasectl.backends.pool.turn import PoolTurn  # which no release needs

        return PoolTurn(self, self._engine, self._clock, claimant, journal, patience).take()
