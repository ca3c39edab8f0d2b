"""Which waiters to wake when resources come to a pool."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Protocol, TypeVar

from leasectl.engines.rules.turns import shares

if TYPE_CHECKING:
    from leasectl.engines.rules.turns import Rank
    from leasectl.state.directory import State

_HAS_PACE = "SELECT 1 FROM pool_setting WHERE type = ? AND pace_seconds > 0"


class Waits(Protocol):
    """What is needed of a ticket of `LocalQueues`."""

    pipe: str
    name: str | None
    where: str
    suspended: bool

    @property
    def keeps_all_back(self) -> bool: ...


T = TypeVar("T", bound=Waits)


class Queues(Protocol[T]):
    """What is needed of `LocalQueues`."""

    state: State

    def in_order(self, pool_type: str) -> Generator[T, None, None]: ...

    def behind(
        self, pool_type: str, ticket: T, place: Rank | None = None
    ) -> Generator[T, None, None]: ...

    def could_use(self, ticket: T, name: str) -> bool: ...


def best_for(queues: Queues[T], pool_type: str, left: set[str]) -> list[str]:
    """Return the pipes of the best waiter for each of some free resources."""
    with closing(queues.in_order(pool_type)) as tickets:
        counting = (each for each in tickets if not each.suspended)
        return [each.pipe for each, share in shares(counting, left, queues.could_use) if share]


def kept_back_by(queues: Queues[T], pool_type: str, ticket: T, place: Rank | None) -> list[str]:
    """Return the pipes of the best for each want that a ticket kept something from.

    They end with the first ticket that takes any resource.

    Args:
        queues: Of all pools.
        pool_type: Of its queue.
        ticket: The ticket.
        place: See `LocalQueues.wake_behind`.
    """
    called: dict[tuple[str | None, str], str] = {}
    name = ticket.name
    if name is not None and queues.state.query(_HAS_PACE, pool_type):
        name = None  # it also used the pace's next grant
    with closing(queues.behind(pool_type, ticket, place)) as tickets:
        for each in tickets:
            if each.suspended:
                continue
            if name is None or queues.could_use(each, name):
                called.setdefault((each.name, each.where), each.pipe)
            if each.keeps_all_back:
                break
    return list(called.values())
