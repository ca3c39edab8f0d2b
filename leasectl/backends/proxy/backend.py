"""ci-operator's lease proxy: POST /lease/acquire and /lease/release, in front of Boskos.

The server queues, and renews for the whole job. It has no request keys: a reply that is lost
may have carried a grant, so a request is repeated at most once for each loss, and the record
says that a lease may be lost. `leasectl serve` speaks the same protocol and honours the key that
every request carries: it sends it back, and then nothing was lost. There a release frees only what
its acquisition got, and one of no names undoes a request whose answer was lost.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Callable, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from leasectl.backends.contract import Patience, Progress, RemoteJournal, Turn
from leasectl.backends.kinds import no_pools, pool_prefixes
from leasectl.engines.contract import PoolAdmin
from leasectl.errors import BackendUnreachable, InvalidRequest, NoLease, NotFound, NotSupported
from leasectl.http.connection import Answer, Connection, Loss, NotSent, TimeOver
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import sleep
from leasectl.text.durations import format_duration, format_seconds
from leasectl.text.naming import is_name
from leasectl.text.printable import printable

CONNECT_SECONDS = 10.0
MOST_LOSSES = 3
# With a part in hand the rest is waited for this long, times 1 to 2, before all is given back:
# two jobs that each hold what the other waits for would wait for ever.
PART_SECONDS = 45.0
# Whoever gives up wants to end.
UNDO_SECONDS = 0.3
LONGEST_BACK_OFF_SECONDS = 60.0
# The server doesn't say that it makes a request wait; one that takes this long does.
FIRST_REPORT_SECONDS = 1.0
IDEMPOTENCY_KEY = "Idempotency-Key"


Result = TypeVar("Result")


class Refused(BackendUnreachable):
    """The server answered with an error that may pass."""


class ProxyBackend:
    """Leases from a lease proxy.

    Args:
        url: ``http://`` or ``https://`` address of the proxy.
        connection: How to talk to it.
        release_seconds: How long a release may take in all.
        clock: Where times come from.
    """

    remote = True

    def __init__(
        self, url: str, connection: Connection, *, release_seconds: float, clock: Clock
    ) -> None:
        self.url = url
        self._connection = connection
        self._release_seconds = release_seconds
        self._clock = clock

    @property
    def pools(self) -> PoolAdmin:
        raise no_pools(self.url)

    def atomic(self) -> AbstractContextManager[object]:
        return nullcontext()

    def turn(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> Turn:
        raise NotSupported(
            f"leases of {self.url} can't be handed on: it is a lease proxy itself; only those of "
            f"{pool_prefixes('and')} can"
        )

    def withdraw(self, claim_key: str) -> None:
        """The process that waits gives up itself; see `Journal`."""

    def renew(self, claim_key: str) -> tuple[str, ...]:
        raise NotSupported(
            f"{self.url} has no renew: the lease proxy renews for the whole job; only leases of "
            f"{pool_prefixes('and')} are renewed by their holder"
        )

    def acquire(
        self, claimant: Claimant, journal: RemoteJournal, patience: Patience
    ) -> tuple[Lease, ...]:
        _check(claimant.request, patience)
        journal.enqueuing()
        acquisition = _Acquisition(self, self._connection, claimant, journal, patience, self._clock)
        try:
            leases = acquisition()
        except BaseException:
            acquisition.undo_losses()
            raise
        journal.granted(leases)
        return leases

    def release(self, claim_key: str, names: Sequence[str]) -> Iterator[str]:
        """Give names back, one a request; yields each as soon as it is certain.

        They share one limit of time: one that hangs or fails doesn't keep the others from being
        released, and has another turn in what time they leave.

        Args:
            owner: The key of the acquisition that got them; empty when that isn't known.
            names: What the server called them. None of them: whatever the key has been granted.

        Raises:
            BackendUnreachable: In the end, when one couldn't be given back in time.
        """
        start = self._clock.elapsed()
        try:
            yield from self._release(claim_key, names, start + self._release_seconds)
        except BackendUnreachable as error:
            spent = format_seconds(self._clock.elapsed() - start)
            raise BackendUnreachable(f"not released within {spent}: {error}") from error

    def _release(self, claim_key: str, names: Sequence[str], until: float) -> Iterator[str]:
        if not names and claim_key:
            self.undo(claim_key)
        left = list(names)
        failure: BackendUnreachable | None = None
        for _ in range(2):
            for turns, name in zip(range(len(left), 0, -1), tuple(left)):
                now = self._clock.elapsed()
                try:
                    self.give_back(name, claim_key, now + (until - now) / turns)
                except BackendUnreachable as error:
                    failure = failure or error
                else:
                    left.remove(name)
                    yield name
        if left and failure is not None:
            raise failure

    def give_back(self, name: str, key: str, until: float | None = None) -> None:
        """Release one name; that it isn't leased (any more) is as good.

        Args:
            name: What the server called it.
            key: Of the acquisition that got it: a server that heeds keys doesn't release what it
                has granted to somebody else since. Empty when that isn't known.
            until: When to stop trying, CLOCK_BOOTTIME in seconds.

        Raises:
            BackendUnreachable: It is not certain that it was released.
        """
        end = until if until is not None else self._clock.elapsed() + self._release_seconds

        def once() -> None:
            left = end - self._clock.elapsed()
            if left <= 0:
                raise Refused(f"{self.url} was given no time to release {printable(name)}")
            answer = self._connection.tell(
                "/lease/release", {"names": [name]}, headers=_with_key(key), seconds=left
            )
            if answer.status not in (200, 204) and "no resource name" not in answer.text:
                raise Refused(_words(self.url, answer))

        self._until_it_works(once, end)

    def undo(self, key: str, *, seconds: float | None = None) -> bool:
        """Give back whatever was granted to requests with a key, and end those that wait.

        It is a release of no names, which means nothing to a server that doesn't heed keys.

        Args:
            key: Of a request or an acquisition.
            seconds: Try once, for so long; None: as often and as long as a release.

        Returns:
            Whether the server heeds keys: then nothing is leased under this one any more.

        Raises:
            BackendUnreachable: It is not certain that it was undone.
        """
        end = self._clock.elapsed() + (self._release_seconds if seconds is None else seconds)

        def once() -> bool:
            answer = self._connection.tell(
                "/lease/release",
                {"names": []},
                headers=_with_key(key),
                seconds=max(0.0, end - self._clock.elapsed()),
            )
            if answer.status == 400:
                return False  # it sees no sense in a release of no names, and never will
            if answer.status not in (200, 204):
                raise Refused(_words(self.url, answer))
            return _heeds(answer, key)

        return once() if seconds is not None else self._until_it_works(once, end)

    def _until_it_works(self, once: Callable[[], Result], end: float) -> Result:
        return Retrying(
            retry=retry_if_exception_type((NotSent, Loss, Refused)),
            wait=wait_random_exponential(multiplier=0.1, max=1),
            stop=lambda state: self._clock.elapsed() + state.upcoming_sleep >= end,
            reraise=True,
        )(once)


class _Acquisition:
    """One acquisition: as many single grants as are wanted, or none."""

    def __init__(
        self,
        backend: ProxyBackend,
        connection: Connection,
        claimant: Claimant,
        journal: RemoteJournal,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._backend = backend
        self._connection = connection
        self._claimant = claimant
        self._request = claimant.request
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._start = clock.elapsed()
        wait = patience.wait_seconds
        self._deadline = None if wait is None else self._start + wait
        self._next_report = self._start + FIRST_REPORT_SECONDS
        self._tried_at = self._failing_since = self._start
        self._asked = 0
        self._losses = 0
        self._key = journal.key

    def __call__(self) -> tuple[Lease, ...]:
        back_off = 1.0
        while True:
            leases: list[Lease] = []
            try:
                while len(leases) < self._request.count:
                    leases.append(self._one(self._limit(part_in_hand=bool(leases))))
                return tuple(leases)
            except TimeOver:
                now = self._clock.elapsed()
                if self._deadline is not None and now >= self._deadline:
                    raise self._no_lease() from None
            self._give_all_back(leases)
            self._pause(random.uniform(0, back_off))
            back_off = min(back_off * 2, LONGEST_BACK_OFF_SECONDS)

    def _limit(self, *, part_in_hand: bool) -> float | None:
        part = PART_SECONDS * random.uniform(1, 2)
        return earliest(self._deadline, self._clock.elapsed() + part if part_in_hand else None)

    def _one(self, until: float | None) -> Lease:
        while True:
            key = f"{self._journal.key}/{self._asked}"
            self._asked += 1
            name = self._ask(key, until)
            lease = self._journal.arrived(name)
            if lease is not None:
                return lease
            # An older release of this name is still under way and could hit the new grant.
            self._backend.give_back(name, key)
            self._pause(random.uniform(0.1, 1))

    def _ask(self, key: str, until: float | None) -> str:
        def over(state: RetryCallState) -> bool:
            # A server that let us wait for a while was there: its failure is a new one.
            if self._clock.elapsed() - self._tried_at > CONNECT_SECONDS:
                self._failing_since = self._clock.elapsed()
            last_try = self._failing_since + CONNECT_SECONDS if until is None else until
            return self._clock.elapsed() + state.upcoming_sleep >= last_try

        retrying = Retrying(
            retry=retry_if_exception_type((NotSent, Refused)),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=over,
            before=self._note_try,
            before_sleep=self._note_retry,
            sleep=self._pause,
            reraise=True,
        )
        return retrying(self._ask_once, key, until)

    def _note_try(self, state: RetryCallState) -> None:
        self._tried_at = self._clock.elapsed()
        if state.attempt_number == 1:
            self._failing_since = self._tried_at

    def _note_retry(self, state: RetryCallState) -> None:
        if state.attempt_number == 1 and self._patience.report and state.outcome:
            self._patience.warn(f"{state.outcome.exception()}; trying again")

    def _ask_once(self, key: str, until: float | None) -> str:
        self._key = key
        while True:
            try:
                answer = self._connection.ask(
                    "/lease/acquire",
                    params={"type": self._request.type, "count": "1"},
                    headers={IDEMPOTENCY_KEY: key},
                    interrupts=self._patience.interrupts,
                    until=until,
                    tick=self._report,
                    late=self._late,
                )
                return self._name_in(answer, key)
            except Loss as loss:
                self._note_loss(loss)

    def _name_in(self, answer: Answer, key: str) -> str:
        if _heeds(answer, key):
            self._journal.found()
        if answer.status == 200:
            return self._only_name(_names_in(answer))
        words = _words(self._backend.url, answer)
        if answer.status == 404:
            raise NotFound(words)
        if 400 <= answer.status < 500:
            raise InvalidRequest(words)
        if "context deadline exceeded" in answer.text:
            raise self._no_lease(words)
        if answer.status in (502, 504):
            raise Loss(words)
        raise Refused(words)

    def _only_name(self, names: Sequence[str] | None) -> str:
        if names is None or not names:
            raise Loss(f"{self._backend.url} answered something else than a name")
        if len(names) == 1 and is_name(names[0]):
            return names[0]
        for name in names:
            self._backend.give_back(name, self._key)
        raise BackendUnreachable(
            f"{self._backend.url} granted what can't be a name or wasn't asked for "
            f"({printable(','.join(names))}); it was given back"
        )

    def _note_loss(self, loss: Loss) -> None:
        self._losses += 1
        self._journal.lost_reply()
        self._patience.warn(
            f"{loss}; a lease of {self._request.type} may have been granted and stay leased until "
            "the job ends"
        )
        if self._losses >= MOST_LOSSES:
            raise BackendUnreachable(f"{loss}, {self._losses} times; gave up") from loss

    def _late(self, answer: Answer | None) -> None:
        """Keep what was granted while we gave up; the service gives back whatever arrived."""
        names = _names_in(answer) if answer is not None and answer.status == 200 else None
        for name in names or ():
            if not is_name(name) or self._journal.arrived(name) is None:
                self._backend.give_back(name, self._key)
        if answer is None:
            self._losses += 1
            self._journal.lost_reply()
            self._patience.warn(
                f"{self._backend.url} didn't answer that it has stopped waiting; a lease of "
                f"{self._request.type} may stay leased until the job ends"
            )

    def undo_losses(self) -> None:
        """Give back what lost answers may have carried, if the server knows of keys."""
        if self._losses:
            try:
                if self._backend.undo(self._journal.key, seconds=UNDO_SECONDS):
                    self._journal.found()
            except BackendUnreachable:
                self._journal.to_undo()

    def _give_all_back(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._backend.give_back(lease.name, self._journal.key)
            self._journal.returned(lease.name)

    def _pause(self, seconds: float) -> None:
        now = self._clock.elapsed
        until = now() + seconds
        sleep(wake_fds=(), interrupts=self._patience.interrupts, until=until, now=now)

    def _report(self, now: float) -> float | None:
        if self._patience.report is None:
            return None
        if now >= self._next_report:
            self._patience.report(Progress(waited_seconds=now - self._start))
            self._next_report = now + self._patience.report_seconds
        return self._next_report

    def _no_lease(self, words: str | None = None) -> NoLease:
        waited = format_duration(self._clock.elapsed() - self._start)
        detail = f": {words}" if words else ""
        return NoLease(f'no lease of "{self._request.type}" within {waited}{detail}')


def _check(request: Request, patience: Patience) -> None:
    """Refuse what the protocol has no words for."""
    for option, given in (
        ("--name", request.name is not None),
        ("--ttl", request.ttl_seconds is not None),
        ("-w 0", patience.wait_seconds == 0),
    ):
        if given:
            raise NotSupported(
                f"{option} is not supported by the lease proxy; {pool_prefixes('and')} can do it"
            )


def _with_key(key: str) -> dict[str, str]:
    return {IDEMPOTENCY_KEY: key} if key else {}


def _heeds(answer: Answer, key: str) -> bool:
    """Tell whether the server heeds keys: it sends them back."""
    return answer.headers.get(IDEMPOTENCY_KEY.lower()) == key


def _names_in(answer: Answer) -> list[str] | None:
    try:
        names = json.loads(answer.text)["names"]
    except (ValueError, KeyError, TypeError):
        return None
    well_formed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if well_formed else None


def _words(url: str, answer: Answer) -> str:
    said = printable(" ".join(answer.text.split()), longest=200)
    return f"{url} answered {answer.status}: {said or 'nothing'}"
