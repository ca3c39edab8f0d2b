"""Pools and who holds what, as JSON."""

from __future__ import annotations

from leasectl.cli.output import lease_fields
from leasectl.cli.status_facts import handle_of, host_of, is_unconfirmed, pool_counts
from leasectl.leases.service import Service
from leasectl.model import Overview, QueueEntry, Resource
from leasectl.system.clock import rfc3339

_LEASE_KEYS = (
    "holder_identity",
    "acquire_time",
    "renew_time",
    "lease_duration_seconds",
    "lease_transitions",
    "fence",
    "grant",
    "ticket",
    "guard_pid",
)


def overview_fields(service: Service, overview: Overview) -> dict[str, object]:
    """An overview as JSON shows it."""
    return {
        "backend": service.backend_url,
        "pools": [
            {
                "type": pool.type,
                **pool_counts(pool),
                "resources": [_resource_fields(each, overview) for each in pool.resources],
                "queue": [_entry_fields(entry) for entry in pool.queue],
            }
            for pool in overview.pools
        ],
    }


def _resource_fields(resource: Resource, overview: Overview) -> dict[str, object]:
    if resource.lease is None:
        nothing = dict.fromkeys((*_LEASE_KEYS, "host", "expires_in_seconds"))
        return {"name": resource.name, "state": "free", **nothing}
    handle = handle_of(resource, overview)
    guard = handle.guard if handle else None
    fields = lease_fields(resource.lease, guard_pid=guard.pid if guard else None)
    return {
        "name": resource.name,
        "state": "unconfirmed" if is_unconfirmed(handle) else "held",
        **{key: fields[key] for key in _LEASE_KEYS},
        "host": host_of(resource.lease),
        "expires_in_seconds": resource.expires_in_seconds,
    }


def _entry_fields(entry: QueueEntry) -> dict[str, object]:
    return {
        "ticket": entry.ticket,
        "holder_identity": entry.holder_identity,
        "count": entry.count,
        "since": rfc3339(entry.since),
    }
