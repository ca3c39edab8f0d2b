"""Check dead holders, missing guards, memberships, and claims on servers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.doctor.findings import Finding, ok, warn
from leasectl.engines.cluster.engine import ClusterSides
from leasectl.engines.cluster.entering import all_known
from leasectl.engines.cluster.objects import Selection
from leasectl.engines.local import member_rows
from leasectl.engines.rules.membership import Member, Pools, belongs_to
from leasectl.errors import LeaseLost
from leasectl.leases.recovery import is_abandoned
from leasectl.leases.release import release
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.state import reads
from leasectl.state.pipes import ids_of_the_dead
from leasectl.state.reads import snapshot
from leasectl.system.process import own_pid_namespace
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted, listed

LONG_SECONDS = 24 * 3600.0


def dead_holders(service: Service) -> Finding:
    """Are there leases of those who have died?"""
    some = map(service.handles.load, ids_of_the_dead(service.state))
    abandoned = [each for each in some if each and is_abandoned(service, each)]
    if not abandoned:
        return ok("no leases of processes that have ended")
    return warn(
        f"{counted(len(abandoned), 'handle')} of processes that have ended: "
        f"{listed([each.id for each in abandoned])}",
        "the keeper, or the next command, releases their leases",
        mend=lambda: _release(service, abandoned),
    )


def _release(service: Service, handles: Sequence[Handle]) -> str:
    names = [name for handle in handles for name in release(service, whole(handle, by="guard"))]
    return f"released their leases: {listed(names) or 'none'}"


def unguarded(service: Service) -> Finding:
    """Which handles are held until they are released by hand?"""
    served = reads.on_record_elsewhere(service.state)
    of_clients = ""
    if served:
        of_clients = (
            f"; {counted(served, 'handle')} granted through leasectl serve: the guards are "
            "recorded on the clients, so run leasectl doctor there"
        )
    forgotten = reads.never_ending(service.state)
    if not forgotten:
        every = "every lease has a guard, a release time, or a ttl that runs out"
        return ok(f"{every}{of_clients}")
    return warn(
        f"{counted(len(forgotten), 'handle')} held until released (no guard, release time or ttl): "
        f"{_held_texts(service, forgotten)}{of_clients}",
        f"{_if_unused(forgotten)}: {_release_commands(forgotten)}",
    )


def foreign_guards(service: Service) -> Finding:
    """Which handles are guarded in another pid namespace that may live?"""
    found = reads.of_other_namespaces(service.state, own_pid_namespace())
    some = map(service.handles.load, found)
    from_elsewhere = [each.id for each in some if each and not is_abandoned(service, each)]
    if not from_elsewhere:
        return ok("no guard in another pid namespace")
    return warn(
        f"{counted(len(from_elsewhere), 'handle')} with a guard in another pid "
        f"namespace, which may still run: {_held_texts(service, from_elsewhere)}",
        f"if that container has ended: {_release_commands(from_elsewhere)}",
    )


def held_for_long(service: Service) -> Finding:
    """Which handles have been held for suspiciously long?"""
    old = reads.held_since_before(service.state, time.time() - LONG_SECONDS)
    day = format_duration(LONG_SECONDS)
    if not old:
        return ok(f"no handle held for more than {day}")
    return warn(
        f"{counted(len(old), 'handle')} held for more than {day}: {_held_texts(service, old)}",
        f"{_if_unused(old)}: {_release_commands(old)}",
    )


def _held_texts(service: Service, handle_ids: Sequence[str]) -> str:
    now = time.time()

    def text(handle_id: str) -> str:
        handle = service.handles.load(handle_id)
        if handle is None:
            return handle_id
        held = listed(handle.names) or handle.state
        if handle.leases:
            since = min(lease.acquire_time for lease in handle.leases)
            held += f", held for {format_duration(max(0.0, now - since))}"
        return f"{handle_id} ({held})"

    return listed(handle_ids, text)


def _if_unused(handle_ids: Sequence[str]) -> str:
    return f"if {'it is' if len(handle_ids) == 1 else 'they are'} no longer in use"


def _release_commands(handle_ids: Sequence[str]) -> str:
    return listed(handle_ids, lambda each: f"leasectl release --handle {each}")


def misplaced_here(service: Service) -> Finding:
    """Is every name in its expected pool, and does each expected pool exist?

    Of embedded pools; names without an expectation aren't read.
    """
    state = service.state
    with snapshot(state):
        belonging, number = service.members.belonging(), member_rows.count_in_pools(state)
        # A pattern may say it of any name.
        known = service.members.members() if belonging.patterns else member_rows.said_of(state)
    there = [each for each in known if each.pool is not None]
    return agreement_of(there, belonging, known, number=number)


def agreement_of(
    there: Sequence[Member], belonging: Pools, known: Iterable[Member], *, number: int
) -> Finding:
    """Compare the pools that names are in with their expected pools.

    Args:
        there: The names in pools, at least those that have an expected pool.
        belonging: The expected pools of names.
        known: At least the names that have an expected pool, in a pool or not.
        number: How many names are in pools.
    """
    expected = [(each, to) for each in there if (to := belongs_to(each, belonging)) is not None]
    astray = [(each, to) for each, to in expected if to != each.pool]
    if astray:
        return _astray(astray)
    exact = {each.name: each.expected for each in known if each.expected is not None}
    missing = sorted({*exact.values(), *belonging.patterns.values()} - belonging.types)
    if missing:
        return _nowhere_to_be(missing, exact, belonging.patterns)
    return ok(f"{counted(number, 'resource')}, none outside its expected pool")


def _nowhere_to_be(
    missing: Sequence[str], exact: Mapping[str, str], patterns: Mapping[str, str]
) -> Finding:
    subjects = sorted(name for name, to in exact.items() if to in missing)
    subjects += sorted(pattern for pattern, to in patterns.items() if to in missing)
    first = subjects[0]
    to = exact.get(first) or patterns[first]
    which = f"--names {first}" if first in exact else f"--match '{first}'"
    return warn(
        f"resources are expected in a pool that doesn't exist: {listed(subjects)} in "
        f"{listed(missing)}",
        f"drop the expectation with: leasectl pool expect {to} {which} --drop; or "
        f"create the pool with: leasectl pool create {to} --names NAMES",
    )


def _astray(found: list[tuple[Member, str]]) -> Finding:
    texts = [f"{each.name} is in {each.pool} and belongs to {to}" for each, to in found]
    first, to = found[0]
    return warn(
        f"{counted(len(found), 'resource')} in another pool than expected: {listed(texts)}",
        f"move it with: leasectl pool move --names {first.name} --to {to} --when-free, or see: "
        "leasectl pool expect --list",
    )


def memberships_of(opened: ClusterSides) -> Finding:
    """Is every name of a server where it belongs? Only looked at: what is over stays."""
    known = all_known(opened.context)
    members = [known.member(name) for name in known.resources]
    there = [each for each in members if each.pool is not None]
    return agreement_of(there, known.pools, members, number=len(there))


def agreement(service: Service, where: str, opened: ClusterSides) -> Finding:
    """Do the claims of this state directory on a server and its handles agree?

    Args:
        service: Of the state directory and the server.
        where: What the server is called.
        opened: Its pools.
    """
    # Before the records, so that no claim made since counts as unknown.
    found = opened.context.resources(Selection(kinds=("resource",)))
    written = (each.claim.claim_key for each in found if each.claim is not None)
    ours = filter(opened.context.is_from_here, written)
    there = dict.fromkeys(map(opened.context.claim_key_of, ours))
    handles = {claim_key_of(each): each for each in service.handles.active()}
    # Also of one that names the same server in other words.
    unknown = [claim_key for claim_key in there if claim_key not in handles]
    gone = [
        handle
        for claim_key, handle in handles.items()
        if service.is_here(handle)
        and handle.leases
        and not handle.waiter
        and claim_key not in there
    ]
    if not unknown and not gone:
        return ok(f"{counted(len(there), 'claim')} of this state directory, all with a handle here")
    parts = []
    if unknown:
        parts.append(f"claims in {where} that no handle here holds: {listed(unknown)}")
    if gone:
        lost = listed([each.id for each in gone])
        parts.append(f"handles whose claim in {where} is gone, so their leases are lost: {lost}")
    return warn(
        "; ".join(parts),
        "run: leasectl doctor --fix",
        mend=lambda: _settle(service, opened, unknown, gone),
    )


def _settle(
    service: Service, opened: ClusterSides, unknown: Sequence[str], gone: Sequence[Handle]
) -> str:
    freed = [name for claim_key in unknown for name in opened.engine.free(claim_key)]
    lost = []
    for handle in gone:
        try:
            renew(service, whole(handle))
        except LeaseLost:
            lost.append(handle.id)
    return f"gave back {listed(freed) or 'nothing'}; recorded as lost: {listed(lost) or 'none'}"
