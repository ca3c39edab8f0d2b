"""What is noted at claims, and freed by it: a kill, or a lost answer, at each request."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.engines.notes import Note, NoteChange
from leasectl.errors import BackendUnreachable
from leasectl.model import Request
from tests.kit.kubernetes.made_up_api import Killed, MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock


class Handshake:
    """A holder of "a" and "b", and an operator that asks for "a", is answered, and frees it."""

    def __init__(self, api: MadeUpApi, clock: ManualClock) -> None:
        self.api, self._clock = api, clock
        holder = self.process()
        holder.pools.create_pool("T", ["a", "b", "c"])
        lease, _ = holder.acquire("k/1", Request("T", count=2, ttl_seconds=60.0))
        self.fence = lease.fence
        self.freed: list[str] = []

    def process(self) -> Process:
        return Process(self.api, self._clock.clock)

    def go_on(self) -> None:
        """Do what is to be done next, by what is noted, until it is freed."""
        for _ in range(3):
            notes = self.process().opened.notes
            there = {each.name: each.text for each in notes.of_pool("T")}
            if "a" not in self.process().held():
                return
            if "a" not in there:
                notes.change([NoteChange("T", "a", self.fence, None, "asked")])
            elif there["a"] == "asked":
                notes.change([NoteChange("T", "a", self.fence, "asked", "ready")])
            else:
                self.freed += notes.free([Note("T", "a", self.fence, "ready")], by="reclaim")

    def check(self) -> None:
        """It was freed, the other is held, and nothing is noted any more."""
        process = self.process()
        assert process.held() == {"b": "job/1/host/k/1"}
        assert process.opened.notes.of_pool("T") == ()
        assert process.engine.renew("k/1") == ("b",)
        (again,) = process.acquire("k/2", Request("T", name="a"))
        assert process.opened.notes.free([Note("T", "a", self.fence, "ready")], by="reclaim") == ()
        assert process.held()["a"] == "job/1/host/k/2"
        assert again.fence > self.fence


@pytest.mark.parametrize("number", range(16))
def test_a_kill_at_any_request_leaves_what_the_next_ends(
    number: int, manual_clock: ManualClock
) -> None:
    handshake = Handshake(api := MadeUpApi(), manual_clock)
    start = len(api.asked)

    def kill(at: int) -> None:
        if at - start == number:
            raise Killed

    api.before = kill
    with contextlib.suppress(Killed):
        handshake.go_on()
    api.before = lambda at: None
    handshake.go_on()
    handshake.check()


@pytest.mark.parametrize("number", range(16))
def test_a_lost_answer_is_found_out(number: int, manual_clock: ManualClock) -> None:
    handshake = Handshake(api := MadeUpApi(), manual_clock)
    api.repeats = True
    start = len(api.asked)

    def lose(at: int) -> None:
        if at - start == number:
            raise BackendUnreachable("no answer")

    api.after = lose
    handshake.go_on()
    api.after = lambda at: None
    assert handshake.freed == ["a"]
    handshake.check()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("after", [None, "keep"])
def test_what_is_freed_meanwhile_was_not_answered(
    number: int, after: str | None, manual_clock: ManualClock
) -> None:
    """Else its holder would take it for its own still, and use it again."""
    handshake = Handshake(api := MadeUpApi(), manual_clock)
    holder, operator = handshake.process().opened.notes, handshake.process().opened.notes
    assert holder.change([NoteChange("T", "a", handshake.fence, None, "ready")]) == (True,)
    freed: list[str] = []
    start = len(api.asked)

    def free(at: int) -> None:
        if at - start == number and not freed:
            freed.append("a")
            assert operator.free([Note("T", "a", handshake.fence, "ready")], by="reclaim") == ("a",)

    api.before = free
    done = holder.change([NoteChange("T", "a", handshake.fence, "ready", after)])
    api.before = lambda at: None
    assert done == (not freed,)
    assert freed == ["a"] or number == 2
