"""The life of a maintenance, tried in every state that there is, and with what would be wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest

from leasectl.maintenance.facts import (
    Lease,
    LeaseWrite,
    Node,
    NodeWrite,
    Seen,
    Step,
    Us,
    Wanted,
    Window,
)
from leasectl.maintenance.lifecycle import next_step
from tests.unit.maintenance import reachable
from tests.unit.maintenance.exhaustive import check
from tests.unit.maintenance.model import US, Wrong, all_worlds

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


def without_looking_again(us: Us, seen: Seen) -> Step:
    """It ends where only another look would bring it on."""
    return next_step(us, seen)._replace(look_at=None)


def blocking(us: Us, seen: Seen) -> Step:
    """It is away for the whole of the padding."""
    step = next_step(us, seen)
    at = step.look_at
    return step if at is None else step._replace(look_at=at + us.padding_seconds)


def greedy(us: Us, seen: Seen) -> Step:
    """It takes a lease of another's that is still valid."""
    lease = seen.lease
    if lease is not None and lease.may_be_valid():
        seen = seen._replace(lease=lease._replace(unchanged_seconds=lease.duration_seconds))
    return next_step(us, seen)


def forgetting(us: Us, seen: Seen) -> Step:
    """It knows of nothing to end once the request has gone."""
    return Step("nothing to do") if seen.wanted is None else next_step(us, seen)


def in_two_writes(us: Us, seen: Seen) -> Step:
    """It takes the request away first, and notes that it has ended afterwards."""
    step = next_step(us, seen)
    if step.status != "ended" or seen.wanted is None:
        return step
    return step._replace(writes=(NodeWrite(seen.node.status, removes_request=True),))


def from_renewal(us: Us, seen: Seen) -> Step:
    """It counts from when the lease was renewed."""
    lease = seen.lease
    if lease is not None and lease.renewed_at is not None:
        seen = seen._replace(lease=lease._replace(acquired_at=lease.renewed_at))
    return next_step(us, seen)


def counting_anew(us: Us, seen: Seen) -> Step:
    """It has another time count from when that was asked for."""
    step = next_step(us, seen)
    if step.status != "updated":
        return step
    return _with_leases(step, lambda write: write.lease._replace(acquired_at=seen.now))


def giving_back_first(us: Us, seen: Seen) -> Step:
    """It gives the lease back before the node is uncordoned."""
    step = next_step(us, seen)
    return step._replace(writes=step.writes[::-1]) if step.status == "ended" else step


def without_prolonging(us: Us, seen: Seen) -> Step:
    """It uncordons when its lease has ended, and may be another's at any time."""
    step = next_step(us, seen)
    return step._replace(writes=step.writes[-2:]) if step.status == "ended" else step


def cordoning_without_mark(us: Us, seen: Seen) -> Step:
    """It takes any cordon for its own."""
    node = seen.node
    if node.is_unschedulable:
        seen = seen._replace(node=node._replace(marked_by=us.identity))
    return next_step(us, seen)


def cordoning_first(us: Us, seen: Seen) -> Step:
    """It cordons the node before it has its lease."""
    step = next_step(us, seen)
    if step.status is None or not step.status.startswith("new"):
        return step
    return step._replace(writes=step.writes[::-1])


def counting_transitions(us: Us, seen: Seen) -> Step:
    """It counts each window as a change of holder."""

    def counted(write: LeaseWrite) -> object:
        changes = write.lease.transitions + (seen.lease is not None)
        return write.lease._replace(transitions=changes)

    step = next_step(us, seen)
    return _with_leases(step, counted) if step.status == "new" else step


def helpful(us: Us, seen: Seen) -> Step:
    """It goes on with what it had read before, where the request can't be read."""
    if seen.wanted is not None and seen.wanted.seconds is None:
        seen = seen._replace(wanted=seen.wanted._replace(seconds=1))
    return next_step(us, seen)


def draining_on(us: Us, seen: Seen) -> Step:
    """It evicts what is left even when it is to end."""
    return next_step(us, seen)._replace(drains=seen.drain is None and seen.lease is not None)


def impatient(us: Us, seen: Seen) -> Step:
    """It looks again and again while there is nothing to do."""
    step = next_step(us, seen)
    return step if step.writes else step._replace(look_at=seen.now)


def without_words(us: Us, seen: Seen) -> Step:
    """It takes any request for the one whose window has begun."""
    window, wanted = seen.node.window, seen.wanted
    if window is not None and window.identity == us.identity and wanted is not None:
        seen = seen._replace(wanted=wanted._replace(word=window.word))
    return next_step(us, seen)


def forgetting_words(us: Us, seen: Seen) -> Step:
    """It records no word."""
    step = next_step(us, seen)
    if step.status is None or not step.status.startswith("new"):
        return step
    writes = [e._replace(begins="") if isinstance(e, NodeWrite) else e for e in step.writes]
    return step._replace(writes=tuple(writes))


def ending_for_others(us: Us, seen: Seen) -> Step:
    """It takes the window of another identity for its own."""
    window = seen.node.window
    if window is not None:
        node = seen.node._replace(window=window._replace(identity=us.identity))
        seen = seen._replace(node=node)
    return next_step(us, seen)


def ending_what_never_began(us: Us, seen: Seen) -> Step:
    """It says `ended` of a request that only waited."""
    step = next_step(us, seen)
    return step if step.status != "" else step._replace(writes=(NodeWrite("ended"),))


def active_too_soon(us: Us, seen: Seen) -> Step:
    """It ends what has begun as soon as somebody else has cordoned the node."""
    if seen.node.is_unschedulable and not seen.node.marked_by:
        seen = seen._replace(wanted=None)
    return next_step(us, seen)


def _with_leases(step: Step, changed: Callable[[LeaseWrite], object]) -> Step:
    writes = [
        each._replace(lease=changed(each)) if isinstance(each, LeaseWrite) else each  # type: ignore[arg-type]
        for each in step.writes
    ]
    return step._replace(writes=tuple(writes))


# What is wrong, and by which rule the check finds it. The first five are what was found in the
# controller that this one takes after.
MUTANTS = (
    (blocking, "by the end at the latest"),
    (without_looking_again, "by the end at the latest"),
    (greedy, "another's valid lease is never written"),
    (forgetting, "what is over ends"),
    (in_two_writes, "can't be read says no more|removed with its end|what is over ends"),
    (from_renewal, "counts from when the lease was acquired|what is over ends"),
    (counting_anew, "counts from when the lease was acquired"),
    (giving_back_first, "given back before its node is uncordoned"),
    (without_prolonging, "that another may have by then"),
    (cordoning_without_mark, "a node cordoned by somebody else stays so"),
    (cordoning_first, "without its lease"),
    (counting_transitions, "transitions count changes of holder"),
    (helpful, "what can't be read is said to be so"),
    (draining_on, "drained"),
    (impatient, "looks again and again"),
    (without_words, "begins a window of its own|who finds the lease with another waits"),
    (forgetting_words, "what begins is what is asked for"),
    (ending_for_others, "who finds the lease|of its own|else's window|nothing goes on|looks again"),
    (ending_what_never_began, "what never began doesn't end"),
    (active_too_soon, "is never|ended|becomes active|begins a window of its own"),
)


@pytest.mark.parametrize(
    ("mutant", "rule"), MUTANTS, ids=lambda each: getattr(each, "__name__", "")
)
def test_what_would_be_wrong_is_found(mutant: Callable[[Us, Seen], Step], rule: str) -> None:
    with pytest.raises(Wrong, match=rule):
        check(mutant)


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
