"""Wait in the queues of several pools at once.

It has a ticket in each, with the same claim key, and so is served in each in the order in which it
came. With the first grant it leaves the other queues before it tells of that. On a store whose
steps happen at once inside `Engine.atomic` that is one step. On others a process may be killed in
between: its tickets are then void like those of all dead, and whoever recovers its handle withdraws
and frees by the claim key, whatever the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from leasectl.engines.contract import Engine, Outlook, TicketExpired, TicketGone, Waiter
from leasectl.engines.facts import Standing
from leasectl.engines.rules.events import got_instead
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.model import Claimant, Process
from leasectl.system.clock import earliest


class _Place(NamedTuple):
    """A waiter in one of the queues."""

    pool_type: str
    waiter: Waiter


class EitherWaiter:
    """One request of which several types would do, as `Waiter`.

    A pool that can't meet it, or that is deleted, is left out, as long as another can.

    Args:
        engine: The store.
        claimant: Who asks, for one resource.
        until: As `Engine.waiter` has it.
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
        request = claimant.request
        self._all = tuple(
            _Place(
                pool_type,
                engine.waiter(
                    claimant._replace(request=request._replace(type=pool_type, other_types=())),
                    until=until,
                ),
            )
            for pool_type in request.types
        )
        self._places = list(self._all)  # those that it still waits in
        self._is_queued = False
        self._unsure: _Place | None = None  # whose claim may have been made, and nobody told us
        self._won: tuple[_Place, Outlook] | None = None
        self._warn = warn
        self._warnings: list[str] = []

    @property
    def has_place(self) -> bool:
        places = self._places if self._won is None else [self._won[0]]
        return any(place.waiter.has_place for place in places)

    def check(self) -> None:
        """Implements `Waiter.check`; a pool may be too small if another one can meet it."""
        self._check(again=False)

    def enqueue(self, *, again: bool = False) -> None:
        # Of all, before anything is in a queue.
        self._check(again=again)
        self._is_queued = True
        for place in tuple(self._places):
            try:
                place.waiter.enqueue(again=again)
            except BackendUnreachable as error:
                error.asked = error.asked or place is not self._places[0]
                raise

    def claim(self) -> Outlook:
        if self._won is None:
            outlook = self._claim_first()
            if outlook.leases is None:
                return outlook
        return self._leave_others()

    def standing(self) -> Standing:
        """How things stand in all the pools together; the position is the best that it has."""
        standings, gone = [], NotFound()
        for place in self._places:
            try:
                standings.append(place.waiter.standing())
            except NotFound as reason:  # the next claim leaves it out
                gone = reason
        if not standings:
            raise gone
        held = [each for each in standings if each.longest_holder is not None]
        longest = min(held, key=lambda each: each.longest_since, default=standings[0])
        # Where all is held it isn't the pace that is waited for, unless that is so in each.
        some_free = [each for each in standings if each.held < each.capacity]
        dues = [each.next_grant_at for each in some_free or standings]
        return longest._replace(
            position=min(each.position for each in standings),
            others=sum(each.others for each in standings),
            held=sum(each.held for each in standings),
            capacity=sum(each.capacity for each in standings),
            next_grant_at=None if None in dues else earliest(*dues),
        )

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        self._tell_warnings()
        fds: frozenset[int] = frozenset()
        any_ended = False
        # With a grant there is nothing to hear of, only something to ask again.
        for place in self._places if self._won is None else ():
            more, ended = place.waiter.listen(processes)
            fds, any_ended = fds | more, any_ended or ended
            processes = ()  # one of them watches is enough
        return fds, any_ended

    def heard(self, woken: Set[int]) -> bool:
        ended = [place.waiter.heard(woken) for place in self._places]
        return any(ended)

    def dequeue(self, why: str = "") -> None:
        failure: LeaseError | None = None
        for place in self._places:
            try:
                place.waiter.dequeue(why)
            except LeaseError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        for place in self._all:
            place.waiter.close()

    def _claim_first(self) -> Outlook:
        """Claim from the first pool that has something for it, in the order of the request.

        What may have been claimed already comes before all others, or it might get two.
        """
        outlooks = []
        for place in sorted(self._places, key=lambda each: each is not self._unsure):
            try:
                outlook = place.waiter.claim()
            except BackendUnreachable:
                self._unsure = place
                raise
            except NotFound as reason:
                self._leave_out(place, reason)
                continue
            except TicketGone:
                self._leave_if_gone(place)
                continue
            if outlook.leases is not None:
                self._won = place, outlook._replace(pool_type=place.pool_type)
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
        for place in tuple(self._places):
            try:
                place.waiter.check()
            except NotFound as reason:
                if not again:
                    raise
                self._leave_out(place, reason)
            except InvalidRequest as reason:
                if not again:
                    self._leave_out(place, reason)

    def _leave_others(self) -> Outlook:
        """Get out of the other queues, and only then tell of the grant.

        Raises:
            BackendUnreachable: It is still in one; the next call goes on.
        """
        assert self._won is not None
        winner, outlook = self._won
        for place in tuple(self._places):
            if place is not winner:
                place.waiter.dequeue(got_instead(winner.pool_type))
                self._places.remove(place)
        if not winner.waiter.has_place:
            raise TicketExpired(
                f"a lease of {winner.pool_type} expired before the requests in the other "
                "queues could be withdrawn; try again"
            )
        return outlook

    def _leave_if_gone(self, place: _Place) -> None:
        """Its ticket in one queue is gone: with the pool, or the whole request was withdrawn."""
        try:
            place.waiter.standing()
        except NotFound as reason:
            self._leave_out(place, reason)
        else:
            raise TicketGone

    def _leave_out(self, place: _Place, reason: LeaseError) -> None:
        """Wait in one queue less; raises the reason if it is the last."""
        if len(self._places) == 1:
            raise reason
        if self._is_queued:
            place.waiter.dequeue(str(reason))
        self._places.remove(place)
        self._warnings.append(f"not waiting for {place.pool_type} any more: {reason}")

    def _tell_warnings(self) -> None:
        """Tell of what has been left out; not before, when a lock may have been held."""
        warnings, self._warnings = self._warnings, []
        for each in warnings:
            self._warn(each)
