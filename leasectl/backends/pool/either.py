"""Wait in the queues of several pools at once.

It has a ticket in each, with the same claim key, and so is served in each in the order in which it
came. With the first grant it leaves the other queues before it tells of that. On a store whose
steps happen at once inside `Engine.atomic` that is one step. On others a process may be killed in
between: its tickets are then void like those of all dead, and whoever recovers its handle withdraws
and frees by the claim key, whatever the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasectl.backends.pool.several import SeveralQueues, summed
from leasectl.engines.contract import Engine, Outlook, TicketExpired, TicketGone
from leasectl.engines.facts import Standing
from leasectl.engines.rules.events import got_instead
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.model import Claimant, Process
from leasectl.system.clock import earliest


class EitherWaiter(SeveralQueues):
    """One request of which several types would do, as `Waiter`.

    A pool that can't meet it, or that is deleted, is left out, as long as another can.

    Args:
        engine, claimant, until: As `SeveralQueues` has them; the claimant asks for one resource.
        warn: Called with a line for people, about a pool that is waited for no longer.
    """

    def __init__(
        self,
        engine: Engine,
        claimant: Claimant,
        *,
        until: float | None,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(engine, claimant, until=until)
        self._is_queued = False
        self._unsure: str | None = None  # the type whose claim may have been made
        self._won: Outlook | None = None
        self._warn = warn
        self._warnings: list[str] = []

    @property
    def has_place(self) -> bool:
        won = None if self._won is None else self._won.pool_type
        return any(each.has_place for t, each in self.waiters.items() if won in (None, t))

    def check(self) -> None:
        """Implements `Waiter.check`; a pool may be too small if another one can meet it."""
        self._check(again=False)

    def enqueue(self, *, again: bool = False) -> None:
        # Of all, before anything is in a queue.
        self._check(again=again)
        self._is_queued = True
        for number, each in enumerate(self.waiters.values()):
            try:
                each.enqueue(again=again)
            except BackendUnreachable as error:
                error.asked = error.asked or number > 0
                raise

    def claim(self) -> Outlook:
        if self._won is None:
            outlook = self._claim_first()
            if outlook.leases is None:
                return outlook
        return self._leave_others()

    def standing(self) -> Standing:
        """How it stands in all the pools together; the position is the best that it has."""
        found = self.standings()
        return summed(found, position=min(each.position for each in found))

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        warnings, self._warnings = self._warnings, []
        for each in warnings:  # not before, when a lock may have been held
            self._warn(each)
        # With a grant there is nothing to hear of, only something to ask again.
        return super().listen(processes) if self._won is None else (frozenset(), False)

    def _claim_first(self) -> Outlook:
        """Claim from the first pool that has something for it, in the order of the request.

        What may have been claimed already comes before all others, or it might get two.
        """
        outlooks = []
        for pool_type in sorted(self.waiters, key=lambda each: each != self._unsure):
            try:
                outlook = self.waiters[pool_type].claim()
            except BackendUnreachable:
                self._unsure = pool_type
                raise
            except NotFound as reason:
                self._leave_out(pool_type, reason)
                continue
            except TicketGone:
                self._leave_if_gone(pool_type)
                continue
            if outlook.leases is not None:
                self._won = outlook._replace(pool_type=pool_type)
                return outlook
            outlooks.append(outlook)
        self._unsure = None
        impossible = [each.impossible for each in outlooks if each.impossible is not None]
        return Outlook(
            is_head=any(each.is_head for each in outlooks),
            is_behind=any(each.is_behind for each in outlooks),
            look_again_at=earliest(*(each.look_again_at for each in outlooks)),
            next_grant_at=earliest(*(each.next_grant_at for each in outlooks)),
            impossible="; ".join(impossible) or None,
        )

    def _check(self, *, again: bool) -> None:
        """Look whether the pools could meet it, and leave out those that can't.

        Args:
            again: It has waited already, and goes on where it can't be met as things are; only what
                has gone meanwhile is left out.
        """
        for pool_type, each in tuple(self.waiters.items()):
            try:
                each.check()
            except NotFound as reason:
                if not again:
                    raise
                self._leave_out(pool_type, reason)
            except InvalidRequest as reason:
                if not again:
                    self._leave_out(pool_type, reason)

    def _leave_others(self) -> Outlook:
        """Get out of the other queues, and only then tell of the grant.

        Raises:
            BackendUnreachable: It is still in one; the next call goes on.
        """
        won = self._won
        assert won is not None and won.pool_type is not None
        for pool_type in tuple(self.waiters):
            if pool_type != won.pool_type:
                self.waiters[pool_type].dequeue(got_instead(won.pool_type))
                del self.waiters[pool_type]
        if not self.waiters[won.pool_type].has_place:
            raise TicketExpired(
                f"a lease of {won.pool_type} expired before the requests in the other "
                "queues could be withdrawn; try again"
            )
        return won

    def _leave_if_gone(self, pool_type: str) -> None:
        """Its ticket in one queue is gone: with the pool, or the whole request was withdrawn."""
        try:
            self.waiters[pool_type].standing()
        except NotFound as reason:
            self._leave_out(pool_type, reason)
        else:
            raise TicketGone

    def _leave_out(self, pool_type: str, reason: LeaseError) -> None:
        """Wait in one queue less; raises the reason if it is the last."""
        if len(self.waiters) == 1:
            raise reason
        if self._is_queued:
            self.waiters[pool_type].dequeue(str(reason))
        del self.waiters[pool_type]
        self._warnings.append(f"no longer waiting for {pool_type}: {reason}")
