"""The life of a maintenance, tried in every state that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leasectl.maintenance.facts import (
    Lease,
    LeaseWrite,
    Node,
    NodeWrite,
    Seen,
    Wanted,
    Window,
)
from leasectl.maintenance.lifecycle import next_step
from tests.unit.maintenance import reachable
from tests.unit.maintenance.exhaustive import check
from tests.unit.maintenance.model import US, all_worlds

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[3] / "docs" / "dev" / "maintenance-states.md"
FIGURES = re.compile(r"in (\d[\d,]+) worlds, whose steps can go in (\d[\d,]+) ways")


def test_it_does_what_it_must_and_nothing_else_in_every_world_there_is() -> None:
    checked = check(next_step)
    said = FIGURES.search(PAGE.read_text(encoding="utf-8"))
    assert said is not None
    assert [int(each.replace(",", "")) for each in said.groups()] == list(checked)


def test_the_diagram_in_the_page_is_what_it_does() -> None:
    assert f"```mermaid\n{reachable.diagram()}\n```\n" in PAGE.read_text(encoding="utf-8")


def test_the_page_says_how_each_status_comes_about() -> None:
    assert f"\n{reachable.ways()}\n" in PAGE.read_text(encoding="utf-8")


# What is wrong, and by which rule the check finds it. The first five are what was found in the
# controller that this one takes after.


def test_every_world_is_tried() -> None:
    assert len(set(all_worlds())) > 10_000
    assert US.end_seconds < US.padding_seconds


NOW = 1_700_000_000.0
YEAR_1 = -62135596800.0


def window(word: str) -> Node:
    """A node in the window of a request."""
    return Node("uid", "active", True, US.identity, Window(US.identity, word))


@pytest.mark.parametrize("wanted", [None, Wanted(60), Wanted(90), Wanted(60, "b"), Wanted(None)])
@pytest.mark.parametrize("transitions", [0, 2**31 - 1])
@pytest.mark.parametrize("holder", [US.identity, "them"])
def test_no_number_is_larger_than_the_api_accepts(
    holder: str, transitions: int, wanted: Wanted | None
) -> None:
    lease = Lease(holder, 60, YEAR_1, YEAR_1, transitions, "uid", unchanged_seconds=60.0)
    step = next_step(US, Seen(window(""), wanted, lease, None, NOW))
    leases = [each.lease for each in step.writes if isinstance(each, LeaseWrite)]
    assert leases or holder == "them"
    for each in leases:
        assert each.duration_seconds < 2**31
        assert each.transitions < 2**31


class TestWords:
    EXPIRED = Lease(US.identity, 5, NOW - 100, NOW - 100, 1, "uid")

    def test_a_request_with_another_word_waits_for_another_holder_and_is_kept(self) -> None:
        theirs = Lease("them", 60, NOW, NOW, 2, "uid", unchanged_seconds=20.0)
        step = next_step(US, Seen(window("a"), Wanted(5, "b"), theirs, None, NOW))
        assert step.writes == (NodeWrite("waiting", "disown", ends=True),)
        assert step.look_at == NOW + 40
