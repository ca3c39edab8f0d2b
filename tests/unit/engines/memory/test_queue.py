"""A queue in lines says what looking at all of its places would say."""

from __future__ import annotations

import random

import pytest

from leasectl.engines.membership import Properties
from leasectl.engines.memory.queue import Place, Queue
from leasectl.engines.pacing import effective_priority
from leasectl.engines.possible import Want
from leasectl.model import Claimant, Request, Ticket

REGIONS = {"a": "eu", "b": "eu", "c": "us"}
EU, US = (("region", "eu", True),), (("region", "us", True),)
WANTS = (*[Want()] * 4, Want("a"), Want("b"), Want(where=EU), Want(where=US))


def properties(name: str) -> Properties:
    return (("region", REGIONS[name]),)


class Model:
    """All places in one list, each time sorted anew."""

    def __init__(self, aging: float) -> None:
        self.now = 0.0
        self.aging = aging
        self.places: list[Place] = []
        self.suspended: set[Place] = set()

    def rank(self, place: Place) -> tuple[int, int]:
        waited = self.now - place.put_at
        return (
            -effective_priority(place.priority, waited, self.aging),
            place.ticket.number,
        )

    def in_order(self) -> list[Place]:
        return sorted(self.places, key=self.rank)

    def better(self, place: Place) -> list[Place]:
        return [
            each
            for each in self.in_order()
            if each not in self.suspended and self.rank(each) < self.rank(place)
        ]

    def keeps_from_all(self, place: Place) -> bool:
        """Whether a better one could use all that this one could, whatever there is."""
        return any(
            could_use(each, place.name) if place.name else each.want in (Want(), place.want)
            for each in self.better(place)
        )

    def keeps_from_some(self, place: Place) -> list[Place]:
        return [
            each for each in self.better(place) if not place.name or could_use(each, place.name)
        ]


def could_use(place: Place, name: str) -> bool:
    return place.want.could_use(name, properties(name))


def new_place(number: int, chance: random.Random, now: float) -> Place:
    want, priority = chance.choice(WANTS), chance.randrange(-2, 3)
    request = Request("T", name=want.name, where=want.where, priority=priority)
    claimant = Claimant(f"h{number}", f"job/{number}", request)
    return Place(Ticket(number, claimant), 0.0, now, lambda: None)


def plain_place(number: int, *, priority: int = 1) -> Place:
    claimant = Claimant(f"h{number}", f"job/{number}", Request("T", priority=priority))
    return Place(Ticket(number, claimant), 0.0, 0.0, lambda: None)


def change(queue: Queue, model: Model, number: int, chance: random.Random) -> None:
    action = chance.random()
    place = chance.choice(model.places) if model.places else None
    model.now += chance.choice((0.0, 1.0, 7.0))
    if place is None or (action < 0.5 and len(model.places) < 30):
        model.places.append(new_place(number, chance, model.now))
        queue.append(model.places[-1])
    elif action < 0.75:
        queue.remove(place)
        model.places.remove(place)
        model.suspended.discard(place)
    elif place in model.suspended:
        queue.resume(place)
        model.suspended.remove(place)
    else:
        queue.suspend(place)
        model.suspended.add(place)


@pytest.mark.parametrize("aging", [0.0, 10.0])
def test_it_agrees_with_sorting_whatever_is_done(aging: float) -> None:
    chance = random.Random(7)
    model = Model(aging)
    queue = Queue(lambda: model.now, aging, properties)
    for number in range(1, 400):
        change(queue, model, number, chance)
        in_order = model.in_order()
        assert list(queue) == in_order
        for name in REGIONS:
            fit = [p for p in in_order if p not in model.suspended and could_use(p, name)]
            assert queue.first_for(name) == (fit[0] if fit else None)
        for place in in_order[:6]:
            better = model.keeps_from_some(place)
            assert queue.is_turn_of(place) == (not model.keeps_from_all(place))
            assert queue.is_alone(place) == (better == [])
            assert queue.count_better(place) == len(better)
            assert queue.is_suspended(place) == (place in model.suspended)
            behind = [each for each in in_order if model.rank(each) > model.rank(place)]
            assert queue.next_to(place) == (behind[0] if behind else None)
            counts = place not in model.suspended
            if counts and place.name is None and queue.is_turn_of(place):
                kept = [name for name in REGIONS if any(could_use(each, name) for each in better)]
                assert [name for name in REGIONS if queue.kept_from(place).has(name)] == kept


def test_only_who_is_first_of_its_priority_looks_when_it_will_count_for_more() -> None:
    model = Model(10.0)
    queue = Queue(lambda: model.now, 10.0)
    first, second, better = plain_place(1), plain_place(2), plain_place(3, priority=2)
    queue.append(first)
    queue.append(second)
    model.now = 4.0
    assert queue.next_rise(first) is None  # nobody is there that it could overtake
    queue.append(better)
    assert list(queue.below(better)) == [first]
    assert queue.next_rise(first) == 6.0
    assert queue.next_rise(second) is None
    queue.remove(first)
    assert queue.follower(first) is second
    assert queue.next_rise(second) == 6.0
