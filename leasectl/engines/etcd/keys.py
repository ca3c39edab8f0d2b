"""Encode and parse keys.

Below the prefix, with ``<id>`` for the etcd lease of an acquisition in hexadecimal:

======================================= ============================================ ============
key                                     stands for                                   attached
======================================= ============================================ ============
``pool/<type>``                         the pool; written by who changes it          while made
``settings/<type>``                     how it grants                                no
``pace/<type>``                         what its grants owe its pace                 once counted
``grants/<type>``                       the number of its last grant                 no
``name/<name>``                         the type that a name is taken for; by whom   no
``resource/<type>/<name>``              a resource; written by each claim of it      no
``free/<type>/<fence>/<name>``          it is free, and who had it                   no
``held/<type>/<id>``                    a claim: who holds what                      no
``alive/<type>/<id>``                   the claim is still good                      if it ends
``renewed/<type>/<id>``                 when that claim was last renewed             no
``gone/<type>/<id>/seen``               that claim has gone before its date          no
``gone/<type>/<id>/kept/<other id>``    it is kept for its holder all the same       always
``ended/<type>/<id>/<token>``           who gave that claim back, or some of it      always
``owned/<state id>/<claim key>/<id>``   that claim is found by that claim key        no
``ticket/<type>/<id>``                  a position in the queue                      always
``waiting/<state id>/<claim key>/<id>`` so is that ticket                            always
``queued/<type>/<id>``                  that ticket, until somebody tells of its end no
``event/<bucket>/<type>/<token>``       something that happened                      always
``packed/<bucket>/<number>``            so many events: all of a bucket, in one      always
``bucket/now``                          the bucket that events are written to now    always
``bucket/kept/<bucket>``                a bucket of events that are kept             always
``rank/<type>/<rank>/<id>``             the priority that a ticket counts with       always
``note/<type>/<id>/<name>``             what others have said of a claim             as the claim
``value/<key>``                         what is kept beside pools                    if for a time
``member/<name>``                       what is so of a name beside that             no
``property/<type>/<name>``              what that resource is                        no
``closed/<type>/<name>``                why it takes no new holder                   no
``bound/<type>/<name>``                 what a release of it has to heed             no
``life/<type>/<name>``                  it is in its pool for as long as that        if for a time
``coming/<type>/<name>``                it can be had there later: from which pool   no
``grace/<type>/<name>``                 or, if from none, as long as it isn't        always
``belonging``                           where names belong, and the default pool     no
======================================= ============================================ ============

A fence is 128 times the revision of the claim plus the resource's index in it; etcd's revision is
one for all keys of a transaction, and no two leases may share a fence. Free keys sort by it, so
that the least recently acquired come first and one short page will do.
"""

from __future__ import annotations

from typing import NamedTuple

# No claim key of this state directory begins with it.
_ELSEWHERE = "@"


class ClaimId(NamedTuple):
    """What the keys of a claim, and of its ticket before it, have in common.

    Args:
        pool_type: The pool's type.
        etcd_lease_id: Of the etcd lease that the ticket was attached to.
    """

    pool_type: str
    etcd_lease_id: int


