"""Read memberships, decide, and write the decision.

Each time by one transaction, guarded by all that was seen. Where there is more than one takes, it
is written in parts, each of them whole; whoever is refused in between is told what is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import NoSpace
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    created_at,
    put,
    read,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.changes import Renaming, as_events
from leasectl.engines.etcd.members.joining import joining
from leasectl.engines.etcd.members.parts import in_parts
from leasectl.engines.etcd.members.records import encode_belonging, is_by, parse_belonging
from leasectl.engines.etcd.members.removals import Taking
from leasectl.engines.etcd.members.views import MembersView, see
from leasectl.engines.etcd.members.writes import MemberWrites, new_word
from leasectl.engines.etcd.records import Claim, parse_claim
from leasectl.engines.event_words import belonging_changes
from leasectl.engines.membership import Member, Pools, check_unheld
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.errors import InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.model import Claimant, Ticket
from leasectl.system.clock import Clock
from leasectl.text.wording import followed_by, listed

if TYPE_CHECKING:
    from leasectl.engines.etcd.members.check import MemberCheck


class EtcdMembers:
    """The memberships below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there are some for each change.
        claims: The claims in it.
        clear: Takes away what is left of a deleted pool.
        lost: Told of claims that are taken by force.
        clock: Where times come from.
        caller: Who does it, for the record of events.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        events: EtcdEvents,
        claims: EtcdClaims,
        *,
        clear: Callable[[str], object],
        lost: LostListener,
        clock: Clock,
        caller: str = "",
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._claims = claims
        self._clear = clear
        self._lost = lost
        self._clock = clock
        self._caller = caller
        self._writes = MemberWrites(gateway, keys, events, clock=clock, caller=caller)

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        wanted = self._all_names() if names is None else names
        view = self._see(wanted, is_read_only=True)
        found = (each.now(view.pools.types) for each in view.names)
        # What is only being made can't be seen before it is.
        return tuple(
            each if each.pool is None or each.pool in view.pools.types else _nowhere(each)
            for each in found
            if names is not None or each.is_known
        )

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        names = tuple(names)
        if claimant is not None:
            return self._claim(names, decide, claimant)
        view = self._see(names)
        renamings = self._decide(view, decide)
        parts = in_parts(self._keys, renamings)
        done: dict[str, Renaming] = {}
        for part in parts:
            try:
                done.update(self._update_part(view, part, decide))
            except (InvalidRequest, NotAllowed, NotFound) as error:
                raise _after(done, error) from error
        return _updated([done[name] for name in names])

    def belonging(self) -> Pools:
        return self._belonging()[0]

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        keys, word = self._keys, new_word()
        while True:
            before, revision, born = self._belonging()
            after = change(before)
            if after == before:
                return
            new = {after.default, *after.patterns.values()} - {
                before.default,
                *before.patterns.values(),
            }
            changes = belonging_changes(before, after)
            outcome = self._events.commit(
                [
                    unchanged(keys.belonging(), revision),
                    *(
                        created_at(keys.pool(each), born[each])
                        for each in sorted(filter(None, new))
                    ),
                ],
                [put(keys.belonging(), encode_belonging(after, word))],
                [read(keys.belonging())],
                events=as_events(changes, now=self._clock.wall(), caller=self._caller),
            )
            if outcome.succeeded or is_by(outcome.answers[0].first, word):
                return

    def _belonging(self) -> tuple[Pools, int, dict[str, int]]:
        """What there is beside the names, when that was written, and since when pools are there."""
        found, pools = self._gateway.read(
            read(self._keys.belonging()), read_all(self._keys.pools())
        ).answers
        born = {name_in(kv): kv.create_revision for kv in pools.items if not kv.value}
        return parse_belonging(found.first, frozenset(born)), revision_in(found.first), born

    def check(self) -> MemberCheck:
        """What looks whether all that is written down of names agrees."""
        from leasectl.engines.etcd.members.check import MemberCheck

        return MemberCheck(self._gateway, self._keys, clear=self._clear, settle=self._see)

    # Seeing

    def _all_names(self) -> list[str]:
        answers = self._gateway.read(
            read_all(self._keys.name(""), keys_only=True),
            read_all(self._keys.members(), keys_only=True),
        ).answers
        return sorted({name_in(kv) for found in answers for kv in found.items})

    def _see(self, names: Sequence[str], *, is_read_only: bool = False) -> MembersView:
        """See some names as they are once all that is over has been heeded.

        Args:
            names: Which.
            is_read_only: If that can't be written for want of space, it is only to be seen.
        """
        while True:
            view = see(self._gateway, self._keys, names)
            try:
                if not self._heed(view):
                    return view
            except NoSpace:
                if is_read_only:
                    return view
                raise

    def _heed(self, view: MembersView) -> bool:
        """Heed what is over of what is seen; returns whether anything was."""
        orphaned = view.orphaned()
        for pool_type in orphaned:
            self._clear(pool_type)
        reaped = [self._claims.reap(pool_type).any for pool_type in view.run_out()]
        return bool(orphaned) or any(reaped) or self._writes.settle(view)

    # Writing

    def _decide(self, view: MembersView, decide: Decide) -> list[Renaming]:
        word = new_word()
        return [
            Renaming(each, decide(each.member, view.pools), word, view.pools.grace_seconds)
            for each in view.names
        ]

    def _update_part(
        self, view: MembersView, renamings: Sequence[Renaming], decide: Decide
    ) -> dict[str, Renaming]:
        names = [each.after.name for each in renamings]
        while not self._write(view, renamings):
            view = self._see(names)
            renamings = self._decide(view, decide)
        return {each.after.name: each for each in renamings}

    def _write(self, view: MembersView, renamings: Sequence[Renaming]) -> bool:
        changed = [each for each in renamings if each.after != each.before]
        if not changed:
            return True
        taking = Taking(self._keys, changed)
        along = taking.along(now=self._clock.wall(), caller=self._caller)
        written = self._writes.write(view, changed, along=along)
        if written.is_done:
            taking.tell(self._gateway, self._lost)
        return written.is_done

    # Claiming

    def _claim(self, names: Sequence[str], decide: Decide, claimant: Claimant) -> Updated:
        """Have names be so, and be held."""
        while True:
            view = self._see(names)
            renamings = self._decide(view, decide)
            if len(in_parts(self._keys, renamings)) > 1:
                raise InvalidRequest(
                    f"{len(names)} names are too many to join and hold in one step on etcd; "
                    "join fewer at a time"
                )
            check_unheld(each.before for each in renamings)
            claim = self._write_claimed(view, renamings, claimant)
            if claim is not None:
                after = tuple(
                    each.after._replace(holder=claim.holder_identity) for each in renamings
                )
                leases = claim.leases(claim.acquire_time)
                return Updated(tuple(each.before for each in renamings), after, leases)

    def _write_claimed(
        self, view: MembersView, renamings: Sequence[Renaming], claimant: Claimant
    ) -> Claim | None:
        keys, request = self._keys, claimant.request
        now, etcd_lease_id = self._clock.wall(), new_etcd_lease_id()
        if request.ttl_seconds is not None:
            self._gateway.grant(etcd_lease_id, math.ceil(request.ttl_seconds))
        (grants,) = self._gateway.read(read(keys.grants(request.type))).answers
        ticket = Ticket(view.revision, claimant)
        claim, along = joining(keys, ticket, etcd_lease_id, view, grants.first, now=now)
        claimed = [each._replace(claim_index=n) for n, each in enumerate(renamings)]
        written = self._writes.write(view, claimed, along=along)
        if written.revision:
            return claim._replace(revision=written.revision)
        if not written.is_done:
            self._gateway.revoke_unused(etcd_lease_id)
            return None
        # By a try whose answer was lost.
        (found,) = self._gateway.read(read(keys.held(request.type, etcd_lease_id))).answers
        return None if found.first is None else parse_claim(found.first)


def _nowhere(member: Member) -> Member:
    return Member(member.name, expected=member.expected)


def _updated(renamings: Sequence[Renaming]) -> Updated:
    return Updated(
        tuple(each.before for each in renamings), tuple(each.after for each in renamings)
    )


def _after(done: dict[str, Renaming], error: LeaseError) -> LeaseError:
    """The same error, which says what had been done before it."""
    changed = [name for name, each in done.items() if each.after != each.before]
    if not changed:
        return error
    return type(error)(followed_by(error, f"that is done already for {listed(changed)}"))
