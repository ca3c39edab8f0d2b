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
from leasectl.leases.service import Service, has_lost
from leasectl.model import Handle, OnReclaim, ReleaseTarget
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

LONGEST_ASKER = 100  # characters, so that it fits into a note whichever they are


class Mark(NamedTuple):
    """That somebody wants a lease back, and what its holder says to that.

    Args:
        id: Of this mark alone.
        asked_by: Who wants it back, for people; it can be shown as it is.
        state: ``marked`` until the holder has answered.
        seconds: For how long the mark is good.
        made_at: Wall clock of whoever made it, for people only.
    """

    id: str
    asked_by: str
    state: MarkState
    seconds: float
    made_at: float

    def answered(self, state: Answered) -> Mark:
        """The same mark with an answer."""
        return self._replace(state=state)


def new_mark(asked_by: str, *, seconds: float, now: float) -> Mark:
    """A mark that there hasn't been yet; one for each lease that is asked for.

    Args:
        asked_by: Who wants it back.
        seconds: For how long it is good.
        now: Wall clock, seconds since the epoch.
    """
    shown = printable(asked_by, longest=LONGEST_ASKER)
    return Mark(os.urandom(8).hex(), shown, "marked", seconds, now)


def asked_in_words(mark: Mark) -> str:
    """What the record of events says of a mark that is put."""
    return f"asked by {mark.asked_by} to give it back"


def answered_in_words(state: Answered) -> str:
    """What it says of a holder's answer."""
    return f"answered {state}"


def taken_off_in_words(mark: Mark | None, *, has_ended: bool = False) -> str:
    """What it says of a mark that is taken off; nothing of what isn't any.

    Args:
        mark: As it was seen.
        has_ended: It has ended by itself.
    """
    if mark is None:
        return ""
    last = "no answer" if mark.state == "marked" else f"the last answer was {mark.state}"
    return f"{'its mark has ended' if has_ended else 'asked for no more'} ({last})"


def encode_mark(mark: Mark) -> str:
    """Write it as a note; `parse_mark` reads it back."""
    return json.dumps(mark._asdict())


