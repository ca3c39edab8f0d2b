"""The holder's side of a reclaim: marks, uses and answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from leasectl.backends.kinds import claim_key_of, kind_of_handle
from leasectl.engines.notes import LONGEST_NOTE, NoteChange
from leasectl.errors import NotAllowed, NotFound
from leasectl.leases.paths import handles_at
from leasectl.leases.service import Service, lost_error
from leasectl.model import Handle, OnReclaim, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.handles import renews_itself
from leasectl.state.uses import SeenMark, Uses
from leasectl.text.durations import LONGEST_SECONDS, format_duration
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_json,
    read_name,
    read_number,
    read_text,
)
from leasectl.text.wording import listed, printable

if TYPE_CHECKING:
    from leasectl.backends.kinds import Backend
    from leasectl.engines.notes import Note


MarkState = Literal["marked", "ready", "keep"]
Answered = Literal["ready", "keep"]

LONGEST_ASKER = 100  # characters; any fit into a note


class Mark(NamedTuple):
    """A mark at a lease: it is wanted back, and the holder may have answered.

    Args:
        id: Of this mark alone.
        asked_by: Who wants it back, for people; safe to print.
        state: ``marked`` until the holder has answered.
        seconds: How long the mark is valid.
        made_at: Wall clock of the process that made it, for people only.
    """

    id: str
    asked_by: str
    state: MarkState
    seconds: float
    made_at: float

    def answered(self, state: Answered) -> Mark:
        """Return the same mark with an answer."""
        return self._replace(state=state)


def new_mark(asked_by: str, *, seconds: float, now: float) -> Mark:
    """Return a mark with a new id; each lease gets one of its own.

    Args:
        asked_by: Who wants it back.
        seconds: How long it is valid.
        now: Wall clock, seconds since the epoch.
    """
    shown = printable(asked_by, longest=LONGEST_ASKER)
    return Mark(os.urandom(8).hex(), shown, "marked", seconds, now)


def asked_in_words(mark: Mark) -> str:
    """Return the text of the event for a new mark."""
    return f"asked by {mark.asked_by} to give it back"


def answered_in_words(state: Answered) -> str:
    """Return the text of the event for a holder's answer."""
    return f"answered {state}"


def taken_off_in_words(mark: Mark | None, *, has_ended: bool = False) -> str:
    """Return the text of the event for a removed mark; empty if the note was no mark.

    Args:
        mark: As it was seen.
        has_ended: It has ended by itself.
    """
    if mark is None:
        return ""
    last = "no answer" if mark.state == "marked" else f"the last answer was {mark.state}"
    return (
        f"{'the mark has expired' if has_ended else 'the reclaim request was withdrawn'} ({last})"
    )


def encode_mark(mark: Mark) -> str:
    """Write a mark as a note; `parse_mark` reads it back."""
    return json.dumps(mark._asdict())


def parse_mark(text: str) -> Mark | None:
    """Read a note, which any program may have written; return None if it is no mark.

    A holder ignores such a note, and a reclaim may replace it by a mark.
    """
    if len(text) > LONGEST_NOTE:
        return None
    try:
        record = read_json(text)
        if set(record) != set(Mark._fields):
            return None
        return Mark(
            id=read_name(record["id"]),
            asked_by=_read_asker(record["asked_by"]),
            state=_read_state(record["state"]),
            seconds=_read_seconds(record["seconds"]),
            made_at=read_number(record["made_at"]),
        )
    except MALFORMED:
        return None


def _read_asker(value: Any) -> str:
    asker = read_text(value)
    if asker != printable(asker, longest=LONGEST_ASKER):
        raise Malformed("the name of the one who asks isn't printable")
    return asker


def _read_state(value: Any) -> MarkState:
    for state in ("marked", "ready", "keep"):
        if value == state:
            return state
    raise Malformed("there is no such state")


def _read_seconds(value: Any) -> float:
    seconds = read_number(value)
    if not 0 <= seconds <= 2 * LONGEST_SECONDS:
        raise Malformed("no mark is good for so long")
    return seconds


