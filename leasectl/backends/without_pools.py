"""Refusals of backends without pools of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from leasectl.backends.kinds import no_pools

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.state.directory import State


def own_events(state: State, url: str) -> EventLog:
    """Open the record of what happened to a state directory's own handles.

    Args:
        state: The state directory.
        url: At which backend.
    """
    from leasectl.state.event_log import StateEventLog  # only here: few commands read it

    return StateEventLog(state, backend=url)


class WithoutPools:
    """Refuses whatever is asked of pools, in the words of `kinds`.

    Args:
        url: What chose the backend.
        events: Opens the record of what happened to this directory's handles there.

    Attributes:
        url: As given.
        remote: Its leases live on a server, unless a subclass says otherwise.
    """

    remote = True

    def __init__(self, url: str, events: Callable[[], EventLog]) -> None:
        self.url = url
        self._events = events

    @property
    def events(self) -> EventLog:
        return self._events()

    @property
    def pools(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def members(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def notes(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def values(self) -> NoReturn:
        raise no_pools(self.url)

    def atomic(self) -> AbstractContextManager[object]:
        return nullcontext()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return nullcontext()

    def withdraw(self, claim_key: str, why: str = "") -> None:
        """The process that waits gives up itself; see `Journal`."""
