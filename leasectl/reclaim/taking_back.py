"""Look, ask and free until enough is back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from leasectl.backends.kinds import kind_of_handle
from leasectl.engines import refusals
from leasectl.engines.facts import Resource
from leasectl.engines.notes import Note, NoteChange, Notes
from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import BackendUnreachable, LeaseError, NotFound
from leasectl.leases.marks import (
    Mark,
    asked_in_words,
    asked_of,
    encode_mark,
    new_mark,
    taken_off_in_words,
)
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service
from leasectl.reclaim.plan import (
    CHANGED,
    GIVEN_BACK,
    NOT_HELD,
    Held,
    LeaseId,
    Memory,
    NotFreed,
    Step,
    Wanted,
    begin,
    last_step,
    next_step,
)
from leasectl.state.uses import LastUses, Uses, last_use
from leasectl.system.clock import Clock
from leasectl.system.poll import Sleep
from leasectl.text.wording import followed_by


class Ground(NamedTuple):
    """What a reclaim works on.

    Args:
        pool_type: The pool.
        pools: The pools of its store.
        notes: The notes of its store.
        atomic: Makes one change of several, where the store can do that.
        uses: When each lease was last in use, as far as that can be seen.
        clock: Where times come from.
        asked_by: Who takes back, for people.
        settle: Called after a change: wakes the holders in this state directory, who answer.
    """

    pool_type: str
    pools: PoolAdmin
    notes: Notes
    atomic: Callable[[], AbstractContextManager[object]]
    uses: Callable[[], LastUses]
    clock: Clock
    asked_by: str
    settle: Callable[[], object] = lambda: None


class View(NamedTuple):
    """A pool at one instant.

    Args:
        held: Its leases.
        free: How many of its resources can be leased.
    """

    held: list[Held]
    free: int


def look(ground: Ground, *, group_by: str | None = None) -> View:
    """Look at the leases of a pool as they are now.

    Args:
        ground: With the pool.
        group_by: The property that says what counts as one holder; None for a handle.

    Raises:
        NotFound: There is no such pool.
    """
    (pool,) = ground.pools.pools(ground.pool_type)
    notes = {(note.name, note.fence): note.text for note in ground.notes.of_pool(ground.pool_type)}
    uses, wall = ground.uses(), ground.clock.wall()
    held: list[Held] = []
    for resource in pool.resources:
        lease = resource.lease
        if lease is None or resource.ended is not None:
            continue
        use = last_use(uses, resource.claim_key, resource.name)
        seen = Held(
            lease.name,
            lease.fence,
            _group(resource, group_by),
            lease.holder_identity,
            max(0.0, wall - lease.acquire_time),
            use is not None and use.until is None,
            None if use is None else use.until,
            notes.get((lease.name, lease.fence)),
        )
        if seen.mark is not None:
            seen = seen._replace(marked_seconds=max(0.0, wall - seen.mark.made_at))
        held.append(seen)
    return View(held, pool.free)


def preview(ground: Ground, wanted: Wanted) -> tuple[Sequence[Held], list[Held], Step]:
    """Return what is held, what is marked already and adopted, and the step once the delay is over.

    Nothing changes.
    """
    held, free = look(ground, group_by=wanted.group_by)
    at_once, now = wanted._replace(delay_seconds=0.0), ground.clock.elapsed()
    step = next_step(at_once, held, begin(at_once, held, now), now, free=free)
    return held, [each for each in held if each.id in step.memory.asked], step


def _group(resource: Resource, group_by: str | None) -> str:
    if group_by is None:
        return resource.claim_key or ""
    properties = dict(resource.member.properties) if resource.member is not None else {}
    return properties.get(group_by, "")


def check_names(service: Service, pool_type: str, names: Collection[str]) -> None:
    """Raise NotFound unless all names are in a pool."""
    (pool,) = service.pools.pools(pool_type)
    there = {each.name for each in pool.resources}
    for name in sorted(names):
        if name not in there:
            raise refusals.no_resource(pool_type, name)


def open_ground(service: Service, pool_type: str) -> Ground:
    """Return what a reclaim works on, at a service's chosen backend.

    Raises:
        NotSupported: It has no pools of its own.
    """
    return Ground(
        pool_type,
        service.pools,
        service.notes,
        service.atomic,
        Uses(service.state).last,
        service.clock,
        service.caller.identity,
        lambda: _settle(service),
    )


def _settle(service: Service) -> None:
    """Clean up here: release for the dead, record what was taken, and update lists."""
    recover(service)
    with contextlib.suppress(LeaseError):  # else their next renewals find out
        _find_what_was_taken(service)
    service.losses.unlist()


def _find_what_was_taken(service: Service) -> None:
    """Record the loss in handles here whose leases were taken on a server."""
    ready = (each.target for each in Uses(service.state).all_seen() if each.mark.is_ready)
    for target in {each.handle_id: each for each in ready}.values():
        handle = service.current(target)
        if handle is None or not service.is_here(handle):
            continue
        if kind_of_handle(handle).remote:
            asked_of(service, target)


def _asked(ground: Ground, each: Held, mark: Mark) -> NoteChange:
    told = asked_in_words(mark)
    return NoteChange(ground.pool_type, *each.id, each.note, encode_mark(mark), told)


def _taken_off(ground: Ground, each: Held) -> NoteChange:
    told = taken_off_in_words(each.mark)
    return NoteChange(ground.pool_type, *each.id, each.note, None, told)


# How long to wait for further answers after the first: a hundred shouldn't cause a hundred writes.
_GATHER_SECONDS = 0.1
# After a slow look at a large pool, the pause is so many times as long as the look.
_TIMES_AS_LONG = 4
_ASK_AGAIN_SECONDS = 2.0
# A holder that answers at the same time changes each mark twice at most.
_TRIES_TO_TAKE_OFF = 5


Reclaiming = Generator[Sleep, "set[int]", "Outcome"]


class Outcome(NamedTuple):
    """The result of a reclaim.

    Args:
        freed: The names that it has freed.
        missing: How many should have come back and have not.
        not_freed: Why, for each lease that would have done, and each named resource.
    """

    freed: tuple[str, ...]
    missing: int
    not_freed: tuple[NotFreed, ...] = ()


class Progress(NamedTuple):
    """The progress of a reclaim, for people.

    Args:
        missing: How many are still to come back.
        asked: How many of them are marked.
        look_in_seconds: When the next look is due; None if only an answer can bring it.
    """

    missing: int
    asked: int
    look_in_seconds: float | None


class Listener(NamedTuple):
    """The callbacks of a reclaim.

    Args:
        freed: Called with the names that were freed, each once.
        progress: Called after each look that isn't the last.
        warn: Called with a line for people.
    """

    freed: Callable[[Sequence[str]], None]
    progress: Callable[[Progress], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None


def take_back(ground: Ground, wanted: Wanted, listener: Listener) -> Reclaiming:
    """Take leases back; yield each sleep that this needs.

    Args:
        ground: With the pool.
        wanted: What to take back, as `check_wanted` returned it.
        listener: Its callbacks.

    Returns:
        The result, unless it goes on for ever.

    Raises:
        NotFound: There is no such pool, or no more.
        BackendUnreachable: It wouldn't go on for ever, and its store doesn't answer.
    """
    return _TakingBack(ground, wanted, listener).run()


class _TakingBack:
    def __init__(self, ground: Ground, wanted: Wanted, listener: Listener) -> None:
        self._ground = ground
        self._wanted = wanted
        self._listener = listener
        self._memory: Memory | None = None
        self._freed: list[str] = []
        self._freed_before = 0
        self._look_took = 0.0
        self._is_away = False  # the user was told that the store doesn't answer

    def run(self) -> Reclaiming:
        watch = self._ground.notes.watch(self._ground.pool_type)
        try:
            while True:
                watch.clear()
                step = self._look_and_do()
                if step is not None and step.is_over:
                    return Outcome(tuple(self._freed), step.missing, self._not_freed(step))
                yield from self._sleep(watch.fd, step)
        finally:
            try:
                self._take_marks_off()
            finally:
                watch.close()

    def _look_and_do(self) -> Step | None:
        """Look, and take the next step; None if the store can't be asked."""
        try:
            step = self._step()
        except BackendUnreachable as error:
            if not self._wanted.follows:
                raise
            if not self._is_away:
                self._listener.warn(followed_by(error, "waiting for it"))
            self._is_away = True
            return None
        self._is_away = False
        return step

    def _not_freed(self, step: Step) -> tuple[NotFreed, ...]:
        """Say why each name wasn't freed: those of the last step, and named ones not held then."""
        not_freed = list(step.not_freed) if step.missing else []
        left = {each.name for each in step.free}.difference(self._freed)
        not_freed += [NotFreed(name, CHANGED) for name in left]
        known = {*self._freed, *(each.name for each in not_freed)}
        assert self._memory is not None
        meant = {name for name, _ in self._memory.only or ()}
        others = sorted((self._wanted.names or frozenset()) - known)
        named = [NotFreed(name, GIVEN_BACK if name in meant else NOT_HELD) for name in others]
        return tuple(sorted((*not_freed, *named)))

    def _step(self) -> Step:
        now = self._ground.clock.elapsed
        began_at, self._freed_before = now(), len(self._freed)
        held, free_now = look(self._ground, group_by=self._wanted.group_by)
        if self._memory is None:
            self._memory = begin(self._wanted, held, now())
        self._look_took = now() - began_at
        step = next_step(self._wanted, held, self._memory, now(), free=free_now)
        self._memory = step.memory
        with self._ground.atomic():
            freed = self._free(step)
            put, taken_off = self._mark(step)
        self._memory = step.memory.having_marked(put, taken_off, now())
        if freed:
            self._freed += freed
            self._listener.freed(freed)
        if freed or put:
            self._ground.settle()
        step = step._replace(missing=step.missing - len(freed))
        if not step.is_over:
            asked = sum(name not in freed for name, _ in self._memory.asked)
            look_in = None if step.look_at is None else max(0.0, step.look_at - now())
            self._listener.progress(Progress(step.missing, asked, look_in))
        return step

    def _free(self, step: Step) -> tuple[str, ...]:
        """Free the leases that are ready and unchanged; return their names."""
        if not step.free:
            return ()
        notes = [Note(self._ground.pool_type, *each.id, each.note or "") for each in step.free]
        return self._ground.notes.free(notes, by="reclaim")

    def _mark(self, step: Step) -> tuple[dict[LeaseId, Mark], set[LeaseId]]:
        """Remove marks and put others, in one request; return what was put, and removed."""
        ground, seconds = self._ground, self._wanted.mark_seconds
        wall = ground.clock.wall()
        asked = [(e, new_mark(ground.asked_by, seconds=seconds, now=wall)) for e in step.ask]
        changes = [_taken_off(ground, each) for each in step.take_off]
        changes += [_asked(ground, each, mark) for each, mark in asked]
        done = ground.notes.change(changes) if changes else ()
        taken_off = {each.id for each, is_done in zip(step.take_off, done) if is_done}
        done = done[len(step.take_off) :]
        return {each.id: mark for (each, mark), is_done in zip(asked, done) if is_done}, taken_off

    def _sleep(self, fd: int, step: Step | None) -> Generator[Sleep, set[int], None]:
        """Sleep until a step is due, or others have changed something that matters."""
        if step is None:
            yield self._pause(_ASK_AGAIN_SECONDS)
            return
        if step.free:  # some may have been gone, and others are wanted instead
            if len(self._freed) == self._freed_before:
                yield self._pause(_GATHER_SECONDS)
            return
        assert self._memory is not None
        if any(each.id not in self._memory.asked for each in step.ask):
            # Another process was faster, or a holder has answered before we knew of the mark.
            yield self._pause(_GATHER_SECONDS)
            return
        # An asked holder may answer; a named lease may be given back by itself.
        matters = bool(self._memory.asked) or self._memory.only is not None
        woken = yield Sleep(frozenset([fd] if matters else []), step.look_at)
        if woken:
            yield self._pause(max(_GATHER_SECONDS, _TIMES_AS_LONG * self._look_took))

    def _pause(self, seconds: float) -> Sleep:
        return Sleep(frozenset(), self._ground.clock.elapsed() + seconds)

    def _take_marks_off(self) -> None:
        if self._memory is None or not self._memory.asked:
            return
        try:
            for _ in range(_TRIES_TO_TAKE_OFF):
                marked = last_step(look(self._ground).held, self._memory)
                changes = [_taken_off(self._ground, each) for each in marked]
                if not changes or all(self._ground.notes.change(changes)):
                    return
        except NotFound:
            pass  # the marks have gone with the pool
        except LeaseError as error:
            left = "the marks of this reclaim couldn't be removed; they expire by themselves"
            self._listener.warn(followed_by(error, left))
