"""``pool move`` and ``pool join --hold`` are killed anywhere: no name is lost, or held by nobody.

Afterwards an ordinary command runs, on etcd the keeper, too. Names that move together are then
together. A name that has joined as held is held by a handle that somebody may know of, or it isn't
there at all: nobody else gets what wasn't ready.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.pools import admin, memberships
from leasectl.pools.joining import leave
from tests.crash.sweeping import Sweep, among_contenders, kill_at_request
from tests.kit.forking import ending, fork, leasectl
from tests.kit.hosts import Hosts
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.support import Cli
from tests.kit.waits import eventually

MOVING = ("m-1", "m-2")
MOST_REQUESTS = 40
Arm = Callable[[], None]


class Members:
    """Names whose commands are killed.

    Args:
        sweep: On whose state directory.
        backend: Where their pools are.
    """

    def __init__(self, sweep: Sweep, backend: str) -> None:
        self._sweep = sweep
        self._backend = ("--backend", backend)
        with sweep.service() as service:
            service.pools.create_pool("M", MOVING)
            service.pools.create_pool("N", ["n-1"])
            service.pools.create_pool("J", ["j-1"])

    def move(self, arm: Arm) -> int:
        """Move names to another pool, and kill that; returns how it ended."""
        with self._sweep.service() as service:
            memberships.move(service, MOVING, "M", when_free=False)
        code = self._run(arm, "pool", "move", "-q", "--names", ",".join(MOVING), "--to", "N")
        with self._sweep.service() as service:
            where = {each.pool for each in service.members.members(MOVING)}
        assert where in ({"M"}, {"N"}), f"{where} with {code}"
        assert code or where == {"N"}
        return code

    def join(self, arm: Arm, *args: str) -> int:
        """Have a name join as held, and kill that; returns how it ended."""
        code = self._run(arm, "pool", "join", "J", "-q", "--name", "new", "--hold", *args)
        with self._sweep.service() as service:
            known = eventually(lambda: self._known(service), "the keeper undoes it")
            (handle,) = known or (None,)
            assert handle or code, "whoever has ended well has told of its handle"
            if handle is not None:
                release(service, whole(handle))
            (member,) = service.members.members(["new"])
            assert member.holder is None
            assert member.pool == "J" or handle is None or code
            assert member.pool is None or handle is not None
            if member.pool is not None:
                leave(service, "J", "new")
        return code

    def _known(self, service: Service) -> tuple[Handle | None] | None:
        """The handle that holds the name, if one does; None as long as that isn't clear."""
        admin.show(service)
        (member,) = service.members.members(["new"])
        handles = [each for each in service.handles.active() if each.request.name == "new"]
        if member.holder is None:
            return None if handles or member.pool else (None,)
        is_known = len(handles) == 1 and handles[0].state == "held" and handles[0].waiter is None
        return (handles[0],) if is_known else None

    def _run(self, arm: Arm, *args: str) -> int:
        def work() -> None:
            arm()
            leasectl(self._sweep.cli.state_dir, self._sweep.output, *args, *self._backend)

        return ending(fork(work))


@pytest.fixture
def here(cli: Cli, tmp_path: Path) -> Iterator[tuple[Sweep, Members]]:
    """On the embedded pool, among contenders."""
    sweep = Sweep(cli, tmp_path)
    sweep.keep_a_keeper()
    members = Members(sweep, "local:")
    with among_contenders(sweep):
        yield sweep, members


def test_a_move_can_be_killed_anywhere(here: tuple[Sweep, Members]) -> None:
    sweep, members = here

    def attempt(number: int) -> int:
        code = members.move(partial(kill_at, number))
        sweep.check(f"move killed at {number}")
        return code

    sweep.kill_each(attempt, stride=48, at_least=8)


def test_a_join_can_be_killed_anywhere(here: tuple[Sweep, Members]) -> None:
    sweep, members = here

    def attempt(number: int) -> int:
        code = members.join(partial(kill_at, number), "--guard-pid", str(os.getpid()))
        sweep.check(f"join killed at {number}")
        return code

    sweep.kill_each(attempt, stride=60, at_least=8)


def test_on_etcd_they_can_be_killed_around_each_request(hosts: Hosts, tmp_path: Path) -> None:
    sweep = Sweep(hosts.new(), tmp_path, backend=hosts.url)
    sweep.keep_a_keeper()
    members = Members(sweep, hosts.url)
    for attempt in (members.move, members.join):
        kills_before = sweep.kills
        for number in range(1, MOST_REQUESTS, 1 if EVERY_KILL else 2):
            when = (False, True) if EVERY_KILL else (number % 4 == 1,)
            codes = [attempt(partial(kill_at_request, number, after=after)) for after in when]
            sweep.kills += sum(code != 0 for code in codes)
            if not any(codes):
                break
        else:
            raise AssertionError("still being killed")
        assert sweep.kills > kills_before
    print(f"{sweep.kills} kills")
