"""The watches of one stream, from creation to end.

A stream begins with some. As long as its request goes on, others come and go on it: for one who
waits alone a new stream would cost more than all that it tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from leasectl.engines.etcd.waiting.events import WatchLine, encode_end, encode_watches
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.http.no_answer import NoAnswer

# What is left of others, of keys that have gone for good, goes with the stream.
_MOST_WATCHES = 250


class StreamWatches:
    """Those of one stream; for one thread at a time.

    Args:
        revisions: What is watched from the start, with the revision after which each tells.
        from_now: Each tells only what comes after it has begun.
        has_progress: As `encode_watches` has it.

    Attributes:
        body: What asks for these.
    """

    def __init__(
        self, revisions: Mapping[Watched, int], *, from_now: bool, has_progress: bool
    ) -> None:
        self._from_now = from_now
        # In the order in which they were asked for, which is that in which they begin; None for
        # what nobody wants any more.
        self._to_begin: deque[tuple[Watched | None, int]] = deque(revisions.items())
        self._begun: dict[int, Watched] = {}  # by the numbers that etcd gave them
        self._ended: set[int] = set()  # of which etcd hasn't yet said that they have
        self._number = len(revisions)
        self._late: dict[Watched, tuple[int, int]] = {}
        self._unreached = 0
        self.body = encode_watches(revisions, from_now=from_now, has_progress=has_progress)

    @property
    def have_begun(self) -> bool:
        """Whether all have that were asked for."""
        return not self._to_begin

    def change(self, revisions: Mapping[Watched, int]) -> str | None:
        """Have others be watched; returns what has to be sent, or None where a new stream is due.

        Args:
            revisions: What is watched from then on, as it was given at first.
        """
        before = {source: number for number, source in self._begun.items()}
        asked = {source for source, _ in self._to_begin}
        new = {w: revision for w, revision in revisions.items() if w not in before.keys() | asked}
        self._number += len(new)
        if self._number > _MOST_WATCHES:
            return None
        for each in before.keys() - revisions.keys():
            del self._begun[before[each]]
        # A key that has gone for good tells no more.
        over = [
            number
            for source, number in before.items()
            if source not in revisions and (source.is_prefix or source.puts)
        ]
        self._ended.update(over)
        for index, (source, revision) in enumerate(self._to_begin):
            if source not in revisions:
                self._to_begin[index] = (None, revision)
        self._to_begin.extend(new.items())
        self._late = {source: late for source, late in self._late.items() if source in revisions}
        return "".join(map(encode_end, over)) + encode_watches(new, from_now=self._from_now)

    def hear(self, told: WatchLine) -> Watched | None:
        """Take note of what a line says of a watch; returns which it is, None for none of ours.

        Raises:
            NoAnswer: One has ended.
        """
        if told.is_over:
            if told.watch not in self._ended:
                raise NoAnswer("the watch was cancelled")
            self._ended.remove(told.watch)
        elif told.is_begun and self._to_begin:
            source, revision = self._to_begin.popleft()
            if source is not None:
                self._begun[told.watch] = source
                if told.revision < revision:
                    self._unreached = max(self._unreached, revision)
                if self._from_now and told.revision > revision:
                    self._late[source] = (revision, told.revision)
        return self._begun.get(told.watch)

    def take_unreached(self) -> int:
        """Return, once, a revision that was seen before and that the member hadn't reached when a
        watch began; 0 for none.
        """
        unreached, self._unreached = self._unreached, 0
        return unreached

    def take_late(self) -> Mapping[Watched, tuple[int, int]]:
        """Those that have begun later than they had to, for the first who asks once all have.

        With the revision after which each would have had to tell, and that after which it does.
        """
        if self._to_begin or not self._late:
            return {}
        late, self._late = self._late, {}
        return late
