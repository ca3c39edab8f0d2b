"""The same thing done again and again, each time with another answer of etcd lost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.kit.relay import Relay


class Losing:
    """One of these times.

    Args:
        between: What the requests go through.
        number: Of the answer that is lost, of those to requests since `begin`, from 1.
    """

    def __init__(self, between: Relay, number: int) -> None:
        self.number = number
        self._between = between
        self._first = 0

    def begin(self) -> None:
        """Count requests, and lose an answer, from here on."""
        self._first = len(self._between.paths)
        lose = self._first + self.number
        self._between.listen(after=lambda at, _path: at == lose)

    def asked(self) -> int:
        """How many requests there have been since."""
        return len(self._between.paths) - self._first


def each_answer_lost(between: Relay, *, more_than: int, stride: int = 1) -> Iterator[Losing]:
    """Once for each answer that could be lost, and once more when there are no more of them.

    Args:
        between: What the requests go through.
        more_than: So many have to be lost at least, and one more.
        stride: Only every so many-th.
    """
    number = asked = 0
    while number <= asked:
        number += stride
        losing = Losing(between, number)
        yield losing
        asked = losing.asked()
    assert asked > more_than
