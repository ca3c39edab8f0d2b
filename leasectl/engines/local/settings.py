"""How the embedded pools grant, and what their paces have paid for.

Pools that have the usual settings have no row. Every method that changes something belongs inside
`State.transaction`.
"""

from __future__ import annotations

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.pacing import after_change, after_grant, next_grant_at
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.system.clock import Clock


class LocalSettings:
    """The settings of one state directory's pools.

    Args:
        state: Where they are kept.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def of(self, pool_type: str) -> PoolSettings:
        """How a pool grants."""
        return self._row(pool_type)[0]

    def next_grant_at(self, pool_type: str) -> float | None:
        """When a pool's pace allows the next grant, on the elapsed clock; None for now."""
        settings, paid_until = self._row(pool_type)
        return next_grant_at(settings, paid_until, self._clock.elapsed())

    def note_grant(self, pool_type: str) -> None:
        """Have a grant be paid for, in its own transaction."""
        settings, paid_until = self._row(pool_type)
        self._state.db.execute(
            "UPDATE pool_setting SET paid_until = ? WHERE type = ?",
            (after_grant(settings, paid_until, self._clock.elapsed()), pool_type),
        )

    def change(self, pool_type: str, settings: PoolSettings) -> None:
        """Have a pool grant in another way; what it owes, it owes at most."""
        paid_until = after_change(settings, self._row(pool_type)[1], self._clock.elapsed())
        row = {"type": pool_type, **settings._asdict(), "paid_until": paid_until}
        insert(self._state.db, "pool_setting", row, replace=True)

    def _row(self, pool_type: str) -> tuple[PoolSettings, float]:
        rows = self._state.query(
            "SELECT pace_seconds, burst, aging_seconds, paid_until FROM pool_setting "
            "WHERE type = ?",
            pool_type,
        )
        for pace_seconds, burst, aging_seconds, paid_until in rows:
            return PoolSettings(pace_seconds, burst, aging_seconds), paid_until
        return NO_SETTINGS, 0.0
