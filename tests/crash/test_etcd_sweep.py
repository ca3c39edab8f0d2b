"""Commands on etcd are killed around each of their requests, and in between.

Afterwards one ordinary command runs, and the keeper does its work. Once the ttls of what the dead
had are over, pool and records are as they should be: no repair is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.etcd import events
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish, release
from leasectl.model import Request, whole
from leasectl.pools import admin
from leasectl.state.event import EventFilter, Kept
from leasectl.system.clock import boottime_seconds
from tests.crash.sweeping import Sweep, kill_at_request
from tests.kit.etcd.chronicle import chronicle, grants_in
from tests.kit.etcd.event_writer import packs
from tests.kit.forking import ending, fork, leasectl
from tests.kit.hosts import Hosts
from tests.kit.invariants import Claim, broken_invariants
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.pacing import too_fast
from tests.kit.story import story_of
from tests.kit.waits import eventually

# So many that no command waits for what the dead still have.
CAPACITY = 60
TTL_SECONDS = 5.0
MOST_ROUNDS = 5
MOST_REQUESTS = 60
NO_WAIT = Patience(wait_seconds=0)
WANTED = ("-q", "-t", "T", "-c", "2", "--ttl", f"{TTL_SECONDS}s")
# Of which others are written to every so often: what kills meet as well.
KEPT = Kept(32 * (60.0 if EVERY_KILL else 4.0), 100_000)
PACE_SECONDS, AGING_SECONDS = 0.5, 0.1
# What a command takes besides, on a machine that has other things to do.
SLACK_SECONDS = 3.0
BUCKET = 3  # events
HEARD_WITHIN_SECONDS = 0.25
STRIDE = 40  # of some thousand calls into the system; another part of them on each Python


class EtcdSweep:
    """A state directory whose commands are killed.

    Args:
        hosts: On whose pools.
        folder: Where output goes.
        kept: Which events are kept.

    Attributes:
        sweep: What it has in common with the sweeps on the embedded pool.
        longest_seconds: How long a command that was to be killed has taken at most.
    """

    def __init__(self, hosts: Hosts, folder: Path, *, kept: Kept = KEPT) -> None:
        self._hosts = hosts
        self._kept, self._began = kept, time.monotonic()
        hosts.keep_events(kept)
        self.sweep = Sweep(hosts.new(), folder, backend=hosts.url, capacity=CAPACITY)
        self.longest_seconds = 0.0
        self._killed: dict[str, str] = {}  # by the ids of their handles: when

    def acquire(self) -> list[str]:
        """The arguments of an `acquire`."""
        return ["acquire", "--backend", self._hosts.url, *WANTED]

    def acquire_better(self) -> list[str]:
        """The same, of one with a priority."""
        return [*self.acquire(), "--priority", "3"]

    def run(self) -> list[str]:
        """The arguments of a `run`."""
        return ["run", "--backend", self._hosts.url, *WANTED, "--", "sh", "-c", ":"]

    def release(self) -> list[str]:
        """The arguments of a `release`, of what is held."""
        return ["release", "--handle", self._held()]

    def reacquire(self) -> list[str]:
        """The arguments of a `reacquire`, of what is held."""
        return ["reacquire", "-q", "--handle", self._held()]

    def _held(self) -> str:
        """A handle that holds two, got without being killed."""
        request = Request("T", count=2, ttl_seconds=TTL_SECONDS)
        with self.sweep.service() as service:
            handle = acquire(service, request, patience=Patience(wait_seconds=30))
            announce(service, handle)
            return handle.id

    def kill_around_each_request(self, arguments: Callable[[], list[str]]) -> None:
        """Run a command again and again; KILL it before and after its 1st, 2nd, 3rd, … request.

        Some kills come before its grant, and some after it, if it gets one without being killed. On
        a busy machine a command needs more requests at one time than at another, so one round of
        kills may end before its grant.
        """
        has_granted: set[bool] = set()
        for _ in range(MOST_ROUNDS):
            if self._kill_around_each_request(arguments, has_granted):
                return
        raise AssertionError(f"no kill came after a grant: {has_granted}")

    def _kill_around_each_request(
        self, arguments: Callable[[], list[str]], has_granted: set[bool]
    ) -> bool:
        """Do one round; add which kills came after a grant, and return whether both kinds came."""
        for number in range(1, MOST_REQUESTS):
            killed = 0
            for after in (False, True):
                arm = functools.partial(kill_at_request, number, after=after)
                args, grants = arguments(), self._hosts.access.grants()
                was_killed = self._run(args, arm) != 0
                is_granted = self._hosts.access.grants() > grants
                killed += was_killed
                if was_killed:
                    has_granted.add(is_granted)
            self.sweep.kills += killed
            if not killed:
                return has_granted == {False, is_granted}
        raise AssertionError(f"still being killed after {MOST_REQUESTS} requests")

    def kill_in_between(self, arguments: Callable[[], list[str]], *, stride: int) -> None:
        """Run a command again and again; KILL it at every so manieth call into the system."""
        self.sweep.kill_each(
            lambda number: self._run(arguments(), functools.partial(kill_at, number)),
            stride=stride,
        )

    def _run(self, args: list[str], arm: Callable[[], None]) -> int:
        """Run a command that is to be killed, and then another; give back what it has told of."""

        start = boottime_seconds()

        def work() -> None:
            arm()
            leasectl(self.sweep.cli.state_dir, self.sweep.output, *args)

        code = ending(fork(work))
        self.longest_seconds = max(self.longest_seconds, boottime_seconds() - start)
        assert code in (0, -signal.SIGKILL), (args, code, self.sweep.said())
        with self.sweep.service() as service:
            admin.show(service)
            for handle in service.handles.active():
                if handle.id in self.sweep.kept:
                    continue
                self._killed.setdefault(handle.id, f"{args}, kill {self.sweep.kills}")
                if handle.state == "held" and not (handle.waiter or handle.guard):
                    release(service, whole(handle))
        return code

    def settle(self) -> None:
        """Wait until the ttls of what the dead had must be over, and see that all is well."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self._broken())
        assert self._broken() == [], self._killed
        with self.sweep.service() as service:
            active = {handle.id for handle in service.handles.active()}
            assert active == self.sweep.kept, [self._killed.get(each) for each in active]
            handle = acquire(service, Request("T", count=CAPACITY), patience=NO_WAIT)
            finish(service, handle)
        self._check_story()
        checks = json.loads(self.sweep.cli("doctor", "--json").out)["checks"]
        assert [each for each in checks if each["status"] == "fail"] == []
        print(f"{self.sweep.kills} kills")

    def _check_story(self) -> None:
        """No grant without its event nor the reverse, and all came to one end."""
        events = list(self._hosts.access.events.read(EventFilter(type="T")))
        # On a busy machine, the first of them fall out by their age.
        age = time.monotonic() - self._began
        trims = self._kept.number < KEPT.number or age > self._kept.seconds
        story = story_of(events, begins_anew=trims)
        assert story == ([], {}, set()), self._killed
        grants = [event.grant for event in events if event.kind == "granted"]
        first = grants[0] if trims else 1
        assert grants == list(range(first, self._hosts.access.grants() + 1)), self._killed

    def _broken(self) -> list[str]:
        pool = self._hosts.access.pool()
        claims = [
            Claim(
                each.name,
                self._handle_id(str(each.claim_key)),
                lease.fence,
                lease.ticket,
                lease.grant,
            )
            for each in pool.resources
            for lease in [each.lease]
            if lease is not None
        ]
        found = broken_invariants(self.sweep.cli.state_dir, claims, told=self.sweep.told)
        found += [f"{each.holder_identity} is in the queue" for each in pool.queue]
        found += [f"{claim.name} is held by {claim.owner}" for claim in claims]
        return found

    def _handle_id(self, claim_key: str) -> str:
        """The handle of a claim key, or that itself if it isn't for a current acquisition."""
        _, handle_id, acquisition = claim_key.rsplit("/", 2)
        rows = self.sweep.cli.query("SELECT acquisition FROM handle WHERE id = ?", handle_id)
        return handle_id if rows == [(int(acquisition),)] else claim_key


