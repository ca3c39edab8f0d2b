"""Which member of a cluster lags behind another, as far as answers to keep-alives show.

A member whose disk hangs applies nothing any more, so that its watches are silent. But it passes
keep-alives on to the leader and answers them, each with the revision that it is at itself. So
every other keep-alive goes to another member, as a witness: whoever says less than that one said
clearly before lags behind it.
"""

from __future__ import annotations

from typing import NamedTuple


class _Said(NamedTuple):
    revision: int
    asked_at: float
    heard_at: float


class LagDetector:
    """The members of one cluster by their numbers; for one thread.

    Args:
        size: How many there are.

    Times are in seconds on one clock. ``slack_seconds`` is what any member may take to learn of
    what another knows, without lagging.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[int, _Said] = {}
        self._rests: dict[int, float] = {}  # until when they aren't asked
        self._last = 0

    def choose(self, member: int, *, now: float, slack_seconds: float) -> int | None:
        """Who is to be asked instead of a member, this time.

        Returns:
            None for nobody: as long as the member hasn't answered, or what the last witness said
            hasn't been held against it, or all others rest.
        """
        said = self._said.get(member)
        heard = [each.heard_at for other, each in self._said.items() if other != member]
        if said is None or any(said.asked_at < at + slack_seconds for at in heard):
            return None
        others = ((self._last + step) % self._size for step in range(1, self._size + 1))
        for other in others:
            if other != member and self._rests.get(other, now) <= now:
                self._last = other
                return other
        return None

    def lags(self, member: int, revision: int, *, asked_at: float, slack_seconds: float) -> bool:
        """Tell whether a member that says this knows less than another did clearly before."""
        return any(
            revision < said.revision and said.heard_at + slack_seconds <= asked_at
            for other, said in self._said.items()
            if other != member
        )

    def note(self, member: int, revision: int, *, asked_at: float, now: float) -> None:
        """Remember what a member said, when it was asked, and when it answered."""
        self._said[member] = _Said(revision, asked_at, now)

    def rest(self, member: int, until: float) -> None:
        """Have a member be no witness until then."""
        self._rests[member] = until

    def begin_anew(self, until: float) -> None:
        """Forget what was said, and have no witness until then.

        For a cluster that was restored, and addresses behind which now one member answers and
        then another, look like lagging again and again.
        """
        self._said.clear()
        self._rests = dict.fromkeys(range(self._size), until)
