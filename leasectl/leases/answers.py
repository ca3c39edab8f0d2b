"""Answers: say for a holder whether what somebody wants back can be taken.

That a name is ready is decided in the records, under their lock and only while it isn't in use;
then it is sent. Whoever is killed in between, or whose server doesn't answer, leaves it decided:
it is sent again by whoever looks next, or the mark is taken off. Either way nobody uses it before
nothing can say any more that it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.backends.kinds import kind_of_handle
from leasectl.engines.notes import NoteChange
from leasectl.leases.asked import Asked, asked_of
from leasectl.leases.marks import Answered, answered_in_words, encode_mark, taken_off_in_words
from leasectl.model import OnReclaim, ReleaseTarget
from leasectl.state import keeper_process
from leasectl.state.uses import Uses
from leasectl.typed.hints import TYPE_CHECKING, Callable
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    from leasectl.leases.service import Service

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
    service: Service, target: ReleaseTarget, steps: Sequence[Step]
) -> dict[str, Answered | None]:
    """Carry out what was chosen, as far as the marks are still what they were.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        steps: At most one a name; what has come into use by now is kept, whatever they say.

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
        done = backend.notes.change([_change(step) for step in steps])
        steps = [step for step, is_done in zip(steps, done) if is_done]
        _settle(service, target, steps)
    return {step.asked.name: step.answer for step in steps}


def answer_for_holder(
    service: Service, target: ReleaseTarget, decide: Decide | None = None
) -> dict[str, Answered | None]:
    """Answer what is asked of a handle as its request says, and take off what has ended.

    Args:
        service: On the state directory of the handle.
        target: The handle, and the acquisition that is meant.
        decide: Who decides instead of its request; called without any lock.

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
    return carry_out(service, target, steps) if steps else {}


def by_request(on_reclaim: OnReclaim) -> Decide:
    """What a request says that is to be answered."""
    if on_reclaim == "answer":
        return lambda names: {}
    said: Answered = "ready" if on_reclaim == "release" else "keep"
    return lambda names: dict.fromkeys(names, said)


def is_undecided(asked: Asked, now: float) -> bool:
    """Tell whether a mark is to be answered, and nobody has decided that yet."""
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


def _change(step: Step) -> NoteChange:
    note, answered = step.asked.note, step.answer
    mark = step.asked.mark
    if answered is None:
        after, told = None, taken_off_in_words(mark, has_ended=True)
    else:
        after, told = encode_mark(mark.answered(answered)), answered_in_words(answered)
    return NoteChange(note.type, note.name, note.fence, note.text, after, told)
