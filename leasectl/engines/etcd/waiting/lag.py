"""Detect a member that lags, from its answers to keep-alives.

A member whose disk hangs applies nothing any more, so that its watches are silent. But it passes
keep-alives on to the leader and answers them, each with the revision that it is at itself. So
every other keep-alive goes to another member, to compare: whoever is at less than that one clearly
was before lags behind it.
"""

from __future__ import annotations

from typing import NamedTuple


class _Answered(NamedTuple):
    """The revision that a member was at, between the two times."""

    revision: int
    asked_at: float
    answered_at: float


class LagDetector:
    """The members of one cluster by their numbers; for one thread.

    Args:
        size: How many there are.

    Times are in seconds on one clock. ``slack_seconds`` is what any member may take to learn of
    what another knows, without lagging.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._answered: dict[int, _Answered] = {}
        self._rests: dict[int, float] = {}  # until when they aren't compared with
        self._last = 0

    def choose_other(self, member: int, *, now: float, slack_seconds: float) -> int | None:
        """Who is to be asked instead of a member, this time.

        Returns:
            None for nobody: as long as the member hasn't answered, or hasn't been compared with
            the last other that did, or all others rest.
        """
        own = self._answered.get(member)
        others = [each.answered_at for other, each in self._answered.items() if other != member]
        if own is None or any(own.asked_at < at + slack_seconds for at in others):
            return None
        in_turn = ((self._last + step) % self._size for step in range(1, self._size + 1))
        for other in in_turn:
            if other != member and self._rests.get(other, now) <= now:
                self._last = other
                return other
        return None

    def lags(self, member: int, revision: int, *, asked_at: float, slack_seconds: float) -> bool:
        """Tell whether a member at this revision knows less than another did clearly before."""
        return any(
            revision < answered.revision and answered.answered_at + slack_seconds <= asked_at
            for other, answered in self._answered.items()
            if other != member
        )

    def note(self, member: int, revision: int, *, asked_at: float, now: float) -> None:
        """Remember what a member was at, when it was asked, and when it answered."""
        self._answered[member] = _Answered(revision, asked_at, now)

    def rest(self, member: int, until: float) -> None:
        """Have nobody be compared with a member until then."""
        self._rests[member] = until

    def begin_anew(self, until: float) -> None:
        """Forget all answers, and have nobody be compared until then.

        For a cluster that was restored, and addresses behind which now one member answers and
        then another, look like lagging again and again.
        """
        self._answered.clear()
        self._rests = dict.fromkeys(range(self._size), until)
