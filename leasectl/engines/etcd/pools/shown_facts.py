"""What is so of the resources of pools in etcd beside who holds them, as it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from leasectl.engines.etcd.gateway.requests import Found, Json, KeyValue, read, read_all
from leasectl.engines.etcd.key_values import name_in, noted_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import has_ended, parse_belonging, parse_member
from leasectl.engines.facts import QueueEntry, Resource
from leasectl.engines.matching import Want
from leasectl.engines.membership import Member, Pools
from leasectl.typed.tuples import NamedTuple


class SaidOfNames(NamedTuple):
    """What is said of names, whatever the pool.

    Args:
        facts: Their keys below ``member/``, by name.
        belonging: Where names belong of which nobody says more.
    """

    facts: Mapping[str, KeyValue]
    belonging: Pools


class PoolFacts(NamedTuple):
    """What is so of the resources of one pool.

    Args:
        members: All of them, by name, but for who holds them.
        lives: The keys of those that are there for a time, by name.
        graces: The keys of those that are held back, likewise.
        notes: What is noted at claims, by the keys of the notes.
        coming: Those that are to be had here later, by themselves.
    """

    members: Mapping[str, Member]
    lives: Mapping[str, KeyValue]
    graces: Mapping[str, KeyValue]
    notes: Mapping[str, str]
    coming: frozenset[str]

    def resource(self, held: Resource, left: Mapping[int, float]) -> Resource:
        """A resource with what is so of it.

        Args:
            held: What else there is to be shown of it.
            left: How long that lasts which is for a time, in seconds, by the ids of etcd leases.
        """
        member, life = self.said_of(held.name), self.lives.get(held.name)
        if member is None:
            return held
        grace = self.graces.get(held.name) if held.name in self.coming else None
        holder = None if held.lease is None else held.lease.holder_identity
        return held._replace(
            member=member._replace(holder=holder),
            held_back_seconds=None if grace is None else left.get(grace.etcd_lease_id),
            leaves_in_seconds=None if life is None else left.get(life.etcd_lease_id),
        )

    def etcd_lease_ids(self) -> list[int]:
        """What is there for a time is attached to."""
        kvs = (*self.lives.values(), *self.graces.values())
        return [kv.etcd_lease_id for kv in kvs if kv.etcd_lease_id]

    def said_of(self, name: str) -> Member | None:
        """What is known of a name; None where that is nothing but that it is in its pool."""
        member = self.members[name]
        return None if member == Member(name, member.pool) else member

    def over(self) -> Iterator[str]:
        """The names of which something is over by now, and nobody has written that yet."""
        for name, member in self.members.items():
            is_over = has_ended(member.lifetime, self.lives.get(name))
            if is_over or (name in self.coming and name not in self.graces):
                yield name


def unmet_among(entries: Iterable[QueueEntry], facts: PoolFacts) -> frozenset[int]:
    """The numbers of the tickets that what is in the pool can't meet, as things are."""
    wants = {each.ticket: (Want(each.name, each.where), each.count) for each in entries}
    members = facts.members.values()
    usable = {want: want.count_usable(members) for want in {want for want, _ in wants.values()}}
    return frozenset(number for number, (want, count) in wants.items() if usable[want] < count)


def name_reads(keys: Keys) -> tuple[Json, ...]:
    """What a request has to read of all names; `parse_names` takes the answers."""
    return read_all(keys.members()), read(keys.belonging())


def parse_names(answers: Sequence[Found], types: Sequence[str]) -> SaidOfNames:
    """What came of `name_reads`.

    Args:
        answers: Of that.
        types: Of the pools that there are.
    """
    facts, belonging = answers
    return SaidOfNames(
        {name_in(kv): kv for kv in facts.items},
        parse_belonging(belonging.first, frozenset(types)),
    )


def fact_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """What a request has to read of one pool's resources; `parse_facts` takes the answers."""
    return (
        read_all(keys.below("life", pool_type)),
        read_all(keys.below("grace", pool_type)),
        read_all(keys.comings(pool_type)),
        read_all(keys.notes(pool_type)),
    )


def parse_facts(
    pool_type: str, names: Sequence[str], answers: Sequence[Found], said: SaidOfNames
) -> PoolFacts:
    """What came of `fact_reads`.

    Args:
        pool_type: Of the pool.
        names: Of its resources.
        answers: Of those.
        said: What is said of names.
    """
    lives, graces, comings, notes = answers
    return PoolFacts(
        {name: parse_member(said.facts.get(name), name, pool_type) for name in names},
        {name_in(kv): kv for kv in lives.items},
        {name_in(kv): kv for kv in graces.items},
        {kv.key: noted_in(kv) for kv in notes.items},
        frozenset(name_in(kv) for kv in comings.items if not kv.value),
    )
