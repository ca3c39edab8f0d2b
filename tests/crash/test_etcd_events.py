"""Processes that write events in etcd, pack and remove old ones and are killed; others follow.

Each event is written with a key of its own that nobody removes. So at the end etcd tells by these
keys what happened in which order, and who followed has seen that. A minute of it, with more of
them: LEASECTL_TEST_FULL_SIZE=1.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pytest

from leasectl.engines.etcd.events import NUMBERS_PER_REVISION, EtcdEvents
from leasectl.engines.etcd.packing import pack_a_bucket
from leasectl.engines.etcd.requests import absent, delete, put, read, read_all
from leasectl.pools.history import follow
from leasectl.state.event import ALL_EVENTS, Event, Kept
from leasectl.system.clock import Clock
from leasectl.system.poll import is_readable
from tests.kit.etcd.access import Access
from tests.kit.etcd.event_writer import SMALLEST, packs
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.killing import FULL_SIZE
from tests.kit.waits import eventually

SECONDS = 60.0 if FULL_SIZE else 2.0
WRITERS, FOLLOWERS = (6, 2) if FULL_SIZE else (3, 1)
KEPT = Kept(3600.0, 8 * SMALLEST)
LOOK_EVERY = 4


class Counters:
    """Numbers that forked processes share: each is written by one of them.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        self._memory = mmap.mmap(-1, 8 * number)
        self._number = number

    def set(self, index: int, value: int) -> None:
        struct.pack_into("q", self._memory, 8 * index, value)

    def least(self) -> int:
        numbers: tuple[int, ...] = struct.unpack_from(f"{self._number}q", self._memory)
        return min(numbers)


def write(access: Access, writer: int, seen: Counters) -> None:
    """Write events one after the other, and see to old ones at every fourth."""
    lot, ends = random.Random(writer), itertools.cycle(("00", *["01"] * (LOOK_EVERY - 1)))
    events = EtcdEvents(
        access.gateway,
        clock=Clock(),
        kept=KEPT,
        draw=lambda size: f"{lot.getrandbits(8 * size - 8):0{2 * size - 2}x}{next(ends)}",
    )
    for number in itertools.count():
        key = f"{access.keys.prefix}test/{writer}-{number}"
        event = Event(0, time.time(), "released", "T", handle=f"{writer}-{number}")
        outcome = events.commit([absent(key)], [put(key, "")], events=[event])
        assert outcome.succeeded
        if number % LOOK_EVERY == 0:
            pack_a_bucket(access.gateway, clock=Clock())
        # What nobody has read yet is not to go: who follows is told of that, and sees it no more.
        while outcome.revision - seen.least() > KEPT.number // 2:
            time.sleep(0.002)


def follow_on(access: Access, follower: int, path: Path, seen: Counters) -> None:
    """Write down what happens, from where this ended the last time on."""
    last = int(path.read_text().split()[-2]) if path.exists() else 0

    def sleep(fds: tuple[int, ...], until: object, after: int) -> None:
        seen.set(follower, after // NUMBERS_PER_REVISION)
        is_readable(fds[0], 10)

    def give_up(*_: object) -> None:
        os._exit(3)

    pieces = follow(
        access.events,
        ALL_EVENTS,
        after=last,
        sleep=sleep,
        missed=give_up,
        unreachable=give_up,
    )
    with path.open("a", buffering=1) as record:
        for event in chain.from_iterable(pieces):
            record.write(f"{event.number} {event.handle}\n")


def compact(access: Access) -> None:
    """Have etcd forget what was before."""
    key = f"{access.keys.prefix}compact"
    revision = access.gateway.commit((), [delete(key), read(key)]).revision
    access.gateway._ask("/v3/kv/compaction", {"revision": str(revision)})


def happened(access: Access) -> list[str]:
    """The handles of all events there were, in their order."""
    (found,) = access.gateway.read(read_all(f"{access.keys.prefix}test/")).answers
    in_order = sorted(found.items, key=attrgetter("create_revision"))
    return [kv.key.rpartition("/")[2] for kv in in_order]


@pytest.fixture
def access(etcd: EtcdServer) -> Iterator[Access]:
    access = Access(etcd.endpoints, f"/events-{os.getpid()}-{time.monotonic_ns()}")
    yield access
    access.gateway.close()


def test_who_follows_sees_each_once_and_in_order_whoever_is_killed(
    access: Access, tmp_path: Path
) -> None:
    rng, writers, seen = random.Random(1), itertools.count(), Counters(FOLLOWERS)

    def mine() -> Access:
        return Access(access.gateway.endpoints, access.keys.prefix)

    def start_writer() -> int:
        number = next(writers)
        return fork(lambda: write(mine(), number, seen))

    def start_follower(number: int) -> int:
        return fork(lambda: follow_on(mine(), number, tmp_path / str(number), seen))

    following = [start_follower(number) for number in range(FOLLOWERS)]
    writing = [start_writer() for _ in range(WRITERS)]
    until, kills = time.monotonic() + SECONDS, 0
    while time.monotonic() < until or kills < 5 or len(happened(access)) < 2 * KEPT.number:
        time.sleep(rng.random() * 0.3)
        pids, start = (following, start_follower) if rng.random() < 0.2 else (writing, None)
        which = rng.randrange(len(pids))
        os.kill(pids[which], signal.SIGKILL)
        assert ending(pids[which]) == -signal.SIGKILL
        pids[which] = start_writer() if start is None else start(which)
        kills += 1
        if rng.random() < 0.2:
            compact(access)
    for pid in writing:
        os.kill(pid, signal.SIGKILL)
        assert ending(pid) == -signal.SIGKILL
    handles = happened(access)
    for number in range(FOLLOWERS):
        path = tmp_path / str(number)
        eventually(lambda path=path: path.read_text().split()[-1] == handles[-1])  # type: ignore[misc]
    for pid in following:
        os.kill(pid, signal.SIGKILL)
        ending(pid)
    for number in range(FOLLOWERS):
        assert (tmp_path / str(number)).read_text().split()[1::2] == handles
    kept = [event.handle for event in access.events.read()]
    assert kept == handles[-len(kept) :]
    assert KEPT.number <= len(kept) <= KEPT.number + (4 + WRITERS * LOOK_EVERY) * SMALLEST
    assert len(handles) > len(kept)
    assert len(packs(access)) > 4
    print(f"{len(handles)} events, {len(kept)} kept, {len(packs(access))} packs, {kills} kills")
