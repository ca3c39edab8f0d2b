"""Holders that use what they hold and answer for it, and operators that take it back."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.facts import Pool
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.notes import Note, NoteChange, NoteWatch
from leasectl.errors import LeaseError
from leasectl.http.settings import parse_settings
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.marks import answer_for_holder, encode_mark, parse_mark, unuse, use
from leasectl.leases.service import Service
from leasectl.model import Handle, Lease, ReleasedBy, Request, whole
from leasectl.reclaim.plan import Wanted
from leasectl.reclaim.taking_back import Ground, Listener, open_ground, take_back
from leasectl.state.directory import State
from leasectl.state.uses import LastUses
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import sleep_through
from leasectl.system.process import this_process
from tests.crash.reclaim_log import Log

# Each looks at the whole pool for that, where a keeper looks at its own.
_ANSWERS_EVERY_SECONDS = 0.3
CAMPAIGN = "campaign@host"


class Place(NamedTuple):
    """Where a participant is.

    Args:
        directory: Its state directory.
        backend: Where the pool "T" is.
        log: The file that it writes to.
        settings: How to talk to the backend, as a record has it.
    """

    directory: Path
    backend: str
    log: Path
    settings: str = ""

    def service(self) -> Service:
        state = State.open(str(self.directory))
        caller = Caller(CAMPAIGN, "host")
        return Service(
            state, Context(self.backend, settings=parse_settings(self.settings), caller=caller)
        )


class Holders:
    """So many holders in one process: each has a handle, uses what it holds, and answers.

    Args:
        place: Where they are.
        number: How many.
        names: How many names each asks for.
        seed: Of chance.
        ends: Tells that they are to end.
    """

    def __init__(
        self, place: Place, number: int, *, names: int, seed: int, ends: Callable[[], bool]
    ) -> None:
        self._random = random.Random(seed)
        self._service = place.service()
        # Has records, and no backend opened: a use is to need none.
        self._records = place.service()
        self._log = Log(place.log)
        self._names = names
        self._handles: list[Handle | None] = [None] * number
        # Of each lease whether it is in use, and until when it is so, or not.
        self._until: dict[tuple[str, int], tuple[bool, float]] = {}
        self._ends = ends

    def run(self) -> None:
        """Go on until told to end."""
        answer_at = 0.0
        while not self._ends():
            for at, handle in enumerate(self._handles):
                self._handles[at] = self._acquire() if handle is None else self._step(handle)
            if time.monotonic() >= answer_at:
                self._answer()
                answer_at = time.monotonic() + _ANSWERS_EVERY_SECONDS
            time.sleep(self._random.random() / 100)
        assert not self._records._backends, "a use has opened a backend"

    def _acquire(self) -> Handle | None:
        request = Request("T", count=self._names, on_reclaim="release")
        try:
            handle = acquire(
                self._service, request, patience=Patience(wait_seconds=5), guard=this_process()
            )
        except LeaseError:  # none, or a server that is slow on a busy machine
            return None
        announce(self._service, handle)
        return self._service.handles.require(handle.id)

    def _step(self, handle: Handle) -> Handle | None:
        """Begin and end the uses of a handle for which it is time; returns what is left of it."""
        now = time.monotonic()
        for lease in handle.leases:
            is_used, until = self._until.setdefault(lease[:2], (False, now + self._draw()))
            if now < until:
                continue
            self._until[lease[:2]] = (not is_used, now + self._draw())
            if is_used:
                self._unuse(handle, lease)
            elif not self._use(handle, lease):
                del self._until[lease[:2]]
                found = self._records.handles.current(handle.id, handle.acquisition)
                return found if found is not None and found.leases else None
        return handle

    def _draw(self) -> float:
        return self._random.expovariate(1.0)

    def _use(self, handle: Handle, lease: Lease) -> bool:
        began = time.time()
        try:
            use(self._records, whole(handle), lease.name)
        except LeaseError:
            self._log.write("refused", lease.name, lease.fence, began=began)
            return False
        self._log.write("use", lease.name, lease.fence, began=began)
        return True

    def _unuse(self, handle: Handle, lease: Lease) -> None:
        began = time.time()
        unuse(self._records, whole(handle), lease.name)
        self._log.write("unuse", lease.name, lease.fence, began=began)

    def _answer(self) -> None:
        """Answer what is asked of those here, as their requests say."""
        with contextlib.suppress(LeaseError):
            marked = {note.name for note in self._service.notes.of_pool("T")}
            for handle in self._handles:
                if handle is not None and marked.intersection(handle.names):
                    answer_for_holder(self._service, whole(handle))


class Operator:
    """A reclaim that goes on until it is killed, and sees things late.

    Args:
        place: Where it is.
        wanted: What it takes back.
        stale_seconds: What it sees is up to so old.
        shakes_hands: It asks; else it takes what seems to be in excess.
        seed: Of chance.
    """

    def __init__(
        self,
        place: Place,
        wanted: Wanted,
        *,
        stale_seconds: float,
        shakes_hands: bool,
        seed: int,
    ) -> None:
        self._log = Log(place.log)
        self._log.write("start")
        service = place.service()
        self._wanted = wanted
        stale = _Stale(open_ground(service, "T"), stale_seconds, random.Random(seed))
        self._ground = stale.ground(_Watched(service, self._log, shakes_hands=shakes_hands))

    def run(self) -> None:
        """Take back, for ever."""
        steps = take_back(self._ground, self._wanted, Listener(lambda _: None))
        sleep_through(steps, interrupts=(), now=boottime_seconds)


class _Stale:
    """A ground whose looks show what was there a while ago."""

    def __init__(self, ground: Ground, seconds: float, chance: random.Random) -> None:
        self._ground = ground
        self._seconds = seconds
        self._random = chance
        self._seen: tuple[tuple[Pool, ...], tuple[Note, ...], LastUses] | None = None
        self._seen_at = 0.0
        self._old = 0.0

    def ground(self, notes: _Watched) -> Ground:
        notes.stale = self
        return self._ground._replace(pools=self, notes=notes, uses=lambda: self._look()[2])  # type: ignore[arg-type]

    def pools(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        return self._look(anew=True)[0]

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        return self._look()[1]

    def _look(self, *, anew: bool = False) -> tuple[tuple[Pool, ...], tuple[Note, ...], LastUses]:
        is_old = anew and time.monotonic() >= self._seen_at + self._old
        if self._seen is None or is_old:
            ground = self._ground
            uses, pools = ground.uses(), ground.pools.pools("T")
            self._seen = (pools, ground.notes.of_pool("T"), uses)
            self._seen_at = time.monotonic()
            self._old = self._random.random() * self._seconds
            time.sleep(self._random.random() * self._seconds / 4)
        return self._seen


class _Watched:
    """Notes whose changes are counted and written down; without a handshake nobody is asked."""

    stale: _Stale

    def __init__(self, service: Service, log: Log, *, shakes_hands: bool) -> None:
        self._notes = service.notes
        self._log = log
        self._shakes_hands = shakes_hands
        self.of_claims = self._notes.of_claims
        self._commits = _count_commits()

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        self._log.write("look")
        return self.stale.of_pool(pool_type)

    def watch(self, pool_type: str) -> NoteWatch:
        return self._notes.watch(pool_type)

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        before, began = self._commits(), time.time()
        done = self._notes.change(changes)
        requests = max(1, self._commits() - before)
        self._log.write("written", number=requests)
        for each, is_done in zip(changes, done):
            if is_done:
                kind = "off" if each.after is None else "asked"
                self._log.write(kind, each.name, each.fence, began=began, number=len(changes))
        if not self._shakes_hands:
            self._take(changes)
        return done

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        before = self._commits()
        freed = self._notes.free(notes, by=by)
        self._log.write("freeing", number=max(1, self._commits() - before))
        for name in freed:
            self._log.write("freed", name)
        return freed

    def _take(self, changes: Sequence[NoteChange]) -> None:
        """Free what was to be asked for, as if its holder had said that it is ready."""
        taken = []
        for each in changes:
            mark = None if each.after is None else parse_mark(each.after)
            if mark is not None:
                ready = encode_mark(mark.answered("ready"))
                if self._notes.change([each._replace(before=each.after, after=ready)]) == (True,):
                    taken.append(Note(each.type, each.name, each.fence, ready))
        for name in self._notes.free(taken, by="reclaim"):
            self._log.write("freed", name)


def _count_commits() -> Callable[[], int]:
    """Count the transactions that this process asks etcd for, or its writes to Kubernetes."""
    number = 0
    commit, change = Gateway.commit, KubernetesObjects.write

    def counted(gateway: Gateway, *args: object, **options: object) -> object:
        nonlocal number
        number += 1
        return commit(gateway, *args, **options)  # type: ignore[arg-type]

    def counted_change(store: KubernetesObjects, *args: object, **options: object) -> object:
        nonlocal number
        number += 1
        return change(store, *args, **options)  # type: ignore[arg-type]

    Gateway.commit = counted  # type: ignore[method-assign,assignment]
    KubernetesObjects.write = counted_change  # type: ignore[method-assign,assignment]
    return lambda: number
