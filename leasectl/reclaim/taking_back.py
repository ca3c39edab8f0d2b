"""Taking leases back: look, do what `plan` says, sleep until something may have changed.

Between two looks it sleeps until the next thing is due, or until an answer comes; those that come
close together are one look, and what follows of them is written at once. However it ends, by itself
or by a signal, its marks are taken off; only when it is killed they end by themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from leasectl.errors import BackendUnreachable, LeaseError, NotFound
from leasectl.reclaim import carrying_out
from leasectl.reclaim.look import Ground, look
from leasectl.reclaim.plan import Memory, Step, begin, last_step, next_step
from leasectl.reclaim.wanted import Wanted
from leasectl.system.poll import Sleep
from leasectl.text.wording import followed_by
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

# So long it waits for further answers after one has come: a hundred are to be no hundred writes.
_GATHER_SECONDS = 0.1
# A look at a large pool takes its time; it then waits for so many times as long.
_TIMES_AS_LONG = 4
_ASK_AGAIN_SECONDS = 2.0
# A holder that answers just then changes each mark twice at most.
_TRIES_TO_TAKE_OFF = 5


Reclaiming = Generator[Sleep, "set[int]", "Outcome"]


class Outcome(NamedTuple):
    """What came of a reclaim.

    Args:
        freed: The names that it has freed.
        missing: How many have not come back that should have.
    """

    freed: tuple[str, ...]
    missing: int


class Progress(NamedTuple):
    """How a reclaim stands, for people.

    Args:
        missing: How many are still to come back.
        asked: How many of them are marked.
        look_in_seconds: When the next thing is due; None for when an answer comes.
    """

    missing: int
    asked: int
    look_in_seconds: float | None


class Listener(NamedTuple):
    """Who is told of a reclaim as it goes.

    Args:
        freed: Called with the names that were freed, each once.
        progress: Called after each look that isn't the last.
        warn: Called with a line for people.
    """

    freed: Callable[[Sequence[str]], None]
    progress: Callable[[Progress], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None


def take_back(ground: Ground, wanted: Wanted, listener: Listener) -> Reclaiming:
    """Take back what is wanted; yields each sleep that this needs.

    Args:
        ground: Of which pool.
        wanted: What, as `check_wanted` returned it.
        listener: Told of what comes of it.

    Returns:
        What came of it, unless it goes on for ever.

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
        self._is_away = False  # the store, as was said

    def run(self) -> Reclaiming:
        watch = self._ground.notes.watch(self._ground.pool_type)
        try:
            while True:
                watch.clear()
                step = self._look_and_do()
                if step is not None and step.is_over:
                    return Outcome(tuple(self._freed), step.missing)
                yield from self._sleep(watch.fd, step)
        finally:
            try:
                self._take_marks_off()
            finally:
                watch.close()

    def _look_and_do(self) -> Step | None:
        """Look, and do what is to be done; None where the store can't be asked."""
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

    def _step(self) -> Step:
        now = self._ground.clock.elapsed
        began_at, self._freed_before = now(), len(self._freed)
        held = look(self._ground, group_by=self._wanted.group_by)
        if self._memory is None:
            self._memory = begin(self._wanted, held, now())
        self._look_took = now() - began_at
        step = next_step(self._wanted, held, self._memory, now())
        self._memory = step.memory
        with self._ground.atomic():
            freed = carrying_out.free(self._ground, step)
            marked = carrying_out.mark(self._ground, step, self._wanted)
        self._memory = step.memory.having_marked(marked.put, marked.taken_off, now())
        if freed:
            self._freed += freed
            self._listener.freed(freed)
        if freed or marked.put:
            self._ground.settle()
        step = step._replace(missing=step.missing - len(freed))
        if not step.is_over:
            asked = sum(name not in freed for name, _ in self._memory.asked)
            look_in = None if step.look_at is None else max(0.0, step.look_at - now())
            self._listener.progress(Progress(step.missing, asked, look_in))
        return step

    def _sleep(self, fd: int, step: Step | None) -> Generator[Sleep, set[int], None]:
        """Sleep until something is due, or others have done something that matters."""
        if step is None:
            yield self._pause(_ASK_AGAIN_SECONDS)
            return
        if step.free:  # others may be wanted instead of those that weren't there any more
            if len(self._freed) == self._freed_before:
                yield self._pause(_GATHER_SECONDS)
            return
        assert self._memory is not None
        if any(each.id not in self._memory.asked for each in step.ask):
            # Somebody was faster, or has answered a mark of ours that we don't know to be put.
            yield self._pause(_GATHER_SECONDS)
            return
        # Whoever was asked may answer; whoever is meant may give back by itself.
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
                marked = last_step(look(self._ground), self._memory)
                if not marked or carrying_out.take_off(self._ground, marked):
                    return
        except NotFound:
            pass  # they have gone with the pool
        except LeaseError as error:
            left = "its marks couldn't be taken off, and end by themselves"
            self._listener.warn(followed_by(error, left))
