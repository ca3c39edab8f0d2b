"""The keys of one prefix.

``<type>`` is a pool's, and empty for a name in no pool.

======================================= ============================================== =============
key                                     stands for                                     attached
======================================= ============================================== =============
``at/<name>``                           the pool that a name is in                     no
``in/<type>/pool``                      a pool                                         no
``in/<type>/grants``                    the number of its last grant                   no
``in/<type>/resource/<name>``           a resource                                     no
``in/<type>/ticket/<id>``               a position in its queue                        no
``in/<type>/alive/resource/<name>``     its claim is still good                        if it ends
``in/<type>/alive/ticket/<id>``         its waiter lives                               always
``of/<state id>/<claim key>/...``       copies of what a claim key finds:              as there
                                        ``resource/``, ``alive/``, ``ticket/``
``free/<type>/<fence>/<name>``          a copy of a resource that can be had           no
``to/<type>/<name>``                    a copy of a resource that is to move there     no
``type/<type>``                         there is a pool                                no
``belonging``                           where names belong, and the default pool       no
``values/<space>/<subject>``            what is kept of a subject                      no
``content/<space>/<subject>/<word>``    a content of it                                no
``event/<bucket>/<type>/<token>``       something that happened                        always
``packed/<bucket>/<number>``            so many events: all of a bucket, in one        always
``bucket/now``                          the bucket that events are written to now      always
``bucket/kept/<bucket>``                a bucket of events that are kept               always
======================================= ============================================== =============

Each object has one key that writes are guarded by; its copies are written with it. So each list and
each watch is one range. A list of a pool only counts the keys in ``alive/``: if they are as many as
there have to be, all is good.

What only those write who may change pools is in ``at/``, ``type/`` and ``belonging``: a change of a
name's membership writes its ``at/`` key, also where that stays as it is, and one of a pool its key
in ``type/``.
"""

from __future__ import annotations

from leasectl.engines.cluster.objects import (
    Found,
    ResourceObject,
    TicketObject,
)
from leasectl.engines.etcd.requests import end_of

RESOURCE, TICKET, POOL = "resource/", "ticket/", "pool/"
BELONGING = "belonging"
ALIVE = "alive/"


class Keys:
    """The keys of one prefix.

    Args:
        prefix: Below which everything is; "/leasectl" becomes "/leasectl/".

    Attributes:
        prefix: As given, with a "/" at the end.
        pools, types, events, packs, buckets: What all keys of a kind begin with.
        belonging, bucket_now: The keys of single objects.
        earlier: Where an earlier format has its pools.
        all_copies: Where all pointers to resources are, and after that all copies.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/") + "/"
        self.pools = f"{self.prefix}in/"
        self.types = f"{self.prefix}type/"
        self.belonging = f"{self.prefix}{BELONGING}"
        self.earlier = f"{self.prefix}pool/"
        self.all_copies = [f"{self.prefix}{each}/" for each in ("at", "of", "free", "to")]
        self.events = f"{self.prefix}event/"
        self.packs = f"{self.prefix}packed/"
        self.bucket_now = f"{self.prefix}bucket/now"
        self.buckets = f"{self.prefix}bucket/kept/"

    # Of objects

    def main(self, found: Found) -> str:
        """The key by which writes of an object are guarded."""
        if isinstance(found, ResourceObject):
            return self.resource(found.member.pool, found.id.name)
        return self.named(found.id.name)

    def named(self, name: str) -> str:
        """The key of an object that isn't a resource, by its name."""
        if name.startswith(TICKET):
            _, pool_type, id_ = name.split("/")
            return f"{self.pool(pool_type)}{TICKET}{id_}"
        if name.startswith(POOL):
            return f"{self.pool(name[len(POOL) :])}pool"
        return f"{self.prefix}{name}"

    def resource(self, pool_type: str | None, object_name: str) -> str:
        return f"{self.pool(pool_type)}{object_name}"

    def at(self, object_name: str) -> str:
        return f"{self.prefix}at/{object_name[len(RESOURCE) :]}"

    def pool(self, pool_type: str | None) -> str:
        return f"{self.prefix}in/{pool_type or ''}/"

    def alive(self, pool_type: str | None, object_name: str = "") -> str:
        """The key that is there as long as a ticket, or the claim of a resource, is good.

        Args:
            pool_type: Of its pool.
            object_name: Of it; empty for what all of these begin with.
        """
        kind, slash, name = object_name.partition("/")
        return f"{self.pool(pool_type)}{ALIVE}{kind}{slash}{name.rpartition('/')[2]}"

    def beside_alive(self, pool_type: str) -> tuple[str, str]:
        """From which key to before which all others of a pool are."""
        return f"{self.pool(pool_type)}{ALIVE[:-1]}0", end_of(self.pool(pool_type))

    def grants(self, pool_type: str) -> str:
        return f"{self.pool(pool_type)}grants"

    def claim(self, claim_key: str) -> str:
        return f"{self.prefix}of/{claim_key}/"

    def frees(self, pool_type: str) -> str:
        return f"{self.prefix}free/{pool_type}/"

    def coming(self, pool_type: str) -> str:
        return f"{self.prefix}to/{pool_type}/"

    def type(self, pool_type: str) -> str:
        return f"{self.types}{pool_type}"

    def values(self, space: str | None) -> str:
        of_space = "" if space is None else f"{space}/"
        return f"{self.prefix}values/{of_space}"

    def copies(self, found: Found) -> list[str]:
        """The keys with the same value as an object's own."""
        if isinstance(found, ResourceObject):
            keys, name = [], found.id.name[len(RESOURCE) :]
            member, claim = found.member, found.claim
            if claim is not None:
                keys.append(f"{self.claim(claim.claim_key)}{found.id.name}")
            if member.moves_to is not None:
                keys.append(f"{self.coming(member.moves_to)}{name}")
            if member.pool is not None and is_plainly_free(found):
                keys.append(f"{self.frees(member.pool)}{found.fence:020d}/{name}")
            return keys
        if isinstance(found, TicketObject):
            return [f"{self.claim(found.claim_key)}{TICKET}{found.id.name.rpartition('/')[2]}"]
        return []

    def lives(self, found: Found) -> list[str]:
        """The keys that are there as long as a ticket or the claim of a resource is good."""
        if isinstance(found, TicketObject):
            return [self.alive(found.pool, found.id.name)]
        if not isinstance(found, ResourceObject) or found.claim is None:
            return []
        of_claim = f"{self.claim(found.claim.claim_key)}{ALIVE}{found.id.name[len(RESOURCE) :]}"
        return [self.alive(found.member.pool, found.id.name), of_claim]

    # Of events

    def events_in(self, bucket: str, pool_type: str | None = None) -> str:
        """Where the events of a bucket are, all of them or those of one pool."""
        of_pool = "" if pool_type is None else f"{pool_type}/"
        return f"{self.events}{bucket}/{of_pool}"

    def event(self, bucket: str, pool_type: str, token: str) -> str:
        return f"{self.events_in(bucket, pool_type)}{token}"

    def packs_of(self, bucket: str) -> str:
        return f"{self.packs}{bucket}/"

    def pack(self, bucket: str, number: int) -> str:
        return f"{self.packs_of(bucket)}{number}"

    def bucket(self, bucket: str) -> str:
        return f"{self.buckets}{bucket}"


def is_plainly_free(resource: ResourceObject) -> bool:
    """Return whether a resource can be had by anybody at once, and for good."""
    member = resource.member
    return (
        resource.claim is None
        and member.takes_holders
        and member.lifetime is None
        and resource.grace_seconds is None
    )
