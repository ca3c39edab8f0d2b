"""What can come to be of a node that nothing was ever asked of, and by which way.

The diagram and the table of `docs/dev/maintenance-states.md` are made here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leasectl.maintenance.facts import STATUSES, Wanted, parse_status
from leasectl.maintenance.lifecycle import next_step
from tests.unit.maintenance.exhaustive import in_turn
from tests.unit.maintenance.model import (
    DRAINED,
    EARLIER,
    LEFT,
    LONG,
    SHORT,
    US,
    WORD,
    World,
    their,
)


class Change(NamedTuple):
    """One thing that happens.

    Args:
        what: In words; empty where it is nothing but a look.
        after: How things stand then.
    """

    what: str
    after: World


def changes(world: World) -> Iterator[Change]:
    """All that can happen in a world, but for what people do by hand to what is ours."""
    step = next_step(US, world.seen)
    undisturbed = in_turn(world, step)
    if step.drains:
        yield Change("a pod can't be evicted", undisturbed[-1]._replace(drain=LEFT))
        yield Change("", undisturbed[-1]._replace(drain=DRAINED))
    elif step.writes:
        yield Change("", undisturbed[-1])
    elif world.is_ours:
        yield Change("time passes", world.later(1))
    yield from _wishes(world)
    if not (world.is_held or world.is_theirs):
        yield Change("another holder takes the Lease", world._replace(lease=their()))
    if world.is_theirs:
        yield Change("that Lease expires", world.later(2))


def mishaps(world: World) -> Iterator[Change]:
    """What may happen besides: we are killed, nobody looks in time, somebody meddles with us."""
    undisturbed = in_turn(world, next_step(US, world.seen))
    for after in undisturbed[1:-1]:
        yield Change("the controller is killed after its first write", after._replace(drain=None))
    lease = world.lease
    if world.is_ours and lease is not None:
        yield Change("no controller runs for a while", world.later(1))
        if lease.duration_seconds:
            ended = lease._replace(duration_seconds=0)
            yield Change("somebody ends the Lease by hand", world._replace(lease=ended))
    if lease is not None:
        yield Change("somebody deletes the Lease", world._replace(lease=None))
    if world.is_our_cordon and parse_status(world.status) == "active":
        yield Change("somebody uncordons the node", world._replace(is_cordoned=False))


def _wishes(world: World) -> Iterator[Change]:
    if world.wanted is None:
        # With another word than that of a window that is left; no other word differs from that.
        word = EARLIER if world.window is not None and world.window.word == WORD else WORD
        yield Change("a request", world._replace(wanted=Wanted(LONG, word)))
        yield Change("a request that can't be read", world._replace(wanted=Wanted(None, word)))
        return
    seconds, word = world.wanted
    yield Change("cancelled", world._replace(wanted=None))
    if seconds is not None:
        unreadable = world._replace(wanted=Wanted(None, word))
        yield Change("the request becomes unreadable", unreadable)
    if seconds != LONG:
        yield Change("a longer duration requested", world._replace(wanted=Wanted(LONG, word)))
    if seconds == LONG:
        yield Change("a shorter duration requested", world._replace(wanted=Wanted(SHORT, word)))


class Reached(NamedTuple):
    """All that can come to be.

    Args:
        worlds: Each, with what it came of and by what, on one of the shortest ways.
    """

    worlds: dict[World, tuple[World, str] | None]

    def reasons_for(self, status: str) -> str:
        """Why a status is written."""
        steps = (next_step(US, each.seen) for each in self.worlds)
        reasons = {each.why for each in steps if parse_status(each.status or "") == status}
        return "; ".join(sorted(reasons))

    def way_to(self, status: str) -> list[str] | None:
        """What has to happen for a status, by one of the shortest ways; None if there is none."""
        with_it = (each for each in self.worlds if parse_status(each.status) == status)
        world = next(with_it, None)
        if world is None:
            return None
        way: list[str] = []
        while True:
            came = self.worlds[world]
            if came is None:
                return [each for each in reversed(way) if each]
            world, what = came
            way.append(what)


def reach(*, with_mishaps: bool, most: int | None = None) -> Reached:
    """Everything that can come of a node that nothing was ever asked of, the nearest first.

    Args:
        with_mishaps: Also by what happens besides.
        most: No more than so many worlds; None for all.
    """
    start = World()
    worlds: dict[World, tuple[World, str] | None] = {start: None}
    waiting = deque([start])
    while waiting and (most is None or len(worlds) < most):
        world = waiting.popleft()
        happening: Iterable[Change] = changes(world)
        if with_mishaps:
            happening = (*happening, *mishaps(world))
        for what, after in happening:
            each = after.canonical()
            if each not in worlds:
                worlds[each] = (world, what)
                waiting.append(each)
    return Reached(worlds)


# So many are near enough to have every status among them.
_ENOUGH_WORLDS = 2000


def _folded(status: str) -> str:
    """The name of a status in the diagram, which has those that are alike as one."""
    if not status:
        return "ended"
    return "new" if status.startswith("new") else status


def diagram() -> str:
    """The diagram of states: which status follows on which, and why, where nothing goes wrong."""
    arrows: dict[tuple[str, str], set[str]] = {}
    for world in reach(with_mishaps=False).worlds:
        step = next_step(US, world.seen)
        after = parse_status(step.status or "")
        before = parse_status(world.status)
        if step.status is not None and after != before:
            arrow = _folded(before or ""), _folded(after or "")
            arrows.setdefault(arrow, set()).add(step.why)
    lines = ["stateDiagram-v2", '    state "nothing, or ended" as ended']
    lines.append('    state "new, …" as new')
    lines.append("    [*] --> ended")
    for (source, target), why in sorted(arrows.items()):
        lines.append(f"    {source} --> {target}: {' / '.join(sorted(why))}")
    return "\n".join(lines)


def ways() -> str:
    """The table of statuses, each with one of the shortest ways to it.

    Raises:
        LookupError: There is none to one of them.
    """
    usual = reach(with_mishaps=False)
    any_way = reach(with_mishaps=True, most=_ENOUGH_WORLDS)
    lines = ["| status | reason | for example after |", "|---|---|---|"]
    for status in STATUSES:
        way = usual.way_to(status) or any_way.way_to(status)
        if way is None:
            raise LookupError(f"nothing leads to {status}")
        why = usual.reasons_for(status) or any_way.reasons_for(status)
        lines.append(f"| `{status}` | {why} | {'; '.join(way)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram(), ways(), sep="\n\n")
