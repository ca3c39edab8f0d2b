"""Requests to one Boskos, and what is made of no answer."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.backends.boskos.address import BoskosAddress
from leasectl.backends.boskos.answers import check_allowed
from leasectl.backends.boskos.login import login_headers
from leasectl.backends.one_by_one import Steps
from leasectl.backends.unanswered import Loss, failure
from leasectl.http.exchange import Client
from leasectl.http.messages import Answer, Call
from leasectl.http.no_answer import NoAnswer, NotInTime
from leasectl.http.settings import Settings
from leasectl.http.trust import trust_of
from leasectl.system.clock import Clock
from leasectl.system.poll import sleep_through
from leasectl.typed.hints import Callable

_CONNECT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 8 << 20


class BoskosConnection:
    """Requests to one Boskos, each on a connection of its own.

    As many may be under way at once as there are, each with a thread of its own: threads that are
    done are kept for the next.

    Args:
        address: Of Boskos.
        settings: How to talk to it.
        clock: Where times come from.
    """

    def __init__(self, address: BoskosAddress, settings: Settings, *, clock: Clock) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._trust = trust_of(settings) if address.server.startswith("https:") else None
        self._idle: list[Client] = []

    @property
    def url(self) -> str:
        """What messages call it."""
        return self.address.server

    def asking(
        self,
        call: Call,
        *,
        seconds: float,
        tick: Callable[[float], float | None] = lambda now: None,
        late: Callable[[Answer | None], object] | None = None,
    ) -> Steps[Answer]:
        """Send a request, and wait for its answer; yields each sleep that it needs.

        Args:
            call: The request.
            seconds: How long that may take.
            tick: As `Client.ask` has it.
            late: Likewise.

        Raises:
            NotSent, Loss: No answer.
            AccessRefused: Not to us.
            LeaseError: Files that say as whom we come, or whom to trust, can't be used.
        """
        headers: Mapping[str, str] = {**call.headers, **login_headers(self._settings)}
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            answer = yield from client.asking(
                call._replace(headers=headers), seconds=seconds, tick=tick, late=late
            )
        except NotInTime as reason:
            if not reason.sent:
                raise failure(self.url, reason) from None
            raise Loss(f"no answer from {self.url} in time") from None
        except NoAnswer as reason:
            raise failure(self.url, reason) from reason
        finally:
            self._idle.append(client)
        return check_allowed(self.url, answer)

    def ask(self, call: Call, *, seconds: float) -> Answer:
        """What `asking` does, blocking."""
        steps = self.asking(call, seconds=max(0.0, seconds))
        return sleep_through(steps, interrupts=(), now=self._clock.elapsed)

    def _new_client(self) -> Client:
        return Client(
            clock=self._clock,
            trust=self._trust,
            keeps_connections=False,
            heeds_environment=self._settings.trust_env,
            connect_seconds=_CONNECT_SECONDS,
            longest_bytes=_LONGEST_ANSWER_BYTES,
        )
