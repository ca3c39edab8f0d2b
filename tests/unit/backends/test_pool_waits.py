"""What the pool algorithm asks for while it waits, without anybody sleeping."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.facts import PoolSettings
from leasectl.engines.pool_admin import Sides
from leasectl.errors import NoLease
from leasectl.model import Claimant, Process, Request
from leasectl.system.process import identify, this_process
from tests.kit.forking import ending, fork
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock


def test_what_can_not_be_tended_is_tried_each_second_and_not_in_a_spin(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    pools = store.pools
    pools.create_pool("T", ["T--00"])
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    pid = fork(signal.pause)
    holder = identify(pid)
    looked, recovered = list[float](), list[float]()

    def watched() -> list[Process]:
        """Asked for with each look."""
        looked.append(clock.elapsed())
        return [holder]

    patience = Patience(watched=watched, recover=lambda: recovered.append(clock.elapsed()))
    steps = backend.turn(Claimant("next", "next", Request("T")), NoJournal(), patience)
    wanted = next(steps)
    assert wanted.until is None
    (pidfd,) = [fd for fd in wanted.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]

    os.kill(pid, signal.SIGKILL)
    ending(pid)
    for tries in range(1, 4):
        wanted = steps.send({pidfd} if tries == 1 else set())
        assert (len(recovered), len(looked)) == (tries, 1 + tries)
        assert pidfd not in wanted.fds
        assert wanted.until == clock.elapsed() + 1.0
        manual_clock.advance(1.0)
    steps.close()
    assert pools.pools("T")[0].queue == ()

    late = backend.turn(Claimant("late", "late", Request("T")), NoJournal(), patience)
    assert next(late).until == clock.elapsed() + 1.0
    assert recovered[3:] == [clock.elapsed()]  # at once, as that one was dead already
    late.close()


def test_who_waits_is_told_once_that_it_can_not_be_met_and_once_that_it_can_again(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    pools, warnings = store.pools, list[str]()
    pools.create_pool("T", ["T--00", "T--01"])
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    asked = Claimant("next", "next", Request("T", 2))
    steps = backend.turn(asked, NoJournal(), Patience(warn=warnings.append))
    next(steps)
    assert warnings == []
    pools.remove_resources("T", ["T--00"], force=True)
    for _ in range(2):
        steps.send(set())
    assert warnings == [
        'pool "T" has 1 resource that can be leased now, so --count 2 can\'t be met; the request '
        "waits until that changes"
    ]
    pools.add_resources("T", ["T--02", "T--03"])
    with suppress(StopIteration):
        steps.send(set())
    assert len(warnings) == 1
    (pool,) = pools.pools("T")
    assert (pool.held, pool.queue) == (2, ())


def test_who_waits_behind_others_sees_to_a_witness_and_puts_nothing_right_when_that_ends(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    store.pools.create_pool("T", ["T--00"])
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    ahead = backend.turn(Claimant("second", "second", Request("T")), NoJournal(), Patience())
    next(ahead)
    pid = fork(signal.pause)
    witnesses, recovered = [identify(pid), this_process()], list[float]()
    patience = Patience(
        see_to_witness=lambda: witnesses.pop(0),
        recover=lambda: recovered.append(clock.elapsed()),
    )
    steps = backend.turn(Claimant("third", "third", Request("T")), NoJournal(), patience)
    next(steps)
    assert len(witnesses) == 2
    manual_clock.advance(1.0)
    wanted = steps.send(set())
    assert len(witnesses) == 1
    (pidfd,) = [fd for fd in wanted.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    steps.send({pidfd})
    manual_clock.advance(1.0)
    steps.send(set())
    assert (witnesses, recovered) == ([], [])
    steps.close()
    ahead.close()


def test_what_is_left_of_the_pace_is_told_to_its_end(manual_clock: ManualClock) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    pools = store.pools
    pools.create_pool("T", ["T--00", "T--01"], settings=PoolSettings(pace_seconds=10.0))
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    manual_clock.advance(9.5)
    with pytest.raises(NoLease, match="next grant in 1s;"):
        asked = Claimant("next", "next", Request("T"))
        backend.acquire(asked, NoJournal(), Patience(wait_seconds=0))


def test_beside_that_it_has_what_its_store_has(manual_clock: ManualClock) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    names = ("pools", "events", "members", "notes", "values")
    sides = cast(Sides, SimpleNamespace(**{each: f"its {each}" for each in names}))
    backend = PoolBackend("contract:", MadeUpEngine(store), sides, clock=clock)
    assert [getattr(backend, each) for each in names] == [f"its {each}" for each in names]
