"""The embedded pools and the claims on what is in them.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.local.queues import LocalQueues
from leasectl.model import Lease, ReleasedBy, Request
from leasectl.state.directory import State
from leasectl.state.rows import encode_labels
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.local.queues import Waiting
    from leasectl.state.event import EventKind

# What the claim key of a claim begins with that was ended by force; no other does.
ENDED_MARK = "!"
# What is asked of a claim.
_CLAIM = "name, type, owner, expires_at, fence, ticket, grant_number, holder_identity, acquire_time"
_OF_HANDLE = "SELECT acquisition, granted_at, count, priority FROM handle WHERE id = ?"
_POOL = (
    "SELECT capacity, last_ticket, last_grant, pace_seconds, aging_seconds > 0 OR "
    "EXISTS (SELECT 1 FROM ranked_ticket WHERE ranked_ticket.type = pool.type) AS is_ranked "
    "FROM pool LEFT JOIN pool_setting ON pool_setting.type = pool.type WHERE pool.type = ?"
)
_FREE = "UPDATE resource SET owner = NULL, expires_at = NULL WHERE name = ?"


class LocalStore:
    """The embedded pools of one state directory.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of claims that expired and of tickets of the dead.

    Attributes:
        state: As given.
        queues: Of these pools.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self.state = state
        self._lost = lost
        self._clock = clock
        self.queues = LocalQueues(state, lost=lost, clock=clock)

    def pool(self, pool_type: str) -> sqlite3.Row:
        """A pool's capacity, the numbers of its last ticket and its last grant, its pace if any,
        and whether not all tickets in its queue are alike.

        Raises:
            NotFound: There is none of that type.
        """
        rows = self.state.query(_POOL, pool_type)
        if not rows:
            raise refusals.no_pool(pool_type, self.pool_types())
        return rows[0]

    def pool_types(self) -> list[str]:
        """All types, in order."""
        rows = self.state.query("SELECT type FROM pool ORDER BY type")
        return [row["type"] for row in rows]

    def possible(self, request: Request) -> sqlite3.Row:
        """The pool that could satisfy a request, as `pool`; raises for what none ever could."""
        return self.check(request, self.pool(request.type))

    def check(self, request: Request, pool: sqlite3.Row) -> sqlite3.Row:
        """Return a pool that could satisfy a request; raises for what none ever could."""
        if request.count > pool["capacity"]:
            raise refusals.too_few(request.type, pool["capacity"], request.count)
        if request.name is not None and not self.state.query(
            "SELECT 1 FROM resource WHERE name = ? AND type = ?", request.name, request.type
        ):
            raise refusals.no_resource(request.type, request.name)
        return pool

    def free_resources(self, request: Request, *, but: Collection[str | None]) -> list[sqlite3.Row]:
        """What could be claimed, least recently acquired first; one more than is asked for.

        Args:
            request: What is asked for.
            but: Those that others have a better right to; none where a name is asked for.

        Returns:
            Of each its name, how often it has changed hands, and its last holder's identity.
        """
        select = "SELECT name, lease_transitions, holder_identity FROM resource WHERE "
        if request.name is not None:
            return self.state.query(
                select + "name = ? AND type = ? AND owner IS NULL", request.name, request.type
            )
        # The fence of the last grant is also the order in which they were last acquired.
        found = self.state.query(
            select + "type = ? AND owner IS NULL ORDER BY fence, name LIMIT ?",
            request.type,
            request.count + len(but) + 1,
        )
        return [row for row in found if row["name"] not in but] if but else found

    def any_free(self, pool_type: str, waiting: Sequence[Waiting]) -> bool:
        """Tell whether what one of some tickets waits for by name is free."""
        return any(
            self.state.query(
                "SELECT 1 FROM resource WHERE name = ? AND type = ? AND owner IS NULL",
                each.name,
                pool_type,
            )
            for each in waiting
        )

    def note_grant(self, pool_type: str, number: int) -> None:
        """Have the pool remember the number of its last grant."""
        self.state.db.execute("UPDATE pool SET last_grant = ? WHERE type = ?", (number, pool_type))

    def write_claim(self, claim_key: str, lease: Lease) -> None:
        """Have a resource be held, from now on for as long as the lease says."""
        duration = lease.lease_duration_seconds
        self.state.db.execute(
            "UPDATE resource SET owner = :claim_key, holder_identity = :holder_identity, "
            "fence = :fence, lease_transitions = :lease_transitions, ticket = :ticket, "
            "grant_number = :grant_number, acquire_time = :acquire_time, "
            "renew_time = :renew_time, lease_duration_seconds = :lease_duration_seconds, "
            "expires_at = :expires_at, labels = :labels WHERE name = :name",
            {
                "claim_key": claim_key,
                "holder_identity": lease.holder_identity,
                "fence": lease.fence,
                "lease_transitions": lease.lease_transitions,
                "ticket": lease.ticket,
                "grant_number": lease.grant,
                "acquire_time": lease.acquire_time,
                "renew_time": lease.renew_time,
                "lease_duration_seconds": duration,
                "expires_at": None if duration is None else self._clock.elapsed() + duration,
                "labels": encode_labels(lease.labels),
                "name": lease.name,
            },
        )

    def free(
        self, claim_key: str, names: Sequence[str] | None, *, by: ReleasedBy
    ) -> tuple[str, ...]:
        """Free claims, all or some; returns those that the claim key still found."""
        freed = self.claims(claim_key, names)
        self._free(claim_key, freed, by=by)
        return tuple(row["name"] for row in freed)

    def _free(self, claim_key: str, freed: Sequence[sqlite3.Row], *, by: ReleasedBy) -> None:
        self.note_end("released", claim_key, freed, by=by)
        self.state.db.executemany(_FREE, [(row["name"],) for row in freed])
        for pool_type in {row["type"] for row in freed}:
            names = [row["name"] for row in freed if row["type"] == pool_type]
            self.queues.wake_for(pool_type, names)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        """Give claims their full duration again; returns those that are left, by their fences."""
        self.claims(claim_key, None)
        self.state.db.execute(
            "UPDATE resource SET renew_time = ?, expires_at = ? + lease_duration_seconds "
            "WHERE owner = ?",
            (self._clock.wall(), self._clock.elapsed(), claim_key),
        )
        rows = self.state.query(
            "SELECT name FROM resource WHERE owner = ? ORDER BY fence", claim_key
        )
        return tuple(row["name"] for row in rows)

    def change_ttl(self, claim_key: str, ttl_seconds: float) -> None:
        """Have claims that expire do so this long after each renewal; the next is to follow."""
        self.state.db.execute(
            "UPDATE resource SET lease_duration_seconds = ? "
            "WHERE owner = ? AND lease_duration_seconds IS NOT NULL",
            (ttl_seconds, claim_key),
        )
        for row in self.claims(claim_key, None):
            self.queues.wake_for(row["type"], [row["name"]])  # it may be free sooner than they know

    def next_expiry(self, pool_type: str) -> float | None:
        """When the next claim of a pool expires, on the elapsed clock."""
        ((first,),) = self.state.query(
            "SELECT MIN(expires_at) FROM resource WHERE type = ? AND expires_at IS NOT NULL",
            pool_type,
        )
        return None if first is None else float(first)

    def expire(self, pool_type: str) -> None:
        """Free the claims of a pool whose time is over."""
        rows = self.state.query(
            f"SELECT {_CLAIM} FROM resource WHERE type = ? AND expires_at <= ? ORDER BY owner",
            pool_type,
            self._clock.elapsed(),
        )
        for claim_key in dict.fromkeys(row["owner"] for row in rows):
            self._expire(claim_key, [row for row in rows if row["owner"] == claim_key])

    def claims(self, claim_key: str, names: Sequence[str] | None) -> list[sqlite3.Row]:
        """What a claim key still finds, after expiry; of some names or all."""
        select = f"SELECT {_CLAIM} FROM resource WHERE owner = ?"
        if names is None:
            rows = self.state.query(select, claim_key)
        else:
            rows = [
                r for n in names for r in self.state.query(select + " AND name = ?", claim_key, n)
            ]
        now = self._clock.elapsed()
        over = [r for r in rows if r["expires_at"] is not None and r["expires_at"] <= now]
        if not over:
            return rows
        self._expire(claim_key, over)
        return [row for row in rows if row not in over]

    def note_end(
        self,
        kind: EventKind,
        claim_key: str,
        claims: Sequence[sqlite3.Row],
        *,
        by: ReleasedBy,
        reason: str = "",
    ) -> None:
        """Have it be told that claims were lost, or their resources released.

        Args:
            kind: Which of that.
            claim_key: Whose, or whose they were before they ended by force.
            claims: As `claims` returns them.
            by: Who or what has ended them.
            reason: For people.
        """
        if not claims:
            return
        wall, first = self._clock.wall(), claims[0]
        handle = claim_key.lstrip(ENDED_MARK)
        acquisition, granted_at, count, priority = next(
            iter(self.state.query(_OF_HANDLE, handle)), (0, None, len(claims), 0)
        )
        if granted_at is None:  # it holds by a grant of a version before, or of another boot
            hold = max(0.0, wall - (first["acquire_time"] or wall))
        else:
            hold = self._clock.elapsed() - granted_at
        self.state.events.add(
            wall,
            kind,
            first["type"],
            [row["name"] for row in claims],
            [row["fence"] for row in claims],
            handle=handle,
            acquisition=acquisition,
            holder=first["holder_identity"] or "",
            count=count,
            priority=priority,
            ticket=first["ticket"] or 0,
            grant=first["grant_number"] or 0,
            hold=hold,
            by=by,
            reason=reason,
        )

    def _expire(self, claim_key: str, claims: Sequence[sqlite3.Row]) -> None:
        names = [row["name"] for row in claims]
        if claim_key.startswith(ENDED_MARK):  # whose holder has been told
            self._free(claim_key, claims, by="force")
            self.state.db.executemany("DELETE FROM ended WHERE name = ?", [(n,) for n in names])
        else:
            self.note_end("lost", claim_key, claims, by="ttl")
            self._free(claim_key, claims, by="ttl")
            self._lost(claim_key, names)
