"""What a step of a reclaim changes: each guarded by fence and text, all of them in few requests."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.notes import Note, NoteChange
from leasectl.leases.marks import (
    Mark,
    asked_in_words,
    encode_mark,
    new_mark,
    taken_off_in_words,
)
from leasectl.reclaim.held import Held, LeaseId
from leasectl.reclaim.look import Ground
from leasectl.reclaim.plan import Step
from leasectl.reclaim.wanted import Wanted
from leasectl.typed.tuples import NamedTuple


def free(ground: Ground, step: Step) -> tuple[str, ...]:
    """Free what is ready and still as it was seen; returns the names."""
    if not step.free:
        return ()
    notes = [Note(ground.pool_type, *each.id, each.note or "") for each in step.free]
    return ground.notes.free(notes, by="reclaim")


class Marked(NamedTuple):
    """What has become of marks.

    Args:
        put: Those that were put, by their leases.
        taken_off: The leases that have none any more.
    """

    put: dict[LeaseId, Mark]
    taken_off: frozenset[LeaseId]


def mark(ground: Ground, step: Step, wanted: Wanted) -> Marked:
    """Take marks off and put others, all of them in few requests."""
    wall = ground.clock.wall()
    asked = [
        (each, new_mark(ground.asked_by, seconds=wanted.mark_seconds, now=wall))
        for each in step.ask
    ]
    changes = [_taken_off(ground, each) for each in step.take_off]
    changes += [_asked(ground, each, mark) for each, mark in asked]
    if not changes:
        return Marked({}, frozenset())
    done = ground.notes.change(changes)
    off, put = done[: len(step.take_off)], done[len(step.take_off) :]
    return Marked(
        {each.id: mark for (each, mark), is_done in zip(asked, put) if is_done},
        frozenset(each.id for each, is_done in zip(step.take_off, off) if is_done),
    )


def take_off(ground: Ground, marked: Sequence[Held]) -> bool:
    """Take marks off that are as they were seen; returns whether all were."""
    return all(ground.notes.change([_taken_off(ground, each) for each in marked]))


def _asked(ground: Ground, each: Held, mark: Mark) -> NoteChange:
    told = asked_in_words(mark)
    return NoteChange(ground.pool_type, *each.id, each.note, encode_mark(mark), told)


def _taken_off(ground: Ground, each: Held) -> NoteChange:
    told = taken_off_in_words(each.mark)
    return NoteChange(ground.pool_type, *each.id, each.note, None, told)
