"""Names that no handle here holds, put under handles so that they can be released."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leasectl.backends.kinds import kind_of
from leasectl.errors import LeaseError, NotAllowed, NotFound
from leasectl.leases.caller import not_ours
from leasectl.leases.journal import remote_lease
from leasectl.leases.service import Service
from leasectl.model import Handle, Lease, ReleaseTarget, Request
from leasectl.state.handles import new_id
from leasectl.text.printable import printable
from leasectl.text.wording import listed
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource

# The type of the handles that they are put under.
ADOPTED = "adopted"


def adopt(service: Service, names: Sequence[str], *, foreign: list[str] | None) -> Sequence[Handle]:
    """Put names under new handles, as far as the backend would release them.

    A server that releases by name alone doesn't care who asks. Of a pool that others share,
    a name is adopted from whoever holds it if that is the caller's own job and build.

    Args:
        service: On the backend where the names are held.
        names: Which.
        foreign: Takes those that another job or build holds; None where that is an error.

    Raises:
        NotAllowed: It is.
    """
    kind = kind_of(service.backend_url)
    if not kind.remote:
        return ()  # nobody but our handles can hold anything
    if kind.claims_by_identity:
        raise unknown_here(service, names)
    if not kind.has_pools:
        now = service.clock.wall()
        adopter = _adopter(service, "", len(names))
        leases = [remote_lease(adopter, name, now) for name in names]
        return (_record(service, adopter, leases),)
    found: dict[str, list[Lease]] = {}
    for each in _resources(service, names):
        if each.lease is None or each.claim_key is None:
            continue
        identity = each.lease.holder_identity
        if identity.rsplit("/", 2)[0] == service.caller.owner:
            found.setdefault(each.claim_key, []).append(each.lease)
        elif foreign is None:
            raise not_ours(each.name, identity, service.caller)
        else:
            foreign.append(each.name)
    return [
        _record(service, _adopter(service, claim_key, len(leases)), leases)
        for claim_key, leases in found.items()
    ]


def disown(service: Service, target: ReleaseTarget) -> None:
    """Forget what isn't given back after all: nobody here has leased it.

    Args:
        service: On the state directory where it was adopted.
        target: What was to be released, of an adopted handle. What the keeper is to release stays.
    """
    with service.state.transaction():
        handle = service.current(target)
        if handle is not None and handle.release_at is None:
            service.handles.forget(handle.id, handle.acquisition)


def unknown_here(service: Service, names: Sequence[str]) -> LeaseError:
    """The error for names that no handle here holds and the backend takes back from none."""
    if kind_of(service.backend_url).claims_by_identity:
        return NotAllowed(
            f"no handle in {service.state.directory} holds {printable(listed(names))}, and "
            f"{service.backend_url} takes it back only from the handle that has it; release it "
            "where that is: LEASECTL_STATE_DIR names the state directory"
        )
    return NotFound(
        f"no resource {printable(', '.join(names))}, which stays listed in SHARED_DIR; if it is "
        "another backend's, name that with --backend"
    )


def is_resource(service: Service, name: str) -> bool:
    """Tell whether a backend may have a resource of that name; one without pools might."""
    return not kind_of(service.backend_url).has_pools or bool(_resources(service, [name]))


def _resources(service: Service, names: Collection[str]) -> list[Resource]:
    pools = service.pools.pools()
    return [each for pool in pools for each in pool.resources if each.name in names]


def _adopter(service: Service, claim_key: str, count: int) -> Handle:
    """A handle for claims of somebody else's; of nobody knows whose, if that is empty."""
    handle_id = new_id(ADOPTED)
    return Handle(
        id=handle_id,
        backend=service.backend_url,
        request=Request(ADOPTED, count),
        owner=service.caller.owner,
        holder_identity=service.caller.identity_of(handle_id),
        state="held",
        acquisition=1,
        shared_dir=service.caller.shared_dir,
        settings=service.settings,
        adopted_claim=claim_key,
    )


def _record(service: Service, handle: Handle, leases: Sequence[Lease]) -> Handle:
    with service.state.transaction():
        service.handles.create(handle, remote=True)
        for lease in leases:
            service.handles.arrived(handle, lease)
    return service.handles.require(handle.id)