class Asked(NamedTuple):
    """A mark as its holder sees it.

    Args:
        note: The note at the claim.
        mark: What the note says.
        ends_at: When the mark ends, counted from when it was first seen; CLOCK_BOOTTIME.
        is_in_use: The name is in use, and so can't be ready.
        is_ready: "Ready" was decided, whether the note says so yet or not.
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
    """Return the leases of a handle that are wanted back, and record that the marks were seen.

    Names that were ready and have been taken back leave the handle. Names that aren't wanted any
    more can be used again.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.

    Raises:
        NotSupported: Its backend has no pools, so no note can be put there.
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
    """Return whether there may be something to do about the notes at a handle's claims.

    Args:
        notes: All of them.
        seen: The marks that were seen before.
        now: CLOCK_BOOTTIME, seconds.
        is_answered_here: The caller answers them; else a script does.
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
    """Return the marks among some notes, by name."""
    found = {note.name: parse_mark(note.text) for note in notes}
    return {name: mark for name, mark in found.items() if mark is not None}


def held_of(backend: Backend, handle: Handle) -> dict[str, str | None]:
    """Return the names that the backend says a handle holds, with the note at each."""
    claim_key = claim_key_of(handle)
    return {
        resource.name: resource.note
        for pool in backend.pools.pools(handle.type)
        for resource in pool.resources
        if resource.claim_key == claim_key and resource.lease is not None and not resource.ended
    }


def _says(note: str | None, seen: SeenMark) -> bool:
    """Return whether a note says the same as a mark that was seen.

    A claim that seemed to have expired showed no note, and it may have been renewed since.
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
    """Record marks that are seen for the first time, in a transaction; return all that are seen."""
    uses, now = Uses(service.state), service.clock.elapsed()
    known, in_use = uses.marks(handle), uses.in_use(handle)
    found: list[Asked] = []
    for name in sorted(set(marks).intersection(handle.names)):
        mark, seen = marks[name], known.get(name)
        if seen is None or seen.id != mark.id:
            if seen is not None and seen != before.get(name):
                continue  # another process has seen a newer one
            is_ready = mark.state == "ready" and name not in in_use
            seen = SeenMark(mark.id, mark.asked_by, now + mark.seconds, is_ready)
            uses.see(handle, name, seen)
        elif mark.state != "marked" and seen.is_ready != (mark.state == "ready"):
            # The process that answered was killed before it recorded that, or the record was lost.
            uses.decide(handle, name, mark.id, is_ready=mark.state == "ready")
            seen = uses.marks(handle)[name]
        found.append(Asked(noted[name], mark, seen.ends_at, name in in_use, seen.is_ready))
    return tuple(found)


# Takes names that are wanted back; returns the answer for some or all of them.
Decide = Callable[[Sequence[str]], Mapping[str, Answered]]


class Step(NamedTuple):
    """A step to be taken about a mark.

    Args:
        asked: The mark.
        answer: The answer to note; None to remove the mark.
    """

    asked: Asked
    answer: Answered | None


def carry_out(
    service: Service, target: ReleaseTarget, steps: Sequence[Step], *, renews: bool = False
) -> dict[str, Answered | None]:
    """Take steps about marks, as far as the marks haven't changed.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        steps: At most one for each name; a name that has come into use by now is kept.
        renews: See `answer_for_holder`.

    Returns:
        The answer for each name whose step was taken.

    Raises:
        BackendUnreachable: The steps may have been taken.
        LeaseError: They can't be recorded, or no keeper can be started; nothing has changed.
    """
    backend = service.backend_of(service.handles.require(target.handle_id))
    if any(step.answer == "ready" for step in steps):
        keeper_process.ensure(service.state)  # it removes ready marks that have ended
    with backend.atomic():
        steps = _decided(service, target, steps)
        done = backend.notes.change([_change(step, renews=renews) for step in steps])
        steps = [step for step, is_done in zip(steps, done) if is_done]
        _settle(service, target, steps)
    return {step.asked.name: step.answer for step in steps}


def answer_for_holder(
    service: Service,
    target: ReleaseTarget,
    decide: Decide | None = None,
    *,
    renews: bool = False,
) -> dict[str, Answered | None]:
    """Answer the marks of a handle as its request says, and remove those that have ended.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        decide: Decides instead of its request; called without any lock.
        renews: The caller renews the leases that no `run` renews, and may have put that off to the
            answer (`NoteChange`).

    Returns:
        The answer for each name that was answered; None where the mark was removed.

    Raises:
        LeaseError: The backend couldn't be asked or answered; the next look goes on.
    """
    handle = service.current(target)
    if handle is None or not kind_of_handle(handle).has_pools:
        return {}
    asked = asked_of(service, target)
    now = service.clock.elapsed()
    undecided = [each.name for each in asked if is_undecided(each, now)]
    decide = decide or by_request(handle.request.on_reclaim)
    said = decide(undecided) if undecided else {}
    now = service.clock.elapsed()  # again: the decision may have taken long
    steps = [step for each in asked for step in _steps(each, now, said)]
    renews = renews and handle.runner is None and renews_itself(handle)
    return carry_out(service, target, steps, renews=renews) if steps else {}


