"""Carries out a plan of faults, and undoes each when its time is over."""

from __future__ import annotations

import contextlib
import heapq
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple, TypeVar

import httpx

from leasectl.engines.cluster.objects import ResourceObject, Selection, TicketObject
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import boottime_seconds
from tests.cluster.crew import Crew
from tests.cluster.links import Links
from tests.cluster.participants import POOL
from tests.cluster.schedule import Planned
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.history import Recorder

T = TypeVar("T")
_SLOW_SECONDS = (0.005, 0.15)


class Begun(NamedTuple):
    """A fault that has begun: whom it hit, and how it is undone."""

    target: str
    undo: Callable[[], object] | None = None


class Faults:
    """The faults of a run, by the names that the schedule has for them.

    Args:
        server: The cluster.
        links: Between participants and members.
        crew: The participants.
        prefix: Below which the pool is.
        recorder: Where it writes ``fault`` and ``undone``, and ``revoked`` for whose lease it was.
    """

    def __init__(
        self, server: EtcdServer, links: Links, crew: Crew, prefix: str, recorder: Recorder
    ) -> None:
        self._server = server
        self._members = range(len(server.endpoints))
        self._links = links
        self._crew = crew
        self._recorder = recorder
        self._access = Access(server.endpoints, prefix, seconds=1.0, pause=time.sleep)

    def carry_out(self, planned: Sequence[Planned]) -> None:
        """Have all of it happen, each at its time; at the end everything is undone."""
        start = boottime_seconds()
        undoing: list[tuple[float, int, str, Begun]] = []
        try:
            for number, each in enumerate(planned):
                while undoing and undoing[0][0] <= start + each.at:
                    self._undo(undoing)
                _sleep_until(start + each.at)
                begun = self._begin(each)
                if begun.undo is not None:
                    end = boottime_seconds() + each.lasts
                    heapq.heappush(undoing, (end, number, each.fault, begun))
            while undoing:
                self._undo(undoing)
        finally:
            for *_, begun in undoing:
                assert begun.undo is not None
                begun.undo()

    def _undo(self, undoing: list[tuple[float, int, str, Begun]]) -> None:
        end, _, fault, begun = undoing[0]
        _sleep_until(end)
        assert begun.undo is not None
        begun.undo()
        heapq.heappop(undoing)
        self._recorder.note("undone", fault, begun.target)

    def _begin(self, planned: Planned) -> Begun:
        begin = getattr(self, "_" + planned.fault.replace("-", "_"))
        at = boottime_seconds()
        begun: Begun = Begun("nobody")
        with contextlib.suppress(BackendUnreachable):  # beside a fault that makes it impossible
            begun = begin(planned.draw)
        self._recorder.note("fault", planned.fault, begun.target, at=at)
        return begun

    # Of members

    def _kill_member(self, draw: float) -> Begun:
        return self._kill([_pick(self._members, draw)])

    def _kill_leader(self, _draw: float) -> Begun:
        return self._kill(self._leader())

    def _kill_all(self, _draw: float) -> Begun:
        return self._kill(self._members)

    def _stop_member(self, draw: float) -> Begun:
        return self._stop([_pick(self._members, draw)])

    def _stop_leader(self, _draw: float) -> Begun:
        return self._stop(self._leader())

    def _stop_majority(self, draw: float) -> Begun:
        spared = _pick(self._members, draw)
        return self._stop([member for member in self._members if member != spared])

    def _compact(self, _draw: float) -> Begun:
        revision = str(self._access.gateway.read().revision)
        endpoint = self._server.endpoints[self._access.gateway.current]
        url = f"{endpoint}/v3/kv/compaction"
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(url, json={"revision": revision}, timeout=1, trust_env=False)
        return Begun(revision)

    def _leader(self) -> list[int]:
        leadership = self._server.leadership()
        return [] if leadership is None else [leadership.member]

    def _kill(self, members: Sequence[int]) -> Begun:
        for member in members:
            self._server.kill(member)
        return Begun(_named(members), lambda: self._start_again(members))

    def _stop(self, members: Sequence[int]) -> Begun:
        for member in members:
            self._server.signal(member, signal.SIGSTOP)
        return Begun(_named(members), lambda: self._continue(members))

    def _start_again(self, members: Sequence[int]) -> None:
        for member in members:
            self._server.start(member)

    def _continue(self, members: Sequence[int]) -> None:
        for member in members:
            self._server.signal(member, signal.SIGCONT)

    # Of participants and their links

    def _slow_link(self, draw: float) -> Begun:
        least, most = _SLOW_SECONDS
        slot = _pick(range(self._crew.size), draw)
        self._links.slow(slot, least + (most - least) * (draw * self._crew.size % 1))
        return self._to_be_mended(slot)

    def _cut_link(self, draw: float) -> Begun:
        slot = _pick(range(self._crew.size), draw)
        self._links.cut(slot)
        return self._to_be_mended(slot)

    def _silent_link(self, draw: float) -> Begun:
        slot = _pick(range(self._crew.size), draw)
        self._links.silence(slot)
        return self._to_be_mended(slot)

    def _to_be_mended(self, slot: int) -> Begun:
        return Begun(f"link-{slot}", lambda: self._links.mend(slot))

    def _kill_participant(self, draw: float) -> Begun:
        return Begun(self._crew.replace(_pick(range(self._crew.size), draw)))

    def _revoke_lease(self, draw: float) -> Begun:
        leases = list(self._leases())
        if not leases:
            return Begun("nobody")
        lease, claim_key = _pick(leases, draw)
        self._recorder.note("revoked", claim_key)
        self._access.gateway.revoke(lease)
        return Begun(claim_key)

    def _leases(self) -> Iterator[tuple[int, str]]:
        """The etcd leases of those who hold and of those who wait, and who they are."""
        for each in self._access.context.objects.list(Selection(pool=POOL)).items:
            if isinstance(each, TicketObject):
                yield int(each.life, 16), each.claim_key
            elif isinstance(each, ResourceObject) and each.claim is not None:
                yield int(each.claim.life, 16), each.claim.claim_key


def _pick(items: Sequence[T], draw: float) -> T:
    return items[int(draw * len(items))]


def _named(members: Sequence[int]) -> str:
    return "+".join(f"m{member}" for member in members) or "nobody"


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - boottime_seconds()))
