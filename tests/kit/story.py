"""Whether a record of events can be true: what follows what, and what is held and waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leasectl.state.event import Event


class Story(NamedTuple):
    """What the events of some pools come to.

    Args:
        broken: What can't be, in words.
        held: By name, the handle of a grant that hasn't ended.
        waiting: The tickets, as pool and number, that were put and have come to no end.
    """

    broken: list[str]
    held: dict[str, str]
    waiting: set[tuple[str, int]]


def story_of(events: Iterable[Event], *, begins_anew: bool = False) -> Story:
    """Follow events from the first to the last.

    Args:
        events: In their order, of backends that have tickets.
        begins_anew: There were others before these: what has no beginning here may have one there.
    """
    broken: list[str] = []
    held: dict[str, str] = {}
    waiting: set[tuple[str, int]] = set()
    known: set[tuple[str, int]] = set()
    grants: dict[str, int] = {}
    number = 0
    for event in events:
        if event.number <= number:
            broken.append(f"event {event.number} comes after {number}")
        number = event.number
        ticket = (event.type, event.ticket)
        what = f"{event.number}: {event.kind} {','.join(event.names)} {ticket} of {event.handle}"
        if event.kind == "pool deleted":
            grants.pop(event.type, None)  # the next of that name counts anew
            known = {each for each in known if each[0] != event.type}
        elif event.kind == "queued":
            if ticket in known:
                broken.append(f"{what}: queued twice")
            known.add(ticket)
            waiting.add(ticket)
        elif event.kind in ("granted", "gave up"):
            # Who has joined a pool as held has waited for nothing, in no queue.
            past_queue = event.wait_seconds == 0.0 and ticket not in known
            is_first = begins_anew and ticket not in known
            if ticket not in waiting and not (past_queue or is_first):
                broken.append(f"{what}: it wasn't waiting")
            waiting.discard(ticket)
        if event.kind == "granted":
            if event.type in grants and event.grant <= grants[event.type]:
                broken.append(f"{what}: grant {event.grant} after {grants[event.type]}")
            grants[event.type] = event.grant
            for name in event.names:
                if name in held:
                    broken.append(f"{what}: {held[name]} has it still")
                held[name] = event.handle
        elif event.kind in ("released", "lost"):
            for name in event.names:
                if held.get(name, None if begins_anew else "") not in (event.handle, None):
                    broken.append(f"{what}: {held.get(name)} has it")
                if event.kind == "released":
                    held.pop(name, None)
    return Story(broken, held, waiting)
