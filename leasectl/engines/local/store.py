"""Resources, claims and fences.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.model import Lease, ReleasedBy, Request, Ticket
from leasectl.state.directory import State
from leasectl.state.rows import IS_FREE, IS_SPECIAL, encode_labels
from leasectl.system.clock import Clock
from leasectl.text.naming import build_url_in

if TYPE_CHECKING:
    from leasectl.engines.local.absent import LocalEarlyEnds
    from leasectl.engines.local.members import LocalMembers
    from leasectl.engines.rules.possible import Unmet
    from leasectl.state.event import EventKind

# Columns of a claim and its handle.
_CLAIMS = (
    "SELECT resource.name, resource.type, resource.owner, is_ended, expires_at, fence, ticket, "
    "grant_number, resource.holder_identity, acquire_time, handle.acquisition, handle.granted_at, "
    "handle.count, handle.priority, EXISTS (SELECT 1 FROM member WHERE member.name = "
    "resource.name AND (cordoned OR leaves OR moves_to IS NOT NULL)) AS is_bound, "
    "EXISTS (SELECT 1 FROM follower) AS is_followed FROM resource LEFT JOIN handle "
    "ON handle.id = resource.owner WHERE "
)
_CLAIMS_OF = f"{_CLAIMS} resource.owner = ? AND is_ended = ?"
_CLAIM_ON = f"{_CLAIMS} resource.name = ? AND resource.owner = ? AND is_ended = ?"
_OVER = (
    f"{_CLAIMS} resource.type = ? AND expires_at <= ? AND resource.owner IS NOT NULL "
    "ORDER BY resource.owner"
)
_POOL = (
    "SELECT capacity, last_ticket, last_grant, pace_seconds, aging_seconds > 0 OR "
    "EXISTS (SELECT 1 FROM ranked_ticket WHERE ranked_ticket.type = pool.type) AS is_ranked, "
    "(SELECT min(expires_at) FROM resource WHERE resource.type = pool.type "
    "AND expires_at IS NOT NULL) AS next_expiry, "
    f"EXISTS (SELECT 1 FROM member WHERE {IS_SPECIAL}) AS is_special, "
    "(SELECT fence FROM meta) AS reserved, EXISTS (SELECT 1 FROM follower) AS is_followed "
    "FROM pool LEFT JOIN pool_setting ON pool_setting.type = pool.type WHERE pool.type = ?"
)
_ANY_SPECIAL = f"SELECT EXISTS (SELECT 1 FROM member WHERE {IS_SPECIAL})"
_CHOSEN = "SELECT name, lease_transitions, holder_identity FROM resource WHERE"
_FREE_ONE = f"{_CHOSEN} name = ? AND type = ? AND {IS_FREE}"
# Fences grow, so this is the order in which they were last acquired.
_FREE_ONES = f"{_CHOSEN} type = ? AND {IS_FREE} ORDER BY fence, name LIMIT ?"
_CLAIM = (
    "UPDATE resource SET owner = ?, holder_identity = ?, fence = ?, lease_transitions = ?, "
    "ticket = ?, grant_number = ?, acquire_time = ?, renew_time = ?, labels = ?, closed = 0, "
    "lease_duration_seconds = NULL, expires_at = NULL WHERE name = ?"
)
_CLAIM_UNTIL = _CLAIM.replace("NULL", "?")
_FREE = "UPDATE resource SET owner = NULL, is_ended = 0, expires_at = NULL WHERE name = ?"


class LocalStore:
    """The embedded pools of one state directory.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Called, inside the transaction, with expired claims and tickets of dead waiters.

    Attributes:
        state, lost, clock: As given.
        queues: Of these pools.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self.state = state
        self.lost = lost
        self.clock = clock
        self.queues = LocalQueues(state, lost=lost, clock=clock)

    def pool(self, pool_type: str) -> sqlite3.Row:
        """Return the row of a pool with what an acquisition needs.

        The row has the capacity, the numbers of the last ticket and the last grant, the pace if
        any, whether the tickets have several priorities, when the next claim expires, whether a
        name in any pool has facts other than its pool, and the last reserved fence.

        Raises:
            NotFound: There is none of that type.
        """
        rows = self.state.query(_POOL, pool_type)
        if not rows:
            raise refusals.no_pool(pool_type, self.pool_types())
        if self.state.is_changing:  # saves the events of this transaction a statement
            self.state.events.is_followed = bool(rows[0]["is_followed"])
        return rows[0]

    def pool_types(self) -> list[str]:
        """Return all types, sorted."""
        return [row["type"] for row in self.state.query("SELECT type FROM pool ORDER BY type")]

    def possible(self, request: Request) -> sqlite3.Row:
        """Return the row of the pool of a request, see `pool`; raise if it could never meet it."""
        pool = self.pool(request.type)
        unmet = self.unmet(request, pool)
        if unmet is not None:
            raise unmet.refusal()
        return pool

    def unmet(self, request: Request, pool: sqlite3.Row) -> Unmet | None:
        """Return why a pool, as a row of `pool`, can't meet a request; None if it could."""
        is_plain = not pool["is_special"] and not request.where
        if is_plain and request.count <= pool["capacity"] and self._has(request):
            return None
        return self.memberships().why_unmet(request, pool["capacity"])

    def _has(self, request: Request) -> bool:
        sql, name = "SELECT 1 FROM resource WHERE name = ? AND type = ?", request.name
        return name is None or bool(self.state.query(sql, name, request.type))

    def free_resources(self, request: Request, better: Sequence[Waiting]) -> list[sqlite3.Row]:
        """Return claimable resources, least recently acquired first; one more than needed.

        Args:
            request: The request.
            better: Tickets with a better right to some; none if a name is asked for.

        Returns:
            For each its name, how often it has changed hands, and its last holder's identity.
        """
        if request.name is not None:
            return self.state.query(_FREE_ONE, request.name, request.type)
        if request.where or any(each.where for each in better):
            from leasectl.engines.local.wants import free_for

            return free_for(self.state, request, better)
        found = self.state.query(_FREE_ONES, request.type, request.count + len(better) + 1)
        but = [each.name for each in better]
        return [row for row in found if row["name"] not in but] if but else found

    def claim(
        self,
        ticket: Ticket,
        resources: Sequence[sqlite3.Row],
        *,
        grant: int,
        wait: float,
        reserved: int | None = None,
    ) -> tuple[Lease, ...]:
        """Claim free resources for a ticket, and write the event.

        Args:
            ticket: The ticket.
            resources: Of one pool, as `free_resources` returns them.
            grant: Its number among that pool's grants.
            wait: How long the request has waited, in seconds.
            reserved: The last reserved fence, from the row of `pool`.
        """
        claimant, pool_type, now = ticket.claimant, ticket.claimant.request.type, self.clock.wall()
        self.state.db.execute("UPDATE pool SET last_grant = ? WHERE type = ?", (grant, pool_type))
        fences = self.state.draw_fences(len(resources), reserved)
        leases = tuple([
            _lease(ticket, resource, fence=fence, grant=grant, now=now)
            for resource, fence in zip(resources, fences)
        ])  # fmt: skip
        for lease in leases:
            self._write_claim(claimant.claim_key, lease)
        self.state.events.add(
            now,
            "granted",
            pool_type,
            [lease.name for lease in leases],
            [lease.fence for lease in leases],
            handle=claimant.claim_key,
            acquisition=claimant.acquisition,
            holder_identity=claimant.holder_identity,
            count=claimant.request.count,
            priority=claimant.request.priority,
            ticket=ticket.number,
            grant=grant,
            wait_seconds=wait,
            build_url=build_url_in(claimant.request.labels),
        )
        return leases

    def _write_claim(self, claim_key: str, lease: Lease) -> None:
        """Write the holder and the times of a claim, as its lease says."""
        duration = lease.lease_duration_seconds
        values = (
            claim_key,
            lease.holder_identity,
            lease.fence,
            lease.lease_transitions,
            lease.ticket,
            lease.grant,
            lease.acquire_time,
            lease.renew_time,
            encode_labels(lease.labels),
        )
        if duration is None:
            self.state.db.execute(_CLAIM, (*values, lease.name))
        else:
            expires_at = self.clock.elapsed() + duration
            self.state.db.execute(_CLAIM_UNTIL, (*values, duration, expires_at, lease.name))

    def free(
        self,
        claim_key: str,
        names: Sequence[str] | None,
        *,
        by: ReleasedBy,
        is_ended: bool = False,
    ) -> tuple[str, ...]:
        """Free claims, all or some; return those that the claim key still found."""
        freed = self.claims(claim_key, names, is_ended=is_ended)
        self._free(freed, by=by)
        return tuple([row["name"] for row in freed])

    def _free(self, freed: Sequence[sqlite3.Row], *, by: ReleasedBy) -> None:
        self.note_end("released", freed, by=by)
        for row in freed:
            self.state.db.execute(_FREE, (row["name"],))
        bound = [row["name"] for row in freed if row["is_bound"]]
        if bound:
            self.memberships().released(bound)
            freed = [row for row in freed if not row["is_bound"]]
        for pool_type in {row["type"] for row in freed}:
            names = [row["name"] for row in freed if row["type"] == pool_type]
            self.queues.wake_for(pool_type, names)

    def take_claims_away(self, claim_key: str, names: Sequence[str], *, is_ended: bool) -> None:
        """End claims on names that are removed from their pool, and tell their holder."""
        claims = self.claims(claim_key, names, is_ended=is_ended)
        if not is_ended:
            self.note_end("lost", claims, by="removal")
        self.note_end("released", claims, by="removal")
        if not is_ended:
            self.lost(claim_key, names)

    def next_expiry(self, pool_type: str) -> float | None:
        """Return when the next claim of a pool expires, on the elapsed clock."""
        sql = "SELECT MIN(expires_at) FROM resource WHERE type = ? AND expires_at IS NOT NULL"
        ((first,),) = self.state.query(sql, pool_type)
        return None if first is None else float(first)

    def memberships(self, caller: str = "") -> LocalMembers:
        """Return the memberships of the names in these pools, to read or to change."""
        from leasectl.engines.local.members import LocalMembers  # few commands need it

        return LocalMembers(self, caller)

    @property
    def early_ends(self) -> LocalEarlyEnds:
        """The claims on these pools that were ended by force."""
        from leasectl.engines.local.absent import LocalEarlyEnds  # few commands need it

        return LocalEarlyEnds(self)

    def expire(self, pool_type: str) -> None:
        """Free the expired claims of a pool, and end the memberships that are over."""
        self.expire_claims(pool_type)
        if self.is_any_special():
            self.memberships().expire(pool_type)

    def is_any_special(self) -> bool:
        """Return whether a name in any pool has facts other than its pool."""
        return bool(self.state.query(_ANY_SPECIAL)[0][0])

    def expire_claims(self, pool_type: str) -> None:
        """Free the expired claims of a pool."""
        rows = self.state.query(_OVER, pool_type, self.clock.elapsed())
        by_holder: dict[tuple[str, int], list[sqlite3.Row]] = {}
        for row in rows:
            by_holder.setdefault((row["owner"], row["is_ended"]), []).append(row)
        for (claim_key, is_ended), claims in by_holder.items():
            self._expire(claim_key, claims, is_ended=bool(is_ended))

    def claims(
        self, claim_key: str, names: Sequence[str] | None, *, is_ended: bool = False
    ) -> list[sqlite3.Row]:
        """Return the claims of a claim key that haven't expired.

        Args:
            claim_key: Of the claims.
            names: Of the resources; None for all.
            is_ended: Those that were ended by force, instead of the valid ones.
        """
        if names is None:
            rows = self.state.query(_CLAIMS_OF, claim_key, is_ended)
        else:
            found = (self.state.query(_CLAIM_ON, name, claim_key, is_ended) for name in names)
            rows = [row for each in found for row in each]
        if rows and self.state.is_changing:  # as above
            self.state.events.is_followed = bool(rows[0]["is_followed"])
        now = self.clock.elapsed()
        over = [r for r in rows if r["expires_at"] is not None and r["expires_at"] <= now]
        if not over:
            return rows
        self._expire(claim_key, over, is_ended=is_ended)
        return [row for row in rows if row not in over]

    def note_end(
        self,
        kind: EventKind,
        claims: Sequence[sqlite3.Row],
        *,
        by: ReleasedBy,
        reason: str = "",
    ) -> None:
        """Write the event of each pool that claims were lost, or their resources released.

        Args:
            kind: Which of the two.
            claims: As `claims` returns them, of one claim key.
            by: What has ended them.
            reason: For people.
        """
        if not claims:
            return
        first = claims[0]
        others = [row for row in claims if row["type"] != first["type"]]
        if others:
            claims = [row for row in claims if row not in others]
        wall = self.clock.wall()
        granted_at = first["granted_at"]
        if granted_at is None:  # granted before a reboot
            since = first["acquire_time"]
            hold = 0.0 if since is None else max(0.0, wall - since)
        else:
            hold = self.clock.elapsed() - granted_at
        self.state.events.add(
            wall,
            kind,
            first["type"],
            [row["name"] for row in claims],
            [row["fence"] for row in claims],
            **facts_of(first),
            count=first["count"] or len(claims),
            hold_seconds=hold,
            by=by,
            reason=reason,
        )
        self.note_end(kind, others, by=by, reason=reason)

    def _expire(self, claim_key: str, claims: Sequence[sqlite3.Row], *, is_ended: bool) -> None:
        names = [row["name"] for row in claims]
        if is_ended:  # its holder has been told
            self._free(claims, by="force")
            self.state.db.executemany("DELETE FROM ended WHERE name = ?", [(n,) for n in names])
        else:
            self.note_end("lost", claims, by="ttl")
            self._free(claims, by="ttl")
            self.lost(claim_key, names)


def facts_of(claim: sqlite3.Row) -> dict[str, Any]:
    """Return what the event of a claim says of its holder, from a row of `LocalStore.claims`."""
    return {
        "handle": claim["owner"],
        "acquisition": claim["acquisition"] or 0,
        "holder_identity": claim["holder_identity"] or "",
        "priority": claim["priority"] or 0,
        "ticket": claim["ticket"] or 0,
        "grant": claim["grant_number"] or 0,
    }


def _lease(ticket: Ticket, resource: sqlite3.Row, *, fence: int, grant: int, now: float) -> Lease:
    """Return the lease of a ticket on a free resource, to be written as a claim."""
    claimant = ticket.claimant
    is_handed_on = resource["holder_identity"] not in (None, claimant.holder_identity)
    return Lease(
        name=resource["name"],
        fence=fence,
        ticket=ticket.number,
        grant=grant,
        holder_identity=claimant.holder_identity,
        acquire_time=now,
        renew_time=now,
        lease_duration_seconds=claimant.request.ttl_seconds,
        lease_transitions=resource["lease_transitions"] + is_handed_on,
        labels=claimant.request.labels,
    )
