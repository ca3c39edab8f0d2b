"""Check the records for contradictions; check queues, reclaims and events."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from leasectl.backends.kinds import LOCAL, Backend, Context
from leasectl.backends.local import LocalBackend
from leasectl.doctor.findings import Finding, fail, ok, warn
from leasectl.engines.local import audit, member_rows
from leasectl.engines.local.store import LocalStore
from leasectl.errors import CorruptState
from leasectl.leases.service import Service
from leasectl.pools.memberships import unmet_waiters
from leasectl.state import names_files
from leasectl.state.directory import State
from leasectl.state.event_log import kept, refusal
from leasectl.state.handles import Handles
from leasectl.state.reads import names_on_record, snapshot
from leasectl.state.uses import Uses
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.process import is_dead
from leasectl.text.naming import as_given
from leasectl.text.wording import counted, listed

_PART_BYTES = 4096


class Disagreement(NamedTuple):
    """Two records that can't both be true, and how to let one of them go; in a transaction."""

    what: str
    settle: Callable[[], object]


def agreement(service: Service) -> Finding:
    """Do handles and pools agree about who holds what?"""
    with service.state.transaction():
        found = list(disagreements(service))
    if not found:
        return ok("handles and pools agree")
    return fail(
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
    backend = _embedded_pool(state)
    if not audit.all_agree(state, LOCAL):
        yield from _claims(state, backend)
        yield from _leases(state, handles, backend)
    yield from _of_nobody(state, handles, backend)
    yield from _memberships(service)
    for pool_type, said, real in audit.miscounts(state):
        yield Disagreement(
            f'pool "{pool_type}" records {said} resources, but has {real}',
            partial(audit.correct_capacity, state, pool_type, real),
        )
    for handle_id, names in _names_files_amiss(state):
        yield Disagreement(
            f"{state.names_path(handle_id)} differs from what the handle holds",
            partial(state.stage_names, handle_id, names),
        )


def _embedded_pool(state: State) -> LocalBackend:
    return LocalBackend.open(Context(LOCAL), state, lambda claim_key, names: None)


def _claims(state: State, backend: Backend) -> Iterator[Disagreement]:
    for claim_key, name in audit.claims_without_record(state):
        yield Disagreement(
            f"{name} is recorded as held by {claim_key}, which doesn't hold it",
            partial(backend.release, claim_key, [name]),
        )


def _leases(state: State, handles: Handles, backend: Backend) -> Iterator[Disagreement]:
    for claim in audit.records_without_handle(state, LOCAL):
        yield Disagreement(
            f"{claim.name} is recorded as held by {claim.claim_key}, but that handle holds nothing",
            partial(_forget, state, backend, claim),
        )
    for claim_key, name in audit.records_without_claim(state, LOCAL):
        yield Disagreement(
            f"{claim_key} claims {name}, which another handle holds",
            partial(_drop, handles, claim_key, name),
        )
    for claim, recorded, real in audit.fence_mismatches(state):
        yield Disagreement(
            f"{claim.claim_key} shows fence {recorded} for {claim.name}, which has {real}",
            partial(audit.correct_fence, state, claim, real),
        )
    for claim_key in audit.held_without_lease(state, LOCAL):
        yield Disagreement(
            f"{claim_key} is recorded as holding leases, but has none",
            partial(_drop, handles, claim_key),
        )


def _of_nobody(state: State, handles: Handles, backend: Backend) -> Iterator[Disagreement]:
    for claim_key in audit.tickets_without_waiter(state):
        yield Disagreement(
            f"{claim_key} is in a queue, but isn't acquiring",
            partial(backend.withdraw, claim_key),
        )
    for handle_id in handles.timers.of_nobody():
        yield Disagreement(
            f"a delayed release is recorded for {handle_id}, which doesn't exist",
            partial(handles.timers.disarm, handle_id),
        )
    uses = Uses(state)
    for handle_id in uses.of_nobody():
        yield Disagreement(
            f"{handle_id} uses, or is asked to return, a resource that it doesn't hold",
            partial(uses.forget_of_nobody, handle_id),
        )


def _memberships(service: Service) -> Iterator[Disagreement]:
    """What a hand in the database may leave behind."""
    state, known = service.state, None
    for what, find in (
        ("is marked unavailable for no recorded reason", member_rows.closed_for_nothing),
        ("can be granted although it is cordoned or leaving", member_rows.open_though_closed),
        ("is to move to a pool that doesn't exist", member_rows.going_nowhere),
        ("is in no pool but still has a state", member_rows.left_over),
    ):
        for name in find(state):
            known = known or LocalStore(state, lost=service.losses.tell, clock=service.clock)
            yield Disagreement(f"{name} {what}", partial(known.memberships().put_right, name))


def _forget(state: State, backend: Backend, claim: audit.Claim) -> None:
    backend.release(claim.claim_key, [claim.name])
    audit.forget_record(state, claim)


def _drop(handles: Handles, claim_key: str, *names: str) -> None:
    handle = handles.load(claim_key)
    if handle is not None and handle.state == "held":
        handles.drop(handle, names, now=boottime_seconds(), lost=True)


def _names_files_amiss(state: State) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each handle whose names file doesn't say what it holds, and what it should say."""
    with _folder(state.path("handles")) as folder:
        for handle_id, is_announced, names in names_on_record(state):
            if not is_announced and not state.names_files.is_there(handle_id):
                continue  # nobody has been told yet
            said = _read(folder, handle_id)
            if said is None or (said != names_files.content(names) and _names_in(said) != names):
                yield handle_id, names


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int | None]:
    """A descriptor of a folder; None where that can't be opened, and nothing in it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


# With less around it than open() and a whole path: there may be thousands.
def _read(folder: int | None, name: str) -> bytes | None:
    if folder is None:
        return None
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(fd, _PART_BYTES):
            parts.append(part)
            if len(part) < _PART_BYTES:
                break
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(fd)


def _names_in(content: bytes) -> tuple[str, ...]:
    return tuple(content.decode(errors="replace").split())


def suspended(service: Service) -> Finding:
    """Which waiters could have claimed, and didn't come?"""
    living = [each for each in audit.suspended_tickets(service.state) if not is_dead(each.process)]
    unmet = _unmet(service) if living else set()
    found = [each for each in living if (each.pool_type, each.holder_identity) not in unmet]
    if not found:
        return ok("no stopped process blocks a queue")
    waiters = [
        f"pid {each.process.pid if each.process else 'unknown'} of "
        f"{as_given(each.holder_identity)} for {each.pool_type}"
        for each in found
    ]
    return warn(
        f"{counted(len(found), 'waiter')} could have taken a lease but didn't, so "
        f"others go first: {listed(waiters)}",
        "the process may be stopped, or in a frozen container; its request keeps its queue "
        "position; to continue the process: kill -CONT PID",
    )


