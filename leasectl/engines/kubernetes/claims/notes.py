"""Notes at claims: an annotation beside each.

It says of which fence it is, and counts for that claim only; whoever ends the claim takes it away.
A change is guarded by the version that was seen with the claim and the note as they have to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.claims.notes_at import notes_in
from leasectl.engines.kubernetes.objects.bodies import Body
from leasectl.engines.kubernetes.objects.objects import NOTE, Claim, Json, ResourceObject
from leasectl.engines.kubernetes.objects.reading import annotations_of
from leasectl.engines.kubernetes.objects.recognition import is_of, resource_in
from leasectl.engines.kubernetes.objects.resource_bodies import noted
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.pools.listing import no_pool
from leasectl.engines.kubernetes.waiting.change_watch import ChangeWatch
from leasectl.engines.notes import Note, NoteChange
from leasectl.errors import BackendUnreachable
from leasectl.model import ReleasedBy

_MOST_TRIES = 10


class KubernetesNotes:
    """The notes at the claims in one namespace, as `Notes`.

    Args:
        store: Where they are.
        claims: Those claims.
    """

    def __init__(self, store: Store, claims: Claims) -> None:
        self._store = store
        self._claims = claims
        self._events = claims.events

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        view = self._store.pool(pool_type)
        if not view.is_shown:
            raise no_pool(self._store, pool_type)
        held = [each for each in view.resources.values() if not self._claims.is_over(each)]
        return notes_in(sorted(held, key=lambda each: each.name))

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        held = self._claims.of_key(claim_key)
        return notes_in(each for each in held if not self._claims.is_over(each))

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        return tuple(map(self._change, changes))

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        freed = []
        for note in notes:
            resource, at = self._claimed(note.name, note.fence, note.text), self._events.now()
            if resource is not None and self._claims.release_as_seen(resource):
                self._events.ended([resource], by=by, at=at)
                freed.append(note.name)
        return tuple(freed)

    def watch(self, pool_type: str) -> ChangeWatch:
        return ChangeWatch(self._store, pool_type)

    def _change(self, change: NoteChange) -> bool:
        for _ in range(_MOST_TRIES):
            resource = self._claimed(change.name, change.fence, change.before)
            if resource is None:
                return False
            body = noted(resource, change.after, renewal=self._renewal(resource, change))
            if self._store.change(body, _says_at(resource, body)).raw is not None:
                self._events.noted(resource, change.told)
                return True
        raise BackendUnreachable(
            f'resource "{change.name}" is changed faster than it is read; try again'
        )

    def _renewal(self, resource: ResourceObject, change: NoteChange) -> Claim | None:
        """The claim with its full time again, if that is written with the note."""
        claim = resource.claim
        if not change.renews or claim is None or claim.ttl_seconds is None:
            return None
        return self._claims.renewal_of(claim)

    def _claimed(self, name: str, fence: int, text: str | None) -> ResourceObject | None:
        """The resource of a claim that is good, and of which that is noted."""
        resource = resource_in(self._store.get_resource(name))
        claim = None if resource is None else resource.claim
        if resource is None or claim is None or claim.ended or self._claims.is_over(resource):
            return None
        return resource if (claim.fence, claim.note) == (fence, text) else None


def _says_at(resource: ResourceObject, body: Body) -> Callable[[Json], bool]:
    """What tells whether the same is noted as by this, at the same claim.

    Without a claim nothing is noted either: whoever has freed it meanwhile has not taken a note off
    for us.
    """
    assert resource.claim is not None
    is_at_claim, said = is_of(resource.claim), body["metadata"]["annotations"].get(NOTE)
    return lambda raw: is_at_claim(raw) and annotations_of(raw).get(NOTE) == said
