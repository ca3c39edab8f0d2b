"""Holders that use and unuse at random, operators that take back and are killed every few seconds.

``python -m tests.crash.reclaim_campaign --etcd --seconds 60`` does it in full size, first with the
handshake and then, to show that such a race would be seen, without.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from leasectl.reclaim.plan import Wanted
from leasectl.state.event import Event
from tests.crash.reclaim_log import freed_in, read_log, violations
from tests.crash.reclaim_participants import Holders, Operator, Place
from tests.kit.etcd.server import etcd_server
from tests.kit.forking import ending, fork
from tests.kit.kubernetes.hosts import namespace_settings
from tests.kit.kubernetes.namespaces import new_namespace
from tests.kit.kubernetes.servers import kubernetes_servers
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS

_KILLS_AT_LEAST = 2


class Size(NamedTuple):
    """How much of it there is.

    Args:
        holders: How many.
        names: That each holds.
        processes: That the holders share.
        seconds: For how long at least.
        at_least: So many leases are to be taken back by then; else it goes on for a while.
        is_to_show_races: It goes on for a while until something was freed that was in use.
        delay_seconds: Of each reclaim, and for how long it waits.
        excess: How many it takes at a time.
        killed_every_seconds: The operators, at least and at most.
    """

    holders: int = 200
    names: int = 2
    processes: int = 8
    seconds: float = 60.0
    at_least: int = 0
    is_to_show_races: bool = False
    delay_seconds: float = 1.0
    excess: int = 40
    killed_every_seconds: tuple[float, float] = (2.0, 4.0)


class Report(NamedTuple):
    """What came of it."""

    violations: list[str]
    counts: dict[str, float]


def campaign(
    folder: Path,
    backend: str,
    size: Size,
    *,
    shakes_hands: bool = True,
    states: int = 1,
    settings: str = "",
) -> Report:
    """Have holders and operators go on for a while, and judge what they have written down.

    Args:
        folder: Where state directories and the log go.
        backend: Where the leases come from.
        size: How much of it.
        shakes_hands: Operators ask; else they take what seems to be in excess.
        states: State directories that the holders share; the operators are in the first.
        settings: How to talk to the backend, as a record has it.
    """
    log = folder / "log"
    places = [Place(folder / f"state-{n}", backend, log, settings) for n in range(states)]
    service = places[0].service()
    service.pools.create_pool("T", [f"T--{n}" for n in range(size.holders * size.names)])
    after = service.events.last_number()
    service.state.close()
    try:
        with _holders(places, size):
            kills = _operators(places[0], size, shakes_hands=shakes_hands)
    finally:
        for place in places:  # ends their keepers
            Cli(place.directory, folder).close()
    events = _events(places[0], after=after)
    lines = read_log(folder / "log")
    found = violations(lines, events, delay_seconds=size.delay_seconds)
    kinds = Counter(line.kind for line in lines)
    written = [line.number for line in lines if line.kind == "written"]
    marks = kinds["asked"] + kinds["off"]
    freeing = [line.number for line in lines if line.kind == "freeing"]
    counts = {
        "uses": kinds["use"],
        "refused": kinds["refused"],
        "operators killed": kills,
        "asked": kinds["asked"],
        "marks taken off": kinds["off"],
        "taken back": len(freed_in(events)),
        "rounds with marks": len(written),
        "requests for marks": sum(written),
        "marks a request": round(marks / max(1, sum(written)), 1),
        "rounds that free": len(freeing),
        "requests that free": sum(freeing),
    }
    return Report(found, counts)


@contextlib.contextmanager
def _holders(places: list[Place], size: Size) -> Iterator[None]:
    stop_read, stop_write = os.pipe()

    def hold(at: int, number: int) -> None:
        os.close(stop_write)
        place = places[at % len(places)]
        ends = partial(_is_over, stop_read)
        Holders(place, number, names=size.names, seed=at, ends=ends).run()

    each = size.holders // size.processes
    pids = [fork(partial(hold, at, each)) for at in range(size.processes)]
    try:
        yield
    finally:
        os.close(stop_write)
        codes = [ending(pid) for pid in pids]
        os.close(stop_read)
    assert codes == [0] * len(pids)


def _is_over(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _operators(place: Place, size: Size, *, shakes_hands: bool) -> int:
    """Have two operators run, each killed and started again; returns how often that was."""
    wanted = Wanted(
        excess=size.excess,
        delay_seconds=size.delay_seconds,
        wait_seconds=size.delay_seconds,
        follows=True,
    )

    def operate(seed: int, stale_seconds: float) -> None:
        Operator(
            place, wanted, stale_seconds=stale_seconds, shakes_hands=shakes_hands, seed=seed
        ).run()

    rng = random.Random(0)
    began_at = time.monotonic()
    running: dict[float, tuple[int, float]] = {}  # by how late they see: pid, and until when
    kills = 0
    while kills < _KILLS_AT_LEAST or not _is_enough(place, size, time.monotonic() - began_at):
        now = time.monotonic()
        slowness = max(1.0, (now - began_at) / size.seconds)  # so that each gets to free something
        for stale_seconds in (0.0, 0.5):
            pid, until = running.get(stale_seconds, (0, 0.0))
            if now < until:
                continue
            if pid:
                os.kill(pid, signal.SIGKILL)
                assert ending(pid) == -signal.SIGKILL
                kills += 1
            pid = fork(partial(operate, kills, stale_seconds))
            lives = slowness * rng.uniform(*size.killed_every_seconds)
            running[stale_seconds] = (pid, now + lives)
        time.sleep(0.05)
    for pid, _ in running.values():
        os.kill(pid, signal.SIGKILL)
        assert ending(pid) == -signal.SIGKILL
    return kills


def _is_enough(place: Place, size: Size, seconds: float) -> bool:
    if seconds < size.seconds:
        return False
    if seconds > size.seconds + PATIENCE_SECONDS:
        return True
    if size.is_to_show_races:
        found = violations(read_log(place.log), _events(place), delay_seconds=0.0)
        return any("in use" in each for each in found)
    return size.at_least == 0 or len(freed_in(_events(place))) >= size.at_least


def _events(place: Place, *, after: int = 0) -> list[Event]:
    """What has happened: the log tells also of what a killed operator's transaction had done."""
    service = place.service()
    try:
        return list(service.events.read(after=after))
    finally:
        service.state.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.reclaim_campaign", description=__doc__
    )
    parser.add_argument("--holders", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--etcd", action="store_true")
    where.add_argument("--kubernetes", action="store_true")
    options = parser.parse_args()
    size = Size(holders=options.holders, seconds=options.seconds, processes=options.processes)
    with contextlib.ExitStack() as stack:
        backend, states = "local:", 1
        if options.etcd:
            server = stack.enter_context(etcd_server())
            backend, states = server.endpoints[0].replace("http://", "etcd://"), 2
        if options.kubernetes:
            servers = stack.enter_context(kubernetes_servers())
            states = 2
        failed = False
        for shakes_hands in (True, False):
            folder = Path(tempfile.mkdtemp(prefix="reclaim-"))
            url = f"{backend}/{folder.name}" if options.etcd else backend
            settings = ""
            if options.kubernetes:
                namespace = stack.enter_context(new_namespace(servers))
                url, settings = "kubernetes://", namespace_settings(namespace, folder)
            report = campaign(
                folder, url, size, shakes_hands=shakes_hands, states=states, settings=settings
            )
            print(f"{'with' if shakes_hands else 'without'} the handshake ({folder}):")
            for name, number in report.counts.items():
                print(f"  {name}: {number}")
            print(f"  violations: {len(report.violations)}", flush=True)
            for violation in report.violations[:5]:
                print(f"    {violation}")
            failed |= bool(report.violations) is shakes_hands
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
