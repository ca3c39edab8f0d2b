"""Explain why free resources can't be had."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leasectl.errors import LeaseError
from leasectl.text.durations import format_duration
from leasectl.text.wording import shorten

if TYPE_CHECKING:
    from leasectl.engines.facts import Pool, Resource
    from leasectl.engines.pool_admin import PoolAdmin
    from leasectl.model import Request

_WHERE_CELLS = 40


def why_closed(pools: PoolAdmin, types: Sequence[str]) -> str:
    """How many are closed and why, like ``2 cordoned, 1 held back for 5m``; empty for none.

    Args:
        pools: Of the store; where they can't be read, nothing is said.
        types: Of the pools that were waited for.
    """
    with contextlib.suppress(LeaseError):
        return closed_in([each for of in types for each in pools.pools(of)])
    return ""


def closed_in(pools: Sequence[Pool]) -> str:
    """The same, of pools as they were read."""
    closed = [each for pool in pools for each in pool.resources if each.is_closed]
    kinds = [_kind(each) for each in closed]
    parts = [
        f"{kinds.count(kind)} {kind}"
        for kind in ("cordoned", "leaving", "held back")
        if kind in kinds
    ]
    left = [
        seconds
        for each in closed
        if (seconds := each.held_back_seconds) is not None and _kind(each) == "held back"
    ]
    if left:
        parts[-1] += f" for {format_duration(-(-min(left) // 1))}"
    return ", ".join(parts)


def needs_of(request: Request) -> str:
    """Return what a request wants beyond any free resource; empty for nothing."""
    if request.name is not None:
        return f"only {request.name} will do"
    if request.where:
        from leasectl.text.properties import written

        return f"only {shorten(' '.join(written(request.where)), _WHERE_CELLS)} will do"
    return f"needs {request.count} at once" if request.count > 1 else ""


def _kind(resource: Resource) -> str:
    member = resource.member
    if member is None or member.takes_holders:
        return "held back"
    return "cordoned" if member.cordoned else "leaving"
