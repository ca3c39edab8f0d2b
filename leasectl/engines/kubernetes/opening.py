"""Open the engine for a namespace; tell when its cluster was restored from a backup.

After a restore, the objects are of an earlier time: what was granted since is free, what was
released is held again, and fences may repeat. A list that is older than one before shows it. The
process that sees it warns its user. It writes into each pool a random epoch, by which all others
forget what they have observed (`observed`), and the largest version that it had seen, above which
fences continue. The object beside the pools has that version too, for pools that are created later.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import with_belonging
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.engine import ClusterSides
from leasectl.engines.cluster.events import ClusterEvents
from leasectl.engines.cluster.objects import (
    BelongingObject,
    Change,
    Identity,
    PoolObject,
    Selection,
    Told,
)
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes.api.address import leases
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.rules.membership import Pools
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.own_record import OwnRecord
    from leasectl.engines.kubernetes.posting import Posting
    from leasectl.engines.pool_admin import EventLog


class Opened(ClusterSides):
    """The pools in one namespace, from all sides, as `Sides` has them.

    Args:
        context: Of that namespace.
        objects: The Leases there.
        own: Where the state directory has the events of what was done by it; None for nowhere.
    """

    def __init__(self, context: Context, objects: KubernetesObjects, own: OwnRecord | None) -> None:
        super().__init__(context)
        self.objects = objects
        self._own = own

    @property
    def events(self) -> EventLog:
        from leasectl.engines.kubernetes.event_log import KubernetesEventLog

        own = None if self._own is None else self._own.log()
        return KubernetesEventLog(self.objects.api, self.objects.collection.namespace, own=own)


def open_kubernetes(
    api: Api,
    namespace: str,
    *,
    state_id: str,
    observed_path: str | None = None,
    lost: LostListener = lambda claim_key, names: None,
    clock: Clock,
    caller: str = "",
    own: OwnRecord | None = None,
    posting: Posting | None = None,
    only_looks: bool = False,
    warn: Callable[[str], object] = lambda text: None,
) -> Opened:
    """Open the pools in a namespace; nothing is asked of the cluster yet.

    Args:
        api: The API of the cluster.
        namespace: The namespace of the Leases.
        state_id: The name of the state directory in which claim keys are unique.
        observed_path: The file in which its processes keep their observations; None for none.
        lost: Told of leases that ended without a release.
        clock: Where times come from.
        caller: Who creates and changes pools, for the record of events.
        own: The state directory's record of its own events; None for none.
        posting: Sends events to the cluster; None if no events are kept.
        only_looks: Nothing is written.
        warn: Called once with a line for people if the cluster was restored from a backup, or a
            pool deleted by hand.
    """
    observed = Observed(clock, observed_path)
    objects = KubernetesObjects(api, leases(namespace), observed)
    post = _post(own, posting)
    if post is not None:
        objects.post = post
    context = Context(
        objects,
        observed,
        ClusterEvents(are_kept=post is not None, clock=clock, caller=caller),
        state_id=state_id,
        lost=lost,
        clock=clock,
        only_looks=only_looks,
        warn=warn,
    )
    if not only_looks:
        objects.restored = partial(note_restored, context, namespace)
    return Opened(context, objects, own)


def _post(own: OwnRecord | None, posting: Posting | None) -> Callable[[Told], object] | None:
    """What writes events, to the state directory and to the cluster; None where nothing does."""
    if posting is None or (own is not None and not own.is_kept):
        return None

    def post(told: Told) -> None:
        if own is not None:
            for each in told.events:
                own.add(each)
        of_pool = (Identity(object_of_pool(told.events[-1].type)),)
        posting.send(told._replace(about=told.about or of_pool))

    return post


def note_restored(context: Context, namespace: str, before: int, version: int) -> None:
    """Warn the user that a cluster was restored, and mark its pools for all other processes.

    Args:
        context: The context of the namespace.
        namespace: The namespace of the Leases.
        before: The resourceVersion of an earlier list.
        version: The present one.
    """
    context.warn(
        f'the cluster of namespace "{namespace}" was restored from a backup (resourceVersion '
        f"{version} after {before}). It doesn't know leases granted since that backup, so others "
        "may get the same resources; see: leasectl status, leasectl doctor"
    )
    epoch, floor = secrets.token_hex(8), before + 1  # so that no fence comes again

    def noted(there: PoolObject | BelongingObject) -> Change:
        return Change(there, there._replace(epoch=epoch, floor=max(floor, there.floor)))

    objects = context.objects
    with contextlib.suppress(LeaseError):  # the next process that looks sees it, too
        nothing = with_belonging(None, objects.name_of("belonging"), Pools(frozenset()))
        objects.write(Change(None, nothing))  # unless it is there
        for each in objects.list(Selection(kinds=("pool", "belonging"))).items:
            if isinstance(each, (PoolObject, BelongingObject)):
                context.change(each, noted)
