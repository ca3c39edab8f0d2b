"""Resources that leave their pool as soon as their holders are ready."""

from __future__ import annotations

import pytest

from leasectl.errors import InvalidRequest, NotFound
from leasectl.reclaim.plan import NotFreed, Wanted
from leasectl.reclaim.removal import Removed, remove_when_ready
from leasectl.reclaim.taking_back import Listener
from tests.unit.reclaim.world import DELAY, WAIT, World

PATIENTLY = Wanted(names=frozenset(), delay_seconds=DELAY, wait_seconds=WAIT)

pytestmark = pytest.mark.once


def remove(world: World, *names: str, answer: str | None = None) -> Removed:
    listener = Listener(world.freed.extend, warn=world.warnings.append)
    steps = remove_when_ready(world.ground(), world.sides.members, names, PATIENTLY, listener)

    def holders_do() -> None:
        for name, note in world.marks().items():
            if answer is not None and '"marked"' in note.text:
                world.answer(name, "ready" if answer == "ready" else "keep")
        with pytest.raises(InvalidRequest, match="is unavailable"):
            world.acquire("other", names[0])  # nobody gets one in between

    return world.go_through(steps, then=holders_do)


def in_pool(world: World) -> dict[str, bool]:
    """What is in the pool, and whether it takes no new holder."""
    members = world.sides.members.members([f"T--{number}" for number in range(4)])
    return {each.name: each.cordoned for each in members if each.pool is not None}


def test_what_is_free_goes_at_once(world: World) -> None:
    assert remove(world, "T--3") == Removed(("T--3",), ())
    assert world.passed == 0
    assert "T--3" not in in_pool(world)


def test_what_is_held_goes_when_its_holder_is_ready_and_nobody_gets_it(world: World) -> None:
    assert remove(world, "T--0", "T--3", answer="ready") == Removed(("T--3", "T--0"), ())
    assert world.freed == ["T--3", "T--0"]
    assert world.passed < DELAY + 1
    assert in_pool(world) == {"T--1": False, "T--2": False}


def test_what_stays_takes_holders_again_unless_it_took_none_before(world: World) -> None:
    world.cordon("T--1")
    removed = remove(world, "T--0", "T--1", answer="keep")
    kept = "its holder keeps it"
    assert removed == Removed((), (NotFreed("T--0", kept), NotFreed("T--1", kept)))
    assert in_pool(world) == {"T--0": False, "T--1": True, "T--2": False, "T--3": False}
    assert world.marks() == {}


def test_one_that_is_interrupted_leaves_it_as_it_was(world: World) -> None:
    listener = Listener(world.freed.extend)
    steps = remove_when_ready(world.ground(), world.sides.members, ["T--0"], PATIENTLY, listener)
    next(steps)
    (cordoned,) = world.sides.members.members(["T--0"])
    assert (cordoned.cordoned, cordoned.cordon and cordoned.cordon.reason) == (
        True,
        "to be removed",
    )
    steps.close()
    assert not in_pool(world)["T--0"]


def test_what_is_not_there_changes_nothing(world: World) -> None:
    with pytest.raises(NotFound, match="T--9"):
        remove(world, "T--0", "T--9")
    assert not any(in_pool(world).values())