def by_request(on_reclaim: OnReclaim) -> Decide:
    """Return the decision that a request has made in advance."""
    if on_reclaim == "answer":
        return lambda names: {}
    said: Answered = "ready" if on_reclaim == "release" else "keep"
    return lambda names: dict.fromkeys(names, said)


def is_undecided(asked: Asked, now: float) -> bool:
    """Return whether a mark still needs a decision."""
    is_open = asked.mark.state == "marked" and not asked.is_ready and not asked.is_in_use
    return is_open and now < asked.ends_at


def _steps(asked: Asked, now: float, said: Mapping[str, Answered]) -> list[Step]:
    """Return the step to take about a mark, if any.

    Args:
        asked: The mark.
        now: CLOCK_BOOTTIME, seconds.
        said: The decisions about the undecided marks.
    """
    if now >= asked.ends_at:
        return [Step(asked, None)]
    if is_undecided(asked, now):
        return [Step(asked, said[asked.name])] if asked.name in said else []
    if asked.mark.state == "marked":
        return [Step(asked, "keep" if asked.is_in_use else "ready")]
    if asked.mark.state == "ready" and asked.is_in_use:
        return [Step(asked, "keep")]
    return []


def _decided(service: Service, target: ReleaseTarget, steps: Sequence[Step]) -> list[Step]:
    """Record which names are ready, so that they can't be used now; return the steps as of then."""
    if not any(step.answer == "ready" for step in steps):
        return list(steps)
    uses, decided = Uses(service.state), []
    with service.state.transaction():
        handle = service.current(target)
        for step in steps:
            if handle is None:
                return []
            name, mark_id = step.asked.name, step.asked.mark.id
            if step.answer != "ready" or uses.decide(handle, name, mark_id, is_ready=True):
                decided.append(step)
            elif name in uses.in_use(handle):
                decided.append(step._replace(answer="keep"))
        uses.have_watched([target.handle_id])
        keeper_process.wake(service.state)
    return decided


def _settle(service: Service, target: ReleaseTarget, done: Sequence[Step]) -> None:
    """Let names be used again whose marks no longer say that they are ready."""
    over = [step for step in done if step.answer != "ready"]
    if not over:
        return
    uses = Uses(service.state)
    with service.state.transaction():
        handle = service.current(target)
        for step in over if handle is not None else ():
            assert handle is not None
            if step.answer is None:
                uses.forget(handle, step.asked.name, step.asked.mark.id)
            else:
                uses.decide(handle, step.asked.name, step.asked.mark.id, is_ready=False)


def _change(step: Step, *, renews: bool) -> NoteChange:
    note, answered = step.asked.note, step.answer
    mark = step.asked.mark
    if answered is None:
        after, told = None, taken_off_in_words(mark, has_ended=True)
    else:
        after, told = encode_mark(mark.answered(answered)), answered_in_words(answered)
    return NoteChange(note.type, note.name, note.fence, note.text, after, told, renews)


