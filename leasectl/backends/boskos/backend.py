"""Boskos as a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.boskos.acquisition import BoskosAcquisition
from leasectl.backends.boskos.connection import BoskosConnection, check_is_boskos, metric_of
from leasectl.backends.boskos.holding import Holding, LostNote, look
from leasectl.backends.boskos.requests import (
    parse_boskos_url,
    sign_of_life,
    type_of,
    with_login,
)
from leasectl.backends.kinds import Backend, lacking, only_ttl
from leasectl.backends.release_tries import ReleaseTries
from leasectl.backends.servers import ClosingRenewals, Timing, TypeCounts

if TYPE_CHECKING:
    from leasectl.backends.contract import Patience, RemoteJournal
    from leasectl.backends.kinds import Context
    from leasectl.backends.servers import Renew, RenewalTerms
    from leasectl.http.settings import Settings
    from leasectl.model import Claimant, ReleasedBy, Request
    from leasectl.state.directory import State
    from leasectl.system.poll import Interrupt

_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_PROBE_SECONDS = 2.0
_COUNT_SECONDS = 10.0


class BoskosBackend(Backend):
    """Leases from Boskos, where a claim key is called an owner."""

    title = "Boskos"
    prefix = "boskos+http://"
    choice = "boskos+http://HOST"
    help = "boskos+http://HOST[?expire=30m] (over TLS boskos+https://)"
    can_be_served = True
    default_ttl_seconds = 1800.0
    is_ttl_in_url = True
    claims_by_identity = True
    counts_types = True
    pools_are = (
        "defines its pools in its own configuration file (its --config, usually a ConfigMap): "
        "change them there; show one with: leasectl status POOL"
    )

    def __init__(self, context: Context, state: State) -> None:
        super().__init__(context, state)
        self._connection = _connection(context)
        self._holding = Holding(self._connection, clock=context.clock)
        self._tries = ReleaseTries(context, self._connection.url)
        self._warn = context.warn
        self._clock = context.clock

    @classmethod
    def check_url(cls, url: str) -> None:
        parse_boskos_url(url)

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        """Refuse options that Boskos knows nothing of."""
        for option, given in (
            ("--where", bool(request.where)),
            ("--priority", request.priority != 0),
        ):
            if given:
                raise lacking(f"{option} is not supported by Boskos")

    @classmethod
    def locate(cls, url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
        """Add the user, if a server in front of Boskos needs one."""
        return with_login(settings, environment)

    @classmethod
    def timing(cls, url: str) -> Timing:
        """Return the reaper's time, as the address gives it."""
        address = parse_boskos_url(url)
        return Timing(address.ttl_seconds, address.reaper_seconds, address.renew_seconds)

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        """Implements `Backend`. A try takes at most a sixth of the ttl."""
        connection = _connection(context)
        holding = Holding(connection, clock=context.clock)
        seconds = terms.ttl_seconds / 3
        return ClosingRenewals(
            lambda key, names: holding.renew(key, names, seconds=seconds), connection.close
        )

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None]:
        connection = _connection(context)
        call = sign_of_life(connection.address)
        return lambda: check_is_boskos(connection.url, connection.ask(call, seconds=_PROBE_SECONDS))

    @classmethod
    def counts(
        cls, context: Context, pool_type: str, *, interrupts: Sequence[Interrupt] = ()
    ) -> TypeCounts:
        connection = _connection(context)
        told = metric_of(connection.interrupted_by(interrupts), pool_type, seconds=_COUNT_SECONDS)
        return TypeCounts(pool_type, told.states, told.owners, connection.address.free)

    def close(self) -> None:
        self._connection.close()

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        self.check_request(claimant.request, patience.wait_seconds)
        journal.enqueuing()
        acquisition = BoskosAcquisition(
            self._connection,
            self._give_back,
            claimant=claimant,
            journal=journal,
            patience=patience,
            clock=self._clock,
        )
        journal.granted(acquisition.take())

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterator[str]:
        """Implements `Backend.release`; other grants of the key are only reported."""
        if not names:
            self._tell_of_more(claim_key)
        return self._tries.give_all_back(names, lambda name: self._holding.sender(claim_key, name))

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        address = self._connection.address
        if ttl_seconds is not None and ttl_seconds not in (
            address.reaper_seconds,
            address.ttl_seconds,
        ):
            raise only_ttl(self.url, address.reaper_seconds)
        until = self._clock.elapsed() + _RENEW_SECONDS
        return self._tries.until_it_works(
            lambda: self._holding.renew(
                claim_key, names, seconds=max(0.0, until - self._clock.elapsed())
            ),
            until,
        )

    def _give_back(self, owner: str, name: str) -> None:
        self._tries.give_back(name, self._holding.sender(owner, name))

    def _tell_of_more(self, owner: str) -> None:
        """Warn of leases of an owner whose names are unknown, after the others are released."""
        pool_type = type_of(owner)
        metric = look(self._connection, pool_type, seconds=_LOOK_SECONDS)
        number = metric.owners.get(owner, 0)
        if number:
            note = LostNote(self._connection.address, pool_type, owner, self._clock.wall())
            self._warn(note.certain(number))


def _connection(context: Context) -> BoskosConnection:
    return BoskosConnection(parse_boskos_url(context.url), context.settings, clock=context.clock)
