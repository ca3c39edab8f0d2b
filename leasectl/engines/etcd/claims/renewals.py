"""Renew a claim in two requests.

A keep-alive, which gives the claim's etcd lease its full time again; and a transaction that dates
the claim, as `EarlyEnds` needs it, and reads back what is left of it, for names are also taken away
by force. Deadlines count from before the first of them, so no answer that is late or lost does any
harm: what it told of is done, or is done again.

Which claims a claim key has is read once and then known. With each date it is read again, as it is
then: what has come to it since is renewed as well, and what has gone is forgotten. What is noted at
them is read along.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.view import claim_reads, parse_claim_view
from leasectl.engines.etcd.gateway.answers import NoSpace
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Outcome,
    not_attached,
    present,
    put,
    read_all,
)
from leasectl.engines.etcd.key_values import claim_id_in, noted_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim, parse_claim
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.notes import Note, NoteListener

# Claims that are never renewed again are forgotten when so many others have been renewed since.
_MOST_KNOWN = 4096


class Renewal(NamedTuple):
    """What came of renewing a claim.

    Args:
        claim: As it is now; None when it has gone.
        siblings: All claims that its claim key has, as they were then.
        notes: What is noted at it.
    """

    claim: Claim | None
    siblings: tuple[ClaimId, ...]
    notes: tuple[Note, ...] = ()


class EtcdRenewals:
    """Renews claims below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: Those claims.
        clock: Where times come from.

    Attributes:
        noted: Told by each renewal what is noted at what it has renewed.
    """

    noted: NoteListener = staticmethod(lambda notes: None)

    def __init__(self, gateway: Gateway, keys: Keys, claims: EtcdClaims, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock
        # By claim key, those last that were renewed last.
        self._known: OrderedDict[str, tuple[ClaimId, ...]] = OrderedDict()

    def renew(self, claim_key: str) -> tuple[str, ...]:
        """Implements `Engine.renew`."""
        to_renew = deque(self._known.pop(claim_key, ()) or self._claims.index(claim_key))
        renewed: dict[ClaimId, Renewal] = {}
        while to_renew:
            claim_id = to_renew.popleft()
            if claim_id not in renewed:
                renewed[claim_id] = self.renew_claim(claim_id, claim_key)
                to_renew += renewed[claim_id].siblings
        held = {each_id: each.claim for each_id, each in renewed.items() if each.claim is not None}
        self.noted([note for each in renewed.values() for note in each.notes])
        self._remember(claim_key, tuple(held))
        fences = [each for claim in held.values() for each in zip(claim.fences, claim.names)]
        return tuple(name for _, name in sorted(fences))

    def renew_claim(self, claim_id: ClaimId, claim_key: str) -> Renewal:
        """Give a claim its full time again and date it; free it if it has run out.

        Args:
            claim_id: Which; there may be no such claim.
            claim_key: What it is found by.
        """
        date = self._clock.wall()  # from before the etcd lease's time begins anew
        is_kept = self._gateway.keep_alive(claim_id.etcd_lease_id)
        index, notes, *answers = self._date(claim_id, claim_key, date, is_attached=is_kept).answers
        siblings = tuple(map(claim_id_in, index.items))
        view = parse_claim_view(answers)
        if view.held is not None and view.is_alive:
            claim = parse_claim(view.held)
            if is_kept or claim.lease_duration_seconds is None:
                return Renewal(claim, siblings, _notes(claim_id.pool_type, claim, notes))
        with contextlib.suppress(NoSpace):  # that it has run out is said all the same
            self._claims.reap_one(claim_id, view)
        return Renewal(None, siblings)

    def _date(
        self, claim_id: ClaimId, claim_key: str, date: float, *, is_attached: bool
    ) -> Outcome:
        """Write down when a claim was renewed, if it is good; see what is there in any case.

        Without space that isn't written, and nothing else is: nobody can be granted anything.

        Args:
            claim_id: Which.
            claim_key: What it is found by.
            date: Wall clock, in seconds.
            is_attached: Whether it may be attached to an etcd lease; else that is over, and it is
                good only if it has no ttl.
        """
        keys, alive = self._keys, self._keys.alive(*claim_id)
        reads = (
            read_all(keys.all_owned(claim_key)),
            read_all(keys.notes_of(*claim_id)),
            *claim_reads(keys, claim_id),
        )
        guards = [present(alive), *(() if is_attached else (not_attached(alive),))]
        try:
            return self._gateway.commit(
                guards, [put(keys.renewed(*claim_id), str(date)), *reads], reads
            )
        except NoSpace:
            return self._gateway.read(*reads)

    def _remember(self, claim_key: str, ids: tuple[ClaimId, ...]) -> None:
        if ids:
            self._known[claim_key] = ids
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


def _notes(pool_type: str, claim: Claim, found: Found) -> tuple[Note, ...]:
    """What is noted at a claim, as it was read with it."""
    if not found.items:
        return ()
    from leasectl.engines.notes import Note

    fences = dict(zip(claim.names, claim.fences))
    notes = ((kv.key.rpartition("/")[2], noted_in(kv)) for kv in found.items)
    return tuple(
        Note(pool_type, name, fences[name], text) for name, text in notes if name in fences
    )
