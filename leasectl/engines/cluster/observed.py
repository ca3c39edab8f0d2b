"""Since when others were seen unchanged; the clocks of hosts are never compared.

Where tickets and claims don't expire by themselves (`Objects.ends` is false: Kubernetes), one is
over when an observer has seen it unrenewed for all of its ttl. The observer's clock neither jumps
nor stops: CLOCK_BOOTTIME, stored with a boot id. What counts is the mark that each renewal changes,
not the version of the object, since writes of others would keep the dead alive. What is over is
removed by a write guarded by the version that was seen, so a renewal in between saves it.

Where they do expire by themselves (etcd), only paces, graces, lifetimes, and claims that ended
before their date are observed.

All processes of a state directory share their observations in a file there, so a look that doesn't
wait needn't start from nothing. The file is a hint: if it is missing or damaged, everything counts
as seen for the first time, so an end is noticed late, and never early.

An observation is kept as long as its object has that mark. It is forgotten when its whole pool has
been listed without the object.

After a restore from a backup, an old mark may be back although the holder has renewed. A process
that reads an older list than before notices the restore, and forgets all observations. It writes a
new epoch into each pool (`restored`), by which the others notice it.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

from leasectl.engines.cluster.objects import PoolObject, ResourceObject, TicketObject
from leasectl.engines.cluster.view import Over, PoolView
from leasectl.model import Process
from leasectl.system.clock import Clock
from leasectl.system.own_files import open_own, read_own, write_new
from leasectl.system.process import boot_id, is_dead_here
from leasectl.text.properties import MALFORMED, read_number, read_text

_MOST_KEPT = 20_000
_LONGEST_BYTES = 64 << 20
# A look of one process may be older than what another has noted meanwhile.
_GONE_SECONDS = 60.0
# So often it is noted that an object is still there.
_NOTED_SECONDS = 10.0


class Seen(NamedTuple):
    """An observation of an object.

    Args:
        mark: What the next renewal changes.
        since: That it was seen so, on the elapsed clock.
        version: Of the object then.
        last: When it was seen last, on the elapsed clock.
        place: The type of its pool; empty for none.
    """

    mark: str
    since: float
    version: int
    last: float
    place: str


class _Record(NamedTuple):
    """What the processes of a state directory share.

    Args:
        seen: What was seen, by uid.
        newest: The resourceVersion of the newest list.
        epochs: Those of pools, by uid.
        looks: When all of a pool was looked at last, by its type.
    """

    seen: dict[str, Seen]
    newest: int
    epochs: dict[str, list[str]]
    looks: dict[str, float]


class Looked(NamedTuple):
    """What is over in a pool.

    Args:
        over: By now.
        next_at: When more of it is, unless renewed, on the elapsed clock; None for never.
    """

    over: Over
    next_at: float | None


class Observed:
    """What was seen in one namespace; any number of threads may use it.

    Args:
        clock: Where times come from.
        path: Of the file that is shared; None for none.
        ends: Tickets and claims end by themselves, so nothing is observed of them.
    """

    def __init__(self, clock: Clock, path: str | None = None, *, ends: bool = False) -> None:
        self._clock = clock
        self._ends = ends
        self._path = path
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] | None = None  # by uid
        self._looks: dict[str, float] = {}  # when all of a pool was looked at last, by its type
        self._is_changed = False
        self._has_forgotten = False  # since it was saved last
        self._newest_list = 0
        self._epochs: dict[str, list[str]] = {}  # of pools, by uid
        self._ended: set[Process] = set()  # who waited from this state directory
        self._forgotten = 0  # how often all was

    def newest(self) -> int:
        """The resourceVersion of the newest list that has come so far."""
        with self._lock:
            self._load()
            return self._newest_list

    def note_list(self, version: int, *, before: int) -> bool:
        """A list has come; returns whether the cluster is of an earlier time than it was.

        Args:
            version: Of the list.
            before: What was the newest when it was asked for.
        """
        with self._lock:
            if version >= before:
                self._newest_list = max(self._newest_list, version)
                return False
            if self._newest_list < before:
                return False  # another thread has seen that, too
            self._newest_list = version
            self._forget()
            return True

    def since(self, uid: str, mark: str, version: int, place: str | None = "") -> float:
        """Since when an object has been seen with this mark, on the elapsed clock.

        Args:
            uid: Of the object.
            mark: What its next renewal changes.
            version: Of the object, as it was just seen.
            place: The type of its pool; None or empty for none.
        """
        with self._lock:
            known, now = self._load(), self._clock.elapsed()
            seen = known.get(uid)
            if seen is None or (seen.mark != mark and seen.version <= version):
                seen = known[uid] = Seen(mark, now, version, now, place or "")
                self._is_changed = True
            elif now - seen.last >= _NOTED_SECONDS:
                known[uid] = seen._replace(last=now, place=place or "")
            return seen.since

    def note_end(self, process: Process) -> None:
        """A process has ended: a ticket with which it waited is over."""
        self._ended.add(process)

    def has_ended(self, process: Process) -> bool:
        """Tell whether that was noted of a process."""
        return process in self._ended

    def note(self, found: object) -> None:
        """Note that something was seen, a renewal for example."""
        if isinstance(found, TicketObject):
            self.ticket_end(found)
        elif isinstance(found, ResourceObject):
            self.claim_end(found)

    def look(self, view: PoolView) -> Looked:
        """Note all that is seen of a pool; tell what of it is over."""
        return Lookout(self, view).look()

    def note_pool(self, view: PoolView) -> None:
        """Note that all of a pool was looked at."""
        if view.pool is not None:
            self._note_epoch(view.pool)
        if view.pool_type:
            with self._lock:
                self._load()
                self._looks[view.pool_type] = self._clock.elapsed()

    @property
    def state(self) -> tuple[int, int]:
        """What changes when what was told of something in a pool may not be so any more."""
        return self._forgotten, len(self._ended)

    def now(self) -> float:
        """The elapsed clock."""
        return self._clock.elapsed()

    def ticket_end(self, ticket: TicketObject) -> float | None:
        """When a ticket is over unless it is renewed, on the elapsed clock; None: it says so."""
        if ticket.process in self._ended or ticket.is_over:
            return 0.0
        if self._ends:
            return None
        since = self.since(ticket.id.uid, ticket.mark, ticket.id.version, ticket.pool)
        return since + ticket.ttl_seconds

    def claim_end(self, resource: ResourceObject) -> float | None:
        """When the claim of a resource is over unless it is renewed, elapsed clock; None: never."""
        claim = resource.claim
        if claim is None or claim.ttl_seconds is None or (self._ends and not claim.is_over):
            return None
        if not self._ends:
            return self._end(resource, "", claim.mark, claim.ttl_seconds)
        # A store may end what was renewed just before. So its time has to be over by the date of
        # its last renewal, too; and if clocks differ, a ttl after it was seen so at the latest.
        left = claim.renew_time + claim.ttl_seconds - self._clock.wall()
        if left <= 0:
            return 0.0
        latest = self._end(resource, " over", claim.mark, claim.ttl_seconds)
        return min(self._clock.elapsed() + left, latest)

    def life_end(self, resource: ResourceObject) -> float | None:
        """The same of when it leaves its pool unless it joins again."""
        lifetime = resource.member.lifetime
        if lifetime is None or lifetime.ttl_seconds is None:
            return None
        return self._end(resource, " life", resource.joined, lifetime.ttl_seconds)

    def grace_end(self, resource: ResourceObject) -> float | None:
        """The same of when it can be had that came to the default pool."""
        if resource.grace_seconds is None:
            return None
        return self._end(resource, " grace", resource.came, resource.grace_seconds)

    def _end(self, resource: ResourceObject, word: str, mark: str, seconds: float) -> float:
        """Return when a mark of a resource has been seen for so long, on the elapsed clock."""
        id_, place = resource.id, resource.member.pool
        return self.since(f"{id_.uid}{word}", mark, id_.version, place) + seconds

    def save(self) -> None:
        """Share it with the other processes of the state directory, if the file can be written."""
        with self._lock:
            if self._seen is None or self._path is None or not self._is_changed:
                return
            with contextlib.suppress(OSError), self._locked():
                if not self._has_forgotten:
                    self._agree(self._read())
                self._seen = self._still_there(self._seen)
                self._write(self._seen)
                self._is_changed = self._has_forgotten = False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = open_own(f"{self._path}.lock", os.O_RDWR | os.O_CREAT)
        try:
            # Whoever holds it only writes a file; where he was stopped nobody waits for him.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    def _read(self) -> _Record:
        """What the file has; nothing where it can't be read."""
        try:
            record = json.loads(read_own(str(self._path), _LONGEST_BYTES))
            if record["boot"] != boot_id():
                return _nothing()
            seen = {
                uid: Seen(
                    read_text(mark),
                    read_number(since),
                    int(read_number(version)),
                    read_number(last),
                    read_text(place),
                )
                for uid, (mark, since, version, last, place) in record["seen"].items()
            }
            epochs = {
                read_text(uid): list(map(read_text, known))
                for uid, known in record.get("epochs", {}).items()
            }
            looks = {read_text(place): read_number(at) for place, at in record["looks"].items()}
            return _Record(seen, int(record.get("list", 0)), epochs, looks)
        except (OSError, *MALFORMED):
            return _nothing()

    def _load(self) -> dict[str, Seen]:
        """What was seen so far; with the lock."""
        if self._seen is None:
            record = _nothing() if self._path is None else self._read()
            self._seen, self._newest_list, self._epochs, self._looks = record
        return self._seen

    def _note_epoch(self, pool: PoolObject) -> None:
        """Forget all if the epoch of a pool says that its cluster was restored."""
        with self._lock:
            self._load()
            known = self._epochs.setdefault(pool.id.uid, [""])
            if pool.epoch not in known:
                known.append(pool.epoch)
                self._forget()

    def _forget(self) -> None:
        self._seen = {}
        self._forgotten += 1
        self._is_changed = self._has_forgotten = True

    def _agree(self, theirs: _Record) -> None:
        """Take over what others have seen, if they haven't forgotten anything since."""
        mine = self._load()
        is_new = any(
            not set(each) <= set(self._epochs.get(uid, [""])) for uid, each in theirs.epochs.items()
        )
        self._seen = theirs.seen if is_new else _merged(mine, theirs.seen)
        self._newest_list = theirs.newest if is_new else max(theirs.newest, self._newest_list)
        self._epochs.update(theirs.epochs)
        for place, at in theirs.looks.items():
            self._looks[place] = max(at, self._looks.get(place, at))

    def _still_there(self, seen: dict[str, Seen]) -> dict[str, Seen]:
        """What was seen of objects that may still be so: those that a look would have shown."""
        there = {
            uid: each
            for uid, each in seen.items()
            if each.last + _GONE_SECONDS >= self._looks.get(each.place, 0.0)
        }
        if len(there) <= _MOST_KEPT:
            return there
        return dict(sorted(there.items(), key=lambda each: each[1].last)[-_MOST_KEPT:])

    def _write(self, seen: dict[str, Seen]) -> None:
        new = f"{self._path}.new"
        record = {"list": self._newest_list, "epochs": self._epochs, "looks": self._looks}
        text = json.dumps({"boot": boot_id(), "seen": seen, **record})
        write_new(new, text.encode())
        os.replace(new, str(self._path))


