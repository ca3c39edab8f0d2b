"""What a waiter can do now: a pure function."""

from __future__ import annotations

from typing import Literal, NamedTuple

from leasectl.engines.facts import PoolSettings
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.engines.kubernetes.queues.turns import Over, turn_of

# There is no pool; the ticket has gone; nothing there could meet it; a better one is before it; it
# is its turn and there is too little; or enough.
Standing = Literal["no pool", "gone", "unmet", "behind", "short", "enough"]


class Verdict(NamedTuple):
    """How it stands; as long as it is the same, a waiter sleeps on.

    Args:
        standing: In a word.
        settings: Of the pool, where there is enough: its pace may keep it waiting.
        last_grant: Likewise.
        coming: Where there is too little: what is different when more is to move to the pool.
    """

    standing: Standing
    settings: PoolSettings | None = None
    last_grant: str = ""
    coming: str = ""


def verdict_of(own: OwnTicket, view: PoolView, over: Over) -> Verdict | None:
    """How it stands for a ticket; None where what was seen is older than that."""
    ticket = own.object
    if ticket is not None and view.version < ticket.place:
        return None
    if not view.is_there:
        return Verdict("no pool")
    if ticket is not None and own.object_name not in view.tickets:
        return Verdict("gone")
    turn = turn_of(own.as_seen(view), view, over)
    if not turn.is_met:
        return Verdict("unmet", coming=_coming(view))
    if turn.before is not None:
        return Verdict("behind")
    if len(turn.free) < own.request.count:
        return Verdict("short", coming=_coming(view))
    assert view.pool is not None
    return Verdict("enough", view.pool.settings, view.pool.last_grant)


def _coming(view: PoolView) -> str:
    return view.pool.changed if view.pool is not None and view.pool.coming else ""
