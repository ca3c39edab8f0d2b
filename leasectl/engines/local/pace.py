"""Whether the pace of an embedded pool allows a grant, and having it be paid for."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.local.settings import LocalSettings
from leasectl.engines.local.wants import any_enough
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.engines.local.wants import Wanting


def pay(
    state: State, pool_type: str, particular: Sequence[Wanting], *, clock: Clock
) -> tuple[bool, float | None]:
    """Inside the transaction of a grant: have it be paid for, if it may be made now.

    Args:
        state: The opened state directory.
        pool_type: The pool, which has a pace.
        particular: Better tickets that wait for something particular: what there is enough for
            takes the time from all others.
        clock: Where times come from.

    Returns:
        Whether it may, and when the next may if that is later; None for now.
    """
    settings = LocalSettings(state, clock=clock)
    due = settings.next_grant_at(pool_type)
    if due is not None or (particular and any_enough(state, pool_type, particular)):
        return False, due
    settings.note_grant(pool_type)
    return True, None
