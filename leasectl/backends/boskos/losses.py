"""What lost answers of Boskos may have carried: grants that nobody can name.

How many resources an owner has, the metric of their type tells, and owners are unique; which ones
they are, nothing does. So a grant whose answer was lost is never used, and nobody renews it: the
reaper takes it. Nor is it asked for again: whoever has lost one asks for another.
"""

from __future__ import annotations

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.address import BoskosAddress
from leasectl.backends.boskos.answers import Metric
from leasectl.backends.boskos.answers import metric as metric_in
from leasectl.backends.boskos.connection import BoskosConnection
from leasectl.backends.one_by_one import Steps
from leasectl.backends.unanswered import Refused
from leasectl.errors import NotFound
from leasectl.system.clock import Clock, rfc3339
from leasectl.text.wording import counted
from leasectl.typed.tuples import NamedTuple

# The reaper looks once a minute.
_REAPER_PAUSE_SECONDS = 60.0


class LostGrants:
    """What an owner has, and what of that nobody can name.

    Args:
        connection: To Boskos.
        pool_type: Of what was asked for.
        owner: Who asked.
        clock: Where times come from.
    """

    def __init__(
        self, connection: BoskosConnection, pool_type: str, owner: str, *, clock: Clock
    ) -> None:
        self._connection = connection
        self._type = pool_type
        self._owner = owner
        self._clock = clock
        self._found: list[float] = []  # of each that was found, from when on the reaper may take it

    @property
    def number(self) -> int:
        """How many have been found."""
        return len(self._found)

    def count(self, named: int, *, asked_at: float, seconds: float) -> Steps[int]:
        """Look how many more the owner has than can be named, and weren't known before.

        One that the reaper is about to take may be counted once more when another is lost: then
        too much is said of what is lost, and never too little.

        Args:
            named: How many can be named.
            asked_at: When what may be lost was asked for, CLOCK_BOOTTIME in seconds.
            seconds: How long that may take.

        Raises:
            BackendUnreachable: It can't be found out now.
        """
        metric = yield from look(self._connection, self._type, seconds=seconds)
        now = self._clock.elapsed()
        known = sum(reaped_from > now for reaped_from in self._found)
        more = max(0, metric.owners.get(self._owner, 0) - named - known)
        reaped_from = asked_at + self._connection.address.reaper_seconds
        self._found += [reaped_from] * more
        return more


def look(connection: BoskosConnection, pool_type: str, *, seconds: float) -> Steps[Metric]:
    """Ask for the metric of a type that there is.

    Raises:
        BackendUnreachable: It isn't told now: Boskos has no word for that it can't look, but that
            for a type that there isn't.
    """
    call = requests.metric(connection.address, pool_type)
    answer = yield from connection.asking(call, seconds=seconds)
    try:
        return metric_in(connection.url, pool_type, answer)
    except NotFound as error:
        raise Refused(str(error)) from None


class LostNote(NamedTuple):
    """What people are told of grants that nobody can name.

    Args:
        address: Of Boskos.
        pool_type: Their type.
        owner: Whose they are.
        wall: The time, in seconds since the epoch.
    """

    address: BoskosAddress
    pool_type: str
    owner: str
    wall: float

    def certain(self, number: int) -> str:
        """That there are so many."""
        verb = "is" if number == 1 else "are"
        return self._text(f"{counted(number, 'resource')} of {self.pool_type} {verb} leased")

    def possible(self) -> str:
        """That there may be one."""
        return self._text(f"a resource of {self.pool_type} may be leased")

    def _text(self, what: str) -> str:
        until = self.wall + self.address.reaper_seconds + _REAPER_PAUSE_SECONDS
        return (
            f"{what} to {self.owner} at {self.address.server}, as an answer was lost, and nobody "
            f"can tell which; the reaper takes it by {rfc3339(until)}"
        )
