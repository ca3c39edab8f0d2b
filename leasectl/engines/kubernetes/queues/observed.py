"""What was seen of others' lives, since when: clocks of different hosts are never compared.

A ticket or a claim is over when one observer has seen it unrenewed for all of its ttl, by a clock
of its own that neither jumps nor stops (CLOCK_BOOTTIME, which is why a boot id goes with it). What
counts is the mark that each renewal changes, not the resourceVersion of the object: what others
write there would keep the dead alive. Whoever takes away what is over does so by a write that is
guarded by what it has seen, so a renewal that comes between saves it.

All processes of a state directory share what they have seen in a file there, so that a look that
doesn't wait needn't begin from nothing. It is a hint: without it, or with one that can't be read,
everything has just been seen for the first time. That is late, and never early.

A cluster that was restored from a backup is of an earlier time: what was seen since then isn't so
any more, and a claim may look as it did long ago, although its holder has renewed it. Whoever reads
a list that is older than one before sees that, and forgets all; the others see it by the epoch that
he then writes into each pool (`restored`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator

from leasectl.engines.kubernetes.objects.objects import PoolObject, ResourceObject, TicketObject
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.model import Process
from leasectl.system.clock import Clock, earliest
from leasectl.system.process import boot_id, is_dead_here
from leasectl.text import plain_json as json
from leasectl.text.fields import MALFORMED, read_number, read_text
from leasectl.typed.hints import TYPE_CHECKING
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.queues.turns import Over

_MOST_KEPT = 20_000
_KEPT_SECONDS = 24 * 3600.0


class Seen(NamedTuple):
    """That an object was seen.

    Args:
        mark: What the next renewal changes.
        since: That it was seen so, on the elapsed clock.
        version: Of the object then.
    """

    mark: str
    since: float
    version: int


class Looked(NamedTuple):
    """What is over in a pool.

    Args:
        over: By now.
        next_at: When more of it is, if nobody renews that, on the elapsed clock; None for never.
    """

    over: Over
    next_at: float | None


class Observed:
    """What was seen in one namespace; any number of threads may use it.

    Args:
        clock: Where times come from.
        path: Of the file that is shared; None for none.
    """

    def __init__(self, clock: Clock, path: str | None = None) -> None:
        self._clock = clock
        self._path = path
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] | None = None  # by uid
        self._is_changed = False
        self._has_forgotten = False  # since it was saved last
        self._newest_list = 0
        self._epochs: dict[str, list[str]] = {}  # of pools, by uid
        self._ended: set[Process] = set()  # who waited from this state directory

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

    def since(self, uid: str, mark: str, version: int) -> float:
        """Since when an object has been seen with this mark, on the elapsed clock.

        Args:
            uid: Of the object.
            mark: What its next renewal changes.
            version: Of the object, as it was just seen.
        """
        with self._lock:
            known = self._load()
            seen = known.get(uid)
            if seen is not None and (seen.mark == mark or seen.version > version):
                return seen.since
            known[uid] = Seen(mark, self._clock.elapsed(), version)
            self._is_changed = True
            return known[uid].since

    def note_end(self, process: Process) -> None:
        """A process has ended: a ticket with which it waited is over."""
        self._ended.add(process)

    def has_ended(self, process: Process) -> bool:
        """Tell whether that was noted of a process."""
        return process in self._ended

    def note(self, found: object) -> None:
        """Note that something was seen, a renewal for example."""
        if isinstance(found, TicketObject):
            self.since(found.id.uid, found.mark, found.id.version)
        elif isinstance(found, ResourceObject) and found.claim is not None:
            self.since(found.id.uid, found.claim.mark, found.id.version)

    def look(self, view: PoolView) -> Looked:
        """Note all that is seen of a pool; tells what of it is over."""
        if view.pool is not None:
            self._note_epoch(view.pool)
        now = self._clock.elapsed()
        ends: list[float] = []
        tickets: set[str] = set()
        claims: set[str] = set()
        lives: set[str] = set()
        graces: set[str] = set()

        def sort(found: set[str], name: str, end: float | None) -> None:
            if end is not None and end <= now:
                found.add(name)
            elif end is not None:
                ends.append(end)

        for name, ticket in view.tickets.items():
            end = self.since(ticket.id.uid, ticket.mark, ticket.id.version) + ticket.ttl_seconds
            sort(tickets, name, now if ticket.process in self._ended else end)
        for name, resource in view.resources.items():
            sort(claims, name, self.claim_end(resource))
            sort(lives, name, self.life_end(resource))
            sort(graces, name, self.grace_end(resource))
            lifetime = resource.member.lifetime
            if lifetime is not None and is_dead_here(lifetime.process):
                lives.add(name)
        from leasectl.engines.kubernetes.queues.turns import Over

        over = Over(frozenset(tickets), frozenset(claims), frozenset(lives), frozenset(graces))
        return Looked(over, earliest(*ends))

    def claim_end(self, resource: ResourceObject) -> float | None:
        """When the claim of a resource is over unless it is renewed, elapsed clock; None: never."""
        claim = resource.claim
        if claim is None or claim.ttl_seconds is None:
            return None
        return self.since(resource.id.uid, claim.mark, resource.id.version) + claim.ttl_seconds

    def life_end(self, resource: ResourceObject) -> float | None:
        """The same of when it leaves its pool unless it joins again."""
        lifetime = resource.member.lifetime
        if lifetime is None or lifetime.ttl_seconds is None:
            return None
        since = self.since(f"{resource.id.uid} life", resource.joined, resource.id.version)
        return since + lifetime.ttl_seconds

    def grace_end(self, resource: ResourceObject) -> float | None:
        """The same of when it can be had that came to the default pool."""
        if resource.grace_seconds is None:
            return None
        since = self.since(f"{resource.id.uid} grace", resource.came, resource.id.version)
        return since + resource.grace_seconds

    def save(self) -> None:
        """Have the others of the state directory know it, too; if that fails they don't."""
        with self._lock:
            if self._seen is None or self._path is None or not self._is_changed:
                return
            with contextlib.suppress(OSError), self._locked():
                if not self._has_forgotten:
                    self._agree(*self._read())
                self._write(self._newest(self._seen))
                self._is_changed = self._has_forgotten = False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Whoever holds it only writes a file; where he was stopped nobody waits for him.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    def _read(self) -> tuple[dict[str, Seen], int, dict[str, list[str]]]:
        """What was seen, the newest list, and the epochs of pools, as the file has them."""
        try:
            with open(str(self._path), encoding="utf-8") as file:
                record = json.loads(file.read())
            if record["boot"] != boot_id():
                return {}, 0, {}
            seen = {
                uid: Seen(read_text(mark), read_number(since), int(version))
                for uid, (mark, since, version) in record["seen"].items()
            }
            epochs = {
                read_text(uid): list(map(read_text, known))
                for uid, known in record.get("epochs", {}).items()
            }
            return seen, int(record.get("list", 0)), epochs
        except (OSError, *MALFORMED):
            return {}, 0, {}

    def _load(self) -> dict[str, Seen]:
        """What was seen so far; with the lock."""
        if self._seen is None:
            self._seen, self._newest_list, self._epochs = (
                ({}, 0, {}) if self._path is None else self._read()
            )
        return self._seen

    def _note_epoch(self, pool: PoolObject) -> None:
        """Forget all if somebody has found out that the cluster of a pool is a restored one."""
        with self._lock:
            self._load()
            known = self._epochs.setdefault(pool.id.uid, [""])
            if pool.epoch not in known:
                known.append(pool.epoch)
                self._forget()

    def _forget(self) -> None:
        self._seen = {}
        self._is_changed = self._has_forgotten = True

    def _agree(self, theirs: dict[str, Seen], newest: int, epochs: dict[str, list[str]]) -> None:
        """Take over what others have seen, if they haven't forgotten anything since."""
        mine = self._load()
        is_new = any(
            not set(each) <= set(self._epochs.get(uid, [""])) for uid, each in epochs.items()
        )
        self._seen = theirs if is_new else _merged(mine, theirs)
        self._newest_list = newest if is_new else max(newest, self._newest_list)
        self._epochs.update(epochs)

    def _newest(self, seen: dict[str, Seen]) -> dict[str, Seen]:
        oldest = self._clock.elapsed() - _KEPT_SECONDS
        kept = sorted(seen.items(), key=lambda each: each[1].since)[-_MOST_KEPT:]
        return {uid: each for uid, each in kept if each.since > oldest}

    def _write(self, seen: dict[str, Seen]) -> None:
        new = f"{self._path}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            record = {"seen": seen, "list": self._newest_list, "epochs": self._epochs}
            file.write(json.dumps({"boot": boot_id(), **record}))
        os.replace(new, str(self._path))


def _merged(mine: dict[str, Seen], theirs: dict[str, Seen]) -> dict[str, Seen]:
    """Of each object what was seen last; of the same mark, the first who has seen it counts."""
    merged = dict(theirs)
    for uid, seen in mine.items():
        other = merged.get(uid)
        if other is None or (other.mark != seen.mark and other.version <= seen.version):
            merged[uid] = seen
        elif other.mark == seen.mark:
            since, version = min(seen.since, other.since), max(seen.version, other.version)
            merged[uid] = Seen(seen.mark, since, version)
    return merged
