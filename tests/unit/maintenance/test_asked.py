"""What people ask of nodes, and what they are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.errors import NotFound
from leasectl.maintenance.asked import (
    Standing,
    ask_for,
    cancel,
    is_without_controller,
    standings,
)
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import Us
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import CORDON_MARK, REQUEST, REQUEST_WORD, STATUS, Json
from tests.unit.maintenance.fake_cluster import FakeCluster

pytestmark = pytest.mark.once

US = "machine-remediation"
SETTINGS = Settings(Us(US, padding_seconds=30), "window-{node}")
BEGAN = "2023-11-14T22:13:20.000000Z"
BEGAN_AT = 1_700_000_000.0
RENEWED = "2023-11-14T22:13:50.000000Z"
RENEWED_AT = BEGAN_AT + 30


class People:
    """A cluster as people ask it: as `ApiCluster`, on what is in memory."""

    def __init__(self) -> None:
        self.fake = FakeCluster()
        self.node, self.lease = self.fake.node, self.fake.lease

    def nodes(self) -> tuple[Json, ...]:
        return tuple(self.fake.nodes[name] for name in sorted(self.fake.nodes))

    def leases(self) -> tuple[Json, ...]:
        return tuple(self.fake.leases.values())

    def ask_for(self, name: str, text: str | None, word: str = "") -> bool:
        if name in self.fake.nodes:
            self.fake.ask_for(name, text, word)
        return name in self.fake.nodes

    def requested(self, name: str) -> str | None:
        text: str | None = self.fake.nodes[name]["metadata"]["annotations"].get(REQUEST)
        return text

    def note(self, name: str, key: str, text: str) -> None:
        self.fake.nodes[name]["metadata"]["annotations"][key] = text


@pytest.fixture
def people() -> Any:
    people = People()
    people.fake.add_node("a")
    return people


class TestAsking:
    def test_a_node_that_goes_between_two_requests_too(self, people: Any) -> None:
        people.ask_for = lambda name, text, word: False
        for ask in (lambda: ask_for(people, "a", "30m"), lambda: cancel(people, "a")):
            with pytest.raises(NotFound):
                ask()

    def word(self, people: Any) -> str | None:
        text: str | None = people.fake.nodes["a"]["metadata"]["annotations"].get(REQUEST_WORD)
        return text

    def test_gives_each_request_a_word_of_its_own(self, people: Any) -> None:
        words = set[str | None]()
        for _ in range(5):
            ask_for(people, "a", "30m")
            words.add(self.word(people))
            cancel(people, "a")
            assert self.word(people) is None
        assert len(words) == 5
        assert all(words)


class TestStanding:
    def standing(self, people: Any) -> Standing:
        (found,) = standings(people, SETTINGS, "a")
        return found

    @pytest.mark.parametrize(
        ("spec", "holder"),
        [
            ({"holderIdentity": "upgrader", "leaseDurationSeconds": 60}, "upgrader"),
            ({"holderIdentity": "upgrader"}, ""),
            ({"holderIdentity": US}, ""),
            ({"holderIdentity": US, "leaseDurationSeconds": 60}, US),
        ],
    )
    def test_says_when_it_is_over_only_of_ours_and_since_when_it_is(
        self, people: Any, spec: dict[str, object], holder: str
    ) -> None:
        people.fake.put_lease("window-a", **spec)
        assert self.standing(people)[4:] == (holder, None, None, 0)
        people.fake.put_lease("window-a", acquireTime=BEGAN, **spec)
        over_at = BEGAN_AT + 30 if holder == US else None
        assert self.standing(people)[4:] == (holder, over_at, None, 0)

    @pytest.mark.parametrize(
        ("times", "until"),
        [
            ({}, None),
            ({"acquireTime": BEGAN}, BEGAN_AT + 60),
            ({"acquireTime": BEGAN, "renewTime": RENEWED}, RENEWED_AT + 60),
        ],
    )
    def test_says_until_when_a_request_waits_for_another_holder(
        self, people: Any, times: dict[str, str], until: float | None
    ) -> None:
        ask_for(people, "a", "30m")
        people.fake.put_lease(
            "window-a", holderIdentity="upgrader", leaseDurationSeconds=60, **times
        )
        assert self.standing(people)[4:] == ("upgrader", None, until, 60)

    def test_of_all_is_of_those_of_which_there_is_something_to_say(self, people: Any) -> None:
        for name in ("asks", "in-vain", "was"):
            people.fake.add_node(name)
        people.fake.ask_for("asks", "30m")
        people.fake.ask_for("in-vain", "")
        people.note("was", STATUS, "ended")
        people.fake.add_node("marked", cordoned=True)
        people.note("marked", CORDON_MARK, US)
        people.fake.add_node("by-hand", cordoned=True)
        people.fake.put_lease("window-asks", holderIdentity="them", leaseDurationSeconds=9)
        people.fake.put_lease("asks", holderIdentity="somebody else", leaseDurationSeconds=9)
        found = standings(people, SETTINGS)
        assert [each.node for each in found] == ["asks", "in-vain", "marked", "was"]
        assert [each.holder for each in found] == ["them", "", "", ""]


def test_nobody_is_said_to_lead_only_where_that_is_certain(people: Any) -> None:
    assert is_without_controller(people)
    people.fake.put_lease(LEASE_NAME, holderIdentity="a", leaseDurationSeconds=15)
    assert not is_without_controller(people)
    people.fake.put_lease(LEASE_NAME, holderIdentity="a")
    assert is_without_controller(people)
