"""What is to be taken back, as a reclaim was asked to: which leases, how patiently, how often."""

from __future__ import annotations

from leasectl.errors import InvalidRequest
from leasectl.text.durations import LONGEST_SECONDS, format_duration
from leasectl.text.naming import MOST_AT_ONCE
from leasectl.typed.tuples import NamedTuple

# Nobody who has answered `keep`, or not at all, is asked again sooner.
LEAST_PAUSE_SECONDS = 1.0


class Wanted(NamedTuple):
    """What is to be taken back; of the first three one.

    Args:
        excess: So many leases too many are held, whichever; None where it is said otherwise.
        names: What is held of these resources; None likewise.
        longer_than_seconds: What is held for longer than this; None likewise.
        delay_seconds: For so long a lease has to be in excess before its holder is asked.
        wait_seconds: For so long an answer is waited for.
        group_by: The property that says what counts as one holder when the one with most unused
            names comes first; None for a handle.
        follows: It goes on for as long as it runs; else it is done once.
    """

    excess: int | None = None
    names: frozenset[str] | None = None
    longer_than_seconds: float | None = None
    delay_seconds: float = 180.0
    wait_seconds: float = 180.0
    group_by: str | None = None
    follows: bool = False

    @property
    def mark_seconds(self) -> float:
        """For how long a mark is good: it outlives whoever has put it by no more than that."""
        return self.delay_seconds + self.wait_seconds

    @property
    def pause_seconds(self) -> float:
        """How long whoever has said no, or nothing, is left alone."""
        return max(self.delay_seconds, LEAST_PAUSE_SECONDS)


def check_wanted(wanted: Wanted) -> Wanted:
    """Return what can be meant.

    Raises:
        InvalidRequest: It can't.
    """
    said = (wanted.excess, wanted.names, wanted.longer_than_seconds)
    if sum(each is not None for each in said) != 1:
        raise InvalidRequest(
            "say what to take back: one of --excess N, --names A,B or --held-longer-than D"
        )
    if wanted.excess is not None and not 1 <= wanted.excess <= MOST_AT_ONCE:
        raise InvalidRequest(f"--excess {wanted.excess}: it can be 1 to {MOST_AT_ONCE} at a time")
    if wanted.wait_seconds <= 0:
        raise InvalidRequest(
            "with so little time nobody could answer: say with -w for how long to wait for answers"
        )
    if wanted.mark_seconds > LONGEST_SECONDS:
        raise InvalidRequest(
            f"--delay and -w: together they can be {format_duration(LONGEST_SECONDS)} at most"
        )
    return wanted