class Keys:
    """The keys of one prefix.

    Args:
        prefix: Below which everything is; "/leasectl" becomes "/leasectl/".
        state_id: Names the state directory that claim keys are unique in; without "/".
    """

    def __init__(self, prefix: str, state_id: str) -> None:
        self.prefix = prefix.rstrip("/") + "/"
        self._state_id = state_id

    def pools(self) -> str:
        return f"{self.prefix}pool/"

    def pool(self, pool_type: str) -> str:
        return f"{self.prefix}pool/{pool_type}"

    def settings(self, pool_type: str) -> str:
        return f"{self.prefix}settings/{pool_type}"

    def pace(self, pool_type: str) -> str:
        return f"{self.prefix}pace/{pool_type}"

    def grants(self, pool_type: str) -> str:
        return f"{self.prefix}grants/{pool_type}"

    def name(self, name: str) -> str:
        return f"{self.prefix}name/{name}"

    def resources(self, pool_type: str) -> str:
        return f"{self.prefix}resource/{pool_type}/"

    def resource(self, pool_type: str, name: str) -> str:
        return f"{self.resources(pool_type)}{name}"

    def frees(self, pool_type: str) -> str:
        return f"{self.prefix}free/{pool_type}/"

    def free(self, pool_type: str, fence: int, name: str) -> str:
        return f"{self.frees(pool_type)}{fence:020d}/{name}"

    def helds(self, pool_type: str) -> str:
        return f"{self.prefix}held/{pool_type}/"

    def held(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.helds(pool_type)}{etcd_lease_id:016x}"

    def alives(self, pool_type: str) -> str:
        return f"{self.prefix}alive/{pool_type}/"

    def alive(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.alives(pool_type)}{etcd_lease_id:016x}"

    def renewals(self, pool_type: str) -> str:
        return f"{self.prefix}renewed/{pool_type}/"

    def renewed(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.renewals(pool_type)}{etcd_lease_id:016x}"

    def gone(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.prefix}gone/{pool_type}/{etcd_lease_id:016x}/"

    def gone_seen(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.gone(pool_type, etcd_lease_id)}seen"

    def gone_kept(self, pool_type: str, etcd_lease_id: int, keeping_id: int) -> str:
        return f"{self.gone(pool_type, etcd_lease_id)}kept/{keeping_id:016x}"

    def ended(self, pool_type: str, etcd_lease_id: int, token: str) -> str:
        return f"{self.prefix}ended/{pool_type}/{etcd_lease_id:016x}/{token}"

    def tickets(self, pool_type: str) -> str:
        return f"{self.prefix}ticket/{pool_type}/"

    def ticket(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.tickets(pool_type)}{etcd_lease_id:016x}"

    def ranks(self, pool_type: str) -> str:
        return f"{self.prefix}rank/{pool_type}/"

    def rank(self, pool_type: str, rank: str, etcd_lease_id: int) -> str:
        return f"{self.ranks(pool_type)}{rank}/{etcd_lease_id:016x}"

    def queueds(self, pool_type: str) -> str:
        return f"{self.prefix}queued/{pool_type}/"

    def queued(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.queueds(pool_type)}{etcd_lease_id:016x}"

    def all_owned_here(self) -> str:
        return f"{self.prefix}owned/{self._state_id}/"

    def all_owned(self, claim_key: str) -> str:
        return f"{self.prefix}owned/{self.with_state_id(claim_key)}/"

    def owned(self, claim_key: str, etcd_lease_id: int) -> str:
        return f"{self.all_owned(claim_key)}{etcd_lease_id:016x}"

    def all_waiting(self, claim_key: str) -> str:
        return f"{self.prefix}waiting/{self.with_state_id(claim_key)}/"

    def waiting(self, claim_key: str, etcd_lease_id: int) -> str:
        return f"{self.all_waiting(claim_key)}{etcd_lease_id:016x}"

    def events(self) -> str:
        return f"{self.prefix}event/"

    def events_in(self, bucket: str, pool_type: str | None = None) -> str:
        """Where the events of a bucket are, all of them or those of one pool."""
        of_pool = "" if pool_type is None else f"{pool_type}/"
        return f"{self.events()}{bucket}/{of_pool}"

    def event(self, bucket: str, pool_type: str, token: str) -> str:
        return f"{self.events_in(bucket, pool_type)}{token}"

    def packs(self) -> str:
        return f"{self.prefix}packed/"

    def packs_of(self, bucket: str) -> str:
        return f"{self.packs()}{bucket}/"

    def pack(self, bucket: str, number: int) -> str:
        return f"{self.packs_of(bucket)}{number}"

    def bucket_now(self) -> str:
        return f"{self.prefix}bucket/now"

    def buckets(self) -> str:
        return f"{self.prefix}bucket/kept/"

    def bucket(self, bucket: str) -> str:
        return f"{self.buckets()}{bucket}"

    def notes(self, pool_type: str) -> str:
        return f"{self.prefix}note/{pool_type}/"

    def notes_of(self, pool_type: str, etcd_lease_id: int) -> str:
        return f"{self.notes(pool_type)}{etcd_lease_id:016x}/"

    def note(self, pool_type: str, etcd_lease_id: int, name: str) -> str:
        return f"{self.notes_of(pool_type, etcd_lease_id)}{name}"

    def members(self) -> str:
        return f"{self.prefix}member/"

    def member(self, name: str) -> str:
        return f"{self.members()}{name}"

    def properties(self, pool_type: str) -> str:
        return f"{self.prefix}property/{pool_type}/"

    def property(self, pool_type: str, name: str) -> str:
        return f"{self.properties(pool_type)}{name}"

    def all_closed(self, pool_type: str) -> str:
        return f"{self.prefix}closed/{pool_type}/"

    def closed(self, pool_type: str, name: str) -> str:
        return f"{self.all_closed(pool_type)}{name}"

    def all_bound(self, pool_type: str) -> str:
        return f"{self.prefix}bound/{pool_type}/"

    def bound(self, pool_type: str, name: str) -> str:
        return f"{self.all_bound(pool_type)}{name}"

    def life(self, pool_type: str, name: str) -> str:
        return f"{self.prefix}life/{pool_type}/{name}"

    def grace(self, pool_type: str, name: str) -> str:
        return f"{self.prefix}grace/{pool_type}/{name}"

    def comings(self, pool_type: str) -> str:
        return f"{self.prefix}coming/{pool_type}/"

    def coming(self, pool_type: str, name: str) -> str:
        return f"{self.comings(pool_type)}{name}"

    def below(self, kind: str, pool_type: str | None) -> str:
        """Where all keys of a kind are, or those of one pool."""
        of_pool = "" if pool_type is None else f"{pool_type}/"
        return f"{self.prefix}{kind}/{of_pool}"

    def belonging(self) -> str:
        return f"{self.prefix}belonging"

    def value(self, key: str) -> str:
        return f"{self.prefix}value/{key}"

    def with_state_id(self, claim_key: str) -> str:
        """A claim key with the state id that makes it unique, as it is written down."""
        return (
            claim_key[1:] if claim_key.startswith(_ELSEWHERE) else f"{self._state_id}/{claim_key}"
        )

    def claim_key_of(self, written: str) -> str:
        """The reverse: claim keys of this state directory go as they are, all others are marked."""
        state_id, _, claim_key = written.partition("/")
        return claim_key if state_id == self._state_id else _ELSEWHERE + written
