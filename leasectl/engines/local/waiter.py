"""A waiter: its ticket, and what it sleeps on.

It sleeps on a named pipe of its own. Behind others, it also watches the processes of the tickets
that keep something from it: they might be woken in its stead, and be dead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from leasectl.engines.contract import Outlook, PoolWaiter
from leasectl.engines.local.queues import LocalQueues, Waiting, why_gone
from leasectl.engines.local.store import LocalStore
from leasectl.model import Claimant, Process, Ticket
from leasectl.state.directory import State
from leasectl.system.clock import earliest
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from leasectl.system.process_watch import IdlePidfds, ProcessWatch

if TYPE_CHECKING:
    import sqlite3

    from leasectl.engines.facts import Standing
    from leasectl.engines.local.standing import LocalPlace
    from leasectl.state.named_pipe import NamedPipe


_MOST_IDLE = 32


class WaitPipe:
    """The pipe of one waiter; it exists from `open` on.

    Args:
        state: The state directory.
        put_aside: Called with the pipe when it is closed; returns whether it is kept for another.

    Attributes:
        name: In the folder of such pipes.
    """

    def __init__(self, state: State, put_aside: Callable[[WaitPipe], bool]) -> None:
        self.name = f"waiter-{os.urandom(8).hex()}"
        self._state = state
        self._path = state.waiter_pipe(self.name)
        self._put_aside = put_aside
        self._pipe: NamedPipe | None = None
        self._is_open = False

    @property
    def is_made(self) -> bool:
        """Whether it exists already, from an earlier wait: then it is opened quickly."""
        return self._pipe is not None

    @property
    def fd(self) -> int:
        """A descriptor that is readable when the waiter was woken."""
        assert self._pipe is not None, "open() comes first"
        return self._pipe.fd

    def open(self) -> None:
        """Begin to listen, before another process can see the ticket that names the pipe."""
        if self._is_open:
            return
        if self._pipe is not None and not self._pipe.is_in_place():
            self.remove()
        if self._pipe is None:
            self._pipe = self._state.listen(self._path)
        elif is_readable(self._pipe.fd, 0):  # a wake-up came too late for the last wait
            self._pipe.renew()
        self._is_open = True

    def clear(self) -> None:
        """Get ready to be woken again."""
        assert self._pipe is not None, "open() comes first"
        self._pipe.renew()

    def close(self) -> None:
        """Stop listening."""
        self._is_open = False
        if self._pipe is not None and not self._put_aside(self):
            self.remove()

    def remove(self) -> None:
        """Remove the pipe."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class WaitPipes:
    """The pipes of one process.

    To create a named pipe takes longer than the rest of an acquisition, so a process that waits
    more than once keeps some. Most never need a second, and end without cleaning up. A server may
    have thousands at once.

    Args:
        state: The state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._idle: list[WaitPipe] = []
        self._waits_before = 0
        state.on_close.append(self._remove_idle)

    def get(self) -> WaitPipe:
        """Return an unused pipe."""
        return self._idle.pop() if self._idle else WaitPipe(self._state, self._put_aside)

    def _put_aside(self, pipe: WaitPipe) -> bool:
        kept = self._waits_before > 0 and len(self._idle) < _MOST_IDLE
        self._waits_before += 1
        if kept:
            self._idle.append(pipe)
        return kept

    def _remove_idle(self) -> None:
        while self._idle:
            self._idle.pop().remove()


class LocalWaiter:
    """One request; implements `Waiter`. Its steps but `standing` belong inside `State.transaction`.

    Args:
        store: The pools.
        claimant: The request and its holder.
        pipe: What wakes it.
        pidfds: Of this process's other waits.
    """

    has_place = True

    def __init__(
        self, store: LocalStore, claimant: Claimant, pipe: WaitPipe, *, pidfds: IdlePidfds
    ) -> None:
        self._store = store
        self._queues = store.queues
        self._claimant = claimant
        self._request = claimant.request
        self._pipe = pipe
        self._clock = store.clock
        self._asked_at = self._clock.elapsed()
        self._watch = ProcessWatch(pidfds)
        self._own: Ticket | None = None
        self._watched: list[Process] = []  # their end may give it its turn
        self._is_new = True  # no other process has seen its ticket
        self._place: LocalPlace | None = None  # only with several priorities
        self._pool: sqlite3.Row  # of `LocalStore.pool`, in the transaction of that number
        self._pool_of = 0
        self._behind: Sequence[Waiting] | None = None  # for `LocalQueues.leave`

    def check(self) -> None:
        self._store.possible(self._request)

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        # The numbers of `beside` need no attention: a request's tickets are put in one transaction.
        request = self._request
        pool = self._store.pool(request.type) if again else self._store.possible(request)
        self._own = Ticket(pool["last_ticket"] + 1, self._claimant)
        is_ranked = bool(pool["is_ranked"]) or request.priority != 0
        self._queues.put(self._claimant, self._own.number, self._pipe.name, is_ranked=is_ranked)
        self._pool, self._pool_of = pool, self._store.state.transactions

    def claim(self) -> Outlook:
        return self._claim_or_look()

    def look(self) -> Outlook:
        return self._claim_or_look(only_looks=True)

    def park(self, is_parked: bool) -> None:
        mine = self._up_to(self._ticket())[0]
        if is_parked:
            self._queues.suspend(self._request.type, mine)
        elif mine.suspended:
            self._resume(mine)

    def _claim_or_look(self, *, only_looks: bool = False) -> Outlook:
        outlook, mine, others = self._look(only_looks=only_looks)
        while outlook.leases is None and outlook.is_head and self._remove_dead(others):
            outlook, mine, others = self._look(only_looks=only_looks)
        if outlook.leases is not None:
            return outlook
        is_new, self._is_new = self._is_new, False
        self._pipe.open()
        if outlook.impossible is not None:
            self._watched = []
            return outlook
        self._watched = [each for each in (one.waiter for one in others) if each is not None]
        if mine.is_ranked:
            from leasectl.engines.local.standing import LocalPlace

            if self._place is None:
                self._place = LocalPlace(self._store, self._request.type, mine.number)
            turn_at = self._place.keep(mine, others, is_new=is_new, is_head=outlook.is_head)
            outlook = outlook._replace(look_again_at=earliest(outlook.look_again_at, turn_at))
        if outlook.is_head:
            self._watched += self._store.early_ends.guards(self._request.type)
        return outlook

    def standing(self) -> Standing:
        from leasectl.engines.local.standing import standing_of

        return standing_of(self._store, self._request, self._ticket().number)

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        # Without this process: with thousands of waiters, that would be a pidfd for each.
        others = [each for each in (*processes, *self._watched) if each != this_process()]
        self._watch.update(others)
        return frozenset((self._pipe.fd, *self._watch.fds())), self._watch.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._pipe.fd in woken:
            self._pipe.clear()
        ended = not woken.isdisjoint(self._watch.fds())
        self._watch.heard(woken)
        return ended

    def dequeue(self, why: str = "") -> None:
        # A claim without a record was undone with its transaction.
        if self._own is not None:
            self._queues.take_away(
                self._request.type, self._own.number, self._claimant.claim_key, why=why
            )

    def close(self) -> None:
        self._watch.close()
        self._pipe.close()

    def _ticket(self) -> Ticket:
        assert self._own is not None, "enqueue() comes first"
        return self._own

    def _look(self, *, only_looks: bool) -> tuple[Outlook, Waiting, Sequence[Waiting]]:
        """Claim, if it is its turn.

        Args:
            only_looks: See `PoolWaiter.look`.

        Returns:
            The outlook, its ticket, and the tickets whose end may give it its turn, or more.
        """
        is_known = self._pool_of == self._store.state.transactions
        pool = self._pool if is_known else self._store.pool(self._request.type)
        if pool["is_special"] and not self._store.memberships().is_had_at_once(self._request, pool):
            self._store.expire(self._request.type)
            pool = self._store.pool(self._request.type)
        unmet = self._store.unmet(self._request, pool)
        if unmet is not None:
            mine = self._up_to(self._ticket())[0]
            self._queues.suspend(self._request.type, mine)
            next_look = self._next_look(pool, None)
            return Outlook(impossible=str(unmet), look_again_at=next_look), mine, ()
        mine, blocker, particular = self._ahead(only_looks=only_looks)
        if blocker is not None:
            return Outlook(is_behind=True), mine, (blocker,)
        if self._request.name is not None and not pool["pace_seconds"]:
            particular = ()
        outlook = self._claim_free(mine, particular, pool, only_looks=only_looks)
        return outlook, mine, particular

    def _ahead(self, *, only_looks: bool) -> tuple[Waiting, Waiting | None, Sequence[Waiting]]:
        """Return its ticket, resumed unless it only looks, and the better tickets in its way.

        Returns:
            Its ticket, the one that keeps everything from it, and others, as `_ahead_of` has them.
        """
        own, dead = self._ticket(), 0
        while True:
            mine, *better = self._up_to(own)
            if mine.suspended and not only_looks:
                self._resume(mine)
            blocker, particular = _ahead_of(mine, better, self._queues)
            if blocker is None or not self._watch.is_dead(blocker.waiter):
                return mine, blocker, particular
            from leasectl.engines.local.absent import get_past  # rarely needed

            dead += 1
            get_past(self._queues, self._request.type, blocker, own.number, nth=dead)

    def _resume(self, mine: Waiting) -> None:
        self._queues.resume(self._request.type, mine.number)
        self._queues.wake_behind(self._request.type, mine)

    def _up_to(self, own: Ticket) -> list[Waiting]:
        """Return its ticket and those before it, see `LocalQueues.up_to`; raise if it is gone."""
        found = self._at_head(own) or self._queues.up_to(self._request.type, own.number)
        mine = found[0] if found else None
        if mine is None or (mine.number, mine.claim_key) != (own.number, own.claimant.claim_key):
            raise why_gone(self._store.state, self._claimant)
        return found

    def _at_head(self, own: Ticket) -> list[Waiting]:
        """Return its ticket, if it is the first by number; else nothing. Note the next one."""
        if self._pool_of == self._store.state.transactions:
            self._behind = ()  # it was just put
            return []
        # A waiter that looks again has mostly become the first.
        first = [] if self._is_new else self._queues.first_two(self._request.type)
        is_mine = bool(first) and first[0].number == own.number and not first[0].is_ranked
        self._behind = first[1:] if is_mine else None
        return first[:1] if is_mine else []

    def _next_look(self, pool: sqlite3.Row, expiry: float | None) -> float | None:
        """Return when a resource may become free by itself, given the next expiry of a claim."""
        if not pool["is_special"]:
            return expiry
        return earliest(expiry, self._store.memberships().next_look(self._request.type))

    def _remove_dead(self, tickets: Sequence[Waiting]) -> bool:
        """Remove what dead waiters among some have left; return whether there were any."""
        dead = [each for each in tickets if each.is_dead]
        if dead:
            from leasectl.engines.local.absent import remove_dead_ones

            remove_dead_ones(self._queues, self._request.type, dead)
        return bool(dead)

    def _claim_free(
        self,
        mine: Waiting,
        particular: Sequence[Waiting],
        pool: sqlite3.Row,
        *,
        only_looks: bool,
    ) -> Outlook:
        """Claim what is asked for, if that much is free by now, and delete the ticket.

        Args:
            mine: The ticket.
            particular: Better tickets that wait for particular resources: those can't be claimed.
            pool: Its row.
            only_looks: Only tell whether that could be done.
        """
        request, own = self._request, self._ticket()
        expiry = pool["next_expiry"]
        if expiry is not None and expiry <= self._clock.elapsed():
            self._store.expire_claims(request.type)
            expiry = self._store.next_expiry(request.type)
        others = particular if request.name is None else ()
        resources = self._store.free_resources(request, others)
        if len(resources) < request.count and self._store.early_ends.free_what_the_dead_had(
            request.type
        ):
            resources = self._store.free_resources(request, others)
        if len(resources) < request.count:
            again_at = self._next_look(pool, expiry)
            return Outlook(is_head=True, is_behind=bool(others), look_again_at=again_at)
        if pool["pace_seconds"]:
            from leasectl.engines.local.wants import LocalSettings

            settings = LocalSettings(self._store)
            may_grant, due = settings.allows(request.type, particular)
            if not may_grant:
                return Outlook(is_head=True, is_behind=bool(particular), next_grant_at=due)
            if not only_looks:
                settings.pay(request.type)
        if only_looks:
            return Outlook(is_head=True, is_ready=True)
        is_more_free = len(resources) > request.count or bool(request.name or request.where)
        leases = self._store.claim(
            own,
            resources[: request.count],
            grant=pool["last_grant"] + 1,
            wait=self._clock.elapsed() - self._asked_at,
            reserved=pool["reserved"],
        )
        self._queues.leave(request.type, mine, is_more_free=is_more_free, behind=self._behind)
        return Outlook(leases)


def _ahead_of(
    mine: Waiting, better: Sequence[Waiting], queues: LocalQueues
) -> tuple[Waiting | None, Sequence[Waiting]]:
    """Return which of the better tickets, nearest first, keep resources from a ticket.

    Returns:
        The nearest that blocks it. If there is none, those that could use some of what it could
        use, or other resources.
    """
    if not better:
        return None, ()
    from leasectl.engines.rules.turns import blocks  # not needed at the head

    counting = [each for each in better if not each.suspended]
    for each in counting:
        if blocks(each, mine, queues.could_use):
            return each, ()
    return None, counting
