"""Acquire: ask again and again, and count what was lost on the way.

Boskos answers at once, with a resource or that none is free. It keeps the queue position of a
request id that asks again soon enough, over any number of connections. If several resources are
wanted, those that have arrived are renewed meanwhile, as no other process knows of them yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.connection import (
    BoskosConnection,
    Granted,
    Outage,
    check_allowed,
    check_there_is,
    granted,
)
from leasectl.backends.boskos.holding import Holding, LostGrants, LostNote, look
from leasectl.backends.contract import Patience, Progress, RemoteJournal
from leasectl.backends.one_by_one import acquire_one_by_one, short_wait_hint
from leasectl.backends.unanswered import Loss, NotSent, Refused
from leasectl.errors import BackendUnreachable, LeaseError, NoLease, NotFound
from leasectl.http.messages import Answer, Call
from leasectl.model import Claimant, Lease
from leasectl.system.backoff import draw
from leasectl.system.clock import Clock, earliest
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted

# How often it is asked again, as existing clients do; the rest is left to chance.
_ASK_SECONDS = (2.0, 3.0)
# Of the time for which a place is kept, that is no more than this share.
_SHARE_OF_QUEUE = 0.2
# How long a request may take: longer than Boskos needs when it is slow.
_REQUEST_SECONDS = 20.0
# And beyond a deadline, so that what is granted just then is heard of.
_BEYOND_DEADLINE_SECONDS = 2.0
_LOOK_SECONDS = 5.0
# Whoever gives up wants to end.
_LAST_LOOK_SECONDS = 1.0
_RENEW_AGAIN_SECONDS = 1.0
_MOST_LOSSES = 3


class BoskosAcquisition:
    """Acquires as many single grants as are wanted, or none; implements `Grants`.

    Args:
        connection: To Boskos.
        give_back: Releases a name of an owner; raises BackendUnreachable if it can't.
        claimant: The request and its holder.
        journal: Keeps the record in step.
        patience: How long to wait.
        clock: Where times come from.
        chance: Returns a random number from 0 to 1.
    """

    def __init__(
        self,
        connection: BoskosConnection,
        give_back: Callable[[str, str], object],
        *,
        claimant: Claimant,
        journal: RemoteJournal,
        patience: Patience,
        clock: Clock,
        chance: Callable[[], float] = draw,
    ) -> None:
        self._plain_connection = connection
        self._connection = connection = connection.interrupted_by(patience.interrupts)
        self._address = connection.address
        self._give_back = give_back
        self._request = claimant.request
        self._owner = claimant.claim_key
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._chance = chance
        self._holding = Holding(connection, clock=clock)
        self._lost = LostGrants(self._request.type, self._owner, clock=clock)
        self._start = clock.elapsed()
        self._deadline = patience.until(self._start)
        self._outage = Outage(patience, clock=clock)
        self._next_report: float | None = None
        self._asked = 0
        self._got: dict[str, float] = {}  # when each is to be renewed
        self._late: Granted | None = None  # what came when its request had been given up
        self._is_missing = False  # an answer that may have told of a grant
        self._may_come_late = False  # what was asked last may be carried out yet
        self._asked_at = self._start

    def take(self) -> tuple[Lease, ...]:
        """Get all leases, or raise; what has arrived by then is on record.

        Raises:
            NoLease: Not before the deadline.
            LeaseError: Boskos refused, or what ended the wait.
        """
        try:
            leases = acquire_one_by_one(
                self,
                self._request.count,
                self._journal,
                deadline=self._deadline,
                now=self._clock.elapsed,
                chance=self._chance,
            )
            if leases is None:
                raise self._no_lease()
        except BaseException:
            if self._late is not None:
                self._keep_late(self._late.name)
            self._look_for_the_last_time(gives_up=True)
            raise
        finally:
            self._connection.close()
        self._look_for_the_last_time(gives_up=False)
        return leases

    # ---- as Grants

    @property
    def ghost_seconds(self) -> float:
        return self._address.queue_seconds

    def ask_for_one(self, until: float | None) -> str | None:
        self._asked += 1
        while True:
            came = self._ask(until)
            if came is not None:
                return self._taken(came)
            if until is not None and self._clock.elapsed() >= until:
                return None
            if not self._wait_to_ask_again(until):
                return None

    def give_back(self, name: str) -> None:
        self._got.pop(name, None)
        self._give_back(self._owner, name)

    def pause(self, seconds: float) -> None:
        until = self._clock.elapsed() + seconds
        while self._clock.elapsed() < until:
            self._connection.pause(earliest(until, self._report(self._clock.elapsed())))

    # ---- one request

    def _ask(self, until: float | None) -> Granted | None:
        """Ask once; None when none is free, or the answer says nothing that counts."""
        self._asked_at = self._clock.elapsed()
        try:
            answer = self._connection.ask(
                self._call(),
                seconds=self._request_seconds(until),
                tick=self._report,
                late=self._take_late,
            )
            came = granted(self._connection.url, answer)
            is_first_by_name = self._request.name is not None and not self._outage.was_there
            if came == "unclear" or (came == "none free" and is_first_by_name):
                check_there_is(self._connection, self._request, self._owner)
        except Loss as loss:
            if self._late is not None:
                came, self._late = self._late, None
                self._outage.is_over()
                return came
            self._is_missing = True
            return self._look_for(loss, until)
        except (NotSent, Refused) as failure:
            self._outage.note(failure)
            return None
        self._outage.is_over()
        if isinstance(came, Granted):
            return came
        if self._next_report is None:
            self._next_report = self._clock.elapsed()
            if self._request.count > 1:
                self._tell_if_too_few()
        return None

    def _tell_if_too_few(self) -> None:
        """Tell who waits for more than there are, for ever perhaps; a pool may still grow."""
        pool_type, wanted = self._request.type, self._request.count
        with contextlib.suppress(NotSent, Loss, Refused, NotFound):
            found = look(self._connection, pool_type, seconds=_LOOK_SECONDS)
            there = sum(found.states.values())
            if there < wanted:
                has = f'Boskos has only {counted(there, "resource")} of type "{pool_type}"'
                self._patience.warn(f"{has}; this request for {wanted} waits until it has more")

    def _call(self) -> Call:
        if self._request.name is not None:
            return requests.acquire_by_name(self._address, self._request.name, self._owner)
        waits = self._patience.wait_seconds != 0
        request_id = f"{self._owner}/{self._asked}" if waits else None
        return requests.acquire(self._address, self._request.type, self._owner, request_id)

    def _request_seconds(self, until: float | None) -> float:
        if until is None or self._patience.wait_seconds == 0:
            return _REQUEST_SECONDS
        left = max(0.0, until - self._clock.elapsed())
        return min(left + _BEYOND_DEADLINE_SECONDS, _REQUEST_SECONDS)

    def _taken(self, came: Granted) -> str | None:
        """What was granted, unless it isn't what was asked for."""
        if came.type not in ("", self._request.type):
            self._give_back(self._owner, came.name)
            raise NotFound(f"{came.name} is of type {came.type}, not {self._request.type}")
        if came.name in self._got:
            return None  # it was taken from us, and is ours anew: all is given back
        self._got[came.name] = self._asked_at + self._address.renew_seconds
        return came.name

    # ---- what is lost

    def _look_for(self, loss: Loss, until: float | None) -> Granted | None:
        """After a lost answer see what it may have carried, before anything is asked again."""
        while True:
            self._outage.note(loss)
            try:
                return self._found_after(loss)
            except (NotSent, Loss, Refused) as failure:
                if until is not None and self._clock.elapsed() >= until:
                    return None
                self._outage.note(failure)
                self.pause(self._ask_seconds())

    def _found_after(self, loss: Loss) -> Granted | None:
        name = self._request.name
        if name is not None:
            is_ours = self._holding.renew_one(self._owner, name, had=1, seconds=_LOOK_SECONDS)
            return Granted(name, "") if is_ours else None
        more = self._count_lost(self._connection, _LOOK_SECONDS)
        if more:
            self._tell_of(more)
            self._asked += 1  # the place in the queue went with it
            if self._lost.number >= _MOST_LOSSES:
                lost = f"the answers of {_MOST_LOSSES} grants were lost"
                raise BackendUnreachable(f"{loss}; {lost}, so leasectl gave up")
        return None

    def _count_lost(self, connection: BoskosConnection, seconds: float) -> int:
        named, asked_at = len(self._got), self._asked_at
        return self._lost.count(connection, named, asked_at=asked_at, seconds=seconds)

    def _take_late(self, answer: Answer | None) -> None:
        """Note what was granted while a request was given up."""
        if answer is None:
            self._is_missing = self._may_come_late = True
            return
        try:
            came = granted(self._connection.url, check_allowed(self._connection.url, answer))
        except Loss:
            self._is_missing = True
            return
        except LeaseError:
            return
        if isinstance(came, Granted):
            self._late = came

    def _keep_late(self, name: str) -> None:
        """Record a late grant; its requester gives it back."""
        self._got[name] = self._clock.elapsed()
        with contextlib.suppress(LeaseError):
            if self._journal.arrived(name) is not None:
                return
        try:
            self.give_back(name)
        except LeaseError as error:
            self._patience.warn(f"{name} may stay leased to {self._owner}: {error}")

    def _look_for_the_last_time(self, *, gives_up: bool) -> None:
        """See whether there is more than can be named, if an answer is missing; raises nothing."""
        if not self._is_missing:
            return
        try:
            more = self._count_lost(self._plain_connection, _LAST_LOOK_SECONDS)
            if more:
                self._tell_of(more)
            elif self._may_come_late and gives_up:
                self._patience.warn(self._note().possible())
        except LeaseError:
            self._patience.warn(self._note().possible())
            if gives_up:
                with contextlib.suppress(LeaseError):
                    self._journal.to_undo()  # by whoever goes on, it is looked for once more

    def _tell_of(self, number: int) -> None:
        self._patience.warn(self._note().certain(number))

    def _note(self) -> LostNote:
        return LostNote(self._address, self._request.type, self._owner, self._clock.wall())

    # ---- the time in between

    def _wait_to_ask_again(self, until: float | None) -> bool:
        """Let a moment pass; returns whether what has arrived is ours still."""
        again = self._clock.elapsed() + self._ask_seconds()
        again = again if until is None else min(again, until)
        while True:
            now = self._clock.elapsed()
            if now >= again:
                return True
            due = min(self._got, key=self._got.__getitem__, default=None)
            if due is not None and now >= self._got[due]:
                if not self._renew(due):
                    return False
                continue
            renew_at = None if due is None else self._got[due]
            self._connection.pause(earliest(again, renew_at, self._report(now)))

    def _renew(self, name: str) -> bool:
        sent_at = self._clock.elapsed()
        self._got[name] = sent_at + self._address.renew_seconds
        try:
            had = len(self._got) + self._lost.number
            return self._holding.renew_one(self._owner, name, had=had, seconds=_LOOK_SECONDS)
        except (NotSent, Loss, Refused):
            self._got[name] = self._clock.elapsed() + _RENEW_AGAIN_SECONDS
            return True

    def _ask_seconds(self) -> float:
        shortest, longest = _ASK_SECONDS
        seconds = shortest + (longest - shortest) * self._chance()
        return min(seconds, self._address.queue_seconds * _SHARE_OF_QUEUE)

    def _report(self, now: float) -> float | None:
        if self._patience.report is None or self._next_report is None:
            return None
        if now >= self._next_report:
            self._patience.report(Progress(waited_seconds=now - self._start))
            self._next_report = now + self._patience.report_seconds
        return self._next_report

    def _no_lease(self) -> LeaseError:
        failure = self._outage.failure
        if failure is not None and not self._outage.was_there:
            return failure
        waited = format_duration(self._clock.elapsed() - self._start)
        detail = "" if failure is None else f": {failure}"
        what = self._request.name or self._request.type
        hint = ""
        if self._patience.wait_seconds and self._request.name is None:  # else it has no place
            hint = short_wait_hint(self._patience.wait_seconds, self.ghost_seconds)
        return NoLease(f'no lease of "{what}" within {waited}{detail}{hint}')
