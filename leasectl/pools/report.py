"""The status of a backend as JSON, whatever its backend can tell."""

from __future__ import annotations

from leasectl.errors import NotSupported
from leasectl.leases.held_here import encode_held_here, held_here
from leasectl.leases.service import Service
from leasectl.pools.admin import PoolService
from leasectl.pools.counted import count
from leasectl.pools.overview_json import are_counts, encode_counts, encode_overview, parse_counts


def report(service: Service, pool_type: str | None) -> dict[str, object]:
    """Return what ``leasectl status --json`` shows.

    Args:
        service: On the backend.
        pool_type: The pool; None for all.

    Raises:
        NotFound: No such pool.
        LeaseError: The backend can't be asked now.
    """
    if service.kind.counts_types:
        return encode_counts(count(service, pool_type))
    try:
        told = service.kind.status(service.context, pool_type)
    except NotSupported:
        found, at = held_here(service, pool_type), service.clock.wall()
        return encode_held_here(found, backend=service.backend_url, at=at)
    if told is not None and are_counts(told):
        return encode_counts(parse_counts(told, backend=service.backend_url))
    return encode_overview(PoolService(service).overview(pool_type, told=told))
