"""Answer: what a holder's own script says to whoever wants its leases back."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.errors import NotAllowed, NotFound
from leasectl.leases.answers import Step, carry_out
from leasectl.leases.asked import Asked, asked_of, held_of
from leasectl.leases.marks import Answered
from leasectl.model import ReleaseTarget
from leasectl.text.printable import printable
from leasectl.text.wording import listed
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.leases.service import Service


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
            f"{listed(missed)}: the mark has changed meanwhile, or it is in use now; look with: "
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
            f"nobody asks for {listed(unasked)}, or not any more; see who asks for what with: "
            "leasectl marks --handle H"
        )
    return list(dict.fromkeys(names))


def _check_ready(chosen: Sequence[Asked]) -> None:
    in_use = [each.name for each in chosen if each.is_in_use]
    if in_use:
        raise NotAllowed(f"{listed(in_use)} can't be ready: in use; end that with: leasectl unuse")
    kept = [each.name for each in chosen if each.mark.state == "keep"]
    if kept:
        raise NotAllowed(
            f'{listed(kept)}: the answer was "keep", which is final until it is asked for again'
        )
