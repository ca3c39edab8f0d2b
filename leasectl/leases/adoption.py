"""Names that no handle here holds, put under handles so that they can be released."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Callable

from leasectl.backends.kinds import kind_of
from leasectl.leases.journal import remote_lease
from leasectl.leases.targets import Caller, not_ours
from leasectl.model import ADOPTED_LABEL, Handle, Lease, Request, Resource
from leasectl.state.directory import State
from leasectl.state.handles import Handles, new_id
from leasectl.system.clock import Clock

# The type of the handles that they are put under.
ADOPTED = "adopted"


class Adoption:
    """Adopts names, as `Adopt` has it.

    A server that releases by name alone doesn't care who asks. Of a pool that others share,
    a name is adopted from whoever holds it if that is the caller's own job and build.

    Args:
        state: The opened state directory.
        resources: Tells of those of some names that the backend has.
        backend_url: Where the names are held.
        caller: On whose behalf.
        settings: How to talk to the backend.
        clock: Where times come from.
    """

    def __init__(
        self,
        state: State,
        resources: Callable[[Collection[str]], Sequence[Resource]],
        *,
        backend_url: str,
        caller: Caller,
        settings: str,
        clock: Clock,
    ) -> None:
        self._state = state
        self._handles = Handles(state)
        self._resources = resources
        self._backend_url = backend_url
        self._caller = caller
        self._settings = settings
        self._clock = clock

    def __call__(self, names: Sequence[str], *, foreign: list[str] | None) -> Sequence[Handle]:
        kind = kind_of(self._backend_url)
        if kind.shares_transaction:
            return ()
        if not kind.has_pools:
            now = self._clock.wall()
            adopter = self._adopter("", len(names))
            leases = [remote_lease(adopter, name, now) for name in names]
            return (self._record(adopter, leases),)
        found: dict[str, list[Lease]] = {}
        for each in self._resources(names):
            if each.lease is None or each.claim_key is None:
                continue
            identity = each.lease.holder_identity
            if identity.rsplit("/", 2)[0] == self._caller.owner:
                found.setdefault(each.claim_key, []).append(each.lease)
            elif foreign is None:
                raise not_ours(each.name, identity, self._caller)
            else:
                foreign.append(each.name)
        return [
            self._record(self._adopter(claim_key, len(leases)), leases)
            for claim_key, leases in found.items()
        ]

    def _adopter(self, claim_key: str, count: int) -> Handle:
        """A handle for claims of somebody else's; of nobody knows whose, if that is empty."""
        handle_id = new_id(ADOPTED)
        return Handle(
            id=handle_id,
            backend=self._backend_url,
            request=Request(ADOPTED, count, labels=((ADOPTED_LABEL, claim_key),)),
            owner=self._caller.owner,
            holder_identity=self._caller.identity_of(handle_id),
            state="held",
            acquisition=1,
            shared_dir=self._caller.shared_dir,
            settings=self._settings,
        )

    def _record(self, handle: Handle, leases: Sequence[Lease]) -> Handle:
        with self._state.transaction():
            self._handles.create(handle, on_server=True)
            for lease in leases:
                self._handles.arrived(handle, lease)
        return self._handles.require(handle.id)
