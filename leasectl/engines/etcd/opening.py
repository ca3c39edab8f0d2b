"""Open the engine for a URL."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.engine import EtcdEngine
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import ATTEMPT_SECONDS, Gateway
from leasectl.engines.etcd.keys import Keys
from leasectl.http.exchange import trust_for
from leasectl.http.settings import Settings
from leasectl.state.event import Kept
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.etcd.claims.notes import EtcdNotes
    from leasectl.engines.etcd.events.log import EtcdEventLog
    from leasectl.engines.etcd.members.members import EtcdMembers
    from leasectl.engines.etcd.pools.pools import EtcdPools
    from leasectl.engines.etcd.values import EtcdValues


class Opened(NamedTuple):
    """The pools below one prefix of a cluster, from all sides, as `Sides` has them."""

    gateway: Gateway
    engine: EtcdEngine
    claims: EtcdClaims
    keys: Keys
    clock: Clock
    written: EtcdEvents
    lost: LostListener
    caller: str

    @property
    def pools(self) -> EtcdPools:
        from leasectl.engines.etcd.pools.pools import EtcdPools

        return EtcdPools(
            self.gateway,
            self.keys,
            self.written,
            self.claims,
            lost=self.lost,
            clock=self.clock,
            caller=self.caller,
        )

    @property
    def events(self) -> EtcdEventLog:
        from leasectl.engines.etcd.events.log import EtcdEventLog

        return EtcdEventLog(self.gateway, self.keys)

    @property
    def members(self) -> EtcdMembers:
        return self.pools.members

    @property
    def notes(self) -> EtcdNotes:
        from leasectl.engines.etcd.claims.notes import EtcdNotes

        return EtcdNotes(self.gateway, self.keys, self.claims, self.written, clock=self.clock)

    @property
    def values(self) -> EtcdValues:
        from leasectl.engines.etcd.values import EtcdValues

        return EtcdValues(self.gateway, self.keys, self.claims, self.written, clock=self.clock)


def open_gateway(
    url: str,
    settings: Settings,
    *,
    clock: Clock,
    deadline_seconds: float = 10.0,
    attempt_seconds: float = ATTEMPT_SECONDS,
    rest_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> Gateway:
    """Open a cluster's gateway; nothing is asked of it yet, and no file is read.

    Args:
        url: As `parse_etcd_url` reads it.
        settings: How to talk to it.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        attempt_seconds: How long one of them may, at one member.
        rest_seconds: For how long nobody is asked again when nobody has answered in time.
        pause: Called with seconds between two tries.
    """
    address = parse_etcd_url(url)
    return Gateway(
        address.endpoints,
        clock=clock,
        deadline_seconds=deadline_seconds,
        attempt_seconds=attempt_seconds,
        rest_seconds=rest_seconds,
        pause=pause,
        trust=trust_for(address.endpoints[0], settings),
        user_file=settings.user_file,
        prefix=address.prefix,
    )


def open_etcd(
    url: str,
    gateway: Gateway,
    *,
    state_id: str,
    lost: LostListener,
    clock: Clock,
    caller: str = "",
    kept: Kept | None = None,
) -> Opened:
    """Open the pools that a URL names; nothing is asked of the cluster yet.

    Args:
        url: As `parse_etcd_url` reads it.
        gateway: As `open_gateway` made it of the same URL.
        state_id: Names where claim keys are unique.
        lost: Told of leases that went away without having been given back.
        clock: Where times come from.
        caller: Who makes and changes pools, for the record of events.
        kept: Which events are kept; None for as whoever was here before said.
    """
    keys = Keys(parse_etcd_url(url).prefix, state_id)
    return open_below(keys, gateway, lost=lost, clock=clock, caller=caller, kept=kept)


def open_below(
    keys: Keys,
    gateway: Gateway,
    *,
    lost: LostListener,
    clock: Clock,
    caller: str = "",
    kept: Kept | None = None,
) -> Opened:
    """Open the pools below some keys, as `open_etcd`."""
    events = EtcdEvents(gateway, keys, clock=clock, kept=kept)
    claims = EtcdClaims(gateway, keys, events, lost=lost, clock=clock)
    engine = EtcdEngine(gateway, keys, events, claims, clock=clock)
    return Opened(gateway, engine, claims, keys, clock, events, lost, caller)