class Lookout:
    """What is over in one pool, kept up to date object by object.

    Args:
        observed: What was seen of others' lives.
        view: The pool; of each object that changes there, `note` is to be told.
    """

    def __init__(self, observed: Observed, view: PoolView) -> None:
        self._observed = observed
        self._view = view
        self._note_all()

    def note(self, name: str) -> None:
        """An object has changed, or has gone."""
        observed = self._observed
        ends: dict[str, float | None] = {}
        ticket, resource = self._view.tickets.get(name), self._view.resources.get(name)
        self._lives.discard(name)
        if ticket is not None:
            ends["ticket"] = observed.ticket_end(ticket)
        if resource is not None:
            ends["claim"] = observed.claim_end(resource)
            ends["life"] = observed.life_end(resource)
            ends["grace"] = observed.grace_end(resource)
            if resource.member.lifetime is not None:
                self._lives.add(name)
        for kind, over in self._over.items():
            over.discard(name)
            end = ends.get(kind)
            if end is None:
                self._ends.pop((kind, name), None)
            else:
                self._ends[kind, name] = end
                heapq.heappush(self._heap, (end, kind, name))

    def look(self) -> Looked:
        """Tell what is over by now."""
        self._observed.note_pool(self._view)
        if self._state != self._observed.state:
            self._note_all()
        now = self._observed.now()
        while self._heap and self._heap[0][0] <= now:
            end, kind, name = heapq.heappop(self._heap)
            if self._ends.get((kind, name)) == end:
                self._over[kind].add(name)
        while self._heap and self._ends.get(self._heap[0][1:]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        lives = self._over["life"] | {name for name in self._lives if self._has_died(name)}
        over = Over(
            frozenset(self._over["ticket"]),
            frozenset(self._over["claim"]),
            frozenset(lives),
            frozenset(self._over["grace"]),
        )
        return Looked(over, self._heap[0][0] if self._heap else None)

    def _has_died(self, name: str) -> bool:
        lifetime = self._view.resources[name].member.lifetime
        return lifetime is not None and is_dead_here(lifetime.process)

    def _note_all(self) -> None:
        self._state = self._observed.state
        self._ends: dict[tuple[str, str], float] = {}
        self._heap: list[tuple[float, str, str]] = []
        self._over: dict[str, set[str]] = {
            kind: set() for kind in ("ticket", "claim", "life", "grace")
        }
        self._lives: set[str] = set()  # the resources that are there for a time
        for name in self._view.tickets:
            self.note(name)
        for name, each in self._view.resources.items():
            if each.claim or each.member.lifetime or each.grace_seconds is not None:
                self.note(name)


def _nothing() -> _Record:
    return _Record({}, 0, {}, {})


def _merged(mine: dict[str, Seen], theirs: dict[str, Seen]) -> dict[str, Seen]:
    """Merge observations: the last mark of each object, and the first time of that mark."""
    merged = dict(theirs)
    for uid, seen in mine.items():
        other = merged.get(uid)
        if other is None:
            merged[uid] = seen
            continue
        last = max(seen.last, other.last)
        if other.mark == seen.mark:
            since, version = min(seen.since, other.since), max(seen.version, other.version)
            merged[uid] = Seen(seen.mark, since, version, last, seen.place)
        else:
            newer = seen if other.version <= seen.version else other
            merged[uid] = newer._replace(last=last)
    return merged
