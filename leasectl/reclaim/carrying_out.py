"""What a step of a reclaim changes: each guarded by fence and text, all of them in few requests."""

from __future__ import annotations

from leasectl.engines.notes import Note, NoteChange
from leasectl.leases.marks import Mark, encode_mark, new_mark
from leasectl.reclaim.held import Held, LeaseId
from leasectl.reclaim.look import Ground
from leasectl.reclaim.plan import Step
from leasectl.reclaim.wanted import Wanted


def free(ground: Ground, step: Step) -> tuple[str, ...]:
    """Free what is ready and still as it was seen; returns the names."""
    if not step.free:
        return ()
    notes = [Note(ground.pool_type, *each.id, each.note or "") for each in step.free]
    return ground.notes.free(notes, by="reclaim")


def mark(ground: Ground, step: Step, wanted: Wanted) -> dict[LeaseId, Mark]:
    """Take marks off and put others; returns those that were put, by their leases."""
    wall = ground.clock.wall()
    asked = [
        (each, new_mark(ground.asked_by, seconds=wanted.mark_seconds, now=wall))
        for each in step.ask
    ]
    changes = [_change(ground, each, None) for each in step.take_off]
    changes += [_change(ground, each, encode_mark(mark)) for each, mark in asked]
    if not changes:
        return {}
    done = ground.notes.change(changes)[len(step.take_off) :]
    return {each.id: mark for (each, mark), is_done in zip(asked, done) if is_done}


def take_off(ground: Ground, marked: tuple[Held, ...]) -> None:
    """Take marks off, whatever was answered."""
    if marked:
        ground.notes.change([_change(ground, each, None) for each in marked])


def _change(ground: Ground, each: Held, after: str | None) -> NoteChange:
    return NoteChange(ground.pool_type, *each.id, before=each.note, after=after)
