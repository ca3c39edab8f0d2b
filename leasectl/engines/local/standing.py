"""A waiter's position and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from leasectl.engines.facts import Standing
from leasectl.engines.local.queues import PLACES, RANKED_TICKETS, Waiting
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.wants import LocalSettings, is_enough_for, matching
from leasectl.engines.rules.turns import Rank
from leasectl.model import Request
from leasectl.state.rows import IS_FREE
from leasectl.system.clock import earliest

# A grant raises the first number, a release the second.
_FREE = (
    "SELECT last_grant, (SELECT count(*) FROM resource WHERE resource.type = pool.type "
    f"AND {IS_FREE}) AS free FROM pool WHERE type = ?"
)


class LocalPlace:
    """Keeps one waiter in step with an order that changes.

    Each waiter watches the next one before it. It is woken when another comes in between, by its
    priority or by aging. No process announces that a ticket ages, so each waiter looks by itself
    when it will pass another.

    Args:
        store: The pools.
        pool_type: Of its queue.
        number: Of its ticket.
    """

    def __init__(self, store: LocalStore, pool_type: str, number: int) -> None:
        self._store = store
        self._queues = store.queues
        self._type = pool_type
        self._rank = Rank(0, number)  # at the last look; this one as long as there is one priority
        self._passed_on: object = None  # the last event that it passed on

    def keep(
        self, ticket: Waiting, others: Sequence[Waiting], *, is_new: bool, is_head: bool
    ) -> float | None:
        """Wake the waiters that have to know the position of a ticket that stays in the queue.

        Args:
            ticket: The ticket.
            others: The tickets that its waiter watches now.
            is_new: It was just put, perhaps before some.
            is_head: It is its turn.

        Returns:
            When it passes the first of the others, on the elapsed clock; None for never.
        """
        order = self._queues.order(self._type)
        if is_new:
            self._queues.wake_behind(self._type, ticket, is_more_free=False)
        elif order.has_passed(ticket, self._rank):
            # Also those that the first of several, which pass others at one instant, has woken.
            self._queues.wake_behind(self._type, ticket)
            self._queues.wake_behind(self._type, ticket, place=self._rank)
        if not is_new and not is_head:
            self._pass_on()
        self._rank = order.rank(ticket)
        return earliest(*(order.overtakes_at(ticket, each) for each in others))

    def _pass_on(self) -> None:
        """Wake the waiters that may have something to claim, because this one was woken instead.

        Only once for the same event: a process that waits in several queues would wake another in
        one, be woken by it in the other, and so on without end.
        """
        ((last_grant, free),) = self._store.state.query(_FREE, self._type)
        called = self._called() if free else []
        event = last_grant, free, called
        if called and self._passed_on != event:
            self._queues.call(called)
        self._passed_on = event

    def _called(self) -> list[str]:
        """Return the pipes of the best waiters for what is free, for each want and for any."""
        called: dict[tuple[str | None, str], str] = {}
        with closing(self._queues.in_order(self._type)) as tickets:
            for each in tickets:
                want = each.name, each.where
                if each.suspended or want in called:
                    continue
                if want == (None, "") or is_enough_for(self._store.state, self._type, each):
                    called[want] = each.pipe
                if want == (None, ""):
                    break
        return list(called.values())


# Expired claims may not have been freed yet.
_IS_HELD = "type = :type AND owner IS NOT NULL AND coalesce(expires_at > :now, 1)"
# The effective priority; the same rule as in `leasectl.engines.rules.turns`.
_PRIORITY = (
    "coalesce(ranked.priority + CASE WHEN :aging > 0 "
    "THEN CAST(max(0, :now - ranked.queued_at) / :aging AS INTEGER) ELSE 0 END, 0)"
)
# Better tickets that aren't suspended.
_BETTER = (
    f"SELECT count(*) FROM %s, (SELECT {_PRIORITY} AS priority FROM {PLACES} "
    "WHERE ticket.type = :type AND ticket.number = :ticket) AS own "
    "WHERE ticket.type = :type AND suspended.number IS NULL "
    f"AND ({_PRIORITY} > own.priority "
    f"OR ({_PRIORITY} = own.priority AND ticket.number < :ticket))"
)
_BETTER_FOR_ANY = _BETTER % PLACES
# Of those, the ones that could use the one name that it waits for, if that is in the pool.
_BETTER_FOR_NAME = (
    f"{_BETTER % RANKED_TICKETS} AND EXISTS "
    "(SELECT 1 FROM resource WHERE name = :name AND resource.type = :type) "
    "AND (handle.name = :name OR "
    "(handle.name IS NULL AND coalesce(handle.where_properties, '') NOT IN (%s)))"
)


def standing_of(store: LocalStore, request: Request, ticket: int) -> Standing:
    """Return the position of a ticket and what it waits for; NotFound if its pool has gone.

    Args:
        store: The pools.
        request: Of the ticket.
        ticket: Its number.
    """
    state, pool_type, settings = store.state, request.type, LocalSettings(store)
    granting = settings.of(pool_type)
    values = {
        "type": pool_type,
        "ticket": ticket,
        "name": request.name,
        "now": store.clock.elapsed(),
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
    holder, since = longest[0] if longest else (None, 0.0)
    return Standing(
        counts["better"] + 1,
        counts["others"],
        counts["held"],
        capacity,
        holder,
        since,
        next_grant_at=settings.next_grant_at(pool_type),
        pace_seconds=granting.pace_seconds,
    )


def _others(store: LocalStore, request: Request) -> dict[str, str]:
    """Return what waiters ask for who couldn't use the one resource that a request asks for."""
    if request.name is None:
        return {}
    rows = store.state.query(
        "SELECT DISTINCT where_properties FROM ticket JOIN handle ON handle.id = ticket.owner "
        "WHERE ticket.type = ? AND where_properties <> ''",
        request.type,
    )
    found = [row[0] for row in rows]
    fit = matching(store.state, found, request.name) if found else ()
    return {f"other{number}": each for number, each in enumerate(found) if each not in fit}
