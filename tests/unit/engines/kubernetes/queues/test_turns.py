"""Whose turn it is says what looking at every ticket and every resource would say."""

from __future__ import annotations

import random

from leasectl.engines.cluster.objects import (
    Claim,
    Identity,
    PoolObject,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.cluster.turns import (
    free_in,
    in_order,
    position_of,
    to_follow,
    turn_of,
    unmet_in,
)
from leasectl.engines.cluster.view import NOTHING_OVER, Over, PoolView
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Member
from leasectl.engines.rules.possible import Want

REGIONS = {"a": "eu", "b": "eu", "c": "us", "d": "us"}
EU, US = (("region", "eu", True),), (("region", "us", True),)
WANTS = (*[Want()] * 4, Want("a"), Want("c"), Want("gone"), Want(where=EU), Want(where=US))
ANY = Want()
HELD = Claim("k", "", 0, 1, 1, "h", 0.0, 0.0, "", None, 0)


def resource(name: str, *, held: bool = False, fence: int = 0, ticket: str = "") -> ResourceObject:
    member = Member(name, "T", properties=(("region", REGIONS[name]),))
    claim = HELD._replace(ticket=ticket) if held else None
    return ResourceObject(Identity(name, f"uid-{name}", 1), {}, member, claim, fence=fence)


def ticket(
    place: int, want: Want = ANY, count: int = 1, *, priority: int = 0, counts_as: int = 0
) -> TicketObject:
    return TicketObject(
        Identity(f"leasectl-ticket-{place}", f"uid-{place}", place),
        {},
        "T",
        place,
        want=want,
        count=count,
        priority=priority,
        counts_as=counts_as,
    )


def view_of(
    resources: list[ResourceObject], tickets: list[TicketObject], *, aging: float = 0.0
) -> PoolView:
    settings = PoolSettings(aging_seconds=aging)
    pool = PoolObject(Identity("leasectl-pool-T", "uid", 1), {}, "T", settings)
    return PoolView("T").fill([pool, *resources, *tickets], 1000)


def ahead_of(own: TicketObject, view: PoolView) -> list[TicketObject]:
    """The better ones that could use all that it could, the best first."""
    found: list[TicketObject] = []
    while each := to_follow(own, view, NOTHING_OVER, places=len(found) + 1):
        found.append(each)
    return found[::-1]


class Model:
    """The rule, word for word."""

    def __init__(self, view: PoolView, *, aging: bool) -> None:
        self.view, self.aging = view, aging
        self.resources = list(view.resources.values())

    def rank(self, each: TicketObject) -> tuple[int, int, str]:
        priority = each.counts_as if self.aging else each.priority
        return -priority, each.order or each.place, each.id.name

    def usable(self, want: Want) -> list[ResourceObject]:
        return [
            each
            for each in self.resources
            if want.could_use(each.name, each.member.properties) and each.member.takes_holders
        ]

    def is_met(self, each: TicketObject) -> bool:
        return len(self.usable(each.want)) >= each.count

    def better(self, own: TicketObject) -> list[TicketObject]:
        all_ = [each for each in self.view.tickets.values() if not each.is_parked]
        return [each for each in all_ if self.rank(each) < self.rank(own) and self.is_met(each)]

    def may_take(self, own: TicketObject) -> set[str]:
        """What it may take now: no better one could use that."""
        return {
            each.name
            for each in self.usable(own.want)
            if each.claim is None
            and not any(each in self.usable(other.want) for other in self.better(own))
        }


def test_nobody_may_take_what_a_better_one_could_use_and_everybody_the_rest() -> None:
    chance = random.Random(11)
    ready = 0
    for _ in range(3000):
        aging = chance.random() < 0.3
        resources = [
            resource(name, held=chance.random() < 0.5, fence=chance.randint(0, 3))
            for name in "abcd"
            if chance.random() < 0.9
        ]
        tickets = [
            ticket(
                place,
                chance.choice(WANTS),
                chance.choice((1, 1, 2, 3)),
                priority=chance.choice((0, 0, 0, 1, -1)),
                counts_as=chance.choice((0, 1, 2)),
            )._replace(
                order=chance.choice((0, 0, chance.randint(1, place))),
                is_parked=chance.random() < 0.2,
            )
            for place in chance.sample(range(1, 100), 5)
        ]
        view = view_of(resources, tickets, aging=100.0 * aging)
        model = Model(view, aging=aging)
        assert [each.place for each in in_order(view)] == [
            each.place for each in sorted(tickets, key=model.rank)
        ]
        for own in tickets:
            turn = turn_of(own, view)
            assert turn.is_met == model.is_met(own)
            if not turn.is_met:
                assert own.id.name in unmet_in(view, tickets)
                continue
            free = [each.name for each in turn.free]
            if turn.before is None:
                assert set(free) == model.may_take(own)
                order = [each.name for each in free_in(view)]
                assert free == [each for each in order if each in free]
                ready += len(free) >= own.count
            else:  # then it may take nothing, or nothing that it could do with
                assert not model.may_take(own)
    assert ready > 1000


def test_the_least_recently_acquired_come_first_and_of_equals_by_name() -> None:
    resources = [resource("b", fence=5), resource("a", fence=9), resource("d"), resource("c")]
    view = view_of(resources, [])
    assert [each.name for each in turn_of(ticket(1), view).free] == ["c", "d", "b", "a"]


def test_what_is_over_is_free_and_who_is_dead_isnt_there() -> None:
    dead, own = ticket(1), ticket(2)
    view = view_of([resource("a", held=True)], [dead, own])
    assert turn_of(own, view).before == dead
    over = Over(frozenset({dead.id.name}), frozenset({"a"}))
    assert [each.name for each in turn_of(own, view, over).free] == ["a"]


def test_a_ticket_that_has_become_a_claim_keeps_nobody_from_anything() -> None:
    served, own = ticket(1, count=2), ticket(2)
    held = [resource(name, held=True, ticket=served.id.name) for name in "ab"]
    view = view_of([*held, resource("c")], [served, own])
    assert [each.name for each in turn_of(own, view).free] == ["c"]
    half = view_of([held[0], resource("b"), resource("c")], [served, own])
    assert turn_of(own, half).before == served


def test_what_takes_no_holders_or_is_held_back_is_not_had() -> None:
    closed = resource("a")._replace(member=Member("a", "T", cordoned=True))
    held_back = resource("b")._replace(grace_seconds=30.0, came="x")
    view = view_of([closed, held_back, resource("c")], [])
    assert [each.name for each in free_in(view, NOTHING_OVER)] == ["c"]
    assert [each.name for each in free_in(view, Over(graces=frozenset({"b"})))] == ["b", "c"]
    assert not turn_of(ticket(1, count=3), view).is_met


def test_the_position_is_told_among_those_that_compete() -> None:
    tickets = [ticket(1, Want("a")), ticket(2, Want("c")), ticket(3, Want("a")), ticket(4)]
    view = view_of([resource(name, held=True) for name in "abcd"], tickets)
    assert [position_of(each, view) for each in tickets] == [1, 1, 2, 4]


def test_as_long_as_one_that_is_ahead_waits_it_is_not_ones_turn() -> None:
    rng = random.Random(3)
    for _ in range(300):
        resources = [resource(name, held=rng.random() < 0.5) for name in "abcd"]
        tickets = [ticket(place, rng.choice(WANTS), rng.randint(1, 2)) for place in range(1, 9)]
        for own in tickets:
            for one in ahead_of(own, view_of(resources, tickets)):
                turn = turn_of(own, view_of(resources, [one, own]))
                assert turn.before == one or not turn.is_met


def test_of_those_who_want_anything_all_are_ahead_of_who_comes_later() -> None:
    tickets = [ticket(place) for place in (4, 2, 9, 7)]
    view = view_of([resource("a", held=True)], tickets)
    assert [each.place for each in ahead_of(tickets[2], view)] == [2, 4, 7]
