"""Read and write the Leases of one namespace; find lost answers.

An answer that is lost is looked for in one place, here. A write may be tried again whatever became
of it, since it is guarded by what was seen: only one of the tries can be carried out. If none says
that it was, because it is another object by now or isn't there, one looks, and the object tells
whether it is ours: a ticket by its name, which nobody else would choose, a claim by its key and its
fence, a renewal by its time. Where nobody answers before the deadline it is `LostAnswer`: what was
written then is found by its claim key, or goes with its ttl.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple

from leasectl.engines.kubernetes.api.collection import NAMESPACES, Collection
from leasectl.engines.kubernetes.api.refusals import Absent, AlreadyExists, Conflict, MadeAnew
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.objects import names
from leasectl.engines.kubernetes.objects.bodies import Body
from leasectl.engines.kubernetes.objects.objects import (
    CLAIM_LABEL,
    KIND,
    POOL,
    SPACE,
    Identity,
    Json,
    Kind,
    ResourceObject,
)
from leasectl.engines.kubernetes.objects.reading import identity_of, parse_object
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.errors import LeaseError, NoNamespace
from leasectl.system.clock import boottime_seconds

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.watching import Watch
    from leasectl.engines.kubernetes.queues.observed import Observed

# No claim key of this state directory begins with it.
_ELSEWHERE = "@"
# What is looked at for a better message only.
_LOOK_SECONDS = 0.5


class Seen(NamedTuple):
    """Objects as they were at one time.

    Args:
        items: Them.
        version: That time.
    """

    items: tuple[Json, ...]
    version: int


class Written(NamedTuple):
    """What became of a write.

    Args:
        raw: The object as it is after it; None where it was refused: somebody was faster.
        found: What is there instead, if that was looked at; None also where nothing is.
    """

    raw: Json | None
    found: Json | None = None


class Store:
    """The Leases of one namespace, as one state directory's. Threads may share it.

    Args:
        api: Of the cluster.
        collection: The Leases of the namespace.
        state_id: Names where claim keys are unique.
        observed: Remembers of when the newest list was; None where nothing does.

    Attributes:
        collection: As given.
        restored: Told that the cluster is of an earlier time than it was: of when, and of when now.
    """

    def __init__(
        self, api: Api, collection: Collection, state_id: str, observed: Observed | None = None
    ) -> None:
        self.restored: Callable[[int, int], object] = lambda before, version: None
        self._observed = observed
        self._api = api
        self.collection = collection
        self._state_id = state_id

    def limited(self, until: float | None) -> AbstractContextManager[None]:
        """Inside, nothing that is asked takes much longer than until then, elapsed clock."""
        return self._api.limited(until)

    # Claim keys

    def with_state_id(self, claim_key: str) -> str:
        """What is written of a claim key, so that it is the only one."""
        if claim_key.startswith(_ELSEWHERE):
            return claim_key[1:]
        return f"{self._state_id}/{claim_key}"

    def is_from_here(self, written: str) -> bool:
        """Tell whether what is written is of this state directory."""
        return bool(self._state_id) and written.startswith(f"{self._state_id}/")

    def claim_key_of(self, written: str) -> str:
        """The reverse: claim keys of this state directory go as they are, all others are marked."""
        state_id, _, claim_key = written.partition("/")
        return claim_key if state_id == self._state_id else _ELSEWHERE + written

    # Reading

    def pool(self, pool_type: str) -> PoolView:
        """A pool as it is now."""
        found = self._list(f"{POOL}={names.label_of_type(pool_type)}")
        return PoolView(pool_type).fill(found.items, found.version)

    def all(self, *kinds: Kind) -> Seen:
        """All objects of some kinds, or of all."""
        return self._list(f"{KIND} in ({','.join(kinds)})" if kinds else KIND)

    def of_claim(self, claim_key: str, kind: Kind) -> Seen:
        """What a claim key finds: its claims, or its tickets.

        Args:
            claim_key: As it is given to the engine.
            kind: Of the objects; who has such a label all the same isn't of this claim.
        """
        label = names.label_of_claim(self.with_state_id(claim_key))
        return self._list(f"{CLAIM_LABEL}={label},{KIND}={kind}")

    def values(self, space: str | None) -> Seen:
        """The objects of what is kept of subjects in a space, or in all; no contents."""
        return self._list(SPACE if space is None else f"{SPACE}={names.label_of_type(space)}")

    def everything(self) -> Seen:
        """All Leases of the namespace, whosever they are."""
        return self._list("")

    def labelled(self, label: str, value: str = "") -> Seen:
        """All resources that have a label, of some value or of any."""
        return self._list(f"{KIND}=resource,{label}" + (f"={value}" if value else ""))

    def check_namespace(self) -> None:
        """Look whether the namespace is there, after a list was empty: so is one of none.

        Only who may everything is told an empty list of it, and he may look. Where that isn't told
        at once, the list counts.

        Raises:
            NoNamespace: It isn't.
        """
        try:
            with self._api.limited(boottime_seconds() + _LOOK_SECONDS, is_strict=True):
                self._api.get(NAMESPACES, self.collection.namespace)
        except NoNamespace:
            raise
        except (Absent, LeaseError):
            pass

    def get(self, name: str) -> Json | None:
        """One object as it is now; None where there is none."""
        try:
            return self._api.get(self.collection, name)
        except Absent:
            return None

    def resource(self, name: str) -> ResourceObject | None:
        """A resource as it is now, by its true name; None where there is none that can be read."""
        raw = self.get(names.object_of_resource(name))
        found = None if raw is None else parse_object(raw)
        return found if isinstance(found, ResourceObject) else None

    def get_resource(self, name: str) -> Json | None:
        """The object of a resource as it is now, by its true name."""
        return self.get(names.object_of_resource(name))

    def watch_pool(self, pool_type: str, version: int) -> Watch:
        """What happens in a pool after a time."""
        labels = f"{POOL}={names.label_of_type(pool_type)}"
        return self._api.watch(self.collection, resource_version=str(version), labels=labels)

    def watch_object(self, name: str, version: int) -> Watch:
        """What happens to one object after a time."""
        return self._api.watch(self.collection, resource_version=str(version), name=name)

    def watch_claim(self, claim_key: str, version: int) -> Watch:
        """What happens to what a claim key finds after a time."""
        labels = f"{CLAIM_LABEL}={names.label_of_claim(self.with_state_id(claim_key))}"
        return self._api.watch(self.collection, resource_version=str(version), labels=labels)

    def _list(self, labels: str) -> Seen:
        observed = self._observed
        before = 0 if observed is None else observed.newest()
        found = self._api.list(self.collection, labels=labels)
        said = found.resource_version
        version = int(said) if said.isdecimal() else 0
        if observed is not None and version and observed.note_list(version, before=before):
            self.restored(before, version)
        return Seen(found.items, version)

    # Writing

    def create(self, body: Body, is_ours: Callable[[Json], bool]) -> Written:
        """Make an object.

        Args:
            body: It.
            is_ours: Whether one that is there is the one that was to be made, by an earlier try.

        Raises:
            NotAllowed: There is one of that name that isn't of leasectl.
            CorruptState: There is one that was, before somebody edited it.
        """
        name = body["metadata"]["name"]
        try:
            return Written(self._api.create(self.collection, body, is_repeatable=True))
        except AlreadyExists:
            found = self.get(name)
            self._check_ours(found)
            return Written(found if found is not None and is_ours(found) else None, found)

    def _check_ours(self, raw: Json | None) -> None:
        from leasectl.engines.kubernetes.objects.edited import why_taken

        why = None if raw is None else why_taken(raw, self.collection.namespace)
        if why is not None:
            raise why

    def change(self, body: Body, is_ours: Callable[[Json], bool]) -> Written:
        """Write an object, if it is still as it was seen.

        Args:
            body: As it is to be, with uid and resourceVersion as they were seen.
            is_ours: Whether what is there is what this write would make of it.
        """
        name = body["metadata"]["name"]
        try:
            said = self._api.replace(self.collection, name, body, is_repeatable=True)
        except (Absent, Conflict):
            found = self.get(name)
            is_done = found is not None and _uid(found) == _uid(body) and is_ours(found)
            return Written(found if is_done else None, found)
        except MadeAnew as made:  # which the uid doesn't let happen
            with contextlib.suppress(Absent, Conflict):
                id_ = identity_of(made.made)
                self._api.delete(self.collection, id_.name, uid=id_.uid, is_repeatable=True)
            return Written(None)
        return Written(said)

    def delete(self, id_: Identity, *, as_seen: bool) -> bool:
        """Take an object away; returns whether it isn't there any more.

        Args:
            id_: Which, whatever has the same name later.
            as_seen: Only if nobody has written it since.
        """
        return self.take_away(id_, as_seen=as_seen) != "changed"

    def take_away(
        self, id_: Identity, *, as_seen: bool
    ) -> Literal["done", "gone before", "changed"]:
        """Like `delete`; also returns whether this call did it, if that is known."""
        version = str(id_.version) if as_seen else None
        try:
            self._api.delete(
                self.collection,
                id_.name,
                uid=id_.uid or None,
                resource_version=version,
                is_repeatable=True,
            )
        except Absent:
            return "gone before"
        except Conflict:
            found = self.get(id_.name)
            return "changed" if found is not None and _uid(found) == id_.uid else "gone before"
        return "done"


def _uid(raw: Json) -> str:
    return identity_of(raw).uid
