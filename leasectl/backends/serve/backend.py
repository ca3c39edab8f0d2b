"""A `leasectl serve` as a backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leasectl.backends.contract import Progress
from leasectl.backends.kinds import Backend, HasSides
from leasectl.backends.proxy.acquisition import CONNECT_SECONDS
from leasectl.backends.proxy.backend import ProxyBackend
from leasectl.backends.serve.connection import SCHEME, Calls
from leasectl.backends.serve.protocol import (
    ACQUIRE,
    ROUND,
    ROUND_SECONDS,
    AcquireBody,
    Granted,
    Renewal,
)
from leasectl.backends.unanswered import Loss, NotSent, Refused, TimeOver, trying_again
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NoLease
from leasectl.model import Lease
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import sleep
from leasectl.text.durations import format_duration

if TYPE_CHECKING:
    from leasectl.backends.contract import Patience, RemoteJournal
    from leasectl.backends.kinds import Context
    from leasectl.backends.servers import ClaimWatch, Renew, RenewalTerms
    from leasectl.engines.pool_admin import Sides
    from leasectl.model import Claimant, ReleasedBy
    from leasectl.state.directory import State

_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=5.0, chance=1.0)
# The server ends a wait at its deadline, and says why. This is for its answer.
ANSWER_SECONDS = 5.0
_PROBE_SECONDS = 2.0
FIRST_REPORT_SECONDS = 1.0


class ServeBackend(Backend):
    """Leases from the pools of a `leasectl serve`."""

    title = "leasectl serve"
    prefix = "leasectl+http://"
    choice = "leasectl+http://HOST:PORT"
    help = "leasectl+http://HOST:PORT (a leasectl serve)"
    has_pools = True
    default_ttl_seconds = 60.0

    def __init__(self, context: Context, state: State) -> None:
        super().__init__(context, state)
        self._calls = Calls(context, seconds=context.release_seconds)
        self._clock = context.clock

    @classmethod
    def check_url(cls, url: str) -> None:
        try:
            ProxyBackend.check_url(url[len(SCHEME) :])
        except InvalidRequest as error:
            raise InvalidRequest(str(error).replace('"http', f'"{SCHEME}http')) from None

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        from leasectl.backends.servers import ClosingRenewals

        calls = Calls(context, seconds=terms.ttl_seconds / 3)

        def renew(claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
            renewal: Renewal = calls.call("engine.renew", claim_key)
            terms.noted(renewal.notes)
            return renewal.names

        return ClosingRenewals(renew, calls.close)

    @classmethod
    def open_claim_watch(
        cls, context: Context, *, state_id: str, claim_key: str, fence: int
    ) -> ClaimWatch:
        from leasectl.backends.serve.watch import ServeWatch

        return ServeWatch(Calls(context), claim_key)

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None]:
        calls = Calls(context, seconds=_PROBE_SECONDS)
        return lambda: calls.call("events.last_number")

    @classmethod
    def pool_types(cls, context: Context, *, seconds: float) -> Sequence[str]:
        pools = cls.open_to_look(context, seconds=seconds).pools.pools()
        return [pool.type for pool in pools]

    @classmethod
    def resource_names(
        cls, context: Context, begin: str, types: Collection[str], *, seconds: float
    ) -> Sequence[str]:
        pools = cls.open_to_look(context, seconds=seconds).pools.pools()
        names = (each.name for p in pools if not types or p.type in types for each in p.resources)
        return [name for name in names if name.startswith(begin)]

    @classmethod
    def open_to_look(cls, context: Context, *, seconds: float) -> Sides:
        from leasectl.backends.serve.sides import ServeSides

        return ServeSides(Calls(context, seconds=seconds))

    @property
    def sides(self) -> Sides:
        from leasectl.backends.serve.sides import ServeSides

        return ServeSides(self._calls)

    events = HasSides.events

    def close(self) -> None:
        self._calls.close()

    @contextmanager
    def limited(self, until: float | None) -> Iterator[None]:
        before, self._calls.until = self._calls.until, until
        try:
            yield
        finally:
            self._calls.until = before

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self._calls.call("engine.withdraw", claim_key, why)

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        if not names:
            from leasectl.engines.rules.events import why_left

            self._calls.call("engine.withdraw", claim_key, why_left(by))
        freed: tuple[str, ...] = self._calls.call("engine.free", claim_key, names or None, by)
        return freed

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        renewal: Renewal = self._calls.call("engine.renew", claim_key, ttl_seconds)
        return renewal.names

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        journal.enqueuing()
        granted = _Acquisition(self._calls, claimant, patience, self._clock).take()
        journal.granted(granted.leases, pool_type=granted.pool_type)


def _progress(sides: Sides, claimant: Claimant, waited_seconds: float, now: float) -> Progress:
    """Return how things stand for a request that waits; ``now`` is wall clock."""
    pools = [pool for each in claimant.request.types for pool in sides.pools.pools(each)]
    places = [
        position
        for pool in pools
        for position, entry in enumerate((e for e in pool.queue if not e.suspended), 1)
        if entry.claim_key == claimant.claim_key
    ]
    held = [each.lease for pool in pools for each in pool.resources if each.lease is not None]
    longest = min(held, key=lambda lease: lease.acquire_time, default=None)
    next_grants = [pool.next_grant_in_seconds for pool in pools]
    return Progress(
        waited_seconds=waited_seconds,
        position=min(places, default=None),
        held=len(held),
        capacity=sum(pool.capacity for pool in pools),
        longest_holder=None if longest is None else longest.holder_identity,
        longest_held_seconds=0.0 if longest is None else max(0.0, now - longest.acquire_time),
        next_grant_in_seconds=min(next_grants, default=0.0) or None,
        pace_seconds=max((pool.settings.pace_seconds for pool in pools), default=0.0),
    )


class _Acquisition:
    """One acquisition: the same request again and again, until the server answers it.

    Its key makes that safe: the server joins a repeated request to the wait of the first, or
    answers it with what the first was granted.
    """

    def __init__(
        self,
        calls: Calls,
        claimant: Claimant,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._claimant = claimant
        self._patience = patience
        self._clock = clock
        self._start = clock.elapsed()
        self._deadline = patience.until(self._start)
        self._next_report = self._start + FIRST_REPORT_SECONDS
        self._failing_since: float | None = None
        self._has_answered = False

    def take(self) -> Granted:
        """Return what the server has granted.

        Raises:
            NoLease: Nothing before the deadline.
            BackendUnreachable: The server was away for too long, or hasn't answered at all.
            LeaseError: The server's refusal, or what ended the wait.
        """
        pauses = Pauses(_BACKOFF)
        while True:
            sent_at = self._clock.elapsed()
            try:
                granted = self._ask()
                if granted is not None:
                    return granted
                self._has_answered, self._failing_since = True, None
            except TimeOver:
                raise self._no_lease(None) from None
            except (NotSent, Loss, Refused) as error:
                now = self._clock.elapsed()
                self._has_answered |= not isinstance(error, NotSent)
                # A wait that a reverse proxy has ended is no outage.
                if self._failing_since is None or (isinstance(error, Loss) and now > sent_at + 1.0):
                    self._failing_since = now
                    pauses.begin_anew()
                    if self._patience.report is not None and not isinstance(error, Loss):
                        self._patience.warn(trying_again(error))
                self._rest(pauses.next(), error)

    def _ask(self) -> Granted | None:
        """Ask for one round; None if it is over, and the request still waits."""
        left = None
        if self._deadline is not None:
            left = max(0.0, self._deadline - self._clock.elapsed())
        until = None if self._deadline is None else self._deadline + ANSWER_SECONDS
        body = AcquireBody(
            self._claimant.claim_key, self._claimant.holder_identity, self._claimant.request, left
        )
        granted: Granted | None = self._calls.post(
            ACQUIRE,
            body._asdict(),
            headers={ROUND: str(ROUND_SECONDS)},
            interrupts=self._patience.interrupts,
            until=until,
            tick=self._report,
        )
        if granted is not None and (
            not isinstance(granted, Granted)
            or len(granted.leases) != self._claimant.request.total
            or not all(isinstance(each, Lease) for each in granted.leases)
        ):
            raise self._calls.malformed()
        return granted

    def _rest(self, seconds: float, error: BackendUnreachable) -> None:
        """Pause, or raise what has to be said if there is no time for another try."""
        now = self._clock.elapsed()
        assert self._failing_since is not None
        given_up_at = self._failing_since + self._patience.server_seconds(CONNECT_SECONDS)
        if self._deadline is not None and now >= self._deadline:
            raise self._no_lease(error) if self._has_answered else error
        if now + seconds >= given_up_at:
            raise error
        sleep(
            interrupts=self._patience.interrupts,
            until=earliest(now + seconds, self._deadline),
            now=self._clock.elapsed,
        )

    def _report(self, now: float) -> float | None:
        if self._patience.report is None:
            return None
        if now >= self._next_report:
            self._next_report = now + self._patience.report_seconds
            progress = Progress(waited_seconds=now - self._start)
            with contextlib.suppress(LeaseError):
                from leasectl.backends.serve.sides import ServeSides

                calls = self._calls.again()  # the wait has the connection
                calls.until = earliest(now + _PROBE_SECONDS, self._deadline)
                sides = ServeSides(calls)
                progress = _progress(
                    sides, self._claimant, progress.waited_seconds, self._clock.wall()
                )
            self._patience.report(progress)
        return self._next_report

    def _no_lease(self, error: BackendUnreachable | None) -> NoLease:
        waited = format_duration(self._clock.elapsed() - self._start)
        detail = "" if error is None else f": {error}"
        return NoLease(f'no lease of "{self._claimant.request.type}" within {waited}{detail}')
