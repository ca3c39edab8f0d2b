"""Which resources a request could use: a pure function of what they are, the same for every store.

Of a request that says nothing of it that is any; of one with a name, the one of that name. Else
each of its conditions has to hold of a resource's properties: a key has a value, or has not, which
a key that isn't there hasn't either (as `!=` of Kubernetes' label selectors).
"""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.model import Request, Where
from leasectl.typed.hints import TYPE_CHECKING
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    from leasectl.engines.membership import Member, Properties


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


def matches(where: Where, properties: Properties) -> bool:
    """Tell whether all conditions hold of a resource's properties."""
    if not where:
        return True
    found = dict(properties)
    return all((found.get(key) == value) is is_equal for key, value, is_equal in where)
