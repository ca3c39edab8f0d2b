"""Whose handles are left, told without reading what they hold: there may be thousands."""

from __future__ import annotations

from leasectl.model import parse_process
from leasectl.state.directory import State
from leasectl.system.process import is_dead

_FOLLOWED = (
    "SELECT id, guard, waiter FROM handle WHERE state <> 'released' "
    "AND (guard IS NOT NULL OR waiter IS NOT NULL) ORDER BY id"
)


def ids_of_the_dead(state: State) -> list[str]:
    """The ids of handles that aren't released, and have a guard or a waiter that is dead.

    Each process is asked for once: one may guard many. What it is in the record may be another's
    by the time that somebody looks there.
    """
    known: dict[str, bool] = {}
    found = []
    for handle_id, *processes in state.query(_FOLLOWED):
        for each in processes:
            if each is not None and each not in known:
                known[each] = _is_dead(each)
        if any(known[each] for each in processes if each is not None):
            found.append(handle_id)
    return found


def _is_dead(process: str) -> bool:
    try:
        return is_dead(parse_process(process))
    except ValueError:
        return True  # whoever reads the record says what is wrong with it
