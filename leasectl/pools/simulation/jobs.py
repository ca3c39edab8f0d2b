"""What comes to a simulated pool: jobs, each with what it asks for and for how long it holds."""

from __future__ import annotations

from leasectl.typed.tuples import NamedTuple

# More take longer than anybody waits.
MOST_JOBS = 100_000


class Job(NamedTuple):
    """One request, and what becomes of its leases.

    Args:
        at: When it arrives, in seconds since the first arrival, or since any fixed instant.
        holds: How long it holds, in seconds: one for all that it gets, or one for each.
        count: For how many resources it asks.
        priority: As it asks for.
        name: The one resource that will do; None for any.
        wait_seconds: It gives up after so long; None for never.
    """

    at: float
    holds: tuple[float, ...]
    count: int = 1  # type: ignore[assignment]  # as in Request
    priority: int = 0
    name: str | None = None
    wait_seconds: float | None = None

    @property
    def longest_hold(self) -> float:
        return max(self.holds)


class Arrival(NamedTuple):
    """When a job arrives and what a list of arrivals says of it; None where that is silent.

    Args:
        at: In seconds since the first line's time, or since the beginning.
        hold_seconds: How long it holds; from one time to another where chance is to choose.
        count: For how many resources it asks.
        priority: As it asks for.
        name: The one resource that will do.
    """

    at: float
    hold_seconds: float | tuple[float, float] | None = None
    count: int | None = None  # type: ignore[assignment]  # as in Request
    priority: int = 0
    name: str | None = None
