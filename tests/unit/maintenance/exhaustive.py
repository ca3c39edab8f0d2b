"""The lifecycle, tried in every world there is: each step, each way in which it fails, each end.

`check` is what a lifecycle has to stand; `test_lifecycle` has ours stand it, and has it find what
is wrong with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leasectl.maintenance.facts import Step, Wanted, parse_status
from tests.unit.maintenance.model import (
    DRAINED,
    EARLIER,
    ELSEWHERE,
    LEFT,
    SHORT,
    THEIRS,
    US,
    WORD,
    Lifecycle,
    World,
    Wrong,
    all_worlds,
    carry_out,
    judge_step,
    must,
    their,
)


class Checked(NamedTuple):
    """What was tried.

    Args:
        worlds: How many there are, those included that come of a step that failed half-way.
        ways: How many ways there were for their steps to go.
    """

    worlds: int
    ways: int


class Life(NamedTuple):
    """How a world goes on where nothing fails, pods go when they are asked, and time goes by.

    Args:
        becomes_active: It is, or will be.
        rest: Where nothing more happens.
    """

    becomes_active: bool
    rest: World


def check(lifecycle: Lifecycle, worlds: Iterable[World] | None = None) -> Checked:
    """Have a lifecycle go through every world, and through what comes of it.

    Raises:
        Wrong: It does what it never may, or what it must doesn't come to be.
    """
    open_worlds = list(all_worlds() if worlds is None else worlds)
    nexts: dict[World, World | None] = dict.fromkeys(open_worlds)
    ways = 0
    while open_worlds:
        world = open_worlds.pop()
        try:
            step = lifecycle(US, world.seen)
            judge_step(world, step)
            undisturbed = in_turn(world, step)
            disturbed = meddled_with(lifecycle, step, undisturbed)
            nexts[world] = go_on(world, step, undisturbed[-1])
        except Wrong as wrong:
            raise Wrong(f"{wrong}: {world}") from wrong
        drained = [world._replace(drain=each) for each in (None, LEFT, DRAINED) if step.drains]
        for after in (*undisturbed, *disturbed, *drained, nexts[world]):
            ways += 1
            if after is not None and after not in nexts:
                each = after.canonical()
                if each not in nexts:
                    nexts[each] = None
                    open_worlds.append(each)
    judge_lives(nexts)
    return Checked(len(nexts), ways)


def in_turn(world: World, step: Step) -> list[World]:
    """A world after none of a step's writes, the first, the first two, and so on.

    Each write may fail, or succeed without its answer arriving, or be the last before whoever
    writes is killed: all of these are a step that ends after so many of its writes.
    """
    worlds = [world]
    for write in step.writes:
        after = carry_out(worlds[-1], write, worlds[-1])
        must(after is not None, "a step doesn't stand in its own way")
        worlds.append(after or world)
    return worlds


def meddled_with(lifecycle: Lifecycle, step: Step, undisturbed: list[World]) -> list[World]:
    """What else may come of a step: between any two of its writes, others may do something.

    One of them may be another of us, who sees what is there then and does all that follows of it.

    Args:
        lifecycle: Of us all.
        step: What is said to be done.
        undisturbed: What whoever does it takes for the world, before each write and at last.
    """
    worlds = []
    for number, before in enumerate(undisturbed[:-1]):
        replica = in_turn(before, lifecycle(US, before.seen))[-1]
        for meddled in (replica, *meddle(before)):
            after: World | None = meddled
            for write, seen in zip(step.writes[number:], undisturbed[number:]):
                assert after is not None
                after = carry_out(after, write, seen)
                if after is None:
                    break
                worlds.append(after)
    return worlds


def meddle(world: World) -> Iterator[World]:
    """What others do, or time, between two writes."""
    yield world.later(US.end_seconds - 1)  # less than an end may take
    if not world.is_held and not world.is_theirs:
        # It differs from every other, as its version does.
        yield world._replace(lease=their()._replace(transitions=1))
    again = Wanted(SHORT, WORD)
    yield world._replace(wanted=None if world.wanted == again else again)
    yield world._replace(wanted=Wanted(SHORT, EARLIER))
    yield world._replace(is_cordoned=not world.is_cordoned)
    yield world._replace(mark="")


def go_on(world: World, step: Step, after: World) -> World | None:
    """Where a world is next, once a step is done; None if it is at rest.

    Raises:
        Wrong: Something ends before its time, or lasts beyond it.
    """
    over_at = world.over_at
    if step.status == "ended" and world.has_begun and world.is_held and over_at is not None:
        must(world.now >= over_at or world.wanted is None, "nothing ends before its time")
    if step.drains:
        return after._replace(drain=DRAINED)
    if step.writes:
        return after
    if step.look_at is None:
        return None
    later = after.later(max(1, int(step.look_at - world.now)))
    is_late = later.is_our_cordon and world.is_held and not later.is_held
    must(not is_late, "a node that we cordoned is uncordoned before our lease ends")
    return later


def judge_lives(nexts: dict[World, World | None]) -> None:
    """Judge how each world goes on to its rest.

    Raises:
        Wrong: What is asked for doesn't become active, or what is over doesn't end.
    """
    lives: dict[World, Life] = {}
    for start in nexts:
        road = []
        world = start
        while world not in lives:
            if world in road:
                raise Wrong(f"it never comes to rest: {world}")
            road.append(world)
            after = nexts[world]
            if after is None:
                lives[world] = Life(_is_active(world), world)
            else:
                world = after.canonical()
        for each in reversed(road):
            if each not in lives:
                after = nexts[each]
                assert after is not None
                life = lives[after.canonical()]
                lives[each] = Life(life.becomes_active or _is_active(each), life.rest)
    for start, life in lives.items():
        try:
            judge_life(start, life)
        except Wrong as wrong:
            raise Wrong(f"{wrong}: {start}") from wrong


def judge_life(start: World, life: Life) -> None:
    """Judge what becomes of a world.

    Raises:
        Wrong: It isn't what it must be.
    """
    rest = life.rest
    status = parse_status(rest.status)
    must(rest.mark != US.identity, "a node that we cordoned is uncordoned at last")
    must(not rest.has_our_record, "no window is recorded at last")
    if start.is_cordoned and start.mark != US.identity:
        must(rest.is_cordoned, "a node cordoned by somebody else stays so")
    if rest.wanted is not None:
        must(rest.wanted.seconds is None, "what is over is asked for no more")
        must(status == "invalid", "what can't be read is said to be so")
        return
    must(not rest.is_held, "at last the lease is given back")
    is_theirs = rest.window == THEIRS or bool(rest.mark)
    must(is_theirs or status in ("ended", None), "what is over has ended")
    must(status == "ended" or not start.has_begun, "what is over has ended")
    if start.is_readable and (not start.is_current or _has_time_left(start)):
        must(life.becomes_active, "what is asked for becomes active")


def _is_active(world: World) -> bool:
    return world.is_current and parse_status(world.status) == "active"


def _has_time_left(world: World) -> bool:
    """Whether what has begun has time left to be active in."""
    lease = world.lease
    if lease is None:
        return True  # it is made again
    if not world.is_ours:
        return False
    if not lease.duration_seconds or lease.owner_uid == ELSEWHERE:
        return True
    return world.over_at is not None and world.now < world.over_at
