"""One run: a cluster, participants, faults, and what their history says."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leasectl.errors import LeaseError
from leasectl.model import Request
from leasectl.system.clock import boottime_seconds
from tests.cluster.checker import Counts, all_gone_at, all_violations, count
from tests.cluster.crew import Crew
from tests.cluster.faults import Faults
from tests.cluster.links import Links
from tests.cluster.observer import Observer
from tests.cluster.participants import POOL, Habits, Surroundings
from tests.cluster.schedule import Planned
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending
from tests.kit.history import Recorder, read_history
from tests.kit.waits import eventually

_NAMES = [f"{POOL}--{number}" for number in range(6)]


class Report(NamedTuple):
    """What a run came to; ``violations`` are to be none."""

    counts: Counts
    violations: list[str]
    history: Path


class Run:
    """A pool of its own, and those who want its resources.

    Args:
        server: The cluster.
        history: The file that everybody writes to.
        habits: How the participants behave.
    """

    def __init__(self, server: EtcdServer, history: Path, habits: Habits) -> None:
        self._server = server
        self._history = history
        self._prefix = f"/test/{secrets.token_hex(8)}"
        self._ttl_seconds = float(max(habits.ttls))
        self._access = Access(server.endpoints, self._prefix, state_id="auditor")
        self._access.pools.create_pool(POOL, _NAMES)
        self.recorder = Recorder(history)
        self._surroundings = Surroundings(self._prefix, _NAMES, history, habits)

    def under_faults(
        self, planned: list[Planned], *, participants: int, grants: int, seed: int
    ) -> Report:
        """Have participants behind links that go wrong, on a cluster that goes wrong.

        Args:
            planned: What goes wrong.
            participants: How many at a time.
            grants: So many resources are granted at least, however long that takes.
            seed: Of what participants do.
        """
        links = Links(self._server.endpoints, participants)
        crew = Crew(self._surroundings, links.endpoints, seed=seed)
        with self._observed(crew):
            Faults(self._server, links, crew, self._prefix, self.recorder).carry_out(planned)
            self._server.wait()
            eventually(lambda: self._grants() >= grants, what="more grants")
            crew.finish(killed=participants // 4)
        links.close()
        return self._report()

    def in_contention(
        self, *, participants: int, bursts: int, killed: int, grants: int, seed: int
    ) -> Report:
        """Have many participants at once, of which some are killed again and again and replaced.

        Args:
            participants: How many at a time.
            bursts: How often some are killed.
            killed: How many at once.
            grants: How many resources are granted before each time.
            seed: Of who is killed, and of what participants do.
        """
        crew = Crew(self._surroundings, [self._server.endpoints] * participants, seed=seed)
        rng = random.Random(seed)
        with self._observed(crew):
            for _ in range(bursts):
                goal = self._grants() + grants
                eventually(lambda g=goal: self._grants() >= g, what="more grants")  # type: ignore[misc]
                for slot in rng.sample(range(participants), killed):
                    crew.replace(slot)
            crew.finish(killed=participants // 4)
        return self._report()

    def _grants(self) -> int:
        return sum(event.kind == "granted" for event in read_history(self._history))

    @contextmanager
    def _observed(self, crew: Crew) -> Iterator[None]:
        observer = Observer(self._server, self._prefix, self.recorder)
        pid = crew.fork(observer.watch)
        yield
        ending(pid)
        while not observer.look():
            pass  # this one hasn't seen yet who leads

    def _report(self) -> Report:
        """Take stock once nothing can be held any more."""
        gone_at = all_gone_at(read_history(self._history), ttl_seconds=self._ttl_seconds)
        time.sleep(max(0.0, gone_at - boottime_seconds()))
        found = []
        if self._access.queue():
            found.append(f"{self._access.queue()} still wait")
        try:
            self._access.acquire("auditor", Request(POOL, count=len(_NAMES)), wait=0)
            self._access.engine.free("auditor")
        except LeaseError as error:
            found.append(f"not all can be had again: {error}")
        events = read_history(self._history)
        found += all_violations(events, capacity=len(_NAMES), ttl_seconds=self._ttl_seconds)
        return Report(count(events), found, self._history)
