"""What somebody wants back of what a handle holds: seen, and recorded with the time of that.

What is known here is read before what is noted, so it is never older: a name that is ready here for
a mark that isn't noted any more has been taken back, or can be used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.leases.marks import Mark, parse_mark
from leasectl.model import Handle, ReleaseTarget
from leasectl.state.uses import SeenMark, Uses
from leasectl.typed.hints import TYPE_CHECKING
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    from leasectl.backends.contract import Backend
    from leasectl.engines.notes import Note
    from leasectl.leases.service import Service


class Asked(NamedTuple):
    """That somebody wants a lease back.

    Args:
        note: What is noted at the claim.
        mark: What that says.
        ends_at: When the mark ends, as counted from when it was seen first; CLOCK_BOOTTIME.
        is_in_use: The name is in use, and so can't be ready.
        is_ready: It was decided that it is ready, whether the note says so yet or not.
    """

    note: Note
    mark: Mark
    ends_at: float
    is_in_use: bool
    is_ready: bool

    @property
    def name(self) -> str:
        return self.note.name


def asked_of(service: Service, target: ReleaseTarget) -> tuple[Asked, ...]:
    """Look what somebody wants back, and record that it was seen, by name.

    What was ready and has been taken back meanwhile leaves the handle, what isn't wanted any more
    can be used again.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.

    Raises:
        NotSupported: Its backend has no pools, so nobody can note anything there.
    """
    uses, handle = Uses(service.state), service.current(target)
    if handle is None or handle.state != "held":
        return ()
    before = uses.marks(handle)
    backend = service.backend_of(handle)
    noted = {note.name: note for note in backend.notes.of_claims(claim_key_of(handle))}
    marks = marks_in(tuple(noted.values()))
    gone = [name for name, seen in before.items() if name not in marks or marks[name].id != seen.id]
    was_ready = [name for name in gone if before[name].is_ready]
    held = held_of(backend, handle) if was_ready else {}
    taken = [name for name in was_ready if name not in held]
    over = [name for name in gone if name not in taken and not _says(held.get(name), before[name])]
    with service.state.transaction():
        current = service.current(target)
        if current is None:
            return ()
        for name in over:
            uses.forget(current, name, before[name].id)
        service.losses.note_gone(current, taken)
        current = service.current(target)
        found = () if current is None else _record(service, current, before, noted, marks)
    service.losses.unlist()
    return found


def needs_answer(
    notes: Sequence[Note], seen: Mapping[str, SeenMark], now: float, *, is_answered_here: bool
) -> bool:
    """Tell whether there may be something to do about what is noted at a handle's claims.

    Args:
        notes: All of them.
        seen: What was seen before.
        now: CLOCK_BOOTTIME, seconds.
        is_answered_here: Whoever asks is who answers; else a script does.
    """
    marks = marks_in(notes)
    for name, mark in marks.items():
        known = seen.get(name)
        if known is None or known.id != mark.id or now >= known.ends_at:
            return True
        if mark.state == "marked" and (known.is_ready or is_answered_here):
            return True
        if mark.state != "marked" and known.is_ready != (mark.state == "ready"):
            return True
    return any(name not in marks or marks[name].id != known.id for name, known in seen.items())


def marks_in(notes: Sequence[Note]) -> dict[str, Mark]:
    """The marks among some notes, by name."""
    found = {note.name: parse_mark(note.text) for note in notes}
    return {name: mark for name, mark in found.items() if mark is not None}


def held_of(backend: Backend, handle: Handle) -> dict[str, str | None]:
    """What a handle really holds by now, whatever its record says; with what is noted there."""
    claim_key = claim_key_of(handle)
    return {
        resource.name: resource.note
        for pool in backend.pools.pools(handle.type)
        for resource in pool.resources
        if resource.claim_key == claim_key and resource.lease is not None and not resource.ended
    }


def _says(note: str | None, seen: SeenMark) -> bool:
    """Tell whether what is noted is that mark.

    Of a claim that seemed to be over nothing was told as noted, and it may have been renewed since.
    """
    mark = None if note is None else parse_mark(note)
    return mark is not None and mark.id == seen.id


def _record(
    service: Service,
    handle: Handle,
    before: Mapping[str, SeenMark],
    noted: Mapping[str, Note],
    marks: Mapping[str, Mark],
) -> tuple[Asked, ...]:
    """Record what is seen for the first time, inside a transaction, and tell all that is seen."""
    uses, now = Uses(service.state), service.clock.elapsed()
    known, in_use = uses.marks(handle), uses.in_use(handle)
    found: list[Asked] = []
    for name in sorted(set(marks).intersection(handle.names)):
        mark, seen = marks[name], known.get(name)
        if seen is None or seen.id != mark.id:
            if seen is not None and seen != before.get(name):
                continue  # somebody has seen another since, which is newer
            is_ready = mark.state == "ready" and name not in in_use
            seen = SeenMark(mark.id, mark.asked_by, now + mark.seconds, is_ready)
            uses.see(handle, name, seen)
        elif mark.state != "marked" and seen.is_ready != (mark.state == "ready"):
            # Whoever answered was killed before it could record that, or the record was lost.
            uses.decide(handle, name, mark.id, is_ready=mark.state == "ready")
            seen = uses.marks(handle)[name]
        found.append(Asked(noted[name], mark, seen.ends_at, name in in_use, seen.is_ready))
    return tuple(found)
