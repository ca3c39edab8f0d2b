"""Send the next of several requests while the last answer is used."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NoReturn, TypeVar

from leasectl.http.worker import Worker

_Made = TypeVar("_Made")


def asked_ahead(requests: Sequence[Callable[[], _Made]]) -> Iterator[_Made]:
    """What comes of each, in order; a thread makes the next as soon as one has come.

    Whoever closes this before its end doesn't wait for the one that is under way.

    Args:
        requests: Each makes one, and raises what `Gateway` raises; then there are no more.
    """
    if not requests:
        return
    made = requests[0]()
    if len(requests) == 1:
        yield made
        return
    worker = Worker()
    try:
        for following in requests[1:]:
            outcome = _Outcome(following)
            worker.assign(outcome.make)
            yield made
            made = outcome.result()
        yield made
    finally:
        worker.dismiss()


class _Outcome(Generic[_Made]):
    """What comes of a request that another thread makes."""

    def __init__(self, request: Callable[[], _Made]) -> None:
        self._request = request
        self._made: queue.SimpleQueue[Callable[[], _Made]] = queue.SimpleQueue()

    def make(self) -> None:
        """For the other thread."""
        try:
            made = self._request()
        except BaseException as error:
            self._made.put(partial(_fail, error))
        else:
            self._made.put(lambda: made)

    def result(self) -> _Made:
        """Wait for it, and return it or raise what it raised."""
        return self._made.get()()


def _fail(error: BaseException) -> NoReturn:
    raise error
