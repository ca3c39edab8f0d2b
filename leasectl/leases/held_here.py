"""What handles hold on a backend that doesn't tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leasectl.leases.service import Service
from leasectl.system.clock import rfc3339


class HeldHere(NamedTuple):
    """A handle that isn't released.

    Args:
        handle: Its id.
        type: Of its leases, or the first that it asks for.
        state: ``held``, or ``acquiring`` while it waits.
        names: The resources that it has so far.
        since: Since when, wall clock, seconds since the epoch; None while it has none.
        release_time: When it will be released, on the same clock; None for never.
        guard_pid: The process whose end releases it; None without one.
    """

    handle: str
    type: str
    state: str
    names: tuple[str, ...]
    since: float | None
    release_time: float | None
    guard_pid: int | None


def held_here(service: Service, pool_type: str | None) -> tuple[HeldHere, ...]:
    """Return the handles of the chosen backend, in the order of their ids.

    Args:
        service: On the state directory and that backend.
        pool_type: Only handles of this type; None for all.
    """
    found = []
    wall, elapsed = service.clock.wall(), service.clock.elapsed()
    for handle in service.handles.active():
        of = handle.type or handle.request.type
        if not service.is_here(handle) or pool_type not in (None, of):
            continue
        due = handle.release_at
        found.append(
            HeldHere(
                handle.id,
                of,
                handle.state,
                handle.names,
                min((each.acquire_time for each in handle.leases), default=None),
                None if due is None else wall + due - elapsed,
                None if handle.guard is None else handle.guard.pid,
            )
        )
    return tuple(sorted(found))


def encode_held_here(found: Iterable[HeldHere], *, backend: str, at: float) -> dict[str, object]:
    """Encode handles as the JSON of ``status``.

    Args:
        found: As `held_here` returned them.
        backend: Its URL.
        at: When that was, wall clock.
    """
    handles = [
        {
            **each._asdict(),
            "names": list(each.names),
            "since": rfc3339(each.since),
            "release_time": rfc3339(each.release_time),
        }
        for each in found
    ]
    return {"backend": backend, "at": rfc3339(at), "handles": handles}
