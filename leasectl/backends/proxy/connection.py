"""Send requests, and wait for answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from leasectl.backends.unanswered import Late, TimeOver, failure, words_of
from leasectl.errors import AccessRefused, LeaseError, NotAllowed
from leasectl.http.exchange import Client, trust_for
from leasectl.http.messages import Answer, Call, encode_query
from leasectl.http.no_answer import NoAnswer, NotInTime
from leasectl.http.settings import Settings, read_token
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt
from leasectl.text.wording import printable

_CONNECT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 1 << 20


class Connection:
    """Requests to one server.

    Args:
        url: The server's base address.
        settings: How to talk to it.
        clock: Where times come from.
        longest_bytes: How long an answer may be.
        keeps_connections: Use a connection for the next request, too; else each has its own.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        clock: Clock,
        longest_bytes: int = _LONGEST_ANSWER_BYTES,
        keeps_connections: bool = False,
    ) -> None:
        self._url = url.rstrip("/")
        self._settings = settings
        self._clock = clock
        self._client = Client(
            clock=clock,
            trust=trust_for(url, settings),
            keeps_connections=keeps_connections,
            heeds_environment=settings.trust_env,
            connect_seconds=_CONNECT_SECONDS,
            longest_bytes=longest_bytes,
        )

    def close(self) -> None:
        """End all connections, and the threads that wait for no answer now."""
        self._client.close()

    def ask(
        self,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        interrupts: Sequence[Interrupt],
        until: float | None,
        tick: Callable[[float], float | None],
        late: Callable[[Answer | None], None],
    ) -> Answer:
        """POST, and wait for the answer as long as it takes.

        Args:
            path: Below the base address.
            params: The query.
            headers: Beside the usual ones.
            interrupts: What ends the wait with an error.
            until: When the wait ends, CLOCK_BOOTTIME in seconds; None for no limit.
            tick: As `Client.ask` has it.
            late: As `Client.ask` has it.

        Raises:
            NotSent, Loss: No answer.
            TimeOver: Not in time.
            AccessRefused: Not to us.
        """
        call = Call(f"{self._url}{path}?{encode_query(params)}", headers=self._headers(headers))
        seconds = self._seconds_until(until)
        return self._send(
            call, path, seconds, TimeOver, interrupts=interrupts, tick=tick, late=late
        )

    def post(
        self,
        path: str,
        body: object,
        *,
        headers: Mapping[str, str],
        interrupts: Sequence[Interrupt] = (),
        until: float | None,
        tick: Callable[[float], float | None] = lambda now: None,
    ) -> Answer:
        """POST JSON, and wait for the answer as long as it takes; see `ask`."""
        call, seconds = self._with_json(path, body, headers), self._seconds_until(until)
        return self._send(call, path, seconds, TimeOver, interrupts=interrupts, tick=tick)

    def look(self, path: str, *, seconds: float) -> Answer:
        """GET, and wait for the answer for so many seconds at most.

        Raises:
            NotSent, Loss: No answer.
            AccessRefused: Not to us.
        """
        call = Call(self._url + path, headers=self._headers({}), method="GET")
        return self._send(call, path, seconds, Late)

    def tell(
        self, path: str, body: object, *, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        """POST JSON and wait for the answer for so many seconds at most.

        Raises:
            NotSent, Loss: No answer.
            AccessRefused: Not to us.
        """
        return self._send(self._with_json(path, body, headers), path, seconds, Late)

    def _with_json(self, path: str, body: object, headers: Mapping[str, str]) -> Call:
        text = json.dumps(body, separators=(",", ":")).encode()
        all_headers = self._headers({**headers, "Content-Type": "application/json"})
        return Call(self._url + path, text, headers=all_headers)

    def _seconds_until(self, until: float | None) -> float | None:
        return None if until is None else until - self._clock.elapsed()

    def _send(
        self,
        call: Call,
        path: str,
        seconds: float | None,
        too_late: type[LeaseError],
        *,
        interrupts: Sequence[Interrupt] = (),
        tick: Callable[[float], float | None] = lambda now: None,
        late: Callable[[Answer | None], None] | None = None,
    ) -> Answer:
        """Send a request and wait for the answer; raise ``too_late`` if it doesn't come in time."""
        try:
            answer = self._client.ask(
                call, seconds=seconds, interrupts=interrupts, tick=tick, late=late
            )
        except NotInTime:
            raise too_late(f"no answer from {self._url} in time") from None
        except NoAnswer as reason:
            raise failure(self._url + path, reason) from reason
        return self._allowed(answer)

    def _allowed(self, answer: Answer) -> Answer:
        """The answer, unless it is that we may not ask."""
        if answer.status not in (401, 403):
            return answer
        if self._settings.token_file:
            file = printable(self._settings.token_file, longest=500)
            advice = f"is the token in {file} (LEASECTL_TOKEN_FILE) still valid?"
        else:
            advice = "name a file with the server's token in LEASECTL_TOKEN_FILE"
        raise AccessRefused(NotAllowed(f"{words_of(self._url, answer)}; {advice}"))

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        if not self._settings.token_file:
            return dict(headers)
        token = read_token(self._settings.token_file)
        return {**headers, "Authorization": f"Bearer {token}"}
