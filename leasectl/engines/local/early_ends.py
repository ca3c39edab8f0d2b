"""Claims that were ended by force, and how long they are kept for their holders.

Whoever had one has been told, and it can't be renewed any more. What was claimed isn't granted
anew, though, before the time is over that its last renewal gave it, before its holder gives it up
or before its guard has ended, whichever comes first. Until then it goes by another claim key: so
nothing meets it that is meant for the claim, whichever version does it.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

import _sqlite3 as sqlite3
from collections.abc import Sequence

from leasectl.engines.local.store import ENDED_MARK, LocalStore
from leasectl.model import Process, parse_process
from leasectl.state.rows import encode_process, insert
from leasectl.system.process import is_dead


class LocalEarlyEnds:
    """The claims of one state directory that were ended by force.

    Args:
        store: The pools that they are of.
    """

    def __init__(self, store: LocalStore) -> None:
        self._state = store.state
        self._store = store

    def end(
        self, claim_key: str, names: Sequence[str], *, guard: Process | None, reason: str
    ) -> tuple[str, ...]:
        """End claims that are good; returns which. The rest is as `PoolAdmin.end_early`."""
        claims = self._store.claims(claim_key, names)
        self._store.note_end("lost", claim_key, claims, by="force", reason=reason)
        for row in claims:
            if row["expires_at"] is not None or guard is not None:
                self._keep(claim_key, row["name"], row["type"], guard=guard, reason=reason)
            else:
                self._store.free(claim_key, [row["name"]], by="force")
        return tuple(row["name"] for row in claims)

    def free_at_once(self, claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
        """Free what was ended before and has no ttl, whoever may use it; returns which."""
        expires = self._of(claim_key)
        freed = tuple(name for name in names if expires.get(name) is False)
        self._free(claim_key, freed)
        return freed

    def give_up(self, claim_key: str) -> None:
        """Its holder has done with what was ended."""
        self._free(claim_key, list(self._of(claim_key)))

    def guards(self, pool_type: str | None = None) -> list[Process]:
        """Whose end frees something that was ended, of one pool or of all."""
        return [parse_process(row["guard"]) for row in self._guarded(pool_type)]

    def free_what_the_dead_had(self, pool_type: str | None = None) -> bool:
        """Free what was ended and whose guard has ended since; returns whether there was any."""
        dead = [row for row in self._guarded(pool_type) if is_dead(parse_process(row["guard"]))]
        for row in dead:
            self._free(row["claim_key"], [row["name"]])
        return bool(dead)

    def _guarded(self, pool_type: str | None) -> list[sqlite3.Row]:
        return self._state.query(
            "SELECT name, claim_key, guard FROM ended "
            "WHERE guard IS NOT NULL AND type = coalesce(?, type)",
            pool_type,
        )

    def _keep(
        self, claim_key: str, name: str, pool_type: str, *, guard: Process | None, reason: str
    ) -> None:
        self._state.db.execute(
            "UPDATE resource SET owner = ? WHERE name = ?", (ENDED_MARK + claim_key, name)
        )
        row = {
            "name": name,
            "type": pool_type,
            "claim_key": claim_key,
            "guard": encode_process(guard),
            "reason": reason,
        }
        insert(self._state.db, "ended", row, replace=True)
        self._store.queues.wake_for(pool_type, [name])  # so that it knows for what to wait

    def _of(self, claim_key: str) -> dict[str, bool]:
        """What was ended of a claim key's, and whether that expires."""
        rows = self._state.query(
            "SELECT name, expires_at FROM resource WHERE name IN "
            "(SELECT name FROM ended WHERE claim_key = ?) AND owner = ?",
            claim_key,
            ENDED_MARK + claim_key,
        )
        return {row["name"]: row["expires_at"] is not None for row in rows}

    def _free(self, claim_key: str, names: Sequence[str]) -> None:
        self._store.free(ENDED_MARK + claim_key, names, by="force")
        self._state.db.executemany("DELETE FROM ended WHERE name = ?", [(name,) for name in names])
