"""Processes that add, join, move, expect and read the same names, and write down what they saw."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, NamedTuple

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import Context
from leasectl.backends.kubernetes import KubernetesBackend
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.http.settings import parse_settings
from leasectl.leases.acquire import announce
from leasectl.leases.release import finish
from leasectl.leases.service import Service
from leasectl.pools import admin, memberships
from leasectl.pools.joining import join, join_held, leave, lifetime, settle
from leasectl.pools.properties import NO_CHANGE
from leasectl.state.directory import State
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.crash.member_judge import UNSURE, Seen, read_seen
from tests.kit.forking import ending, fork
from tests.kit.killing import FULL_SIZE

SPECIFIC = ("A", "B", "C")
DEFAULT = "D"
GRACE_SECONDS = 0.5
NAMES = tuple(f"host-{number}" for number in range(20 if FULL_SIZE else 6))
_KEPT = 10_000_000  # events: all of them are judged
_VERBS = {
    "read": 30,
    "add": 14,
    "default": 14,
    "join": 8,
    "hold": 5,
    "move": 16,
    "leave": 8,
    "expect": 2,
    "drop": 4,
}


class Host(NamedTuple):
    """Where participants work.

    Args:
        state_dir: Their state directory.
        backend: Whose pools.
        settings: How to talk to that, as a record has it.
    """

    state_dir: Path
    backend: str
    settings: str = ""


def open_service(host: Host, who: str) -> Service:
    state = State.open(str(host.state_dir))
    state.events.kept_number = _KEPT
    caller = Caller(f"{who}@host", who)
    return Service(
        state, Context(host.backend, settings=parse_settings(host.settings), caller=caller)
    )


def clock_of(host: Host, service: Service) -> Callable[[], int]:
    """What tells the number of the last thing that has happened in the pools of a host."""
    if not host.backend.startswith("kubernetes:"):
        return service.events.last_number
    opened = KubernetesBackend.open_to_look(service.context, seconds=20.0)
    return lambda: opened.objects.list_raw("leasectl.dev/none")[1]


def make_pools(host: Host) -> None:
    """Three that somebody has to say, and the one that takes the rest."""
    service = open_service(host, "maker")
    for pool_type in (*SPECIFIC, DEFAULT):
        service.pools.create_pool(pool_type, [f"{pool_type}--00"])
    memberships.change_default(service, DEFAULT, grace_seconds=GRACE_SECONDS)
    service.state.close()


class _Participant:
    def __init__(self, host: Host, who: str, seed: str, written: Path) -> None:
        self._service = open_service(host, who)
        self._now = clock_of(host, self._service)
        self._who = who
        self._rng = random.Random(seed)
        self._fd = os.open(written, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def act(self) -> None:
        """Do something with some name, and write down what came of it."""
        (verb,) = self._rng.choices(list(_VERBS), list(_VERBS.values()))
        name, to = self._rng.choice(NAMES), self._rng.choice(SPECIFIC)
        if verb == "default":
            verb, to = "add", DEFAULT
        to = "" if verb in ("read", "leave") else to
        begun = Seen(self._who, verb, name, to, self._now())
        self._write(begun)
        found: tuple[str, ...] = ()
        try:
            found, outcome = self._do(verb, name, to), "done"
        except BackendUnreachable as error:  # it may be done
            outcome = f"{UNSURE}: {error}"
        except LeaseError as error:
            outcome = str(error)
        last = self._now()
        self._write(begun._replace(last=last, outcome=outcome, found=found))

    def _do(self, verb: str, name: str, to: str) -> tuple[str, ...]:
        service = self._service
        if verb == "read":
            return self._read(name)
        if verb == "add":
            admin.add_with(service, to, (name,), NO_CHANGE)
        elif verb == "join":
            ttl = self._rng.choice([None, 2.0])
            join(service, to, name, lives=lifetime(service, ttl_seconds=ttl))
        elif verb == "hold":
            handle = join_held(service, to, name, lives=None, guard=this_process())
            announce(service, handle)
            settle(service, handle)
            time.sleep(self._rng.random() / 100)
            finish(service, handle)
        elif verb == "move":
            others = self._rng.sample(NAMES, self._rng.choice([0, 0, 1, 2]))
            names = [name, *(each for each in others if each != name)]
            when_free = self._rng.random() < 0.3
            moved = memberships.move(service, names, to, when_free=when_free).after[0]
            return () if moved.pool is None else (moved.pool,)
        elif verb == "leave":
            (member,) = service.members.members([name])
            leave(service, member.pool or DEFAULT, name)
        elif verb == "expect":
            memberships.expect(service, to, [name], [])
        else:
            memberships.drop(service, to, [name], [])
        return ()

    def _read(self, name: str) -> tuple[str, ...]:
        """In which pools a name is: by its own fact, or by a look at all pools."""
        if self._rng.random() < 0.5:
            (member,) = self._service.members.members([name])
            return () if member.pool is None else (member.pool,)
        pools = self._service.pools.pools()
        return tuple(p.type for p in pools if any(r.name == name for r in p.resources))

    def _write(self, seen: Seen) -> None:
        line = seen.encode().encode()
        assert os.write(self._fd, line) == len(line)  # one write: lines don't mix


def run_crowd(
    hosts: Sequence[Host], written: Path, *, number: int, seconds: float, kill_every: float
) -> int:
    """Have so many go on for so long, and kill one every so often; returns how many were killed.

    On a slow machine for longer: until some were killed and some have read.
    """
    started = 0
    goes_on, is_over = os.pipe()

    def start() -> int:
        nonlocal started
        started += 1
        host, who = hosts[started % len(hosts)], f"p{started}"

        def work() -> None:
            os.close(is_over)
            participant = _Participant(host, who, f"crowd {who}", written)
            while not is_readable(goes_on, 0):
                participant.act()
                time.sleep(random.random() / 200)

        return fork(work)

    rng, kills = random.Random(number), 0
    pids = [start() for _ in range(number)]
    until = time.monotonic() + seconds
    while time.monotonic() < until or not (kills and _any_has_read(written)):
        time.sleep(kill_every)
        victim = pids.pop(rng.randrange(len(pids)))
        os.kill(victim, signal.SIGKILL)
        kills += ending(victim) == -signal.SIGKILL
        pids.append(start())
    os.close(is_over)
    os.close(goes_on)
    assert [ending(pid) for pid in pids] == [0] * number
    return kills


def _any_has_read(written: Path) -> bool:
    """Whether anybody has come to the end of reading."""
    found = read_seen(written) if written.exists() else []
    return any((each.verb, each.outcome) == ("read", "done") for each in found)
