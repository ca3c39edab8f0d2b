"""A view that is kept up to date object by object is as one that is filled anew.

So is what was found to be over in it. And the work for an event doesn't grow with the queue.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasectl.engines.cluster.objects import (
    Claim,
    Found,
    Identity,
    PoolObject,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.cluster.observed import Lookout, Observed
from leasectl.engines.cluster.turns import free_in, in_order, turn_of
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Member
from leasectl.engines.rules.possible import Want
from tests.kit.support import ManualClock

WANTS = (Want(), Want(), Want("r1"), Want(where=(("region", "eu", True),)))
POOL = Identity("pool", "pool", 1)


def a_claim(chance: random.Random, version: int) -> Claim | None:
    if chance.random() < 0.5:
        return None
    ticket, ttl = f"t{chance.randrange(8)}", chance.choice((None, 5.0, 20.0))
    key, renewed = f"key-{chance.randrange(3)}", str(chance.randrange(4))
    return Claim(key, ticket, 1, version, version, "h", 0.0, 0.0, renewed, ttl, 0)


def an_object(chance: random.Random, version: int) -> Found:
    """Something of a pool, as it was written at a version."""
    number = chance.randrange(8)
    kind = chance.random()
    if kind < 0.1:
        settings = PoolSettings(aging_seconds=chance.choice((0.0, 60.0)))
        return PoolObject(POOL._replace(version=version), None, "T", settings)
    if kind < 0.5:
        member = Member(
            f"r{number}",
            chance.choice(("T", "T", "T", "U")),
            cordoned=chance.random() < 0.2,
            properties=(("region", chance.choice(("eu", "us"))),),
        )
        id_ = Identity(f"r{number}", f"uid-r{number}", version)
        return ResourceObject(id_, None, member, a_claim(chance, version))
    return TicketObject(
        Identity(f"t{number}", f"uid-t{number}", version),
        None,
        "T",
        chance.randrange(100),
        want=chance.choice(WANTS),
        count=chance.randint(1, 2),
        priority=chance.randrange(2),
        counts_as=chance.randrange(3),
        order=chance.choice((0, 0, 30)),
        is_parked=chance.random() < 0.2,
        ttl_seconds=chance.choice((5.0, 20.0)),
        renewed=str(chance.randrange(4)),
    )


def facts(view: PoolView) -> tuple[object, ...]:
    """All that is asked of a view."""
    return (
        view.pool,
        view.resources,
        view.tickets,
        view.ranks(),
        view.served(),
        [view.usable(want) for want in WANTS],
        [view.resource(f"r{number}") for number in range(8)],
        in_order(view),
        free_in(view),
        {name: turn_of(ticket, view) for name, ticket in view.tickets.items()},
    )


@pytest.mark.parametrize("seed", range(20))
def test_view_after_random_events_is_as_one_filled_anew(
    seed: int, manual_clock: ManualClock
) -> None:
    chance = random.Random(seed)
    there: dict[str, Found] = {}
    view = PoolView("T").fill((), 1)
    facts(view)  # from here on it is all kept up to date
    observed = Observed(manual_clock.clock)
    lookout = Lookout(observed, view)
    for version in range(2, 200):
        if there and chance.random() < 0.2:
            gone = chance.choice(list(there.values()))
            del there[gone.id.name]
            id_, found = gone.id._replace(version=version), None
        else:
            found = an_object(chance, version)
            there[found.id.name] = found
            id_ = found.id
        assert view.apply(id_, found)
        lookout.note(id_.name)
        manual_clock.advance(chance.choice((0.0, 1.0, 7.0)))
        anew = PoolView("T").fill(there.values(), version)
        assert facts(view) == facts(anew)
        assert lookout.look().over == observed.look(anew).over


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count how many tickets are looked at."""
    number = [0]
    is_served = PoolView.is_served

    def counting(view: PoolView, ticket: TicketObject) -> bool:
        number[0] += 1
        return is_served(view, ticket)

    with monkeypatch.context() as patched:
        patched.setattr(PoolView, "is_served", counting)
        yield number


@pytest.mark.parametrize("waiting", [10, 500])
def test_judging_an_event_looks_at_no_more_tickets_behind_a_longer_queue(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = ResourceObject(Identity("a", "uid-a", 1), None, Member("a", "T"))
    tickets = [
        TicketObject(Identity(f"t{n}", f"uid-{n}", n + 2), None, "T", n, count=1)
        for n in range(waiting)
    ]
    view = PoolView("T").fill([PoolObject(POOL, None, "T"), resource, *tickets], waiting + 2)
    view.ranks()
    first, last = tickets[0], tickets[-1]
    assert view.apply(first.id._replace(version=waiting + 3), None)
    with counted(monkeypatch) as number:
        assert turn_of(last, view).before == tickets[-2]
    assert number == [1]
