"""The objects of one namespace: `Objects` over Lease objects; finds lost answers.

Lost answers are handled here and nowhere else. A write may be repeated at any time, because it is
guarded by the version that was seen: only one of its tries can be carried out. If all tries are
refused, since the object has changed or is gone, this module reads the object and compares it with
the write: a ticket by its random name, a claim by its key and fence, a renewal by its time. If
there is no answer before the deadline, the write ends with `LostAnswer`. What it may have written
is found later by its claim key, or ends with its ttl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import is_carried_out
from leasectl.engines.cluster.objects import (
    NOTHING,
    Change,
    Found,
    Happened,
    Identity,
    Kind,
    PoolObject,
    ResourceObject,
    Seen,
    Selection,
    TicketObject,
    Told,
    Unreadable,
    Written,
)
from leasectl.engines.kubernetes import names
from leasectl.engines.kubernetes.api.address import NAMESPACES, Collection
from leasectl.engines.kubernetes.api.refusals import (
    Absent,
    AlreadyExists,
    Conflict,
    is_not_permitted,
)
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.encoding import (
    body_of,
    identity_of,
    parse_object,
)
from leasectl.engines.kubernetes.names import (
    CLAIM_LABEL,
    ENTERING,
    KIND,
    MOVES_TO,
    POOL,
    SPACE,
    Json,
)
from leasectl.errors import CorruptState, LeaseError, NoNamespace, NotFound
from leasectl.system.clock import boottime_seconds
from leasectl.text.wording import counted

if TYPE_CHECKING:
    from leasectl.engines.cluster.observed import Observed
    from leasectl.engines.kubernetes.api.watching import Watch, WatchEvent

# What is looked at for a better message only.
_LOOK_SECONDS = 0.5
_NAMES: dict[Kind, Callable[..., str]] = {
    "resource": names.object_of_resource,
    "pool": names.object_of_pool,
    "belonging": lambda: names.OBJECT_OF_BELONGING,
    "values": names.object_of_values,
    "content": names.object_of_content,
}


class KubernetesObjects:
    """The Leases of one namespace, as `Objects`.

    Args:
        api: Of the cluster.
        collection: The Leases of the namespace.
        observed: Remembers of when the newest list was; None where nothing does.

    Attributes:
        api, collection: As given.
        restored: Told that the cluster is of an earlier time than it was: of when, and of when now.
        post: Told of what was done.
        largest_content: Of 256 KiB that annotations may have, in base64 perhaps.
    """

    largest_content = 180 * 1024
    unites = ends = False
    # A thousand of them cost a server 32 ms a write (measured), so these half a millisecond.
    few_next = few_before = 16

    def __init__(self, api: Api, collection: Collection, observed: Observed | None = None) -> None:
        self.restored: Callable[[int, int], object] = lambda before, version: None
        self.post: Callable[[Told], object] = lambda told: None
        self.api = api
        self.collection = collection
        self._observed = observed

    def limited(self, until: float | None) -> AbstractContextManager[None]:
        return self.api.limited(until)

    # Names

    def name_of(self, kind: Kind, *words: str) -> str:
        return _NAMES[kind](*words)

    def new_ticket_name(self, pool_type: str) -> str:
        return names.new_ticket_object()

    def new_life(self) -> str:
        return ""

    # Reading

    def read(self, name: str) -> Found | None:
        raw = self.get(name)
        if raw is None:
            return None
        return parse_object(raw) or Unreadable(
            identity_of(raw), raw, "", "it was not made by leasectl"
        )

    def list(self, which: Selection) -> Seen:
        items, version = self.list_raw(labels_of_selection(which))
        found = map(parse_object, items)
        return Seen(tuple(each for each in found if each is not None), version)

    def glance(self, pool_type: str, count: int) -> Seen | None:
        return None  # any look is a list

    def watch(self, which: Selection, since: int) -> KubernetesWatch:
        (name,) = which.names or ("",)
        labels = "" if name else labels_of_selection(which)
        return KubernetesWatch(
            self.api.watch(self.collection, resource_version=str(since), labels=labels, name=name)
        )

    def get(self, name: str) -> Json | None:
        """Return a Lease as it is now, of any program; None if there is none."""
        try:
            return self.api.get(self.collection, name)
        except Absent:
            return None

    def list_raw(self, labels: str = "") -> tuple[tuple[Json, ...], int]:
        """Return the Leases that a label selector selects, of any program, and their version."""
        observed = self._observed
        before = 0 if observed is None else observed.newest()
        found = self.api.list(self.collection, labels=labels)
        said = found.resource_version
        version = int(said) if said.isdecimal() else 0
        if observed is not None and version and observed.note_list(version, before=before):
            self.restored(before, version)
        return found.items, version

    # Writing

    def write(self, change: Change) -> Written:
        seen, new, told = change
        if new is None:
            assert seen is not None
            return self._delete(seen.id, told, version=str(seen.id.version))
        is_done = partial(is_carried_out, change)
        if seen is not None:
            written = self.replace_raw(body_of(new, seen), is_done)
        else:
            written = self._create(body_of(new), is_done)
        if isinstance(written.object, TicketObject) and seen is None:
            place = written.object.place
            told = [
                each._replace(events=tuple(event._replace(ticket=place) for event in each.events))
                for each in told
            ]
        if written.is_done:
            self.tell(told)
        return written

    def _create(self, body: Json, is_done: Callable[[Found], bool]) -> Written:
        try:
            return _written(self.api.create(self.collection, body, is_repeatable=True))
        except AlreadyExists:
            raw = self.get(body["metadata"]["name"])
            why = self._why_taken(raw)
            if why is not None:
                raise why from None
            return _found(raw, is_done)

    def _why_taken(self, raw: Json | None) -> LeaseError | None:
        from leasectl.engines.kubernetes.edited import why_taken

        return None if raw is None else why_taken(raw, self.collection.namespace)

    def replace_raw(self, body: Json, is_done: Callable[[Found], bool]) -> Written:
        """Write a Lease, with the uid and resourceVersion that were seen.

        Args:
            body: It.
            is_done: Whether what is there is what this call made of it.
        """
        name = body["metadata"]["name"]
        try:
            said = self.api.replace(self.collection, name, body, is_repeatable=True)
        except (Absent, Conflict):
            raw = self.get(name)
            is_it = raw is not None and identity_of(raw).uid == identity_of(body).uid
            return _found(raw, is_done if is_it else lambda found: False)
        return _written(said)

    def remove(self, found: Found, told: Sequence[Told] = ()) -> None:
        self._delete(found.id, told)

    def write_together(
        self,
        changes: Sequence[Change],
        *,
        still: Mapping[str, Found | None] = NOTHING,
        unqueued: str | None = None,
        told: Sequence[Told] = (),
    ) -> tuple[Found | None, ...] | None:
        raise NotImplementedError("a write changes one object")

    def tell(self, told: Sequence[Told]) -> None:
        for each in told:
            self.post(each)

    def keep_alive(self, found: TicketObject | ResourceObject) -> bool:
        raise NotImplementedError("nothing ends by itself")

    def _delete(
        self, id_: Identity, told: Sequence[Told], *, version: str | None = None
    ) -> Written:
        """Delete a Lease, of this version if one is given; without a uid whichever has the name."""
        try:
            self.api.delete(
                self.collection,
                id_.name,
                uid=id_.uid or None,
                resource_version=version,
                is_repeatable=True,
            )
        except Absent:
            return Written(True)
        except Conflict:
            raw = self.get(id_.name)
            if raw is None or identity_of(raw).uid != id_.uid:
                return Written(True)
            return Written(False, found=parse_object(raw))
        self.tell(told)
        return Written(True)

    # What people are told

    def check(self) -> None:
        """Check that the namespace exists, after a list was empty.

        Only an administrator gets an empty list of a missing namespace (others get a 403), and may
        look it up. If that isn't answered at once, the list counts.
        """
        try:
            with self.api.limited(boottime_seconds() + _LOOK_SECONDS, is_strict=True):
                self.api.get(NAMESPACES, self.collection.namespace)
        except NoNamespace:
            raise
        except (Absent, LeaseError):
            pass

    def why_missing(self, name: str, resources: int) -> NotFound | None:
        lease = names.object_of_pool(name)
        raw = self.get(lease)
        if raw is not None and not isinstance(parse_object(raw), PoolObject):
            was = f'Lease "{lease}" was edited'
        elif raw is None and resources:
            was = f'Lease "{lease}" was deleted'
        else:
            return None
        there = counted(resources, "resource")
        return NotFound(f'no pool "{name}", although it has {there}: {was}; see: leasectl doctor')

    def why_unreadable(self, name: str) -> LeaseError:
        why = self._why_taken(self.get(name))
        return why or CorruptState(
            f'Lease "{name}" is another kind of leasectl object than expected'
        )

    def is_forbidden(self, error: BaseException) -> bool:
        return is_not_permitted(error)


class KubernetesWatch:
    """A watch of Leases, as `Watch`."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __enter__(self) -> Iterator[Happened]:
        return map(_happened, self._watch.__enter__())

    def __exit__(self, *reason: object) -> None:
        self._watch.__exit__(*reason)

    def cut(self) -> None:
        self._watch.cut()


