"""What Boskos keeps and does: resources, each with a state, an owner and when it was last touched.

As its ranch does it. What is there is what the log says: each change is written before anybody can
know of it, and a new process reads it back, as Boskos reads its objects from Kubernetes.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from tests.kit.boskos.raw_boskos import WORDINGS, Refused, Wording, other_owner, other_state
from tests.kit.faults.log import Log

# Owner of what is occupied. It renews in time however long a test takes: no reaper takes it away.
OTHER_JOB = "another-job"
_CHANGES = ("made", "grant", "update", "release", "reset", "reap", "clean")


class Resource(NamedTuple):
    """One resource.

    Args:
        touched: When it was last changed, as Kubernetes keeps it: in whole seconds since 1970,
            rounded down; 0 for never.
    """

    type: str
    name: str
    state: str = "free"
    owner: str = ""
    touched: int = 0
    userdata: Mapping[str, str] = {}


class Asked(NamedTuple):
    """The parameters of an acquire."""

    type: str
    state: str
    dest: str
    owner: str
    request_id: str = ""


class Ranch:
    """All that one Boskos has.

    Args:
        log: What is done is written to it, and nowhere else.
        ranks: Its queues.
        wording: What it says when it refuses.
        seed: What of several that were touched in the same second comes first.
        view_seconds: What it counts, and whose it takes a resource for, is what was so that long
            ago, as its view of Kubernetes lags.
        grows: To how many resources a dynamic type may grow.
    """

    def __init__(
        self,
        log: Log,
        ranks: Ranks,
        *,
        wording: Wording = WORDINGS["new"],
        seed: int = 1,
        view_seconds: float = 0.0,
        grows: Mapping[str, int] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.ranks = ranks
        self.wording = wording
        self.resources: dict[str, Resource] = {}
        self._log = log
        self._chance = random.Random(seed)
        self._view_seconds = view_seconds
        self._views: deque[tuple[float, dict[str, Resource]]] = deque()
        self._grows = grows or {}
        self._wall = wall
        self._listed: set[str] | None = None  # None: whatever there is

    # ---- what there is

    def restore(self, events: Iterable[Mapping[str, Any]], *, with_queues: bool = False) -> None:
        """Restore what an earlier process had from its log."""
        for event in events:
            if event["event"] == "gone":
                del self.resources[event["name"]]
            if event["event"] in _CHANGES:
                self.resources[event["resource"]["name"]] = Resource(**event["resource"])
            if with_queues and event.get("request_id"):
                queue = Queue(event["type"], event["state"])
                if event["event"] == "ask":
                    self.ranks.restore(queue, event["request_id"], event["at"])
                elif event["event"] == "grant":
                    self.ranks.leave(queue, event["request_id"])

    def make(self, resources: Mapping[str, Sequence[str]], state: str = "free") -> None:
        """Make these resources, by type; those that are there already stay as they are."""
        for pool_type, names in resources.items():
            for name in names:
                if name not in self.resources:
                    self._change("made", Resource(pool_type, name, state))

    def list_only(self, resources: Mapping[str, Sequence[str]]) -> None:
        """Keep what a changed file lists: others go, owned ones once they are free."""
        self.make(resources)
        self._listed = {name for names in resources.values() for name in names}
        self.drop_unlisted()

    def drop_unlisted(self) -> None:
        """Let those go that no file lists any more, as Boskos does each time it compares."""
        for name, each in list(self.resources.items()):
            if self._listed is not None and name not in self._listed and not each.owner:
                self._note("gone", name=name)
                del self.resources[name]

    # ---- requests

    def acquire(self, asked: Asked, number: int) -> Resource:
        """Grant one, if the rank of who asks allows it.

        Raises:
            Refused: It doesn't, or there is no such type.
        """
        queue = Queue(asked.type, asked.state)
        is_new = bool(asked.request_id) and not self.ranks.knows(queue, asked.request_id)
        rank = self.ranks.rank(queue, asked.request_id)
        free = [each for each in self._of(asked.type) if each.state == asked.state]
        free = [each for each in free if not each.owner]
        facts = {
            "request": number,
            "type": asked.type,
            "state": asked.state,
            "request_id": asked.request_id,
            "rank": rank,
            "free": len(free),
        }
        self._note("ask", owner=asked.owner, **facts)
        if rank <= len(free):
            found = free[rank - 1]._replace(owner=asked.owner, state=asked.dest)
            found = self._change("grant", found, touch=True, **facts)
            self.ranks.leave(queue, asked.request_id)
            return found
        count = sum(each.type == asked.type for each in self.resources.values())
        if is_new and count < self._grows.get(asked.type, 0):
            name = f"{self._chance.getrandbits(128):032x}"
            self._change("made", Resource(asked.type, name), touch=True)
        if not count:
            text = self.wording.no_such_type(asked.type)
        else:
            text = self.wording.no_resource(asked.type)
        raise Refused(404, self.wording.failed("Acquire failed", text))

    def acquire_by_state(self, asked: Asked, names: Iterable[str], number: int) -> list[Resource]:
        """Grant these very ones, past all queues.

        Raises:
            Refused: One of them can't be had; those that could stay taken.
        """
        wanted = set(names)
        found = [
            self._change(
                "grant",
                each._replace(owner=asked.owner, state=asked.dest),
                touch=True,
                request=number,
                type=each.type,
                state=asked.state,
                request_id="",
                rank=None,
            )
            for each in self._sorted(self.resources.values())
            if each.name in wanted and each.state == asked.state and not each.owner
        ]
        if len(found) < len(wanted):
            text = self.wording.no_resource(asked.state)
            raise Refused(404, self.wording.failed("AcquireByState", text))
        return found

    def update(
        self, name: str, owner: str, state: str, userdata: Mapping[str, str], number: int
    ) -> None:
        """Touch a resource, and put to its data what is said; an empty value takes one away.

        Raises:
            Refused: It isn't there, or another's, or in another state.
        """
        deed = f"Update failed: {name} - {state} ({owner})"
        found = self._owned(name, owner, deed)
        if found.state != state:
            raise Refused(409, self.wording.failed(deed, other_state(found.state, state)))
        whole = {key: value for key, value in {**found.userdata, **userdata}.items() if value}
        self._change("update", found._replace(userdata=whole), touch=True, request=number)

    def release(self, name: str, owner: str, dest: str, number: int) -> None:
        """Give a resource back.

        Raises:
            Refused: It isn't there, or another's.
        """
        found = self._owned(name, owner, f"Done failed: {name} - {dest} (from {owner})")
        given_back = found._replace(owner="", state=dest)
        self._change("release", given_back, touch=True, request=number, owner=owner)

    def reset(
        self, pool_type: str, state: str, expire_seconds: float, dest: str, *, why: str = "reset"
    ) -> dict[str, str]:
        """Take away what has been in a state for so long; returns from whom."""
        renewed = OTHER_JOB if why == "reap" else ""
        return {
            each.name: each.owner
            for each in self._of(pool_type)
            if each.state == state and each.owner not in ("", renewed)
            if self._wall() - each.touched >= expire_seconds and self._take_away(each, dest, why)
        }

    def metric(self, pool_type: str) -> dict[str, object]:
        """Count resources by state and owner, those without an owner included.

        Raises:
            Refused: There are none.
        """
        members = [each for each in self._view().values() if each.type == pool_type]
        if not members:
            raise Refused(404, self.wording.no_resource(pool_type))
        return {
            "type": pool_type,
            "current": dict(sorted(Counter(each.state for each in members).items())),
            "owner": dict(sorted(Counter(each.owner for each in members).items())),
        }

    # ---- what happens without requests

    def occupy(self, pool_type: str, count: int, state: str, dest: str) -> list[str]:
        """Let another job have that many free ones, past the queue; fewer if fewer are free."""
        free = [each for each in self._of(pool_type) if each.state == state and not each.owner]
        for each in free[:count]:
            taken = each._replace(owner=OTHER_JOB, state=dest)
            self._change("grant", taken, touch=True, type=each.type, state=state, rank=None)
        return [each.name for each in free[:count]]

    def reap(self, names: Iterable[str], dest: str) -> list[str]:
        """Take these away now, whatever their age; returns those that had an owner."""
        owned = [each for each in map(self.resources.__getitem__, names) if each.owner]
        return [each.name for each in owned if self._take_away(each, dest, "reap")]

    def clean(self) -> None:
        """Do a janitor's work: what is dirty and has no owner becomes free."""
        for each in list(self.resources.values()):
            if each.state == "dirty" and not each.owner:
                self._change("clean", each._replace(state="free"), touch=True)

    # ---- inside

    def _owned(self, name: str, owner: str, deed: str) -> Resource:
        found = self._view().get(name)
        if found is None:
            raise Refused(404, self.wording.failed(deed, self.wording.no_resource(name)))
        if found.owner != owner:
            raise Refused(401, self.wording.failed(deed, other_owner(owner, found.owner)))
        if found != self.resources[name]:
            raise Refused(500, self.wording.failed(deed, "the object has been modified"))
        return found

    def _of(self, pool_type: str) -> list[Resource]:
        return self._sorted(each for each in self.resources.values() if each.type == pool_type)

    def _sorted(self, resources: Iterable[Resource]) -> list[Resource]:
        """Those touched the longest ago first; of the same second, any."""
        shuffled = list(resources)
        self._chance.shuffle(shuffled)
        return sorted(shuffled, key=lambda each: each.touched)

    def _take_away(self, resource: Resource, dest: str, why: str) -> bool:
        taken = resource._replace(owner="", state=dest)
        self._change(why, taken, touch=True, owner=resource.owner)
        return True

    def _change(
        self, event: str, resource: Resource, *, touch: bool = False, **facts: object
    ) -> Resource:
        if touch:
            resource = resource._replace(touched=int(self._wall()))
        if self._view_seconds and touch:
            self._views.append((time.monotonic(), dict(self.resources)))
        self._note(event, name=resource.name, **facts, resource=resource._asdict())
        self.resources[resource.name] = resource
        return resource

    def _note(self, event: str, **facts: object) -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._log.write(event, boottime_ns=now, **facts)

    def _view(self) -> Mapping[str, Resource]:
        """What it sees of its resources: what was so before all that it hasn't heard of yet."""
        while self._views and self._views[0][0] <= time.monotonic() - self._view_seconds:
            self._views.popleft()
        return self._views[0][1] if self._views else self.resources


