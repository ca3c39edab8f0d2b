"""What was seen of others' lives, since when: clocks of different hosts are never compared.

A ticket or a claim is over when one observer has seen it unrenewed for all of its ttl, by a clock
of its own that neither jumps nor stops (CLOCK_BOOTTIME, which is why a boot id goes with it). What
counts is the mark that each renewal changes, not the resourceVersion of the object: what others
write there would keep the dead alive. Whoever takes away what is over does so by a write that is
guarded by what it has seen, so a renewal that comes between saves it.

All processes of a state directory share what they have seen in a file there, so that a look that
doesn't wait needn't begin from nothing. It is a hint: without it, or with one that can't be read,
everything has just been seen for the first time. That is late, and never early.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

from leasectl.engines.kubernetes.objects import ResourceObject, TicketObject
from leasectl.engines.kubernetes.turns import Over
from leasectl.engines.kubernetes.view import PoolView
from leasectl.system.clock import Clock, earliest
from leasectl.system.process import boot_id, is_dead
from leasectl.text.fields import MALFORMED, read_number, read_text

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

    def since(self, uid: str, mark: str, version: int) -> float:
        """Since when an object has been seen with this mark, on the elapsed clock.

        Args:
            uid: Of the object.
            mark: What its next renewal changes.
            version: Of the object, as it was just seen.
        """
        with self._lock:
            if self._seen is None:
                self._seen = self._read()
            seen = self._seen.get(uid)
            if seen is not None and (seen.mark == mark or seen.version > version):
                return seen.since
            self._seen[uid] = Seen(mark, self._clock.elapsed(), version)
            self._is_changed = True
            return self._seen[uid].since

    def note(self, found: object) -> None:
        """Note that something was seen, a renewal for example."""
        if isinstance(found, TicketObject):
            self.since(found.id.uid, found.mark, found.id.version)
        elif isinstance(found, ResourceObject) and found.claim is not None:
            self.since(found.id.uid, found.claim.mark, found.id.version)

    def look(self, view: PoolView) -> Looked:
        """Note all that is seen of a pool; tells what of it is over."""
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
            sort(tickets, name, end)
        for name, resource in view.resources.items():
            sort(claims, name, self.claim_end(resource))
            sort(lives, name, self.life_end(resource))
            sort(graces, name, self.grace_end(resource))
            lifetime = resource.member.lifetime
            if lifetime is not None and lifetime.process is not None and is_dead(lifetime.process):
                lives.add(name)
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
                self._seen = _merged(self._seen, self._read())
                self._write(self._newest(self._seen))
                self._is_changed = False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Whoever holds it only writes a file; where he was stopped nobody waits for him.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    def _read(self) -> dict[str, Seen]:
        if self._path is None:
            return {}
        try:
            with open(self._path, encoding="utf-8") as file:
                record = json.load(file)
            if record["boot"] != boot_id():
                return {}
            return {
                uid: Seen(read_text(mark), read_number(since), int(version))
                for uid, (mark, since, version) in record["seen"].items()
            }
        except (OSError, *MALFORMED):
            return {}

    def _newest(self, seen: dict[str, Seen]) -> dict[str, Seen]:
        oldest = self._clock.elapsed() - _KEPT_SECONDS
        kept = sorted(seen.items(), key=lambda each: each[1].since)[-_MOST_KEPT:]
        return {uid: each for uid, each in kept if each.since > oldest}

    def _write(self, seen: dict[str, Seen]) -> None:
        new = f"{self._path}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"boot": boot_id(), "seen": seen}, file)
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
