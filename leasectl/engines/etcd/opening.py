"""Open the engine below a prefix, and probe whether it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.engine import ClusterSides
from leasectl.engines.cluster.events import ClusterEvents
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.events import EtcdEvents
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.objects import EtcdObjects
from leasectl.engines.etcd.requests import absent, present, put
from leasectl.state.event import Kept
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.etcd.event_log import EtcdEventLog


class Opened(ClusterSides):
    """The pools below one prefix of a cluster, from all sides, as `Sides` has them.

    Args:
        context: The context of that prefix.
        gateway: The keys there.
    """

    def __init__(self, context: Context, gateway: Gateway) -> None:
        super().__init__(context)
        self.gateway = gateway

    @property
    def events(self) -> EtcdEventLog:
        from leasectl.engines.etcd.event_log import EtcdEventLog

        return EtcdEventLog(self.gateway)


def open_etcd(
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
        gateway: The keys below the prefix.
        state_id: The name of the state directory in which claim keys are unique.
        observed_path: The file in which its processes keep their observations; None for none.
        lost: Told of leases that ended without a release.
        clock: Where times come from.
        caller: Who creates and changes pools, for the record of events.
        kept: Which events are kept; None to go on with the last writer's choice.
        only_looks: Nothing is written.
        warn: Called with a line for people about objects that can't be shown.
    """

    def pack() -> None:
        from leasectl.engines.etcd.packing import pack_a_bucket  # which few processes need

        pack_a_bucket(gateway, clock=clock)

    context = Context(
        EtcdObjects(gateway, EtcdEvents(gateway, clock=clock, kept=kept, pack=pack)),
        Observed(clock, observed_path, ends=True),
        ClusterEvents(are_kept=kept is None or kept.number > 0, clock=clock, caller=caller),
        state_id=state_id,
        lost=lost,
        clock=clock,
        only_looks=only_looks,
        warn=warn,
    )
    return Opened(context, gateway)


def probe(gateway: Gateway) -> None:
    """Check, without writing, that a key could be written below a prefix.

    The transaction would write if a key existed and didn't. A quorum has to agree on it, the user
    has to be allowed to read and write, and etcd must not be out of space. A stale read, or an
    empty transaction, is answered by one member alone.

    Raises:
        LeaseError: It couldn't be written, as `Gateway.commit`.
    """
    key = gateway.keys.pools
    gateway.commit((present(key), absent(key)), [put(key, "")])