class Queue(NamedTuple):
    """Which of its queues: there is one for each type in each state."""

    type: str
    state: str


class Ranks:
    """The places of those who ask.

    A place counts for so long after its id was last asked with. When that is over it isn't counted,
    but only a clearing forgets it: who asks again before that is where he was.

    Args:
        ttl_seconds: How long a place counts: `--request-ttl`.
        clearing_seconds: How often those that don't count any more are forgotten.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        ttl_seconds: float = 30.0,
        clearing_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._clearing_seconds = clearing_seconds
        self._clock = clock
        self._next_clearing = clock() + clearing_seconds
        # Until when each place counts, in the order in which they were taken.
        self._queues: dict[Queue, dict[str, float]] = {}

    def rank(self, queue: Queue, request_id: str) -> int:
        """The rank of who asks now, from 1; without an id it is the last, and has no place."""
        now = self._clock()
        self._clear(now)
        places = self._queues.setdefault(queue, {})
        if request_id:
            places[request_id] = now + self._ttl_seconds
        rank = 1
        for each, until in places.items():
            if each == request_id:
                break
            rank += until >= now
        return rank

    def knows(self, queue: Queue, request_id: str) -> bool:
        """Whether an earlier request had this id."""
        return request_id in self._queues.get(queue, {})

    def leave(self, queue: Queue, request_id: str) -> None:
        """The place goes with the grant."""
        self._queues.get(queue, {}).pop(request_id, None)

    def show(self) -> list[dict[str, object]]:
        """The places that count, in their order."""
        now = self._clock()
        return [
            {"type": queue.type, "state": queue.state, "request_id": each, "left": until - now}
            for queue, places in self._queues.items()
            for each, until in places.items()
            if until >= now
        ]

    def restore(self, queue: Queue, request_id: str, asked_at: float) -> None:
        """Restore a place as it was before a restart, which no real Boskos does."""
        self._queues.setdefault(queue, {})[request_id] = asked_at + self._ttl_seconds

    def _clear(self, now: float) -> None:
        if now >= self._next_clearing:
            self._next_clearing = now + self._clearing_seconds
            for queue, places in self._queues.items():
                self._queues[queue] = {each: until for each, until in places.items() if until > now}