@pytest.fixture
def sweep(hosts: Hosts, tmp_path: Path) -> Iterator[EtcdSweep]:
    """A sweep at whose end all is well."""
    sweep = EtcdSweep(hosts, tmp_path)
    yield sweep
    sweep.settle()


def test_commands_can_be_killed_around_each_request(sweep: EtcdSweep) -> None:
    sweep.sweep.keep_a_keeper()
    sweep.kill_around_each_request(sweep.acquire)
    sweep.kill_around_each_request(sweep.release)
    sweep.kill_around_each_request(sweep.reacquire)
    sweep.kill_around_each_request(sweep.run)


def test_commands_that_start_the_keeper_can_be_killed_around_each_request(
    sweep: EtcdSweep,
) -> None:
    sweep.kill_around_each_request(sweep.acquire)


def test_commands_can_be_killed_between_their_requests(sweep: EtcdSweep) -> None:
    sweep.sweep.keep_a_keeper()
    sweep.kill_in_between(sweep.acquire, stride=STRIDE)
    sweep.kill_in_between(sweep.release, stride=STRIDE)
    sweep.kill_in_between(sweep.reacquire, stride=STRIDE)
    sweep.kill_in_between(sweep.run, stride=STRIDE)


# All other sweeps here make buckets and end some, too, now and then.
@pytest.mark.parametrize(
    ("verb", "number"),
    [("release", KEPT.number), *[("acquire", 8 * BUCKET)] * EVERY_KILL],
)
def test_commands_that_see_to_old_events_can_be_killed_around_each_request(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, number: int
) -> None:
    """Each looks whether a bucket is full; there is one to pack, or one to end."""
    monkeypatch.setattr(events, "_SMALLEST", BUCKET)
    monkeypatch.setattr(events, "_LARGEST", BUCKET)
    monkeypatch.setattr(events, "_LOOK_EVERY", 1)
    sweep = EtcdSweep(hosts, tmp_path, kept=KEPT._replace(number=number))
    sweep.sweep.keep_a_keeper()
    command = sweep.release if verb == "release" else sweep.acquire
    sweep.kill_around_each_request(command)
    if EVERY_KILL:
        sweep.kill_in_between(command, stride=1)
    sweep.settle()
    if verb == "release":
        assert len(packs(hosts.access)) >= 3
    else:
        assert len(list(hosts.access.events.read())) < number + 8 * BUCKET


def test_the_pace_is_kept_and_owed_once_wherever_a_command_is_killed(
    sweep: EtcdSweep, hosts: Hosts
) -> None:
    sweep.sweep.keep_a_keeper()
    keys = hosts.access.keys
    hosts.access.pools.change_settings("T", PoolSettings(PACE_SECONDS, 1, AGING_SECONDS))
    with chronicle(hosts.access.gateway.endpoints[0], keys.prefix) as written:
        sweep.kill_around_each_request(sweep.acquire_better)
        if EVERY_KILL:
            sweep.kill_in_between(sweep.acquire_better, stride=1)
        grants = grants_in(written.all_until_now(hosts.access.gateway), keys, "T")
    hosts.access.pools.change_settings("T", NO_SETTINGS)
    assert [grant for grant in grants if grant.passed] == []
    times = [grant.heard_at for grant in grants]
    assert too_fast(times, pace=PACE_SECONDS, slack=HEARD_WITHIN_SECONDS) == []
    if EVERY_KILL:  # a measurement, on a machine with nothing else to do
        assert sweep.longest_seconds < 2 * PACE_SECONDS + SLACK_SECONDS
