"""Send calls, and repeat those that may be repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from leasectl.backends.kinds import Context
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.release_tries import AWAY_SECONDS
from leasectl.backends.serve.protocol import (
    CALL,
    CALLS,
    decode_result,
    encode,
    parse_error,
    too_old,
)
from leasectl.backends.unanswered import Loss, NotSent, Refused, words_of
from leasectl.http.messages import Answer
from leasectl.system import signals
from leasectl.system.backoff import Backoff, retry
from leasectl.system.poll import Interrupt

SCHEME = "leasectl+"
_SECONDS = 10.0
_LEAST_SECONDS = 0.05
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=1.0)
# A repeated call of these changes nothing more. Its answer is that of the first too, but for
# `engine.free`: what matters is that nothing stays leased, and it names what it freed itself. Calls
# that make or end something aren't among them: after a lost answer they would find what they did.
_REPEATED = (
    *("engine.", "members.", "values.get", "values.read", "notes.of_", "events."),
    "pools.pools",
)
_BETWEEN = (502, 503, 504)


class Calls:
    """The calls to one server.

    Args:
        context: The backend's; its URL is ``leasectl+http://…``.
        seconds: How long a call may take in all.
    """

    def __init__(self, context: Context, *, seconds: float | None = None) -> None:
        self.context = context
        self.url = context.url[len(SCHEME) :]
        self.clock = context.clock
        self.until: float | None = None
        self._given_seconds = seconds
        self._seconds = _SECONDS if seconds is None else seconds
        self._connection = Connection(
            self.url,
            context.settings,
            clock=self.clock,
            longest_bytes=1 << 30,
            keeps_connections=True,
        )

    def again(self) -> Calls:
        """Return a copy with connections of its own, for another thread or beside a wait."""
        return Calls(self.context, seconds=self._given_seconds)

    def close(self) -> None:
        """End all connections as soon as they are idle."""
        self._connection.close()

    def call(self, name: str, *args: object, **named: object) -> Any:
        """Make a call of `CALLS`.

        Raises:
            BackendUnreachable: No answer.
            LeaseError: The server's.
        """
        given = {**dict(zip(CALLS[name], args)), **named}
        body = {key: encode(value) for key, value in given.items()}
        # What a claimant was granted isn't found again.
        is_repeated = name.startswith(_REPEATED) and given.get("claimant") is None
        on = (NotSent, Loss, Refused) if is_repeated else (NotSent,)
        start, seconds = self.clock.elapsed(), self._seconds
        if self.until is not None:
            seconds = min(seconds, max(0.0, self.until - start))

        def once() -> Any:
            left = max(_LEAST_SECONDS, start + seconds - self.clock.elapsed())
            return self.result_in(
                self._connection.tell(CALL + name, body, headers={}, seconds=left)
            )

        return retry(
            once,
            on=on,
            backoff=_BACKOFF,
            is_over=lambda pause: (
                self.clock.elapsed() + pause >= start + min(seconds, AWAY_SECONDS)
            ),
            sleep=signals.pause,
        )

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        interrupts: Sequence[Interrupt] = (),
        until: float | None,
        tick: Callable[[float], float | None] = lambda now: None,
    ) -> Any:
        """Send a request that waits, once.

        Raises:
            NotSent, Loss, Refused: No answer of the server.
            TimeOver: Not in time.
            LeaseError: The server's.
        """
        answer = self._connection.post(
            path,
            {key: encode(value) for key, value in body.items()},
            headers=headers,
            interrupts=interrupts,
            until=until,
            tick=tick,
        )
        return self.result_in(answer)

    def malformed(self) -> Refused:
        """The error for an answer that can't be meant."""
        return Refused(f"{self.url} answered without a result; is it leasectl serve?")

    def result_in(self, answer: Answer) -> Any:
        """Return the result that an answer has."""
        try:
            data = json.loads(answer.text)
        except (ValueError, RecursionError):
            data = None
        if answer.status == 200 and isinstance(data, dict) and "result" in data:
            try:
                return decode_result(data["result"])
            except (ValueError, TypeError, KeyError) as error:
                raise self.malformed() from error
        said = parse_error(data)
        if said is not None:
            raise Refused(str(said)) if answer.status in _BETWEEN else said
        if answer.status in (404, 405):
            raise too_old(self.url)
        raise Refused(words_of(self.url, answer))
