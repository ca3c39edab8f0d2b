"""Open the engine for a namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes.api.collection import leases
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.engine import KubernetesEngine
from leasectl.engines.kubernetes.events.events import KubernetesEvents
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.queues.observed import Observed
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.kubernetes.claims.notes import KubernetesNotes
    from leasectl.engines.kubernetes.events.own_record import OwnRecord
    from leasectl.engines.kubernetes.events.posting import Posting
    from leasectl.engines.kubernetes.members.members import KubernetesMembers
    from leasectl.engines.kubernetes.pools.pools import KubernetesPools
    from leasectl.engines.kubernetes.pools.values import KubernetesValues


class Opened(NamedTuple):
    """The pools in one namespace, from all sides, as `Sides` has them."""

    api: Api
    store: Store
    observed: Observed
    claims: Claims
    engine: KubernetesEngine
    clock: Clock
    lost: LostListener
    caller: str
    namespace: str
    own: OwnRecord | None
    only_looks: bool = False
    warn: Callable[[str], object] = lambda text: None

    @property
    def pools(self) -> KubernetesPools:
        from leasectl.engines.kubernetes.pools.pools import KubernetesPools

        return KubernetesPools(
            self.store,
            self.claims,
            self.observed,
            lost=self.lost,
            clock=self.clock,
            only_looks=self.only_looks,
            warn=self.warn,
        )

    @property
    def events(self) -> EventLog:
        from leasectl.engines.kubernetes.events.log import KubernetesEventLog

        return KubernetesEventLog(
            self.api, self.namespace, own=None if self.own is None else self.own.log()
        )

    @property
    def members(self) -> KubernetesMembers:
        from leasectl.engines.kubernetes.members.members import KubernetesMembers

        return KubernetesMembers(
            self.store,
            self.claims,
            self.observed,
            lost=self.lost,
            clock=self.clock,
            only_looks=self.only_looks,
        )

    @property
    def notes(self) -> KubernetesNotes:
        from leasectl.engines.kubernetes.claims.notes import KubernetesNotes

        return KubernetesNotes(self.store, self.claims)

    @property
    def values(self) -> KubernetesValues:
        from leasectl.engines.kubernetes.pools.values import KubernetesValues

        return KubernetesValues(
            self.store, self.claims, tell=self.claims.events.happened, clock=self.clock
        )


def open_kubernetes(
    api: Api,
    namespace: str,
    *,
    state_id: str,
    observed_path: str | None = None,
    lost: LostListener,
    clock: Clock,
    caller: str = "",
    own: OwnRecord | None = None,
    posting: Posting | None = None,
    only_looks: bool = False,
    warn: Callable[[str], object] = lambda text: None,
) -> Opened:
    """Open the pools in a namespace; nothing is asked of the cluster yet.

    Args:
        api: Of the cluster.
        namespace: Where the Leases are.
        state_id: Names where claim keys are unique.
        observed_path: Of the file where its processes keep what they have seen; None for none.
        lost: Told of leases that went away without having been given back.
        clock: Where times come from.
        caller: Who makes and changes pools, for the record of events.
        own: Where a state directory has the events of what was done by it; None for nowhere.
        posting: What sends events to the cluster; None where nothing is told of anything.
        only_looks: Whoever looks at pools and names writes nothing.
        warn: Told, in a line for people, that the cluster was restored from a backup, or a pool
            deleted by hand; of each thing once.
    """
    observed = Observed(clock, observed_path)
    store = Store(api, leases(namespace), state_id, observed)
    if not only_looks:
        store.restored = _note_restored(store, warn)
    events = KubernetesEvents(own, posting, clock=clock, caller=caller)
    claims = Claims(store, observed, lost=lost, clock=clock, events=events)
    engine = KubernetesEngine(store, observed, claims, clock=clock)
    return Opened(
        api,
        store,
        observed,
        claims,
        engine,
        clock,
        lost,
        caller,
        namespace,
        own,
        only_looks,
        _once(warn),
    )


def _once(warn: Callable[[str], object]) -> Callable[[str], object]:
    warned: set[str] = set()

    def warn_of(text: str) -> None:
        if text not in warned:  # whoever looks again and again knows
            warned.add(text)
            warn(text)

    return warn_of


def _note_restored(store: Store, warn: Callable[[str], object]) -> Callable[[int, int], object]:
    def note(before: int, version: int) -> None:
        from leasectl.engines.kubernetes.restored import note_restored

        note_restored(store, warn, before, version)

    return note
