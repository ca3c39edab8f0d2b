"""Match requests with resources; tell whether a request can ever be met."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines import refusals
from leasectl.errors import CanNeverBeMet, InvalidRequest, LeaseError
from leasectl.model import Request, Where
from leasectl.text.properties import written
from leasectl.text.wording import counted, listed, printable

if TYPE_CHECKING:
    from leasectl.engines.facts import Pool, Resource
    from leasectl.engines.rules.membership import Member, Properties


class Want(NamedTuple):
    """What a request could use.

    Args:
        name: The one resource that will do; None for any.
        where: What has to be so of it.
    """

    name: str | None = None
    where: Where = ()

    @property
    def is_particular(self) -> bool:
        """Tell whether it isn't any that will do."""
        return self.name is not None or bool(self.where)

    def could_use(self, name: str, properties: Properties) -> bool:
        """Tell whether a resource would do."""
        return self.name in (None, name) and matches(self.where, properties)

    def count_usable(self, members: Iterable[Member]) -> int:
        """How many would do, of what takes holders."""
        return self.count_fit(each for each in members if each.takes_holders)

    def count_fit(self, members: Iterable[Member]) -> int:
        """How many would do, whether they take holders or not."""
        return sum(self.could_use(each.name, each.properties) for each in members)


def want_of(request: Request) -> Want:
    """What a request could use."""
    return Want(request.name, request.where)


def usable_in(pool: Pool, request: Request) -> list[Resource]:
    """Return the resources that a request could use, including held and cordoned ones."""
    want = want_of(request)
    return [
        each
        for each in pool.resources
        if want.could_use(each.name, each.member.properties if each.member else ())
    ]


def matches(where: Where, properties: Properties) -> bool:
    """Tell whether all conditions hold of a resource's properties."""
    if not where:
        return True
    found = dict(properties)
    return all((found.get(key) == value) is is_equal for key, value, is_equal in where)


class Unmet(NamedTuple):
    """Why a pool can't meet a request, however long it waits.

    Args:
        pool_type: The pool.
        want: Which resources would do.
        count: How many are asked for.
        capacity: How many resources there are.
        usable: How many of them would do, and take holders.
        named: The one that is asked for, if it exists.
        there_is: The values of the requested keys among those that take holders.
        is_for_now: It could be met if all took holders, or the pool is empty: that passes, and the
            request isn't wrong.
    """

    pool_type: str
    want: Want
    count: int  # type: ignore[assignment]  # as in Request
    capacity: int
    usable: int
    named: Member | None = None
    there_is: tuple[str, ...] = ()
    is_for_now: bool = False

    def refusal(self) -> LeaseError:
        """What is said of a request that arrives."""
        if self.want.name is not None and self.named is None:
            return refusals.no_resource(self.pool_type, self.want.name)
        kind = CanNeverBeMet if self.is_for_now else InvalidRequest
        if self.want.is_particular:
            return kind(f"{self}; see: leasectl status -t {self.pool_type}")
        closed = self.capacity - self.usable
        return refusals.too_few(self.pool_type, self.capacity, self.count, closed=closed, kind=kind)

    def __str__(self) -> str:
        """Return the message for a request that waits already."""
        in_pool = f'pool "{self.pool_type}"'
        if self.want.name is not None and self.named is None:
            return f'resource "{self.want.name}" isn\'t in {in_pool} now'
        if self.named is not None and not self.named.takes_holders:
            why = why_closed(self.named)
            return f'resource "{self.named.name}" in {in_pool} is unavailable: {why}'
        if not self.want.where:
            few = f"{counted(self.usable, 'resource')} (not counting cordoned or leaving ones)"
            return f"{in_pool} has {few}, so a request for {self.count} can't be met"
        wanted = " ".join(f"--where {printable(each)}" for each in written(self.want.where))
        there_is = listed(self.there_is)
        if not there_is:
            keys = " or ".join(sorted({f'"{printable(key)}"' for key, _, _ in self.want.where}))
            return f"no resource in {in_pool} has a {keys} property"
        if self.usable == 0:
            return f"{in_pool} has no resource for {wanted}; there is: {there_is}"
        few = f"{in_pool} has {counted(self.usable, 'resource')} for {wanted}"
        return f"{few}, so a request for {self.count} can't be met; there is: {there_is}"


def unmet(request: Request, members: Collection[Member]) -> Unmet | None:
    """Why a pool can't meet a request; None if it could.

    Args:
        request: What is asked for; of its types the first counts.
        members: All that is in the pool.
    """
    want = want_of(request)
    usable = want.count_usable(members)
    if usable >= request.count:
        return None
    named = next((each for each in members if each.name == want.name), None)
    there_is = tuple(_values(want.where, (each for each in members if each.takes_holders)))
    return Unmet(
        request.type,
        want,
        request.count,
        len(members),
        usable,
        named=named,
        there_is=there_is,
        is_for_now=not members or want.count_fit(members) >= request.count,
    )


def why_closed(member: Member) -> str:
    """Why something takes no new holder, for people."""
    if member.cordoned:
        return "it is cordoned"
    return "it leaves when it is free" if member.leaves else f"it goes to {member.moves_to}"


def _values(where: Where, members: Iterable[Member]) -> Iterable[str]:
    """What is so of some keys: each value that there is, and of how many."""
    found: dict[str, int] = {}
    asked = {key for key, _, _ in where}
    for member in members:
        for key, value in member.properties:
            if key in asked:
                said = printable(f"{key}={value}")
                found[said] = found.get(said, 0) + 1
    return [f"{said} ({found[said]})" for said in sorted(found)]
