"""Handle a cluster that was restored from a backup.

Everything in it is of an earlier time then: what was had since isn't held there, what was given
back is, and fences may come again. That shows in lists that are older than one before. Whoever
sees it says so, to his user and in each pool: a random epoch, by which all others forget what they
have observed (`observed`), and the largest version that he had seen, above which fences go on.
What is beside pools has that version, too, for pools that are made later.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable

from leasectl.engines.cluster.changes import with_belonging
from leasectl.engines.cluster.objects import BelongingObject, Found, PoolObject, Selection
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.rules.membership import Pools
from leasectl.errors import LeaseError

_MOST_TRIES = 5


def note_restored(
    objects: KubernetesObjects, warn: Callable[[str], object], before: int, version: int
) -> None:
    """Tell that a cluster was restored: a user, and all who use its pools.

    Args:
        objects: Where they are.
        warn: Told in a line for people.
        before: The resourceVersion that it had before.
        version: What it has now.
    """
    warn(
        f'the cluster of namespace "{objects.collection.namespace}" was restored '
        f"from a backup (resourceVersion {version} after {before}). It doesn't "
        "know leases granted since that backup, so others may get the same "
        "resources; see: leasectl status, leasectl doctor"
    )
    epoch = secrets.token_hex(8)
    with contextlib.suppress(LeaseError):  # whoever looks next sees it for himself
        floor = before + 1  # so that no fence comes again
        for each in objects.list(Selection(kinds=("pool",))).items:
            _note(objects, each, epoch, floor)
        nothing = with_belonging(None, objects.name_of("belonging"), Pools(frozenset()))
        written = objects.create(nothing)  # unless it is there
        _note(objects, written.object or written.found, epoch, floor)


def _note(objects: KubernetesObjects, seen: Found | None, epoch: str, floor: int) -> None:
    for _ in range(_MOST_TRIES):
        if not isinstance(seen, (PoolObject, BelongingObject)):
            return
        new = seen._replace(epoch=epoch, floor=max(floor, seen.floor))
        written = objects.replace(seen, new, lambda found: _has(found, epoch))
        if written.is_done:
            return
        seen = written.found


def _has(found: Found, epoch: str) -> bool:
    return isinstance(found, (PoolObject, BelongingObject)) and found.epoch == epoch