def _unmet(service: Service) -> set[tuple[str, str]]:
    """The pools and identities of those who are passed as what is there can't meet them now."""
    backend = _embedded_pool(service.state)
    with snapshot(service.state):  # nothing is changed, and what is over is no matter here
        pools = backend.pools.pools()
    return {
        (pool.type, each.entry.holder_identity) for pool in pools for each in unmet_waiters(pool)
    }


# A keeper that lives takes off what has ended; where its server is away for a moment, a bit later.
_LATE_SECONDS = 60.0


def ready_to_be_taken(service: Service) -> Finding:
    """Which resources were answered ready, but not taken in time?"""
    ready = [
        (seen.target, seen.mark) for seen in Uses(service.state).all_seen() if seen.mark.is_ready
    ]
    late_since = service.clock.elapsed() - _LATE_SECONDS
    late = [target for target, mark in ready if mark.ends_at < late_since]
    if not late:
        names = [name for target, _ in ready for name in target.names or ()]
        ready_now = f"ready to take back: {listed(names)}"
        return ok(ready_now if names else "no lease waits to be taken back")
    texts = [f"{listed(target.names or ())} of {target.handle_id}" for target in late]
    return warn(
        f"{counted(len(late), 'holder')} answered ready, but no reclaim took the lease in "
        f"time; the resources can't be used until the mark is removed: {listed(texts)}",
        "the keeper removes the mark when its server answers; the next command starts a keeper",
    )


def events(state: State) -> Finding:
    """Are events written, and since when are there any?"""
    count, since = kept(state)
    what = f"{counted(count, 'event')} since {rfc3339(since)}" if count else "no events yet"
    why_not = refusal(state)
    if why_not:
        return warn(
            f"{what}; new events can't be written ({why_not})",
            "leases work without them, but their history is lost",
        )
    return ok(what)
