"""Find claims whose write got no answer, and undo them.

A write whose answer is late may itself be late. It could be carried out after its waiter has looked
and found nothing, and be granted another resource: nobody would know of that claim then, and
whoever renews by the claim key would keep it alive. So what it was sent to is written once more
where it is still as it was seen: whatever comes by that version afterwards is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasectl.engines.kubernetes.objects.objects import ResourceObject
from leasectl.engines.kubernetes.objects.resource_bodies import touched
from leasectl.engines.kubernetes.objects.store import Store

Look = Callable[[], "list[ResourceObject]"]


def made_at_last(
    sent_to: Sequence[ResourceObject], look: Look, store: Store
) -> list[ResourceObject]:
    """What has become of claims; no more can become of them once this is told.

    Args:
        sent_to: What they were sent to, as that was seen.
        look: Says what there is of them now.
        store: Where they are.

    Raises:
        BackendUnreachable: It isn't known yet.
    """
    found = look()
    there = {each.id.name for each in found}
    missing = [each for each in sent_to if each.id.name not in there]
    untouched = [_outdate(each, store) for each in missing]
    return found if all(untouched) else look()


def _outdate(seen: ResourceObject, store: Store) -> bool:
    """Have what was to be written by what was seen be refused; tells if nobody had written it."""
    return store.change(touched(seen), lambda raw: False).raw is not None