def answer(
    service: Service, target: ReleaseTarget, said: Answered, names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Answer marks: the names can be taken back, or they can't.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        said: ``ready``, which takes names out of use until they are taken or the mark has gone; or
            ``keep``.
        names: The names to answer for; None for all that haven't been answered and aren't in use.

    Returns:
        The names that have this answer now, in the order of the handle.

    Raises:
        NotFound: One of them has no mark.
        NotAllowed: One is in use, or its answer was "keep"; nothing was answered.
        NotSupported: The backend has no pools, so there are no marks.
    """
    asked = {each.name: each for each in asked_of(service, target)}
    _end(service, target, asked)
    chosen = [
        asked[name]
        for name in _named(asked, names)
        if names is not None or (asked[name].mark.state == "marked" and not asked[name].is_in_use)
    ]
    if said == "ready":
        _check_ready(chosen)
    steps = [Step(each, said) for each in chosen if each.mark.state != said]
    done = carry_out(service, target, steps) if steps else {}
    ids = {each.mark.id for each in chosen}
    so = {each.name for each in chosen if each.mark.state == said or done.get(each.name) == said}
    if any(each.name not in so for each in chosen):  # the keeper may have sent it first
        again = asked_of(service, target)
        so |= {each.name for each in again if each.mark.state == said and each.mark.id in ids}
        so |= _heeded(service, target, said, chosen, again)
    missed = [each.name for each in chosen if each.name not in so]
    if missed and names is not None:
        raise NotAllowed(
            f"{listed(missed)}: the request has changed meanwhile, or the name is in use now; see: "
            f"leasectl marks --handle {target.handle_id}"
        )
    return tuple(name for name in asked if name in so)


def answer_at(
    service: Service, path: str, said: Answered, names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Answer the marks of the handles that a path means; see `answer` and `handles_at`.

    Of a copy of what several handles hold, each is answered for the names that it holds.
    """
    handles = handles_at(service, path, done="answered for")
    answered: tuple[str, ...] = ()
    for each in handles:
        wanted = names
        if names is not None and len(handles) > 1:
            wanted = [name for name in names if name in each.names]
        answered += answer(service, whole(each), said, wanted)
    return answered


def _heeded(
    service: Service,
    target: ReleaseTarget,
    said: Answered,
    chosen: Sequence[Asked],
    again: Sequence[Asked],
) -> frozenset[str]:
    """Return names whose answer the reclaim has acted on before this process knew that it was sent.

    A name to keep is still held without a mark; a name that was ready has been taken.
    """
    gone = frozenset(each.name for each in chosen) - {each.name for each in again}
    handle = service.current(target) if gone else None
    held = {} if handle is None else held_of(service.backend_of(handle), handle)
    return gone & held.keys() if said == "keep" else gone - held.keys()


def _end(service: Service, target: ReleaseTarget, asked: dict[str, Asked]) -> None:
    """Remove the marks that have ended, and return the others."""
    now = service.clock.elapsed()
    over = [each for each in asked.values() if now >= each.ends_at]
    if over:
        carry_out(service, target, [Step(each, None) for each in over])
    for each in over:
        del asked[each.name]


def _named(asked: dict[str, Asked], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return list(asked)
    unasked = [printable(name) for name in names if name not in asked]
    if unasked:
        raise NotFound(
            f"no reclaim asks for {listed(unasked)} now; see the requests with: "
            "leasectl marks --handle H"
        )
    return list(dict.fromkeys(names))


def _check_ready(chosen: Sequence[Asked]) -> None:
    in_use = [each.name for each in chosen if each.is_in_use]
    if in_use:
        raise NotAllowed(
            f"{listed(in_use)}: in use, so it can't be ready; end the use with: leasectl unuse"
        )
    kept = [each.name for each in chosen if each.mark.state == "keep"]
    if kept:
        raise NotAllowed(
            f'{listed(kept)}: the answer was "keep", which is final until the next reclaim request'
        )


def use(service: Service, target: ReleaseTarget, name: str) -> None:
    """Mark a name as in use; do nothing if it is already.

    Args:
        service: On the state directory of its handle.
        target: The handle, and the acquisition that is meant.
        name: One of its names.

    Raises:
        NotAllowed: The handle doesn't hold it, or the answer for it was "ready".
        LeaseLost: The handle has lost it.
    """
    uses = Uses(service.state)
    with service.state.transaction():
        handle = _holding(service, target, name)
        mark = uses.marks(handle).get(name)
        if mark is not None and mark.is_ready:
            raise _is_wanted_back(service, name, mark)
        uses.begin(handle, name)


def unuse(service: Service, target: ReleaseTarget, name: str) -> bool:
    """Mark a name as no longer in use; the state of its lease doesn't matter.

    Returns:
        Whether it was in use.
    """
    with service.state.transaction():
        return Uses(service.state).end(target.handle_id, name, now=service.clock.elapsed())


def _holding(service: Service, target: ReleaseTarget, name: str) -> Handle:
    handle = service.handles.require(target.handle_id)
    is_current = handle.acquisition == target.acquisition and handle.state == "held"
    if is_current and name in handle.names:
        return handle
    if handle.lost:
        raise lost_error(handle, service.state)
    raise NotAllowed(
        f'handle {handle.id} doesn\'t hold "{printable(name)}"; list its resources with: leasectl '
        f"cat {service.state.names_path(handle.id)}"
    )


def _is_wanted_back(service: Service, name: str, mark: SeenMark) -> NotAllowed:
    left = mark.ends_at - service.clock.elapsed()
    if left >= 1:
        at = time.strftime("%H:%M:%S UTC", time.gmtime(service.clock.wall() + left))
        when = f"by {at} (in {format_duration(left)})"
    else:
        when = "any moment now"
    return NotAllowed(
        f'"{name}" can\'t be used: the answer to the reclaim of {mark.asked_by} was "ready"; '
        f"{when}, the reclaim takes it, or it can be used again"
    )
