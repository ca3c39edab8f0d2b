"""Open the engine for a URL."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.engine import ClusterSides
from leasectl.engines.cluster.events import ClusterEvents
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.engines.etcd.events import EtcdEvents
from leasectl.engines.etcd.gateway import ATTEMPT_SECONDS, Gateway
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.objects import EtcdObjects
from leasectl.engines.etcd.requests import absent, present, put
from leasectl.http.exchange import trust_for
from leasectl.http.settings import Settings
from leasectl.state.event import Kept
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.etcd.event_log import EtcdEventLog


class Opened(ClusterSides):
    """The pools below one prefix of a cluster, from all sides, as `Sides` has them.

    Args:
        context: Of that prefix.
        objects: What is there.
    """

    def __init__(self, context: Context, objects: EtcdObjects) -> None:
        super().__init__(context)
        self.gateway = objects.gateway
        self.keys = objects.keys

    @property
    def events(self) -> EtcdEventLog:
        from leasectl.engines.etcd.event_log import EtcdEventLog

        return EtcdEventLog(self.gateway, self.keys)


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
    prefix: str,
    gateway: Gateway,
    *,
    state_id: str,
    observed_path: str | None = None,
    lost: LostListener = lambda claim_key, names: None,
    clock: Clock,
    caller: str = "",
    kept: Kept | None = None,
    only_looks: bool = False,
    warn: Callable[[str], object] = lambda text: None,
) -> Opened:
    """Open the pools below a prefix; nothing is asked of the cluster yet.

    Args:
        prefix: Below which everything is.
        gateway: As `open_gateway` made it.
        state_id: Names where claim keys are unique.
        observed_path: Of the file where its processes keep what they have seen; None for none.
        lost: Told of leases that went away without having been given back.
        clock: Where times come from.
        caller: Who makes and changes pools, for the record of events.
        kept: Which events are kept; None for as whoever was here before said.
        only_looks: Whoever looks at pools and names writes nothing.
        warn: Told, in a line for people, of what can't be shown.
    """
    keys = Keys(prefix)
    objects = EtcdObjects(gateway, keys, EtcdEvents(gateway, keys, clock=clock, kept=kept))
    context = Context(
        objects,
        Observed(clock, observed_path, ends=True),
        ClusterEvents(are_kept=kept is None or kept.number > 0, clock=clock, caller=caller),
        state_id=state_id,
        lost=lost,
        clock=clock,
        only_looks=only_looks,
        warn=warn,
    )
    return Opened(context, objects)


def probe(gateway: Gateway, keys: Keys) -> None:
    """Find out whether something could be written below a prefix.

    It is a transaction that would write if a key were there and weren't. A quorum has to agree on
    it, the user has to be allowed to read and to write, and etcd must not be out of space: a read
    that may be out of date, or a transaction of nothing, is answered by a member all alone.

    Args:
        gateway: To the cluster.
        keys: Of the prefix.

    Raises:
        LeaseError: It couldn't, as `Gateway.commit`.
    """
    key = keys.pools()
    gateway.commit((present(key), absent(key)), [put(key, "")])
