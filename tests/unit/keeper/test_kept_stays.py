"""When names on servers are renewed and taken out: a third of a ttl, and each for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.engines.rules.membership import Lifetime, Member
from leasectl.errors import BackendUnreachable
from leasectl.keeper.log import Log
from leasectl.keeper.stays import KeptStays
from leasectl.model import Process
from leasectl.state.watched import Stay, Stays
from leasectl.system.process import identify
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import kill
from tests.kit.waits import eventually, wait_readable

TTL_SECONDS = 60.0


class Server:
    """Where the names are, as threads see it.

    Attributes:
        there: What is so of each.
        away: Those of which it says nothing.
        opened: With what it was opened.
        updated: The names that were asked about, each as often.
    """

    def __init__(self) -> None:
        self.there: dict[str, Member] = {}
        self.away: set[str] = set()
        self.opened: list[tuple[str, str]] = []
        self.updated: list[str] = []

    def backend_at(self, url: str, settings: str) -> Server:
        if (url, settings) not in self.opened:
            self.opened.append((url, settings))
        return self

    @property
    def members(self) -> Server:
        return self

    def update(self, names: Sequence[str], change: Callable[[Member, Any], Member]) -> Any:
        (name,) = names
        self.updated.append(name)
        if name in self.away:
            raise BackendUnreachable("away")
        before = self.there[name]
        self.there[name] = change(before, {})
        return (before,), (self.there[name],), ()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def ends() -> Iterator[ProcessEnds]:
    ends = ProcessEnds(10)
    yield ends
    ends.close()


@pytest.fixture
def kept(
    desk: Desk,
    server: Server,
    ends: ProcessEnds,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> KeptStays:
    monkeypatch.setattr(desk.service, "for_another_thread", lambda: server)
    return KeptStays(desk.service, ends, Log(str(log), desk.time.clock))


def joined(
    desk: Desk, server: Server, ends: ProcessEnds, name: str, process: Process | None = None
) -> Stay:
    process = process or identify(os.getpid())
    stay = Stay("madeup://here", "as somebody", name, "T", process, TTL_SECONDS)
    with desk.state.transaction():
        Stays(desk.state).keep(stay)
    server.there[name] = Member(name, "T", lifetime=Lifetime(process, TTL_SECONDS), joined=1)
    ends.follow([process])
    return stay


def done(kept: KeptStays) -> list[float | None]:
    """When all is due next, after threads have done what they were asked to."""

    def settled() -> tuple[list[float | None], ...]:
        kept.take_outcomes()
        times = kept.go()
        return () if None in times else (times,)

    (times,) = eventually(settled)
    return times


def test_one_is_renewed_at_once_and_then_each_third_of_its_ttl(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays
) -> None:
    stay = joined(desk, server, ends, "n")
    assert kept.processes() == [stay.process]
    now = desk.time.clock.elapsed()
    assert done(kept) == [now + TTL_SECONDS / 3]
    desk.time.advance(TTL_SECONDS / 3 - 0.1)
    assert kept.go() == [now + TTL_SECONDS / 3]
    desk.time.advance(0.1)
    assert kept.go() == [None]
    assert done(kept) == [now + 2 * TTL_SECONDS / 3]
    assert server.there["n"].joined == 3
    assert server.opened == [("madeup://here", "as somebody")]


def test_one_that_fails_is_tried_again_soon_and_holds_up_no_other(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays, log: Path
) -> None:
    for name in ("n-1", "n-2"):
        joined(desk, server, ends, name)
    server.away.add("n-1")
    now = desk.time.clock.elapsed()
    assert done(kept) == [now + 1, now + TTL_SECONDS / 3]
    assert "the membership of n-1 in T: away; next try in 1s\n" in log.read_text()
    server.away.clear()
    desk.time.advance(1)
    assert done(kept) == [now + 1 + TTL_SECONDS / 3, now + TTL_SECONDS / 3]
    assert server.updated == ["n-1", "n-2", "n-1"]


def test_the_pauses_between_tries_are_a_sixth_of_the_ttl_at_most(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays
) -> None:
    joined(desk, server, ends, "n")
    server.away.add("n")
    for pause in (1.0, 2.0, 4.0, 8.0, TTL_SECONDS / 6, TTL_SECONDS / 6):
        assert done(kept) == [desk.time.clock.elapsed() + pause]
        desk.time.advance(pause)


def test_one_that_ends_between_two_renewals_leaves_at_once(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays, child: Process
) -> None:
    joined(desk, server, ends, "n", child)
    (due,) = done(kept)
    assert due is not None
    kill(child)
    wait_readable(ends.fd)
    assert ends.take()
    assert done(kept) == []
    assert server.there["n"].pool is None


def test_one_that_is_not_there_as_it_joined_is_left_alone_and_forgotten(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays, log: Path
) -> None:
    joined(desk, server, ends, "n")
    moved = server.there["n"] = Member("n", "U", joined=2)
    assert done(kept) == []
    assert server.there["n"] == moved
    assert Stays(desk.state).all() == []
    assert (
        "no longer renewing n in T: it left the pool, or joined again in another way\n"
        in log.read_text()
    )


def test_one_that_joins_again_is_renewed_at_once(
    desk: Desk, server: Server, ends: ProcessEnds, kept: KeptStays
) -> None:
    stay = joined(desk, server, ends, "n")
    assert None not in done(kept)
    with desk.state.transaction():
        Stays(desk.state).forget_this(stay)
    assert kept.go() == []
    joined(desk, server, ends, "n")
    assert kept.go() == [None]
    assert None not in done(kept)