def _happened(event: WatchEvent) -> Happened:
    id_ = identity_of(event.object)
    if event.type == "BOOKMARK":
        return Happened("nothing", id_)
    if event.type == "DELETED":
        return Happened("gone", id_)
    return Happened("there", id_, parse_object(event.object))


def labels_of_selection(which: Selection) -> str:
    """Return the label selector for what is selected."""
    said = []
    if which.pool is not None:
        said.append(f"{POOL}={names.label_of_type(which.pool)}")
    if which.claim:
        said.append(f"{CLAIM_LABEL}={names.label_of_claim(which.claim)}")
    if len(which.kinds) == 1:
        said.append(f"{KIND}={which.kinds[0]}")
    elif which.kinds:
        said.append(f"{KIND} in ({','.join(which.kinds)})")
    if which.space is not None:
        said.append(f"{SPACE}={names.label_of_type(which.space)}")
    if which.moves_to is not None:
        said.append(f"{MOVES_TO}={names.label_of_type(which.moves_to)}")
    if which.entering:
        said.append(ENTERING)
    return ",".join(said) or KIND


def _written(raw: Json) -> Written:
    found = parse_object(raw)
    return Written(found is not None, found)


def _found(raw: Json | None, is_done: Callable[[Found], bool]) -> Written:
    """Return what is there after a refused write; an earlier try may have been carried out."""
    found = None if raw is None else parse_object(raw)
    if found is not None and is_done(found):
        return Written(True, found)
    return Written(False, found=found)
