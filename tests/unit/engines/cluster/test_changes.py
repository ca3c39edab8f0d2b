"""How a driver finds a write again whose answer was lost, also if the object was written since."""

from __future__ import annotations

import pytest

from leasectl.engines.cluster.changes import (
    claimed,
    is_carried_out,
    new_pool,
    new_resource,
    new_ticket,
    noted,
    released,
    renewed_ticket,
    revoked,
    touched,
    with_belonging,
    with_changes,
    with_member,
)
from leasectl.engines.cluster.objects import (
    Change,
    Claim,
    ContentObject,
    Found,
    Identity,
    ResourceObject,
    Said,
)
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Member, Pools
from leasectl.model import Claimant, Request

CLAIM = Claim(
    claim_key="state/handle/1",
    ticket="ticket-1",
    place=7,
    grant=9000,
    fence=9001,
    holder_identity="job/1/host/handle",
    acquire_time=1.7e9,
    renew_time=1.7e9,
    renewed="2023-11-14T22:13:20.000000Z",
    ttl_seconds=10.0,
    transitions=1,
)
MEMBER = Member("a", "T")
FREE = new_resource("resource/a", MEMBER)
HELD = claimed(FREE, CLAIM)
POOL = new_pool("pool/T", "T", PoolSettings())
TICKET = new_ticket(
    "ticket-1",
    Claimant("handle/1", "job/1/host/handle", Request("T"), None),
    "state/handle/1",
    ttl_seconds=10.0,
    wall=1.7e9,
    life="",
)


def renewed(resource: ResourceObject, at: str) -> ResourceObject:
    assert resource.claim is not None
    return resource._replace(claim=resource.claim._replace(renewed=at))


def content(text: bytes) -> ContentObject:
    said = Said(text, len(text), 1.7e9)
    return ContentObject(Identity("content"), None, "once/content/k/1", said)


OTHERS = claimed(FREE, CLAIM._replace(claim_key="state/other/1", ticket="ticket-2", fence=9002))
RENEWED, NOTED, REVOKED = renewed(HELD, "later"), noted(HELD, "x"), revoked(HELD, "by an admin")
RELEASED, MOVED = released(HELD, MEMBER), with_member(FREE, Member("a", "U"))
FLAGGED, TOUCHED = FREE._replace(entering="word"), touched(FREE)
PACED = POOL._replace(level=1.0, last_grant="ticket-1")
RENEWED_TICKET = renewed_ticket(TICKET, wall=1.8e9, counts_as=1)
CLOSING = POOL._replace(state="closing", word="word")
BELONGING = with_belonging(None, "belonging", Pools(frozenset()))
T_BY_DEFAULT = (BELONGING, "belonging", Pools(frozenset(), "T"))
DEFAULT, RESTORED = with_belonging(*T_BY_DEFAULT), BELONGING._replace(epoch="word", floor=9)

SHOWN = {
    "a claim": (FREE, HELD, HELD),
    "a claim that was renewed since": (FREE, HELD, RENEWED),
    "a claim with a note since": (FREE, HELD, NOTED),
    "a claim of a new resource": (None, HELD, HELD),
    "a renewal with a note since": (HELD, RENEWED, noted(RENEWED, "x")),
    "a note whose claim was renewed since": (HELD, NOTED, renewed(NOTED, "later")),
    "a revocation with a note since": (HELD, REVOKED, noted(REVOKED, "x")),
    "a release": (HELD, RELEASED, RELEASED),
    "a release of what was claimed since": (HELD, RELEASED, claimed(RELEASED, CLAIM)),
    "a release of what was moved since": (HELD, RELEASED, with_member(RELEASED, Member("a", "U"))),
    "a move of what was claimed since": (FREE, MOVED, claimed(MOVED, CLAIM)),
    "a flag": (FREE, FLAGGED, FLAGGED),
    "a flag that is removed": (FLAGGED, FREE, touched(FREE)),
    "a touch": (FREE, TOUCHED, claimed(TOUCHED, CLAIM)),
    "a new ticket": (None, TICKET, RENEWED_TICKET),
    "a new pool": (None, POOL, CLOSING),
    "a grant of a pool that was closed since": (POOL, PACED, PACED._replace(state="closing")),
    "a closing pool that has granted since": (POOL, CLOSING, CLOSING._replace(level=1.0)),
    "a new default pool": (BELONGING, DEFAULT, DEFAULT),
    "an epoch": (BELONGING, RESTORED, RESTORED),
    "a content": (None, content(b"x"), content(b"x")),
}
NOT_SHOWN = {
    "another claim": (FREE, HELD, OTHERS),
    "a claim that was released since": (FREE, HELD, RELEASED),
    "a renewal of what was renewed otherwise": (HELD, RENEWED, renewed(HELD, "still later")),
    "a renewal of what is another's": (HELD, RENEWED, renewed(OTHERS, "later")),
    "the same note of another writer": (HELD, NOTED, noted(HELD, "x")),
    "a note that is removed, of what was released": (NOTED, noted(NOTED, None), RELEASED),
    "a revocation with another reason": (HELD, REVOKED, revoked(HELD, "by another")),
    "a release by another process": (HELD, RELEASED, released(HELD, MEMBER)),
    "the same move by another process": (FREE, MOVED, with_member(FREE, Member("a", "U"))),
    "a flag that was swept": (FREE, FLAGGED, FREE),
    "a touch by another process": (FREE, TOUCHED, touched(FREE)),
    "another renewal of a ticket": (
        TICKET,
        renewed_ticket(TICKET, wall=1.8e9, counts_as=1),
        TICKET,
    ),
    "the same pool of another creator": (None, POOL, new_pool("pool/T", "T", PoolSettings())),
    "a pool closed by another process": (POOL, CLOSING, CLOSING._replace(word="other")),
    "changes of a pool by another process": (POOL, with_changes(POOL), with_changes(POOL)),
    "a grant to another ticket, up to the level of one that has paid before": (
        PACED._replace(level=0.5),
        PACED,
        PACED._replace(last_grant="ticket-2"),
    ),
    "the end of a pool that was closed anew": (
        CLOSING,
        CLOSING._replace(state="gone"),
        CLOSING._replace(state="gone", word="other"),
    ),
    "another kind of object": (FREE, HELD, POOL),
    "another kind of object in place of a pool": (POOL, PACED, HELD),
    "the same default pool of another process": (BELONGING, DEFAULT, with_belonging(*T_BY_DEFAULT)),
    "an epoch of another process": (BELONGING, RESTORED, RESTORED._replace(epoch="other")),
    "another content": (None, content(b"x"), content(b"y")),
}


@pytest.mark.parametrize(("seen", "new", "found"), SHOWN.values(), ids=SHOWN)
def test_an_object_shows_what_a_write_made_of_it(
    seen: Found | None, new: Found, found: Found
) -> None:
    assert is_carried_out(Change(seen, new), found)


@pytest.mark.parametrize(("seen", "new", "found"), NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_an_object_does_not_show_a_write_that_was_refused(
    seen: Found | None, new: Found, found: Found
) -> None:
    assert not is_carried_out(Change(seen, new), found)
