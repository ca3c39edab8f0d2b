"""Whether a record of events can be true: what follows what, and what is held and waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class Telling:
    """A story that goes on for as long as there are further events.

    Args:
        begins_anew: There were others before the first: what has no beginning here may have one
            there.

    Attributes:
        number: Of the last event; 0 before the first.
        story: What they have come to so far.
    """

    def __init__(self, *, begins_anew: bool = False) -> None:
        self.number = 0
        self.story = Story([], {}, set())
        self._begins_anew = begins_anew
        self._known: set[tuple[str, int]] = set()
        self._grants: dict[str, int] = {}

    def go_on(self, events: Iterable[Event]) -> Story:
        """Follow events from the first that is new to the last.

        Args:
            events: In their order, of backends that have tickets.
        """
        for event in events:
            if event.number <= self.number:
                self.story.broken.append(f"event {event.number} comes after {self.number}")
            self.number = event.number
            self.story.broken.extend(self._follow(event))
        return self.story

    def _follow(self, event: Event) -> Iterator[str]:
        """Say what of an event can't be."""
        ticket, (_, held, waiting) = (event.type, event.ticket), self.story
        what = f"{event.number}: {event.kind} {','.join(event.names)} {ticket} of {event.handle}"
        if event.kind == "pool deleted":
            self._grants.pop(event.type, None)  # the next of that name counts anew
            self._known = {each for each in self._known if each[0] != event.type}
        elif event.kind == "queued":
            if ticket in self._known:
                yield f"{what}: queued twice"
            self._known.add(ticket)
            waiting.add(ticket)
        elif event.kind in ("granted", "gave up"):
            # Who has joined a pool as held has waited for nothing, in no queue.
            past_queue = event.wait_seconds == 0.0 and ticket not in self._known
            is_first = self._begins_anew and ticket not in self._known
            if ticket not in waiting and not (past_queue or is_first):
                yield f"{what}: it wasn't waiting"
            waiting.discard(ticket)
        if event.kind == "granted":
            if event.type in self._grants and event.grant <= self._grants[event.type]:
                yield f"{what}: grant {event.grant} after {self._grants[event.type]}"
            self._grants[event.type] = event.grant
            for name in event.names:
                if name in held:
                    yield f"{what}: {held[name]} has it still"
                held[name] = event.handle
        elif event.kind in ("released", "lost"):
            for name in event.names:
                if held.get(name, None if self._begins_anew else "") not in (event.handle, None):
                    yield f"{what}: {held.get(name)} has it"
                if event.kind == "released":
                    held.pop(name, None)


def story_of(events: Iterable[Event], *, begins_anew: bool = False) -> Story:
    """What events come to, from the first to the last.

    Args:
        events: In their order, of backends that have tickets.
        begins_anew: As `Telling` has it.
    """
    return Telling(begins_anew=begins_anew).go_on(events)
