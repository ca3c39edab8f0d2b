"""Acquire: keys, lost answers, late grants.

ci-operator's server has no request keys: a reply that is lost may have carried a grant. So a
request is repeated at most once for each loss, and the record says that a lease may be lost. Each
request of `leasectl`'s carries a key all the same, ``<handle>/<acquisition>/<index>``: a server
that heeds it answers a repetition with what the first got, and then nothing was lost. A reverse
proxy in front of such a server ends each request that waits longer than its read timeout; the
request is sent again then, as often as needed, and keeps its queue position. While the server is
away, the reverse proxy answers for it (502, 503, 504), and nobody tells whether the server heeds
keys. So a lost answer is *unsettled* until the server itself has answered.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable

from leasectl.backends.contract import Patience, Progress, RemoteJournal
from leasectl.backends.one_by_one import acquire_one_by_one, short_wait_hint
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.protocol import (
    ACQUIRE,
    acquire_query,
    granted,
    heeds,
    is_from_proxy,
    is_success,
    names_in,
    with_count,
    with_key,
)
from leasectl.backends.proxy.releases import Releases
from leasectl.backends.release_tries import Unaccounted
from leasectl.backends.unanswered import (
    Loss,
    NotSent,
    Refused,
    TimeOver,
    trying_again,
    words_of,
)
from leasectl.errors import BackendUnreachable, CanNeverBeMet, NoLease
from leasectl.http.messages import Answer, encode_query
from leasectl.model import Lease, Request
from leasectl.system.backoff import Backoff, retry
from leasectl.system.clock import Clock
from leasectl.system.poll import sleep
from leasectl.text.durations import format_duration
from leasectl.text.naming import is_resource_name
from leasectl.text.wording import printable

# How long a server may be away, or fail, from when it first did, for a request without a limit: so
# there is always a second try.
CONNECT_SECONDS = 10.0
# The last try is so long before it is over: the pause before it ends then.
_LAST_TRY_SECONDS = 0.2
_SHORTEST_PAUSE_SECONDS = 0.01
# For so long Boskos keeps the place of who waited and went away, and grants it to nobody else:
# --request-ttl. A server that heeds keys knows at once.
GHOST_SECONDS = 30.0
# Before what was lost is asked for again: who broke a connection has another at once, what stands
# before a server that is being restarted answers for it (502) until it is there.
_AFTER_LOSS_SECONDS = (0.3, 3.0)
MOST_LOSSES = len(_AFTER_LOSS_SECONDS) + 1
# An answer lost sooner isn't the work of a read timeout: it counts as a failure that may pass.
_QUICK_LOSS_SECONDS = 1.0
# For the question whether a server heeds keys.
_LOOK_SECONDS = 5.0
# Whoever gives up wants to end.
UNDO_SECONDS = 0.3
# The server doesn't say that it makes a request wait; one that takes this long does.
FIRST_REPORT_SECONDS = 1.0
_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=5.0, chance=1.0)


class Acquisition:
    """As many single grants as are wanted, or none; a `Grants`.

    Args:
        url: Of the proxy.
        connection: How to talk to it.
        releases: The same proxy's.
        request: What is wanted.
        journal: Keeps the record in step.
        patience: How long to wait.
        clock: Where times come from.
    """

    def __init__(
        self,
        url: str,
        connection: Connection,
        releases: Releases,
        *,
        request: Request,
        journal: RemoteJournal,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._url = url
        self._connection = connection
        self._releases = releases
        self._request = request
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._start = clock.elapsed()
        self._deadline = patience.until(self._start)
        self._next_report = self._start + FIRST_REPORT_SECONDS
        self._is_there = False  # or was: it has answered, or taken a request
        self._failing_since: float | None = None
        self._failure: Exception | None = None
        self._got: set[str] = set()
        self._heeds_keys = False
        self._asked = 0
        self._losses = 0  # of answers, where the server isn't known to heed keys
        self._has_lost = False  # an answer, in either case
        self._unsettled: tuple[Loss, bool] | None = None  # the last loss, and whether it was quick
        self._open_key: str | None = None  # of the request that is under way
        self._key = journal.key

    def take(self) -> tuple[Lease, ...]:
        """Get all, or nothing that isn't on record.

        Raises:
            NoLease: Not before the deadline, ours or the server's.
            LeaseError: The server refused, or what ended the wait.
        """
        try:
            leases = acquire_one_by_one(
                self,
                self._request.count,
                self._journal,
                deadline=self._deadline,
                now=self._clock.elapsed,
            )
            if leases is None:
                hint = short_wait_hint(self._patience.wait_seconds, self.ghost_seconds)
                raise self._no_lease(str(self._failure) if self._failure else None, hint)
        except BaseException:
            self._undo_losses()
            raise
        return leases

    def ask_for_one(self, until: float | None) -> str | None:
        if self._asked == 1 and self._heeds_keys:
            self._check_capacity()
        self._key = self._open_key = f"{self._journal.key}/{self._asked}"
        self._asked += 1
        self._failing_since = None
        try:
            name = retry(
                lambda: self._try(until),
                on=(NotSent, Refused),
                backoff=_BACKOFF,
                is_over=lambda _: self._room(until) < _SHORTEST_PAUSE_SECONDS,
                sleep=lambda seconds: self._rest(seconds, until),
                note=self._note_failure,
            )
        except TimeOver:
            self._undo_open()
            return None
        except (NotSent, Refused):
            if until is None or not self._is_there or self._given_up_at() < until:
                raise
            self._undo_open()
            return None
        self._open_key = None
        if name in self._got:
            raise BackendUnreachable(
                f"{self._url} granted {name} twice at once; leasectl gives all resources back"
            )
        self._got.add(name)
        self._failure = None
        return name

    def _check_capacity(self) -> None:
        """Wait for no more than the pool has, as far as a server of ours tells: others don't.

        Raises:
            CanNeverBeMet: It has fewer.
        """
        from leasectl.backends.proxy.status import capacity_of
        from leasectl.engines.refusals import too_few

        pool_type, count = self._request.type, self._request.count
        capacity = capacity_of(self._url, self._connection, pool_type)
        if capacity is not None and capacity < count:
            raise too_few(pool_type, capacity, count, kind=CanNeverBeMet)

    def give_back(self, name: str) -> None:
        remark = self._releases.give_back(name, self._journal.key)
        if isinstance(remark, Unaccounted):
            self._patience.warn(remark)
        self._got.discard(name)

    @property
    def ghost_seconds(self) -> float:
        return 0.0 if self._heeds_keys else GHOST_SECONDS

    def pause(self, seconds: float) -> None:
        now = self._clock.elapsed
        sleep(interrupts=self._patience.interrupts, until=now() + seconds, now=now)

    def _rest(self, seconds: float, until: float | None) -> None:
        """Pause, as far as that leaves time for one more try."""
        self.pause(min(seconds, max(0.0, self._room(until))))

    def _room(self, until: float | None) -> float:
        """Return for how long to pause; negative if there is no time for another try."""
        limit = self._given_up_at()
        if until is not None:
            limit = min(until, limit)
        return limit - _LAST_TRY_SECONDS - self._clock.elapsed()

    def _given_up_at(self) -> float:
        """Return when the server is given up, if it goes on to fail."""
        since = self._clock.elapsed() if self._failing_since is None else self._failing_since
        if isinstance(self._failure, NotSent) and self._failure.lasting and not self._is_there:
            return since + CONNECT_SECONDS
        return since + self._patience.server_seconds(CONNECT_SECONDS)

    def _try(self, until: float | None) -> str:
        try:
            name = self._ask_until_answered(until)
        except (NotSent, Refused) as error:
            self._is_there = self._is_there or isinstance(error, Refused)
            if self._failing_since is None:
                # Not sooner: a server that goes while it lets us wait may be restarted.
                self._failing_since = self._clock.elapsed()
            self._failure = error
            raise
        self._is_there = True
        return name

    def _note_failure(self, failures: int, error: Exception) -> None:
        if failures == 1 and self._patience.report:
            self._patience.warn(trying_again(error))

    def _ask_until_answered(self, until: float | None) -> str:
        headers = with_key(self._key)
        if self._asked == 1:
            headers.update(with_count(self._request.count))
        while True:
            self._settle(until)
            since = self._clock.elapsed()
            try:
                answer = self._connection.ask(
                    ACQUIRE,
                    params=acquire_query(self._request.type),
                    headers=headers,
                    interrupts=self._patience.interrupts,
                    until=until,
                    tick=self._report,
                    late=self._take_late,
                )
                return self._name_in(answer)
            except Loss as loss:
                self._is_there = True
                self._record_loss()
                is_quick = self._clock.elapsed() - since < _QUICK_LOSS_SECONDS
                self._unsettled = (loss, is_quick)

    def _settle(self, until: float | None) -> None:
        """Find out what the last loss means, if it isn't known yet.

        Raises:
            NotSent, Refused: The server can't tell now, or the loss is one that may pass.
            BackendUnreachable: There were too many.
        """
        if self._unsettled is None:
            return
        loss, is_quick = self._unsettled
        if not self._heeds_keys:
            self._heeds_keys = self._is_key_heeded(until)
        self._unsettled = None
        if not self._heeds_keys:
            self._note_loss(loss)
            self._rest(_AFTER_LOSS_SECONDS[self._losses - 1], until)
        elif is_quick:
            raise Refused(str(loss)) from loss
        else:
            self._failing_since = None

    def _is_key_heeded(self, until: float | None) -> bool:
        """Ask a server whether it heeds keys: it sends the key back with an answer of no leases.

        Raises:
            NotSent, Refused: The server isn't there, or a proxy answers for it.
            TimeOver: There is no time to ask.
        """
        seconds = _LOOK_SECONDS
        if until is not None:
            seconds = min(seconds, until - self._clock.elapsed())
        if seconds <= 0:
            raise TimeOver(f"no answer from {self._url} in time")
        path = f"{ACQUIRE}?{encode_query({**acquire_query(self._request.type), 'count': '0'})}"
        try:
            answer = self._connection.tell(path, {}, headers=with_key(self._key), seconds=seconds)
        except Loss as loss:
            raise Refused(str(loss)) from loss
        if is_from_proxy(answer):
            raise Refused(words_of(self._url, answer))
        return heeds(answer, self._key)

    def _name_in(self, answer: Answer) -> str:
        if heeds(answer, self._key):
            self._heeds_keys = True  # but a request that is late may still come after all releases
        try:
            names = granted(self._url, answer)
        except NoLease as refusal:
            raise self._no_lease(str(refusal)) from None
        if len(names) == 1 and is_resource_name(names[0]):
            return names[0]
        self._take_to_give_back(names)
        raise BackendUnreachable(
            f"{self._url} granted more names than requested, or invalid ones "
            f"({printable(','.join(names))}); leasectl gives them back"
        )

    def _note_loss(self, loss: Loss) -> None:
        self._losses += 1
        if self._losses > 1:  # the first is on record
            self._journal.lost_reply()
        self._patience.warn(
            f"{loss}; a lease of {self._request.type} may have been granted and stay leased until "
            "the job ends"
        )
        if self._losses >= MOST_LOSSES:
            raise BackendUnreachable(f"{loss}, {self._losses} times; gave up") from loss

    def _record_loss(self) -> None:
        """Record that a request may still be under way: a release withdraws its key then."""
        if not self._has_lost:
            self._has_lost = True
            self._journal.lost_reply()

    def _take_late(self, answer: Answer | None) -> None:
        """Record what was granted while the request was given up; its requester returns it."""
        names = names_in(answer) if answer is not None and is_success(answer) else None
        self._take_to_give_back(names or ())
        if answer is not None and heeds(answer, self._key):
            self._heeds_keys = True
        if answer is None:
            self._losses += 1
            self._has_lost = True
            self._journal.lost_reply()
            self._patience.warn(
                f"the request was withdrawn, but {self._url} didn't confirm that; a lease of "
                f"{self._request.type} may still be granted, and stay leased until the job ends"
            )

    def _take_to_give_back(self, names: Iterable[str]) -> None:
        """Have each of some names be on record, so that it goes back with what has arrived; what
        can't be is given back now, whatever comes of the others."""
        for name in dict.fromkeys(names):
            if name in self._got or (
                is_resource_name(name) and self._journal.arrived(name) is not None
            ):
                continue
            try:
                self._releases.give_back(name, self._key)
            except BackendUnreachable as error:
                self._patience.warn(f'"{printable(name)}" may stay leased: {error}')

    def _undo_losses(self) -> None:
        """Give back what lost answers may have carried, if the server knows of keys."""
        if not self._has_lost:
            self._undo_open()
        else:
            try:
                if self._releases.undo(self._journal.key, seconds=UNDO_SECONDS):
                    self._journal.found()
            except BackendUnreachable:
                self._journal.to_undo()

    def _undo_open(self) -> None:
        """Tell the server to forget a request that was given up."""
        if self._heeds_keys and self._open_key is not None:
            with contextlib.suppress(BackendUnreachable):
                self._releases.undo(self._open_key, seconds=UNDO_SECONDS)
        self._open_key = None

    def _report(self, now: float) -> float | None:
        if self._patience.report is None:
            return None
        if now >= self._next_report:
            given_up = None
            if self._failing_since is not None and self._given_up_at() < math.inf:
                given_up = self._given_up_at() - now
            waited = now - self._start
            self._patience.report(Progress(waited_seconds=waited, gives_up_in_seconds=given_up))
            self._next_report = now + self._patience.report_seconds
        return self._next_report

    def _no_lease(self, words: str | None = None, hint: str = "") -> NoLease:
        waited = format_duration(self._clock.elapsed() - self._start)
        detail = f": {words}" if words else ""
        return NoLease(f'no lease of "{self._request.type}" within {waited}{detail}{hint}')
