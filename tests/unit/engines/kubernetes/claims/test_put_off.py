"""Renewals put off to the answer of a note, which renews with the same write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leasectl.engines.notes import Note, NoteChange
from leasectl.model import Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

KEY, TTL = "h/1", 60.0


class Keeper:
    """A keeper that renews "a" and "b" each third of the ttl, and an operator that asks for "a"."""

    def __init__(self, clock: ManualClock, *, puts_off: bool = True) -> None:
        self.api, self.clock = MadeUpApi(), clock
        self.process, self.operator, self.answering = (
            Process(self.api, clock.clock) for _ in range(3)
        )
        self.process.pools.create_pool("T", ["a", "b"])
        lease, _ = self.process.acquire(KEY, Request("T", count=2, ttl_seconds=TTL))
        self.fence = lease.fence
        self.put_off = 0
        self.noted: list[Sequence[Note]] = []
        renewals = self.process.opened.context.renewals
        renewals.noted, renewals.seconds = self.noted.append, TTL / 3
        if puts_off:
            renewals.put_off = self._count
        assert self.renew() == ("a", "b")

    def _count(self) -> None:
        self.put_off += 1

    def renew(self) -> tuple[str, ...]:
        return self.process.engine.renew(KEY)

    def heartbeat(self) -> tuple[str, ...]:
        self.clock.advance(TTL / 3)
        return self.renew()

    def mark(self, name: str = "a", before: str | None = None, after: str = "asked") -> None:
        fence = self.fence if name == "a" else self.fence + 1
        change = NoteChange("T", name, fence, before, after)
        assert self.operator.opened.notes.change([change]) == (True,)

    def answer(self, *, renews: bool = True) -> None:
        change = NoteChange("T", "a", self.fence, "asked", "keep", renews=renews)
        assert self.answering.opened.notes.change([change]) == (True,)

    def writes(self, begin: int) -> list[str]:
        """The Leases of resources that were written since then, by name."""
        return sorted(name for name, _ in self.api.history[begin:] if name in ("a", "b"))


@pytest.fixture
def keeper(manual_clock: ManualClock) -> Keeper:
    return Keeper(manual_clock)


def test_each_lease_is_written_once_if_its_answer_comes(keeper: Keeper) -> None:
    keeper.mark()
    begin = len(keeper.api.history)
    assert keeper.heartbeat() == ("a", "b")
    assert (keeper.put_off, [each.text for each in keeper.noted[-1]]) == (1, ["asked"])
    keeper.answer()
    keeper.clock.advance(1.0)
    assert sorted(keeper.renew()) == ["a", "b"]
    assert [each.text for each in keeper.noted[-1]] == ["keep"]
    assert keeper.writes(begin) == ["a", "b"]
    # Both have their full time, as the operator sees it.
    keeper.operator.pools.pools()
    keeper.clock.advance(TTL - 2.0)
    assert sorted(keeper.operator.held()) == ["a", "b"]
    assert keeper.heartbeat() == ()


@pytest.mark.parametrize("renews", [None, False])
def test_what_no_answer_renews_is_renewed_soon(keeper: Keeper, renews: bool | None) -> None:
    keeper.mark()
    keeper.heartbeat()
    if renews is not None:
        keeper.answer(renews=renews)
    keeper.clock.advance(1.0)
    begin = len(keeper.api.history)
    assert sorted(keeper.renew()) == ["a", "b"]
    assert keeper.writes(begin) == ["a"]
    for _ in range(4):  # and goes on to be
        assert keeper.heartbeat() == ("a", "b")
    assert sorted(keeper.operator.held()) == ["a", "b"]


def test_a_second_call_that_is_late_renews_all(keeper: Keeper) -> None:
    keeper.mark()
    keeper.heartbeat()
    keeper.clock.advance(TTL / 6)
    begin = len(keeper.api.history)
    assert keeper.renew() == ("a", "b")
    # It is the first of another pair: the note is still news.
    assert sorted({*keeper.writes(begin), "a"}) == ["a", "b"]
    keeper.clock.advance(1.0)
    assert sorted(keeper.renew()) == ["a", "b"]
    assert keeper.writes(begin) == ["a", "b"]


def test_what_was_freed_in_between_is_gone(keeper: Keeper) -> None:
    keeper.mark()
    keeper.heartbeat()
    note = Note("T", "a", keeper.fence, "asked")
    assert keeper.operator.opened.notes.free([note], by="reclaim") == ("a",)
    assert keeper.operator.acquire("h/2", Request("T", ttl_seconds=TTL))
    keeper.clock.advance(1.0)
    assert keeper.renew() == ("b",)
    assert keeper.heartbeat() == ("b",)


def test_what_was_ended_by_force_is_not_put_off(keeper: Keeper) -> None:
    keeper.operator.pools.end_early(KEY, ["a"], guard=None, reason="by an admin", at_once=False)
    assert keeper.heartbeat() == ("b",)
    assert keeper.put_off == 0


def test_whoever_cannot_come_back_soon_puts_nothing_off(manual_clock: ManualClock) -> None:
    keeper = Keeper(manual_clock, puts_off=False)
    keeper.mark()
    begin = len(keeper.api.history)
    assert keeper.heartbeat() == ("a", "b")
    assert keeper.writes(begin) == ["a", "b"]


def test_an_answer_brings_nothing_back_that_is_over(keeper: Keeper) -> None:
    keeper.mark()
    keeper.answering.pools.pools()
    keeper.clock.advance(TTL)
    change = NoteChange("T", "a", keeper.fence, "asked", "keep", renews=True)
    assert keeper.answering.opened.notes.change([change]) == (False,)
