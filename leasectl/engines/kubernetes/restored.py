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

from leasectl.engines.kubernetes.objects.bodies import with_belonging, with_epoch
from leasectl.engines.kubernetes.objects.objects import EPOCH, BelongingObject, Json, PoolObject
from leasectl.engines.kubernetes.objects.reading import annotations_of, parse_object
from leasectl.engines.kubernetes.objects.recognition import is_made_by
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.membership import Pools
from leasectl.errors import LeaseError

_MOST_TRIES = 5


def note_restored(store: Store, warn: Callable[[str], object], before: int, version: int) -> None:
    """Tell that a cluster was restored: a user, and all who use its pools.

    Args:
        store: Where they are.
        warn: Told in a line for people.
        before: The resourceVersion that it had before.
        version: What it has now.
    """
    warn(
        f'the cluster of namespace "{store.collection.namespace}" was restored '
        f"from a backup (resourceVersion {version} after {before}). It doesn't "
        "know leases granted since that backup, so others may get the same "
        "resources; see: leasectl status, leasectl doctor"
    )
    epoch = secrets.token_hex(8)
    with contextlib.suppress(LeaseError):  # whoever looks next sees it for himself
        floor = before + 1  # so that no fence comes again
        for raw in store.all("pool").items:
            _note(store, raw, epoch, floor)
        body = with_belonging(None, Pools(frozenset()))  # unless it is there
        written = store.create(body, is_made_by(body))
        _note(store, written.raw or written.found, epoch, floor)


def _note(store: Store, raw: Json | None, epoch: str, floor: int) -> None:
    for _ in range(_MOST_TRIES):
        seen = None if raw is None else parse_object(raw)
        if not isinstance(seen, (PoolObject, BelongingObject)):
            return
        body = with_epoch(seen, epoch, floor)
        written = store.change(body, _has(body["metadata"]["annotations"][EPOCH]))
        if written.raw is not None:
            return
        raw = written.found


def _has(said: str) -> Callable[[Json], bool]:
    return lambda raw: bool(annotations_of(raw).get(EPOCH) == said)