def parse_mark(text: str) -> Mark | None:
    """Read a note that anybody may have written; None when it is no mark.

    Then a holder doesn't heed it, and a reclaim may put a mark in its place.
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
        raise Malformed("whoever asks has a name that can't be shown")
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


# Told names that somebody wants back; what is to be answered, of some or of all.
Decide = Callable[[Sequence[str]], Mapping[str, Answered]]


class Step(NamedTuple):
    """What is to be done about a mark.

    Args:
        asked: The mark.
        answer: What is to be noted; None to take it off.
    """

    asked: Asked
    answer: Answered | None


def carry_out(
    service: Service, target: ReleaseTarget, steps: Sequence[Step], *, renews: bool = False
) -> dict[str, Answered | None]:
    """Carry out what was chosen, as far as the marks are still what they were.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        steps: At most one a name; what has come into use by now is kept, whatever they say.
        renews: As `answer_for_holder` has it.

    Returns:
        Of each name that it was done for, the answer.

    Raises:
        BackendUnreachable: It may have been done.
        LeaseError: It can't be recorded, or no keeper can be started; nothing has changed.
    """
    backend = service.backend_of(service.handles.require(target.handle_id))
    if any(step.answer == "ready" for step in steps):
        keeper_process.ensure(service.state)  # it takes off what is ready and has ended
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
    """Answer what is asked of a handle as its request says, and take off what has ended.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        decide: Who decides instead of its request; called without any lock.
        renews: Whoever calls this renews what no `run` does, and may have put that off to the
            answer (`NoteChange`).

    Returns:
        Of each name that something was done about, the answer; None where its mark was taken off.

    Raises:
        LeaseError: It couldn't be asked or answered; whoever looks next goes on.
    """
    handle = service.current(target)
    if handle is None or not kind_of_handle(handle).has_pools:
        return {}
    asked = asked_of(service, target)
    now = service.clock.elapsed()
    undecided = [each.name for each in asked if is_undecided(each, now)]
    decide = decide or by_request(handle.request.on_reclaim)
    said = decide(undecided) if undecided else {}
    now = service.clock.elapsed()  # to decide may have taken long
    steps = [step for each in asked for step in _steps(each, now, said)]
    renews = renews and handle.runner is None and renews_itself(handle)
    return carry_out(service, target, steps, renews=renews) if steps else {}


def by_request(on_reclaim: OnReclaim) -> Decide:
    """What a request says that is to be answered."""
    if on_reclaim == "answer":
        return lambda names: {}
    said: Answered = "ready" if on_reclaim == "release" else "keep"
    return lambda names: dict.fromkeys(names, said)


def is_undecided(asked: Asked, now: float) -> bool:
    """Return whether a mark still needs a decision."""
    is_open = asked.mark.state == "marked" and not asked.is_ready and not asked.is_in_use
    return is_open and now < asked.ends_at


def _steps(asked: Asked, now: float, said: Mapping[str, Answered]) -> list[Step]:
    """What is to be done about a mark, if anything.

    Args:
        asked: The mark.
        now: CLOCK_BOOTTIME, seconds.
        said: What was decided of what was undecided.
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
    """Decide what is ready, so that it can't be used from here on; the steps as they are then."""
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
    """Let what nothing says any more that it is ready be used again."""
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
    """Say that what is asked for can be had, or that it can't; then nobody is asked again.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        said: ``ready``, which takes names out of use until they are taken or the mark has gone;
            or ``keep``.
        names: Of what; None for all that hasn't been answered and isn't in use.

    Returns:
        The names that are answered so now, in the order of the handle.

    Raises:
        NotFound: Nobody asks for one of them.
        NotAllowed: One is in use, or its answer was "keep"; nothing was answered.
        NotSupported: The backend has no pools, so nobody can ask.
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


def _heeded(
    service: Service,
    target: ReleaseTarget,
    said: Answered,
    chosen: Sequence[Asked],
    again: Sequence[Asked],
) -> frozenset[str]:
    """The names of which whoever asked has heeded the answer before it was known here to be sent.

    Those that are to be kept are held and asked for no more; those that are ready were taken.
    """
    gone = frozenset(each.name for each in chosen) - {each.name for each in again}
    handle = service.current(target) if gone else None
    held = {} if handle is None else held_of(service.backend_of(handle), handle)
    return gone & held.keys() if said == "keep" else gone - held.keys()


def _end(service: Service, target: ReleaseTarget, asked: dict[str, Asked]) -> None:
    """Take off the marks that have ended, and leave them out."""
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
            f"no reclaim asks for {listed(unasked)}, or not any more; see the requests with: "
            "leasectl marks --handle H"
        )
    return list(dict.fromkeys(names))


def _check_ready(chosen: Sequence[Asked]) -> None:
    in_use = [each.name for each in chosen if each.is_in_use]
    if in_use:
        raise NotAllowed(
            f"{listed(in_use)}: in use, so it can't be ready; end that with: leasectl unuse"
        )
    kept = [each.name for each in chosen if each.mark.state == "keep"]
    if kept:
        raise NotAllowed(
            f'{listed(kept)}: the answer was "keep", which is final until it is asked for again'
        )


def use(service: Service, target: ReleaseTarget, name: str) -> None:
    """Mark a name as in use; do nothing if it is already.

    Args:
        service: On the state directory of its handle.
        target: The handle, and the acquisition that is meant.
        name: Of what it holds.

    Raises:
        NotAllowed: The handle doesn't hold it, or the answer for it was "ready".
        LeaseLost: It has lost that.
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
        raise has_lost(handle, service.state)
    raise NotAllowed(
        f'handle {handle.id} doesn\'t hold "{printable(name)}"; list its resources with: leasectl '
        f"cat {service.state.names_path(handle.id)}"
    )


def _is_wanted_back(service: Service, name: str, mark: SeenMark) -> NotAllowed:
    left = mark.ends_at - service.clock.elapsed()
    if left >= 1:
        at = time.strftime("%H:%M:%S UTC", time.gmtime(service.clock.wall() + left))
        when = f"in {format_duration(left)} at the latest, at {at}"
    else:
        when = "any moment"
    return NotAllowed(
        f'"{name}" can\'t be used: {mark.asked_by} asks for it, and the answer was "ready"; it is '
        f"taken, or can be used again, {when}"
    )
