"""The backend over an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from leasectl.backends.contract import Journal, Patience, Turn
from leasectl.backends.kinds import Backend, HasSides
from leasectl.engines.contract import Engine
from leasectl.model import Claimant, ReleasedBy, Request
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
        remote: The store isn't part of the records' transactions; False for as the class says.
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
        remote: bool = False,
        limited: Callable[[float | None], AbstractContextManager[object]] = nullcontext,
        release_seconds: float | None = None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.url = url
        self.remote = remote or self.remote
        self._engine = engine
        self._sides = sides
        self._clock = clock
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

        turn = PoolTurn(
            self._engine,
            self._clock,
            claimant,
            journal,
            patience,
            closed=self._why_closed,
            withdrawn=self._why_withdrawn,
            supersede=self._supersede,
            count_whole=self._count_whole,
        )
        return turn.take()

    def _why_withdrawn(self, claimant: Claimant) -> str:
        from leasectl.backends.pool.withdrawals import take_reason

        return take_reason(self.values, claimant)

    def _supersede(self, claimant: Claimant, granted: tuple[str, int] | None) -> None:
        from leasectl.backends.pool.withdrawals import supersede

        supersede(self, claimant, granted=granted)

    def _count_whole(self, request: Request) -> int:
        from leasectl.engines.rules.possible import usable_in

        (pool,) = self.pools.pools(request.type)
        return len(usable_in(pool, request))

    def _why_closed(self, types: Sequence[str]) -> str:
        from leasectl.backends.pool.closed import why_closed

        with self.limited(self._clock.elapsed()):
            return why_closed(self.pools, types)
