"""Work that is asked for by a command that does work itself, and may be waiting for us by then.

Such a command is told in its environment under which handles works are under way around it.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import InvalidRequest, NotFound
from leasectl.model import Handle
from leasectl.once.work import Work

_VARIABLE = "LEASECTL_ONCE"


def environ_inside(environ: Mapping[str, str], handle: Handle) -> dict[str, str]:
    """The environment of a command that does a work under a handle.

    Args:
        environ: That of whoever starts it.
        handle: Its own.
    """
    return {**environ, _VARIABLE: " ".join([*_around(environ), handle.id])}


def refuse_waiting_for_itself(pools: PoolAdmin, work: Work, environ: Mapping[str, str]) -> None:
    """Refuse a work that is under way by a command that waits for us.

    Args:
        pools: Where works are under way.
        work: Which is asked for.
        environ: Of whoever asks.

    Raises:
        InvalidRequest: Whoever asks would wait for itself.
    """
    around = _around(environ)
    if not around:
        return
    try:
        (pool,) = pools.pools(work.pool_type)
    except NotFound:
        return
    holders = {(each.claim_key or "").partition("/")[0] for each in pool.resources}
    if not holders.isdisjoint(around):
        raise InvalidRequest(
            f"work {work.key} is asked for by the command that does it, or by one that this waits "
            "for; it would wait for itself: give one of them another KEY or --input, or ask for it "
            "outside"
        )


def _around(environ: Mapping[str, str]) -> list[str]:
    return environ.get(_VARIABLE, "").split()
