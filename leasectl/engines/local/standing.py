"""How things stand for a ticket of the embedded pools, for people: read without a lock."""

from __future__ import annotations

from leasectl.engines.facts import Standing
from leasectl.engines.local.queues import PLACES, RANKED_TICKETS
from leasectl.engines.local.settings import LocalSettings
from leasectl.engines.local.store import LocalStore
from leasectl.model import Request
from leasectl.state.rows import CLOSED_MARK
from leasectl.system.clock import Clock

# What has expired may not have been freed yet.
_IS_HELD = f"type = :type AND owner <> '{CLOSED_MARK}' AND coalesce(expires_at > :now, 1)"
# The effective priority, as `leasectl.engines.ranking` has it.
_PRIORITY = (
    "coalesce(ranked.priority + CASE WHEN :aging > 0 "
    "THEN CAST(max(0, :now - ranked.queued_at) / :aging AS INTEGER) ELSE 0 END, 0)"
)
# Those that keep the ticket from something: better, and not suspended.
_BETTER = (
    f"SELECT count(*) FROM %s, (SELECT {_PRIORITY} AS priority FROM {PLACES} "
    "WHERE ticket.type = :type AND ticket.number = :ticket) AS own "
    "WHERE ticket.type = :type AND suspended.number IS NULL "
    f"AND ({_PRIORITY} > own.priority "
    f"OR ({_PRIORITY} = own.priority AND ticket.number < :ticket))"
)
_BETTER_FOR_ANY = _BETTER % PLACES
# Of those, who is after the one name that it could use.
_BETTER_FOR_NAME = (
    f"{_BETTER % RANKED_TICKETS} AND (handle.name = :name OR "
    "(handle.name IS NULL AND coalesce(handle.where_properties, '') NOT IN (%s)))"
)


def standing_of(store: LocalStore, request: Request, ticket: int, *, clock: Clock) -> Standing:
    """How things stand for a ticket; NotFound when its pool has gone.

    Args:
        store: The pools.
        request: What it is for.
        ticket: Its number.
        clock: Where times come from.
    """
    state, pool_type = store.state, request.type
    settings = LocalSettings(state, clock=clock)
    granting = settings.of(pool_type)
    values = {
        "type": pool_type,
        "ticket": ticket,
        "name": request.name,
        "now": clock.elapsed(),
        "aging": granting.aging_seconds,
    }
    capacity = store.pool(pool_type)["capacity"]
    others = _others(store, request)
    better = _BETTER_FOR_ANY
    if request.name is not None:
        better = _BETTER_FOR_NAME % ", ".join(f":{key}" for key in others)
    (counts,) = state.query(
        f"SELECT ({better}) AS better,"
        " (SELECT count(*) FROM ticket WHERE type = :type AND number <> :ticket) AS others,"
        f" (SELECT count(*) FROM resource WHERE {_IS_HELD}) AS held",
        **values,
        **others,
    )
    longest = state.query(
        f"SELECT holder_identity, acquire_time FROM resource WHERE {_IS_HELD} "
        "ORDER BY acquire_time, name LIMIT 1",
        **values,
    )
    found = Standing(
        counts["better"] + 1,
        counts["others"],
        counts["held"],
        capacity,
        next_grant_at=settings.next_grant_at(pool_type),
        pace_seconds=granting.pace_seconds,
    )
    for row in longest:
        return found._replace(
            longest_holder=row["holder_identity"], longest_since=row["acquire_time"]
        )
    return found


def _others(store: LocalStore, request: Request) -> dict[str, str]:
    """What those in the queue ask for who couldn't use the one resource that a request asks for."""
    if request.name is None:
        return {}
    rows = store.state.query(
        "SELECT DISTINCT where_properties FROM ticket JOIN handle ON handle.id = ticket.owner "
        "WHERE ticket.type = ? AND where_properties <> ''",
        request.type,
    )
    found = [row[0] for row in rows]
    if not found:
        return {}
    from leasectl.engines.local.wants import matching

    fit = matching(store.state, found, request.name)
    return {f"other{number}": each for number, each in enumerate(found) if each not in fit}
