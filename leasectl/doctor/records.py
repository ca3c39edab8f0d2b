"""What the records of handles and of the embedded pools say of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable, NamedTuple

from leasectl.backends.contract import Backend
from leasectl.backends.opening import LOCAL, open_backend
from leasectl.doctor.findings import FAIL, OK, Finding
from leasectl.errors import CorruptState
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.clock import Clock, boottime_seconds
from leasectl.text.wording import listed


class Disagreement(NamedTuple):
    """Two records that can't both be true, and how to let one of them go; in a transaction."""

    what: str
    settle: Callable[[], object]


def agreement(service: Service) -> Finding:
    """Do handles and pools agree about who holds what?"""
    with service.state.transaction():
        found = list(disagreements(service))
    if not found:
        return Finding(OK, "handles and pools agree")
    return Finding(
        FAIL,
        listed([each.what for each in found]),
        "run: leasectl doctor --fix",
        exit_code=CorruptState.exit_code,
        mend=lambda: _settle(service),
    )


def _settle(service: Service) -> str:
    settled: list[str] = []
    # Settling one may bring up another: a handle that has lost its last lease is released.
    for _ in range(4):
        with service.state.transaction():
            found = list(disagreements(service))
            for each in found:
                each.settle()
        settled += [each.what for each in found]
        if not found:
            break
    return f"settled: {listed(list(dict.fromkeys(settled)))}"


def disagreements(service: Service) -> Iterator[Disagreement]:
    """Find records that contradict each other; inside a transaction, where they never should.

    A claim counts only if both sides know of it: a resource whose owner doesn't know that it
    holds it can't be given back by anybody, and a handle whose resource is another's must not
    go on. So each is settled by freeing.
    """
    state, handles = service.state, service.handles
    backend = open_backend(
        LOCAL, state, settings="", lost=lambda claim_key, names: None, clock=Clock()
    )
    yield from _claims(state, backend)
    yield from _leases(state, handles, backend)
    yield from _places(state, backend)
    for kind, capacity, real in state.query(
        "SELECT type, capacity, (SELECT count(*) FROM resource WHERE resource.type = pool.type) "
        "AS real FROM pool WHERE capacity <> real"
    ):
        yield Disagreement(
            f'pool "{kind}" counts {capacity} resources and has {real}',
            _sql(state, "UPDATE pool SET capacity = ? WHERE type = ?", real, kind),
        )
    for handle in handles.active():
        if handle.state == "held" and _read_names(state, handle) != handle.names:
            yield Disagreement(
                f"{state.names_path(handle.id)} doesn't say what the handle holds",
                _staging(state, handle),
            )


def _claims(state: State, backend: Backend) -> Iterator[Disagreement]:
    for name, claim_key in state.query(
        "SELECT name, owner FROM resource WHERE owner IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = owner AND lease.name = resource.name)"
    ):
        yield Disagreement(
            f"{name} is held by {claim_key}, which doesn't know of it",
            _freeing(backend, claim_key, name),
        )


def _leases(state: State, handles: Handles, backend: Backend) -> Iterator[Disagreement]:
    for claim_key, name in state.query(
        "SELECT handle, lease.name FROM lease LEFT JOIN handle ON id = handle "
        # What arrives from a server is on record before all of it has.
        "WHERE id IS NULL OR state = 'released' OR (state = 'acquiring' AND backend = ?)",
        LOCAL,
    ):

        def drop(claim_key: str = claim_key, name: str = name) -> None:
            backend.release(claim_key, [name])
            state.db.execute("DELETE FROM lease WHERE handle = ? AND name = ?", (claim_key, name))

        yield Disagreement(f"{claim_key} holds {name} without being a held handle", drop)
    for claim_key, name in state.query(
        "SELECT handle, lease.name FROM lease JOIN handle ON id = handle LEFT JOIN resource "
        "ON resource.name = lease.name AND resource.owner = handle "
        "WHERE backend = ? AND state = 'held' AND resource.name IS NULL",
        LOCAL,
    ):
        yield Disagreement(
            f"{claim_key} claims {name}, which isn't its own", _dropping(handles, claim_key, name)
        )
    for claim_key, name, mine, theirs in state.query(
        "SELECT handle, lease.name, lease.fence, resource.fence FROM lease JOIN resource "
        "ON resource.name = lease.name AND resource.owner = handle "
        "WHERE lease.fence <> resource.fence"
    ):
        yield Disagreement(
            f"{claim_key} shows fence {mine} for {name}, which has {theirs}",
            _sql(
                state,
                "UPDATE lease SET fence = ? WHERE handle = ? AND name = ?",
                theirs,
                claim_key,
                name,
            ),
        )
    for (claim_key,) in state.query(
        "SELECT id FROM handle WHERE backend = ? AND state = 'held' AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = id)",
        LOCAL,
    ):
        yield Disagreement(f"{claim_key} is held but holds nothing", _dropping(handles, claim_key))


def _places(state: State, backend: Backend) -> Iterator[Disagreement]:
    for (claim_key,) in state.query(
        "SELECT owner FROM ticket WHERE NOT EXISTS "
        "(SELECT 1 FROM handle WHERE id = ticket.owner AND state = 'acquiring')"
    ):
        yield Disagreement(
            f"{claim_key} stands in a queue and isn't acquiring", _withdrawing(backend, claim_key)
        )
    for (claim_key,) in state.query(
        "SELECT DISTINCT handle FROM timer WHERE NOT EXISTS "
        "(SELECT 1 FROM handle WHERE id = timer.handle)"
    ):
        yield Disagreement(
            f"a release is armed for {claim_key}, which isn't there",
            _sql(state, "DELETE FROM timer WHERE handle = ?", claim_key),
        )


def _sql(state: State, statement: str, *values: object) -> Callable[[], object]:
    return lambda: state.db.execute(statement, values)


def _freeing(backend: Backend, claim_key: str, name: str) -> Callable[[], object]:
    return lambda: backend.release(claim_key, [name])


def _withdrawing(backend: Backend, claim_key: str) -> Callable[[], object]:
    return lambda: backend.withdraw(claim_key)


def _dropping(handles: Handles, claim_key: str, *names: str) -> Callable[[], object]:
    def drop() -> None:
        handle = handles.load(claim_key)
        if handle is not None and handle.state == "held":
            handles.drop(handle, names, now=boottime_seconds(), lost=True)

    return drop


def _staging(state: State, handle: Handle) -> Callable[[], object]:
    return lambda: state.stage_names(handle.id, handle.names)


def _read_names(state: State, handle: Handle) -> tuple[str, ...] | None:
    try:
        with open(state.names_path(handle.id), encoding="utf-8", errors="replace") as file:
            return tuple(file.read(1 << 20).split())
    except OSError:
        return None
